"""Queues of the event loop: lanes by the end of their run, requests by their last step, waiting lists.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_rows import (
    AFTER,
    BEGAN,
    BUDGET,
    CHUNKS,
    COLDER,
    DECODERS,
    DUE_SIZE,
    ENDS,
    FINISH,
    HEAD,
    HEAPED,
    HELD,
    HELD_FROM,
    HOLD_STEPS,
    HOLD_TOKENS,
    LRU,
    MIXED_STEPS,
    MRU,
    NOBODY,
    ORDER,
    PLACE,
    POLICY,
    QUERIES,
    QUEUE,
    QUEUED,
    STEP,
    TAIL,
    WARMER,
)


def due_before(s: Any, a: int, b: int) -> bool:
    """Whether lane a's run ends before lane b's; at one moment the lower number is first."""
    return bool(s.run[ENDS][a] < s.run[ENDS][b] or (s.run[ENDS][a] == s.run[ENDS][b] and a < b))


def due_rise(s: Any, at: int) -> None:
    """Bring the lane at this place up to where it belongs."""
    x = s.due[ORDER][at]
    while at > 0:
        above = (at - 1) >> 1
        if not due_before(s, x, s.due[ORDER][above]):
            break
        s.due[ORDER][at] = s.due[ORDER][above]
        s.due[PLACE][s.due[ORDER][at]] = at
        at = above
    s.due[ORDER][at] = x
    s.due[PLACE][x] = at


def due_sink(s: Any, at: int) -> None:
    """Bring the lane at this place down to where it belongs."""
    size = s.count[DUE_SIZE]
    x = s.due[ORDER][at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and due_before(s, s.due[ORDER][child + 1], s.due[ORDER][child]):
            child += 1
        if not due_before(s, s.due[ORDER][child], x):
            break
        s.due[ORDER][at] = s.due[ORDER][child]
        s.due[PLACE][s.due[ORDER][at]] = at
        at = child
    s.due[ORDER][at] = x
    s.due[PLACE][x] = at


def due_put(s: Any, lane: int) -> None:
    """Enter a lane whose run[ENDS] is set."""
    at = s.count[DUE_SIZE]
    s.count[DUE_SIZE] = at + 1
    s.due[ORDER][at] = lane
    s.due[PLACE][lane] = at
    due_rise(s, at)


def due_remove(s: Any, lane: int) -> None:
    """Take a lane out, wherever it stands."""
    at = s.due[PLACE][lane]
    s.due[PLACE][lane] = NOBODY
    size = s.count[DUE_SIZE] - 1
    s.count[DUE_SIZE] = size
    if at < size:
        other = s.due[ORDER][size]
        s.due[ORDER][at] = other
        s.due[PLACE][other] = at
        due_rise(s, at)
        due_sink(s, s.due[PLACE][other])


def finish_put(s: Any, base: int, lane: int, i: int) -> None:
    """Enter request i, whose FINISH is set, among those that decode on a lane."""
    finish, heap = s.request[FINISH], s.heap
    at = s.lane[HEAPED][lane]
    s.lane[HEAPED][lane] = at + 1
    key = finish[i]
    while at > 0:
        above = (at - 1) >> 1
        other = heap[base + above]
        if finish[other] <= key:
            break
        heap[base + at] = other
        at = above
    heap[base + at] = i


def finish_drop(s: Any, base: int, lane: int, at: int) -> None:
    """Take the request at this place out of the heap of those that decode on a lane."""
    finish, heap = s.request[FINISH], s.heap
    size = s.lane[HEAPED][lane] - 1
    s.lane[HEAPED][lane] = size
    if at == size:
        return
    i = heap[base + size]
    key = finish[i]
    # The lesser child rises down to a leaf, and the last entry, hardly ever less than another, from there.
    child = 2 * at + 1
    while child < size:
        other = heap[base + child]
        if child + 1 < size and finish[heap[base + child + 1]] < finish[other]:
            child += 1
            other = heap[base + child]
        heap[base + at] = other
        at = child
        child = 2 * at + 1
    while at > 0:
        other = heap[base + ((at - 1) >> 1)]
        if finish[other] <= key:
            break
        heap[base + at] = other
        at = (at - 1) >> 1
    heap[base + at] = i


def queue_last(s: Any, v: int, i: int) -> None:
    """Request i waits behind all others of replica v."""
    s.request[AFTER][i] = NOBODY
    if s.replica[TAIL][v] == NOBODY:
        s.replica[HEAD][v] = i
    else:
        s.request[AFTER][s.replica[TAIL][v]] = i
    s.replica[TAIL][v] = i
    s.replica[QUEUE][v] += 1


def queue_first(s: Any, v: int, i: int) -> None:
    """Request i waits before all others of replica v."""
    s.request[AFTER][i] = s.replica[HEAD][v]
    if s.replica[TAIL][v] == NOBODY:
        s.replica[TAIL][v] = i
    s.replica[HEAD][v] = i
    s.replica[QUEUE][v] += 1


def queue_pop(s: Any, v: int) -> int:
    """The request that has waited longest on replica v, taken off."""
    i: int = s.replica[HEAD][v]
    s.replica[HEAD][v] = s.request[AFTER][i]
    if s.replica[HEAD][v] == NOBODY:
        s.replica[TAIL][v] = NOBODY
    s.replica[QUEUE][v] -= 1
    return i


def cold_append(s: Any, v: int, h: int) -> None:
    """Part h of a prefix (an index of `prefix`) becomes the last that replica v would evict."""
    last = s.replica[MRU][v]
    s.prefix[COLDER][h] = last
    s.prefix[WARMER][h] = NOBODY
    if last == NOBODY:
        s.replica[LRU][v] = h
    else:
        s.prefix[WARMER][last] = h
    s.replica[MRU][v] = h


def cold_remove(s: Any, v: int, h: int) -> None:
    """Take a part out of replica v's list of those that nobody refers to."""
    colder, warmer = s.prefix[COLDER][h], s.prefix[WARMER][h]
    if colder == NOBODY:
        s.replica[LRU][v] = warmer
    else:
        s.prefix[WARMER][colder] = warmer
    if warmer == NOBODY:
        s.replica[MRU][v] = colder
    else:
        s.prefix[COLDER][warmer] = colder


