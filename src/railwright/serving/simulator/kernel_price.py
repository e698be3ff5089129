"""Times of engine steps from the tabulated physics: `StepTable`, read by interpolation.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_rows import (
    BESIDE,
    CHUNK_GRID,
    CHUNK_LEN,
    CHUNK_TOKENS,
    CHUNKS,
    CONTEXTS,
    CONTEXTS_LEN,
    COSTLIEST,
    DECODE,
    DECODE_MIXED,
    DENSE,
    DENSE_LEN,
    EMPTY,
    GRID,
    GRID_DECODE,
    GRID_GROUP,
    GRID_LEN,
    GRID_MIXED,
    GROUPS,
    HOP,
    LARGEST,
    MIXED,
    MOST,
    MOST_STAGES,
    OVERLAPS,
    PADDED,
    PREFILL,
    STAGES,
)


def segment(s: Any, first: int, length: int, x: float) -> int:
    """Index i of the grid price[first : first + length] with grid[i] <= x, so that i + 1 is in it too."""
    low, high = first, first + length - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if s.price[middle] <= x:
            low = middle
        else:
            high = middle
    return low


def along(s: Any, at: int, x: float, values: int) -> float:
    """The value at x on the grid's part from `at`, held below the first point, its slope beyond the last."""
    weight = (x - s.price[at]) / (s.price[at + 1] - s.price[at])
    if weight < 0.0:
        weight = 0.0
    low: float = s.price[values]
    value: float = low + (s.price[values + 1] - low) * weight
    return value


def rows_time(s: Any, y: int, tokens: int, mixed: int) -> float:
    """Seconds of all but attention in a step of so many tokens."""
    if tokens < s.pool[DENSE_LEN][y]:
        dense: float = s.price[s.pool[MIXED][y] + tokens] if mixed else s.price[s.pool[DENSE][y] + tokens]
        return dense
    grid = s.pool[GRID][y]
    at = segment(s, grid, s.pool[GRID_LEN][y], float(tokens))
    return along(
        s, at, float(tokens), (s.pool[GRID_MIXED][y] if mixed else s.pool[GRID_DECODE][y]) + at - grid
    )


def prompts_time(s: Any, lane: int, y: int, decoding: int, decoders: int, attention: float) -> float:
    """Seconds of a step with prompts, its decode attention apart: those of the fullest attention-data group.

    decoding   tokens of its decodes;  attention  of all its prompts [s]
    Prompts are dealt to groups one by one.
    """
    groups, chunks = s.pool[GROUPS][y], s.lane[CHUNKS][lane]
    new, largest = s.lane[CHUNK_TOKENS][lane], s.lane[LARGEST][lane]
    tokens = decoding + new
    beside = s.rate[BESIDE][y] * decoders / groups * max(largest - EMPTY, 0)
    if groups == 1:
        alone: float = rows_time(s, y, tokens, 1) + attention + beside
        return alone
    share = ((chunks + groups - 1) // groups) / chunks
    fullest = decoding / groups + max(largest, new * share)
    seconds: float = max(s.run[COSTLIEST][lane], attention * share) + beside
    if fullest <= s.pool[PADDED][y]:
        return seconds + rows_time(s, y, int(fullest * groups), 1)
    return (
        seconds + rows_time(s, y, tokens, 1) + group_time(s, y, fullest) - group_time(s, y, tokens / groups)
    )


def group_time(s: Any, y: int, own: float) -> float:
    """The part of them that a group's own tokens decide."""
    grid = s.pool[GRID][y]
    at = segment(s, grid, s.pool[GRID_LEN][y], own)
    return along(s, at, own, s.pool[GRID_GROUP][y] + at - grid)


def prefill_time(s: Any, y: int, new: int, cached: int) -> float:
    """Seconds of the attention of `new` tokens after `cached` ones."""
    grid, contexts = s.pool[CHUNK_GRID][y], s.pool[CONTEXTS][y]
    width = s.pool[CONTEXTS_LEN][y]
    row = segment(s, grid, s.pool[CHUNK_LEN][y], float(new))
    column = segment(s, contexts, width, float(cached))
    at = s.pool[PREFILL][y] + (row - grid) * width + column - contexts
    low = along(s, column, float(cached), at)
    high = along(s, column, float(cached), at + width)
    weight = (new - s.price[row]) / (s.price[row + 1] - s.price[row])
    # Below the first point attention shrinks with the tokens, down to nothing.
    seconds: float = low * (new / s.price[row]) if weight < 0.0 else low + (high - low) * weight
    return seconds


def decode_row(s: Any, y: int, decoders: int, mixed: int) -> int:
    """Where the row of decode times for so many requests starts, in a step without prompts or with them."""
    least = decoders if decoders < s.pool[MOST][y] else s.pool[MOST][y]
    first = s.pool[DECODE_MIXED][y] if mixed else s.pool[DECODE][y]
    start: int = first + least * s.pool[CONTEXTS_LEN][y]
    return start


def run_time(takes: float, slope: float, steps: int) -> float:
    """Seconds of so many steps, each longer than the one before by `slope`."""
    seconds: float = takes * steps + slope * (0.5 * steps * (steps - 1))
    return seconds


def pass_stages(s: Any, v: int, y: int, now: float, gpu: float, host: float) -> float:
    """When a batch leaves the last pipeline stage: it enters each when that and the batch are free."""
    base = v * s.count[MOST_STAGES]
    each = max(gpu, host) if s.pool[OVERLAPS][y] else gpu
    ready = now
    for k in range(s.pool[STAGES][y]):
        start = max(s.stage[base + k], ready)
        s.stage[base + k] = start + each
        ready = start + each + s.rate[HOP][y]
    ends: float = ready - s.rate[HOP][y] + (0.0 if s.pool[OVERLAPS][y] else host)
    return ends
