"""PyTorch's caching allocator, compiled: plays what is asked of it (`allocator.play`).

Legend: T tensors, N requests, M marks.
row    a block: SIZE, SEGMENT, OFFSET, the blocks BEFORE and BEHIND it in its segment, whether it is FREE
of     a pool: 2 s of stream s's large blocks, 2 s + 1 of its small ones
pool   free blocks of each, sorted by size, segment and offset; and behind them rows that can be used again
total  COUNT of each of these; LAST block of the segment that grows, of each pool; of ALL: bytes RESERVED in
       segments; RETRIES, SEGMENTS and ROWS so far; free blocks that are segments (UNUSED)
Importing this file compiles or loads it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from railwright.network.compiled.kernel_cache import compiled

MIB = 1 << 20
BLOCK = 512
"""All sizes are rounded up to it (kMinBlockSize)."""
SMALL = MIB
"""Largest size of the pool of small blocks (kSmallSize); of other blocks no rest up to it is split off."""
SMALL_SEGMENT, MEDIUM_SEGMENT = 2 * MIB, 20 * MIB
"""What is asked of CUDA for a small block (kSmallBuffer) and for one below 10 MiB (kLargeBuffer)."""
LARGE, ROUND = 10 * MIB, 2 * MIB
"""From this size on (kMinLargeAlloc) a segment is as large as its block, rounded up to 2 MiB
(kRoundLarge)."""

NONE = -1
SIZE, SEGMENT, OFFSET, BEFORE, BEHIND, FREE = range(6)
SPARE = -1
COUNT, LAST, ALL = range(3)
RESERVED, RETRIES, SEGMENTS, ROWS, UNUSED = range(5)


@numba.njit(nogil=True)
def _place(row: Any, pool: Any, total: Any, of: int, size: int, segment: int, offset: int) -> int:
    """How many free blocks come before (size, segment, offset)."""
    low, high = 0, total[COUNT, of]
    while low < high:
        middle = (low + high) // 2
        b = pool[of, middle]
        if row[b, SIZE] != size:
            less = row[b, SIZE] < size
        elif row[b, SEGMENT] != segment:
            less = row[b, SEGMENT] < segment
        else:
            less = row[b, OFFSET] < offset
        if less:
            low = middle + 1
        else:
            high = middle
    return low


@numba.njit(nogil=True)
def _whole(row: Any, b: int) -> Any:
    """Whether a block is a segment of its own."""
    return row[b, BEFORE] == NONE and row[b, BEHIND] == NONE


@numba.njit(nogil=True)
def _insert(row: Any, pool: Any, total: Any, of: int, b: int) -> None:
    at = _place(row, pool, total, of, row[b, SIZE], row[b, SEGMENT], row[b, OFFSET])
    for i in range(total[COUNT, of], at, -1):
        pool[of, i] = pool[of, i - 1]
    pool[of, at] = b
    total[COUNT, of] += 1
    if _whole(row, b):
        total[ALL, UNUSED] += 1


@numba.njit(nogil=True)
def _pop(row: Any, pool: Any, total: Any, of: int, at: int) -> Any:
    b = pool[of, at]
    total[COUNT, of] -= 1
    for i in range(at, total[COUNT, of]):
        pool[of, i] = pool[of, i + 1]
    if _whole(row, b):
        total[ALL, UNUSED] -= 1
    return b


@numba.njit(nogil=True)
def _remove(row: Any, pool: Any, total: Any, of: int, b: int) -> None:
    at = _place(row, pool, total, of, row[b, SIZE], row[b, SEGMENT], row[b, OFFSET])
    _pop(row, pool, total, of, at)


@numba.njit(nogil=True)
def _made(row: Any, pool: Any, total: Any, segment: int, offset: int, size: int) -> Any:
    """A block, in a row that is not in use."""
    if total[COUNT, SPARE]:
        total[COUNT, SPARE] -= 1
        b = pool[SPARE, total[COUNT, SPARE]]
    else:
        b = total[ALL, ROWS]
        total[ALL, ROWS] += 1
    row[b, SEGMENT], row[b, OFFSET], row[b, SIZE] = segment, offset, size
    row[b, BEFORE], row[b, BEHIND], row[b, FREE] = NONE, NONE, 1
    return b


@numba.njit(nogil=True)
def _gone(pool: Any, total: Any, b: int) -> None:
    pool[SPARE, total[COUNT, SPARE]] = b
    total[COUNT, SPARE] += 1


@numba.njit(nogil=True)
def _release(row: Any, pool: Any, total: Any) -> None:
    """Segments that no tensor is in go back to CUDA."""
    total[ALL, RETRIES] += 1
    # far over capacity memory ends at almost every tensor, and next to no segment is unused
    for of in range(pool.shape[0] - 1 if total[ALL, UNUSED] else 0):
        left = 0
        for i in range(total[COUNT, of]):
            b = pool[of, i]
            if _whole(row, b):
                total[ALL, RESERVED] -= row[b, SIZE]
                _gone(pool, total, b)
            else:
                pool[of, left] = b
                left += 1
        total[COUNT, of] = left
    total[ALL, UNUSED] = 0


@numba.njit(nogil=True)
def _grown(row: Any, pool: Any, total: Any, need: int, of: int) -> Any:
    """The end of the segment, which keeps growing by its pages; a free block there is used."""
    page = SMALL_SEGMENT if of % 2 else MEDIUM_SEGMENT
    last = total[LAST, of]
    opened = last != NONE and row[last, FREE]
    size = -(-(need - (row[last, SIZE] if opened else 0)) // page) * page
    total[ALL, RESERVED] += size
    if opened:
        _remove(row, pool, total, of, last)
        row[last, SIZE] += size
        return last
    b = _made(row, pool, total, 0, row[last, OFFSET] + row[last, SIZE] if last != NONE else 0, size)
    if last != NONE:
        row[last, BEHIND], row[b, BEFORE] = b, last
    total[LAST, of] = b
    return b


@numba.njit(nogil=True)
def _asked(row: Any, pool: Any, total: Any, need: int, of: int, capacity: float, expandable: bool) -> Any:
    """A segment more of CUDA, or more of the one that grows."""
    if expandable:
        return _grown(row, pool, total, need, of)
    size = SMALL_SEGMENT if of % 2 else MEDIUM_SEGMENT if need < LARGE else -(-need // ROUND) * ROUND
    if total[ALL, RESERVED] + size > capacity:
        _release(row, pool, total)
    total[ALL, RESERVED] += size
    total[ALL, SEGMENTS] += 1
    return _made(row, pool, total, total[ALL, SEGMENTS], 0, size)


@numba.njit(nogil=True)
def _taken(row: Any, pool: Any, total: Any, need: int, of: int, capacity: float, expandable: bool) -> Any:
    """A block for a tensor: the smallest free one that holds it, cut to its size."""
    at = _place(row, pool, total, of, need, NONE, NONE)
    if at < total[COUNT, of]:
        b = _pop(row, pool, total, of, at)
    else:
        b = _asked(row, pool, total, need, of, capacity, expandable)
    over = row[b, SIZE] - need
    if over > SMALL or (over >= BLOCK and (of % 2 or expandable)):
        rest = _made(row, pool, total, row[b, SEGMENT], row[b, OFFSET] + need, over)
        behind = row[b, BEHIND]
        row[rest, BEFORE], row[rest, BEHIND] = b, behind
        if behind != NONE:
            row[behind, BEFORE] = rest
        row[b, BEHIND], row[b, SIZE] = rest, need
        if total[LAST, of] == b:
            total[LAST, of] = rest
        _insert(row, pool, total, of, rest)
    row[b, FREE] = 0
    return b


@numba.njit(nogil=True)
def _join(row: Any, pool: Any, total: Any, of: int, first: int, second: int) -> None:
    row[first, SIZE] += row[second, SIZE]
    behind = row[second, BEHIND]
    row[first, BEHIND] = behind
    if behind != NONE:
        row[behind, BEFORE] = first
    if total[LAST, of] == second:
        total[LAST, of] = first
    _gone(pool, total, second)


@numba.njit(nogil=True)
def _given(row: Any, pool: Any, total: Any, of: int, b: int) -> None:
    """Free a block; it joins free neighbours of its segment."""
    before, behind = row[b, BEFORE], row[b, BEHIND]
    if before != NONE and row[before, FREE]:
        _remove(row, pool, total, of, before)
        _join(row, pool, total, of, before, b)
        b = before
    if behind != NONE and row[behind, FREE]:
        _remove(row, pool, total, of, behind)
        _join(row, pool, total, of, b, behind)
    row[b, FREE] = 1
    _insert(row, pool, total, of, b)


def _play(
    needs: Any,
    streams: Any,
    requests: Any,
    marks: Any,
    capacity: float,
    expandable: bool,
    blocks: Any,
    moments: Any,
) -> Any:
    """Play requests; returns most bytes in tensors and in segments.

    needs     T: bytes of every tensor, rounded to blocks
    streams   T: number of the one that it is made on
    requests  N: t, tensor t comes; -1 - t, it goes
    marks     M: numbers of requests before a moment that is asked for, ascending
    blocks    T, written: bytes of every tensor's block
    moments   M x 3, written: bytes in tensors and in segments, and retries
    """
    pools = 2 * (streams.max() + 1 if streams.size else 1)
    # a tensor makes two blocks at most
    rows = 2 * needs.size + 1
    row, pool = np.empty((rows, 6), np.int64), np.empty((pools + 1, rows), np.int64)
    total = np.zeros((3, max(pools + 1, UNUSED + 1)), np.int64)
    total[LAST] = NONE
    where = np.empty(needs.size, np.int64)
    allocated = most_allocated = most_reserved = mark = 0
    for n in range(requests.size + 1):
        while mark < marks.size and marks[mark] == n:
            moments[mark, 0], moments[mark, 1] = allocated, total[ALL, RESERVED]
            moments[mark, 2] = total[ALL, RETRIES]
            mark += 1
        if n == requests.size:
            break
        tensor = requests[n] if requests[n] >= 0 else -1 - requests[n]
        of = 2 * streams[tensor] + (needs[tensor] <= SMALL)
        if requests[n] >= 0:
            b = _taken(row, pool, total, needs[tensor], of, capacity, expandable)
            where[tensor], blocks[tensor] = b, row[b, SIZE]
            allocated += row[b, SIZE]
            most_allocated = max(most_allocated, allocated)
            most_reserved = max(most_reserved, total[ALL, RESERVED])
        else:
            allocated -= blocks[tensor]
            _given(row, pool, total, of, where[tensor])
    return most_allocated, most_reserved


play = compiled(
    _play,
    "UniTuple(int64, 2)(int64[::1], int64[::1], int64[::1], int64[::1], float64, boolean, int64[::1], "
    "int64[:, ::1])",
)
