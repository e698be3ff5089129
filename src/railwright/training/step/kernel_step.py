"""Lanes and pipeline of a step, compiled: the twin of `tasks.run`, `stage.Stage` and `pipeline.compose`.

Legend: T templates (task lists), S stages, U units of all stages one after the other, 9 lanes in the order of
`tasks.LANES`, pieces q of the model.  Importing this file compiles or loads it.

A template's tasks stand between first_t[t] and first_t[t + 1]; `after` counts from the first of them.
Pending data-parallel work of a stage is a queue in a row of four arrays, between low_s and high_s.
`uses` has `contention.Uses` of a task in a row: 1 or 0 for NICs, and its part of a slot.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from railwright.network.compiled.kernel_cache import compiled

COMPUTE, HOST, COPY, DP, LANES = 0, 6, 7, 8, 9
F, B, I, W, FB = range(5)  # noqa: E741  kinds of `route.Unit`


@numba.njit(nogil=True)
def _stretches(busy: Any, part: Any, rest: Any, used: Any, stretch: Any) -> None:
    """How many times as long as alone each lane takes that is on shared links, in place:
    `contention.stretches`."""
    crossing, count, total, wanted = 0, 0, 0.0, np.zeros(LANES)
    for n in range(LANES):
        if busy[n] != -2 and part[n] <= 0.0 and rest[n] > 0.0 and used[n, 0] > 0.0:
            crossing += 1
    for n in range(LANES):
        if busy[n] != -2 and part[n] <= 0.0 and rest[n] > 0.0:
            stretch[n] = crossing if used[n, 0] > 0.0 else 1.0
            wanted[count] = used[n, 1] / stretch[n]
            total += wanted[count]
            count += 1
    if total <= 1.0:
        return
    level, left, sharers = np.inf, 1.0, count
    for want in np.sort(wanted[:count]):
        if want * sharers > left:
            level = left / sharers
            break
        left -= want
        sharers -= 1
    for n in range(LANES):
        if busy[n] != -2 and part[n] <= 0.0 and rest[n] > 0.0:
            stretch[n] *= max(1.0, used[n, 1] / stretch[n] / level)


@numba.njit(nogil=True)
def _run(
    lane: Any, fixed: Any, wire: Any, uses: Any, layer: Any, after_ptr: Any, after: Any, lo: int, hi: int,
    slowdown: float, waiting: Any, waiting_wire: Any, waiting_uses: Any, tag: Any, ends: Any, gate: Any,
    launches: Any, ahead: float,
) -> Any:  # fmt: skip
    """Place tasks lo..hi behind pending dp work ends[0]..ends[1], both updated; (duration, last compute end).

    gate  of each layer from -1 on: the tag of the pending work its compute waits for; empty: none
    launches  tasks of a host that could be ahead, and is by `ahead` [s]
    """
    count = hi - lo
    queue = np.empty(count, np.int64)
    head = np.zeros(LANES + 1, np.int64)
    for i in range(lo, hi):
        head[lane[i] + 1] += 1
    left = count - head[DP + 1]
    for n in range(LANES):
        head[n + 1] += head[n]
    tail = head[1:].copy()
    fill = head[:LANES].copy()
    for i in range(lo, hi):
        queue[fill[lane[i]]] = i
        fill[lane[i]] += 1
    done = np.zeros(count, np.bool_)
    busy = np.full(LANES, -2, np.int64)  # -2 idle, -1 pending dp work, else a task
    part, rest, used = np.zeros(LANES), np.zeros(LANES), np.zeros((LANES, 2))
    need, stretch = np.zeros(LANES), np.ones(LANES)
    now = last = 0.0
    while left > 0:
        for n in range(LANES):
            if busy[n] != -2:
                continue
            if n == DP and ends[0] < ends[1]:
                busy[n], part[n], rest[n] = -1, waiting[ends[0]], waiting_wire[ends[0]]
                used[n, 0], used[n, 1] = waiting_uses[ends[0], 0], waiting_uses[ends[0], 1]
                continue
            if head[n] == tail[n]:
                continue
            i = queue[head[n]]
            ready = True
            for a in range(after_ptr[i], after_ptr[i + 1]):
                if not done[after[a]]:
                    ready = False
                    break
            if ready and n == COMPUTE and 0 <= layer[i] + 1 < gate.size and gate[layer[i] + 1] >= 0:
                for q in range(ends[0], ends[1]):
                    if tag[q] == gate[layer[i] + 1]:
                        ready = False
                        break
            if ready:
                busy[n], part[n], rest[n] = i, fixed[i], wire[i]
                used[n, 0], used[n, 1] = uses[i, 0], uses[i, 1]
                if launches[i]:
                    part[n] = max(0.0, part[n] - ahead)
                head[n] += 1
        rate, sharing = 1.0, 0
        for n in range(LANES):
            if busy[n] != -2:
                if n != COMPUTE and n != HOST and n != COPY:
                    rate = 1.0 / slowdown
                if part[n] <= 0.0 and rest[n] > 0.0:
                    sharing += 1
                    stretch[n] = 1.0
        if sharing > 1:
            _stretches(busy, part, rest, used, stretch)
        wait = np.inf
        for n in range(LANES):
            if busy[n] != -2:
                if part[n] > 0.0:
                    need[n] = part[n] / rate if n == COMPUTE else part[n]
                else:
                    need[n] = rest[n] * stretch[n]
                wait = min(wait, need[n])
        if wait == np.inf:
            return -1.0, -1.0
        now += wait
        for n in range(LANES):
            if busy[n] == -2:
                continue
            if need[n] > wait * (1.0 + 1e-12):
                if part[n] > 0.0:
                    part[n] -= wait * rate if n == COMPUTE else wait
                else:
                    rest[n] -= wait / stretch[n]
            elif part[n] > 0.0 and rest[n] > 0.0:
                part[n] = 0.0
            else:
                if n == COMPUTE:
                    last = now
                if busy[n] == -1:
                    ends[0] += 1
                else:
                    done[busy[n] - lo] = True
                busy[n] = -2
                left -= n != DP
    if busy[DP] == -1:
        waiting[ends[0]], waiting_wire[ends[0]] = part[DP], rest[DP]  # what it uses stands there
    elif busy[DP] >= 0:
        waiting[ends[1]], waiting_wire[ends[1]], tag[ends[1]] = part[DP], rest[DP], -1
        waiting_uses[ends[1], 0], waiting_uses[ends[1], 1] = used[DP, 0], used[DP, 1]
        ends[1] += 1
    for q in range(head[DP], tail[DP]):
        i = queue[q]
        waiting[ends[1]], waiting_wire[ends[1]], tag[ends[1]] = fixed[i], wire[i], -1
        waiting_uses[ends[1], 0], waiting_uses[ends[1], 1] = uses[i, 0], uses[i, 1]
        ends[1] += 1
    return now, last


def _alone(
    lane: Any, fixed: Any, wire: Any, uses: Any, layer: Any, after_ptr: Any, after: Any, slowdown: float
) -> Any:  # fmt: skip
    """(duration, end of the last compute) of one pass with nothing pending. [s]"""
    count = lane.size
    return _run(
        lane, fixed, wire, uses, layer, after_ptr, after, 0, count, slowdown,
        np.empty(count + 1), np.empty(count + 1), np.empty((count + 1, 2)), np.empty(count + 1, np.int64),
        np.zeros(2, np.int64), np.empty(0, np.int64), np.zeros(count, np.bool_), 0.0,
    )  # fmt: skip


def _play(
    lane: Any, fixed: Any, wire: Any, uses: Any, layer: Any, after_ptr: Any, after: Any, first_t: Any,
    unit_ptr: Any, kind: Any, chunk: Any, microbatch: Any, other: Any, back: Any, early: Any, quiet: Any,
    begins: Any,
    piece: Any, holder: Any, first: Any, final: Any, count: int,
    waiting: Any, waiting_wire: Any, waiting_uses: Any, tag: Any, low: Any, high: Any, gate: Any,
    slowdown: float, send: float, blocking: bool, finish: Any, now: Any, left: Any,
    launches: Any, launched: Any, behind: Any,
) -> Any:  # fmt: skip
    """Place all passes; False where the schedule deadlocks.

    early    (U, 2) how long before a unit's end the results of its passes are there [s]
    quiet    (U,) template of a unit without dp tasks;  begins  (U,) the one with those it begins, or -1
    gate     (S, chunks, layers + 2)
    launches tasks of a host that could be ahead;  launched  (T,) how long those of a template take [s]
    behind   (S,) whether any pass of a stage waits for such a host
    finish   (S,) out: the last pass (and its blocking send) over;  now, left  (S,) out: when the last pass
             with dp work beside it ended, and seconds of such work that are left then
    """
    stages, pieces = unit_ptr.size - 1, holder.size
    arrival = np.full((2, pieces, count), -1.0)
    for q in range(pieces):
        if first[q]:
            arrival[0, q, :] = 0.0
    duration, ahead = np.full(first_t.size - 1, -1.0), np.zeros(stages)
    place, free, wire_free = unit_ptr[:-1].copy(), np.zeros(stages), np.zeros(stages)
    ring, begin, size = np.arange(stages), 0, stages
    queued = np.ones(stages, np.bool_)
    ends, none = np.zeros(2, np.int64), np.empty(0, np.int64)
    part_kind, part_piece, part_m = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    while size:
        s = ring[begin]
        begin, size = (begin + 1) % stages, size - 1
        queued[s] = False
        while place[s] < unit_ptr[s + 1]:
            u = place[s]
            k, c = kind[u], chunk[u]
            parts = 0 if k == W else 2 if k == FB else 1
            part_kind[0] = 1 - (k in (F, FB))
            part_piece[0], part_m[0] = piece[s, c], microbatch[u]
            if parts == 2:
                part_kind[1], part_piece[1], part_m[1] = 1, piece[s, back[u]], other[u]
            start, here = free[s], True
            for n in range(parts):
                arrived = arrival[part_kind[n], part_piece[n], part_m[n]]
                here = here and arrived >= 0.0
                start = max(start, arrived)
            if not here:
                break
            if low[s] < high[s] and start > now[s]:
                seconds = start - now[s]
                while low[s] < high[s]:
                    whole = waiting[s, low[s]] + waiting_wire[s, low[s]]
                    if whole > seconds:
                        beyond = max(0.0, seconds - waiting[s, low[s]])
                        waiting[s, low[s]] = max(0.0, waiting[s, low[s]] - seconds)
                        waiting_wire[s, low[s]] -= beyond
                        break
                    seconds -= whole
                    low[s] += 1
            t = quiet[u]
            eased = min(ahead[s], launched[t])
            if duration[t] < 0.0 and (behind[s] or (low[s] == high[s] and begins[u] < 0)):
                ends[0] = ends[1] = 0
                duration[t], _ = _run(lane, fixed, wire, uses, layer, after_ptr, after, first_t[t],
                                      first_t[t + 1], slowdown, waiting[s, :0], waiting_wire[s, :0],
                                      waiting_uses[s, :0], tag[s, :0], ends, none, launches, 0.0)  # fmt: skip
            if low[s] == high[s] and begins[u] < 0 and eased == 0.0:
                end = start + duration[t]
            else:
                alone = duration[t]
                if begins[u] >= 0:
                    t = begins[u]
                ends[0], ends[1] = low[s], high[s]
                gates = gate[s, c] if k == F else none
                seconds, _ = _run(lane, fixed, wire, uses, layer, after_ptr, after, first_t[t],
                                  first_t[t + 1], slowdown, waiting[s], waiting_wire[s], waiting_uses[s],
                                  tag[s], ends, gates, launches, eased)  # fmt: skip
                low[s], high[s] = ends[0], ends[1]
                if seconds < 0.0:
                    return False
                if behind[s]:
                    ahead[s] = max(0.0, ahead[s] + (seconds - alone))
                end = start + seconds
            now[s] = end
            leave = end
            place[s] += 1
            for n in range(parts):
                q, to = part_piece[n], part_kind[n]
                if to == 0 and final[q]:
                    to = 1
                elif to == 0:
                    q += 1
                elif first[q]:
                    continue
                else:
                    q -= 1
                receiver = holder[q]
                if receiver == s:
                    arrival[to, q, part_m[n]] = end
                    continue
                ready = end if blocking else end - early[u, n]
                wire_free[s] = max(ready, wire_free[s]) + send
                leave = arrival[to, q, part_m[n]] = wire_free[s]
                if not queued[receiver]:
                    queued[receiver] = True
                    ring[(begin + size) % stages] = receiver
                    size += 1
            free[s] = leave if blocking else end
    for s in range(stages):
        if place[s] != unit_ptr[s + 1]:
            return False
        finish[s] = free[s]
        left[s] = 0.0
        for q in range(low[s], high[s]):
            left[s] += waiting[s, q] + waiting_wire[s, q]
    return True


_TASKS = "int8[::1], float64[::1], float64[::1], float64[:,::1], int64[::1], int64[::1], int64[::1]"
_UNITS = ", ".join([*["int64[::1]"] * 6, "float64[:,::1]", *["int64[::1]"] * 2])
alone = compiled(_alone, f"UniTuple(float64, 2)({_TASKS}, float64)")
play = compiled(
    _play,
    f"boolean({_TASKS}, int64[::1], {_UNITS}, int64[:,::1], int64[::1], boolean[::1], boolean[::1], int64, "
    "float64[:,::1], float64[:,::1], float64[:,:,::1], int64[:,::1], int64[::1], int64[::1], int64[:,:,::1], "
    "float64, float64, boolean, float64[::1], float64[::1], float64[::1], boolean[::1], float64[::1], "
    "boolean[::1])",
)
