"""Flows that start and finish over time, compiled: the twin of `events_plain.play`.

Legend: F flows, L links, P entries of the incidence, N phases.  Importing this file compiles or loads it.

A link's level is the rate at which it holds the flows it limits (infinite while it is not full); a flow's
rate is the lowest level on its way.  When flows come or go, the links they cross are looked at anew, lowest
level first; a link whose level moves passes that on to the links of the flows it holds.  The update ends
when every level is what its link's capacity and the other links' levels make it, and that is so for max-min
fair rates alone: they are exact, whatever was not looked at.
Source of the condition: Bertsekas and Gallager, "Data Networks", 2nd ed., section 6.5.2.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from railwright.network.compiled.kernel_cache import compiled

FULL = 1e-12
"""A link this close to its capacity, relatively, is full; levels this close are one. Above rounding only."""


@numba.njit(nogil=True)
def _rise(heap: Any, pos: Any, key: Any, at: int) -> None:
    x = heap[at]
    while at > 0:
        above = (at - 1) >> 1
        y = heap[above]
        if key[y] <= key[x]:
            break
        heap[at] = y
        pos[y] = at
        at = above
    heap[at] = x
    pos[x] = at


@numba.njit(nogil=True)
def _sink(heap: Any, pos: Any, key: Any, at: int, size: int) -> None:
    x = heap[at]
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        if child + 1 < size and key[heap[child + 1]] < key[heap[child]]:
            child += 1
        y = heap[child]
        if key[y] >= key[x]:
            break
        heap[at] = y
        pos[y] = at
        at = child
    heap[at] = x
    pos[x] = at


@numba.njit(nogil=True)
def _put(heap: Any, pos: Any, key: Any, size: int, x: int, value: float) -> int:
    """Insert x, or move it to its new key; the size of the heap."""
    if pos[x] < 0:
        heap[size] = x
        pos[x] = size
        key[x] = value
        _rise(heap, pos, key, size)
        return size + 1
    before = key[x]
    key[x] = value
    if value < before:
        _rise(heap, pos, key, pos[x])
    elif value > before:
        _sink(heap, pos, key, pos[x], size)
    return size


@numba.njit(nogil=True)
def _pop(heap: Any, pos: Any, key: Any, size: int) -> int:
    """Take the first off; the size of the heap."""
    pos[heap[0]] = -1
    if size > 1:
        heap[0] = heap[size - 1]
        pos[heap[0]] = 0
        _sink(heap, pos, key, 0, size - 1)
    return size - 1


@numba.njit(nogil=True)
def _level(y: int, ptr: Any, link: Any, weight: Any, capacity: Any, crossing: Any, row: Any, first: Any,
           num: Any, rate: Any, held: Any, level: Any, cap: Any, share: Any) -> Any:  # fmt: skip
    """Level of link y, given what all other links leave each of its flows; infinite when it is not full.

    The sum over flows of weight * min(cap, level) is concave in the level, so Newton's method steps up to
    its root from the left, from any start in at most one step more.
    """
    total = 0.0
    for i in range(num[y]):
        e = crossing[first[y] + i]
        f = row[e]
        if held[f] == y or held[f] < 0:
            cap[i] = np.inf
            for k in range(ptr[f], ptr[f + 1]):
                if link[k] != y and level[link[k]] < cap[i]:
                    cap[i] = level[link[k]]
        else:
            cap[i] = rate[f]
        share[i] = weight[e]
        total += weight[e]
    below = level[y] == np.inf
    now = capacity[y] / total if below else level[y]
    while True:
        used, free = 0.0, 0.0
        for i in range(num[y]):
            if cap[i] < now:
                used += share[i] * cap[i]
            else:
                free += share[i]
        if free <= 0.0:
            if used <= capacity[y] * (1 + FULL):
                return np.inf
            if below:
                return now
            below = True
            now = capacity[y] / total
            continue
        ahead = (capacity[y] - used) / free
        if below and ahead <= now * (1 + 1e-14):
            return ahead
        below = True
        now = ahead


def _play(ptr: Any, link: Any, weight: Any, capacity: Any, size: Any, phase: Any, offset: Any,
          member_ptr: Any, member: Any, waits: Any, next_ptr: Any, after: Any, delay: Any,
          batch: float, watch: Any) -> Any:  # fmt: skip
    """Start and finish of flows (F,), opening and end of phases (N,) [s], and loads of watched links.

    ptr, link, weight   CSR of the flows; weight is fraction times count times fairness weight
    size                (F,) bytes per unit of fairness weight
    phase, offset       (F,) phase, and wait after its opening [s]
    member_ptr, member  CSR of the flows of each phase
    waits               (N,) phases that each waits for; overwritten
    next_ptr, after     CSR of the phases that wait for each
    delay               (N,) from the end of the last of them to the opening [s]
    batch               freed bandwidth is handed on at most this late [s]
    watch               links whose load is recorded after every change
    """
    num_flows, num_links, num_phases = len(size), len(capacity), len(delay)
    row = np.empty(len(link), np.int64)
    num = np.zeros(num_links, np.int64)
    for f in range(num_flows):
        for e in range(ptr[f], ptr[f + 1]):
            row[e] = f
            num[link[e]] += 1
    first = np.zeros(num_links + 1, np.int64)
    widest = 1
    for y in range(num_links):
        first[y + 1] = first[y] + num[y]
        widest = max(widest, num[y])
        num[y] = 0
    # The entries of active flows on link y are crossing[first[y] : first[y] + num[y]]; place is the inverse.
    crossing, place = np.empty(len(link), np.int64), np.empty(len(link), np.int64)
    cap, share = np.empty(widest), np.empty(widest)
    level, carried = np.full(num_links, np.inf), np.zeros(num_links)
    rate, held = np.zeros(num_flows), np.full(num_flows, -1, np.int64)
    sending = np.zeros(num_flows, np.bool_)
    paid, since, left = np.zeros(num_flows), np.zeros(num_flows), size.copy()
    touched, marked, num_touched = np.empty(num_flows, np.int64), np.zeros(num_flows, np.bool_), 0
    events = num_flows + num_phases
    heap, pos, due = np.empty(events, np.int64), np.full(events, -1, np.int64), np.zeros(events)
    dirty, dirty_pos, dirty_key = (
        np.empty(num_links, np.int64), np.full(num_links, -1, np.int64), np.zeros(num_links),
    )  # fmt: skip
    slack, demand, highest = np.zeros(num_links), np.zeros(num_links), np.zeros(num_links)
    unfixed = np.zeros(num_links, np.int64)
    in_heap, in_dirty, active, entries_now = 0, 0, 0, 0
    start, finish = np.zeros(num_flows), np.zeros(num_flows)
    opened, ended = np.zeros(num_phases), np.zeros(num_phases)
    open_members = np.empty(num_phases, np.int64)
    times, loads, records = np.zeros(64), np.zeros((64, len(watch))), 0
    solutions, refills = 0, 0
    for n in range(num_phases):
        open_members[n] = member_ptr[n + 1] - member_ptr[n]
        if waits[n] == 0:
            in_heap = _put(heap, pos, due, in_heap, num_flows + n, delay[n])
    now, must_solve = 0.0, np.inf
    while in_heap > 0 or in_dirty > 0:
        started, finished = 0, 0
        now = due[heap[0]] if in_heap > 0 else must_solve
        if must_solve < now:
            now = must_solve
        else:
            while in_heap > 0 and due[heap[0]] <= now * (1 + FULL):
                x = heap[0]
                moment = due[x]
                now = max(now, moment)
                in_heap = _pop(heap, pos, due, in_heap)
                done = -1
                if x >= num_flows:
                    n = x - num_flows
                    opened[n] = moment
                    for k in range(member_ptr[n], member_ptr[n + 1]):
                        in_heap = _put(heap, pos, due, in_heap, member[k], moment + offset[member[k]])
                    if open_members[n] == 0:
                        done = n
                elif sending[x]:
                    finished += 1
                    active -= 1
                    entries_now -= ptr[x + 1] - ptr[x]
                    sending[x] = False
                    finish[x] = moment
                    for e in range(ptr[x], ptr[x + 1]):
                        y = link[e]
                        num[y] -= 1
                        other = crossing[first[y] + num[y]]
                        crossing[place[e]] = other
                        place[other] = place[e]
                        carried[y] -= weight[e] * rate[x]
                        if num[y] == 0:
                            carried[y] = 0.0
                            level[y] = np.inf
                        elif level[y] < np.inf:
                            in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, y, level[y])
                    open_members[phase[x]] -= 1
                    if open_members[phase[x]] == 0:
                        done = phase[x]
                else:
                    start[x] = moment
                    if size[x] > 0 and ptr[x + 1] > ptr[x]:
                        started += 1
                        active += 1
                        entries_now += ptr[x + 1] - ptr[x]
                        sending[x] = True
                        marked[x] = True
                        touched[num_touched] = x
                        num_touched += 1
                        rate[x], held[x], since[x] = 0.0, -1, moment
                        best = np.inf
                        for e in range(ptr[x], ptr[x + 1]):
                            y = link[e]
                            crossing[first[y] + num[y]] = e
                            place[e] = first[y] + num[y]
                            num[y] += 1
                            if level[y] < best:
                                best = level[y]
                                held[x] = y
                        for e in range(ptr[x], ptr[x + 1]):
                            y = link[e]
                            if held[x] >= 0:
                                rate[x] = best
                                carried[y] += weight[e] * best
                            key = level[y] if level[y] < np.inf else 1e300
                            in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, y, key)
                    else:
                        finish[x] = moment
                        open_members[phase[x]] -= 1
                        if open_members[phase[x]] == 0:
                            done = phase[x]
                if done >= 0:
                    ended[done] = moment
                    for k in range(next_ptr[done], next_ptr[done + 1]):
                        n = after[k]
                        waits[n] -= 1
                        if waits[n] == 0:
                            in_heap = _put(heap, pos, due, in_heap, num_flows + n, moment + delay[n])
            if started == 0 and finished > 0 and batch > 0 and active > 0:
                must_solve = min(must_solve, now + batch)
                if now < must_solve:
                    continue
            if started + finished == 0 and now < must_solve:
                continue
        must_solve = np.inf
        solutions += 1
        # Looking at links one by one pays while few move; beyond about one filling's work, fill them all.
        budget = 0 if started * 8 > active else 64 + entries_now
        while in_dirty > 0:
            if budget <= 0:
                break
            y = dirty[0]
            in_dirty = _pop(dirty, dirty_pos, dirty_key, in_dirty)
            if num[y] == 0:
                level[y] = np.inf
                continue
            budget -= 1 + num[y]
            old = level[y]
            new = _level(y, ptr, link, weight, capacity, crossing, row, first, num, rate, held, level, cap,
                         share)  # fmt: skip
            if new == old or (new < np.inf and old < np.inf and abs(new - old) <= FULL * new):
                continue
            level[y] = new
            for i in range(first[y], first[y] + num[y]):
                f = row[crossing[i]]
                best = new
                if new < old:
                    if held[f] >= 0 and rate[f] <= new:
                        continue
                    held[f] = y
                else:
                    if held[f] != y:
                        continue
                    for k in range(ptr[f], ptr[f + 1]):
                        if level[link[k]] < best:
                            best = level[link[k]]
                            held[f] = link[k]
                change = best - rate[f]
                rate[f] = best
                if not marked[f]:
                    marked[f] = True
                    touched[num_touched] = f
                    num_touched += 1
                for k in range(ptr[f], ptr[f + 1]):
                    z = link[k]
                    carried[z] += weight[k] * change
                    if z != y and level[z] < np.inf:
                        in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, z, level[z])
                    elif z != y and change > 0 and carried[z] > capacity[z] * (1 - 1e-9):
                        in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, z, 1e300)
        if in_dirty > 0:
            # Many came at once, or rounding keeps levels moving: fill all links anew.
            refills += 1
            while in_dirty > 0:
                in_dirty = _pop(dirty, dirty_pos, dirty_key, in_dirty)
            num_touched = 0
            for f in range(num_flows):
                marked[f] = sending[f]
                if sending[f]:
                    touched[num_touched] = f
                    num_touched += 1
                    held[f] = -1
            for y in range(num_links):
                carried[y], highest[y] = 0.0, 0.0
                if num[y] > 0:
                    slack[y], demand[y], unfixed[y] = capacity[y], 0.0, num[y]
                    for i in range(first[y], first[y] + num[y]):
                        demand[y] += weight[crossing[i]]
                    in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, y, slack[y] / demand[y])
            while in_dirty > 0:
                y = dirty[0]
                fair = np.inf if unfixed[y] == 0 else max(slack[y], 0.0) / demand[y]
                if unfixed[y] > 0 and fair > dirty_key[y] * (1 + 1e-13):  # a level only rises: look later
                    in_dirty = _put(dirty, dirty_pos, dirty_key, in_dirty, y, fair)
                    continue
                in_dirty = _pop(dirty, dirty_pos, dirty_key, in_dirty)
                if unfixed[y] == 0:
                    continue
                for i in range(first[y], first[y] + num[y]):
                    f = row[crossing[i]]
                    if held[f] < 0:
                        held[f], rate[f] = y, fair
                        for e in range(ptr[f], ptr[f + 1]):
                            z = link[e]
                            slack[z] -= weight[e] * fair
                            demand[z] -= weight[e]
                            unfixed[z] -= 1
                            carried[z] += weight[e] * fair
                            highest[z] = max(highest[z], fair)
            for y in range(num_links):
                full = num[y] > 0 and carried[y] >= capacity[y] * (1 - 1e-10)
                level[y] = highest[y] if full else np.inf
            for i in range(num_touched):
                f = touched[i]
                best = np.inf
                for e in range(ptr[f], ptr[f + 1]):
                    if level[link[e]] < best:
                        best = level[link[e]]
                        held[f] = link[e]
        for i in range(num_touched):
            f = touched[i]
            marked[f] = False
            if sending[f] and rate[f] != paid[f]:
                left[f] = max(left[f] - paid[f] * (now - since[f]), 0.0)
                since[f] = now
                paid[f] = rate[f]
                in_heap = _put(heap, pos, due, in_heap, f, now + left[f] / rate[f])
        num_touched = 0
        if len(watch) > 0:
            if records == len(times):
                more_times, more_loads = np.zeros(2 * records), np.zeros((2 * records, len(watch)))
                for r in range(records):
                    more_times[r] = times[r]
                    for w in range(len(watch)):
                        more_loads[r, w] = loads[r, w]
                times, loads = more_times, more_loads
            times[records] = now
            for w in range(len(watch)):
                y = watch[w]
                for i in range(first[y], first[y] + num[y]):
                    e = crossing[i]
                    loads[records, w] += weight[e] * rate[row[e]]
            records += 1
    return start, finish, opened, ended, times[:records], loads[:records], solutions, refills


play = compiled(
    _play,
    "(int64[::1], int32[::1], float64[::1], float64[::1], float64[::1], int64[::1], float64[::1],"
    " int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64, int64[::1])",
)
