"""Times of engine steps from the tabulated physics: `StepTable`, read by interpolation.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.kernel_rows import (
    CHUNK_GRID,
    CHUNK_LEN,
    CONTEXTS,
    CONTEXTS_LEN,
    DECODE,
    DENSE,
    DENSE_LEN,
    GRID,
    GRID_DECODE,
    GRID_LEN,
    GRID_MIXED,
    MIXED,
    MOST,
    PREFILL,
)


def segment(price: Any, first: int, length: int, x: float) -> int:
    """Index i of the grid price[first : first + length] with grid[i] <= x, so that i + 1 is in it too."""
    low, high = first, first + length - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if price[middle] <= x:
            low = middle
        else:
            high = middle
    return low


def along(price: Any, at: int, x: float, values: int) -> float:
    """The value at x on the grid's part from `at`, held below the first point, its slope beyond the last."""
    weight = (x - price[at]) / (price[at + 1] - price[at])
    if weight < 0.0:
        weight = 0.0
    low: float = price[values]
    return low + (price[values + 1] - low) * weight


def rows_time(pool: Any, price: Any, y: int, tokens: int, mixed: int) -> float:
    """Seconds of all but attention in a step of so many tokens."""
    if tokens < pool[DENSE_LEN][y]:
        dense: float = price[pool[MIXED][y] + tokens] if mixed else price[pool[DENSE][y] + tokens]
        return dense
    grid = pool[GRID][y]
    at = segment(price, grid, pool[GRID_LEN][y], float(tokens))
    return along(price, at, float(tokens), (pool[GRID_MIXED][y] if mixed else pool[GRID_DECODE][y]) + at - grid)


def prefill_time(pool: Any, price: Any, y: int, new: int, cached: int) -> float:
    """Seconds of the attention of `new` tokens after `cached` ones."""
    grid, contexts = pool[CHUNK_GRID][y], pool[CONTEXTS][y]
    width = pool[CONTEXTS_LEN][y]
    row = segment(price, grid, pool[CHUNK_LEN][y], float(new))
    column = segment(price, contexts, width, float(cached))
    at = pool[PREFILL][y] + (row - grid) * width + column - contexts
    low = along(price, column, float(cached), at)
    high = along(price, column, float(cached), at + width)
    weight = (new - price[row]) / (price[row + 1] - price[row])
    # Below the first point attention shrinks with the tokens, down to nothing.
    return low * (new / price[row]) if weight < 0.0 else low + (high - low) * weight


def decode_row(pool: Any, y: int, decoders: int) -> int:
    """Where the row of decode times for so many requests starts."""
    least = decoders if decoders < pool[MOST][y] else pool[MOST][y]
    start: int = pool[DECODE][y] + least * pool[CONTEXTS_LEN][y]
    return start