def holds(s: Any, v: int, lane: int, y: int) -> bool:
    """Whether waiting prompts are held back a while, so that more of them share a step."""
    most, head = s.pool[HOLD_STEPS][y], s.replica[HEAD][v]
    if most == 0 or head == NOBODY or s.lane[DECODERS][lane] == 0:
        s.lane[HELD_FROM][lane] = NOBODY
        return False
    tokens = s.lane[DECODERS][lane] * s.pool[QUERIES][y]
    while head != NOBODY and tokens < s.pool[HOLD_TOKENS][y]:
        tokens += s.request[HELD][head]
        head = s.request[AFTER][head]
    if s.lane[HELD_FROM][lane] == NOBODY:
        s.lane[HELD_FROM][lane] = s.lane[STEP][lane]
    waited = s.lane[STEP][lane] - s.lane[HELD_FROM][lane]
    if tokens >= s.pool[HOLD_TOKENS][y] or waited >= most:
        s.lane[HELD_FROM][lane] = NOBODY
        return False
    return True


def came_late(s: Any, lane: int, i: int) -> bool:
    """Whether request i came after the step that begins now was settled: when the one before began."""
    going = s.lane[DECODERS][lane] > 0 or s.lane[CHUNKS][lane] > 0
    return bool(going and s.when[QUEUED][i] > s.run[BEGAN][lane])


def room_left(s: Any, lane: int, y: int) -> int:
    """Tokens of the lane's next step that prompts may take."""
    tokens: int = s.pool[BUDGET][y]
    if s.pool[POLICY][y] == MIXED_STEPS:
        tokens -= s.lane[DECODERS][lane] * s.pool[QUERIES][y]
    return tokens
