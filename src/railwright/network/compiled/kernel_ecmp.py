"""Hashed paths, compiled: the twins of `ecmp.walk`. Importing this file compiles or loads it.

Legend: F flows, Q queue pairs of each, S states (target, switch), W ways out of states, L links, K columns.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from railwright.network.compiled.kernel_cache import compiled


@numba.njit(inline="always")
def _mix(word: Any) -> Any:
    """splitmix64: see `switching.splitmix`."""
    z = word + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _carry(
    word: Any, number: Any, start: Any, part: Any, qps: Any, seed: Any,
    ways: Any, link: Any, onward: Any, salt: Any, load: Any, crossing: Any,
) -> None:  # fmt: skip
    """Add to load (L,) and crossing (L,) what every queue pair brings to the links of its path.

    word    (F,) what each connection is known by; number (F,) which of several alike it is
    start   (F,) state in which it begins, -1 where it crosses no switch; part (F,) bytes of one queue pair
    seed    mixed; ways (S+1,), link, onward (W,) ways out of states; salt (S,)
    """
    for f in range(len(start)):
        if start[f] < 0:
            continue
        for q in range(qps):
            key = _mix(_mix(word[f] ^ np.uint64(np.int64(number[f]) * qps + q)) ^ seed)
            state = start[f]
            count = ways[state + 1] - ways[state]
            while count > 0:
                way = ways[state] + np.int64(_mix(key ^ salt[state]) % np.uint64(count))
                load[link[way]] += part[f]
                crossing[link[way]] += 1
                state = onward[way]
                count = ways[state + 1] - ways[state]


def _follow(
    word: Any, number: Any, start: Any, qps: Any, seed: Any,
    ways: Any, link: Any, onward: Any, salt: Any, hops: Any, whole: Any, into: Any,
) -> None:  # fmt: skip
    """Write into (F, whole + Q * hops) the links of every queue pair, after the first `whole` columns.

    The rest of a shorter path is left as it is.
    """
    for f in range(len(start)):
        if start[f] < 0:
            continue
        for q in range(qps):
            key = _mix(_mix(word[f] ^ np.uint64(np.int64(number[f]) * qps + q)) ^ seed)
            state = start[f]
            count = ways[state + 1] - ways[state]
            at = whole + q * hops
            while count > 0:
                way = ways[state] + np.int64(_mix(key ^ salt[state]) % np.uint64(count))
                into[f, at] = link[way]
                at += 1
                state = onward[way]
                count = ways[state + 1] - ways[state]


def _meet(
    word: Any, number: Any, start: Any, qps: Any, seed: Any,
    ways: Any, link: Any, onward: Any, salt: Any, hot: Any,
) -> Any:  # fmt: skip
    """How many queue pairs chose, among several ways, a link that is hot (L,)."""
    total = 0
    for f in range(len(start)):
        if start[f] < 0:
            continue
        for q in range(qps):
            key = _mix(_mix(word[f] ^ np.uint64(np.int64(number[f]) * qps + q)) ^ seed)
            state = start[f]
            count = ways[state + 1] - ways[state]
            while count > 0:
                way = ways[state] + np.int64(_mix(key ^ salt[state]) % np.uint64(count))
                if count > 1 and hot[link[way]]:
                    total += 1
                    break
                state = onward[way]
                count = ways[state + 1] - ways[state]
    return total


def _fill(column: Any, rows: Any, whole: Any, share: Any, slack: Any) -> Any:
    """Max-min fair rate of some flows: the algorithm of `kernel_maxmin._fill`, on columns instead of rows.

    column  (F, K) links of each flow, -1 for none; rows which flows send
    whole   columns below this one carry the whole flow, each other one `share` of it
    slack   (L,) capacity for these flows; overwritten
    """
    num_links, width = len(slack), column.shape[1]
    rate = np.zeros(len(rows))
    demand = np.zeros(num_links)
    left = np.zeros(num_links, np.int64)
    for r in range(len(rows)):
        for k in range(width):
            y = column[rows[r], k]
            if y >= 0:
                demand[y] += 1.0 if k < whole else share
                left[y] += 1
    start = np.zeros(num_links + 1, np.int64)
    for y in range(num_links):
        start[y + 1] = start[y] + left[y]
    place = start[:-1].copy()
    flow_at = np.empty(start[num_links], np.int32)
    for r in range(len(rows)):
        for k in range(width):
            y = column[rows[r], k]
            if y >= 0:
                flow_at[place[y]] = r
                place[y] += 1

    heap = np.empty(num_links, np.int64)
    level = np.empty(num_links)
    size = 0
    for y in range(num_links):
        if left[y] > 0:
            level[y] = slack[y] / demand[y]
            heap[size] = y
            size += 1
    root = size // 2 - 1
    fixed = np.zeros(len(rows), np.bool_)
    while size > 0:
        building = root >= 0
        at = root if building else 0
        if building:
            root -= 1
        else:
            y = heap[0]
            if left[y] == 0:
                size -= 1
                heap[0] = heap[size]
            else:
                now = max(slack[y], 0.0) / demand[y]
                if now <= level[y] * (1 + 1e-13):
                    for e in range(start[y], start[y + 1]):
                        r = flow_at[e]
                        if not fixed[r]:
                            fixed[r] = True
                            rate[r] = now
                            for k in range(width):
                                x = column[rows[r], k]
                                if x >= 0:
                                    weight = 1.0 if k < whole else share
                                    slack[x] -= weight * now
                                    demand[x] -= weight
                                    left[x] -= 1
                    size -= 1
                    heap[0] = heap[size]
                else:
                    level[y] = now
        while True:
            child = 2 * at + 1
            if child >= size:
                break
            if child + 1 < size and level[heap[child + 1]] < level[heap[child]]:
                child += 1
            if level[heap[at]] <= level[heap[child]]:
                break
            heap[at], heap[child] = heap[child], heap[at]
            at = child
    return rate


_FLOWS = "uint64[::1], int32[::1], int32[::1]"
_WAYS = "int64[::1], int32[::1], int32[::1], uint64[::1]"
carry = compiled(_carry, f"void({_FLOWS}, float64[::1], int64, uint64, {_WAYS}, float64[::1], int64[::1])")
follow = compiled(_follow, f"void({_FLOWS}, int64, uint64, {_WAYS}, int64, int64, int32[:, ::1])")
meet = compiled(_meet, f"int64({_FLOWS}, int64, uint64, {_WAYS}, boolean[::1])")
fill = compiled(_fill, "float64[::1](int32[:, ::1], int32[::1], int64, float64, float64[::1])")
