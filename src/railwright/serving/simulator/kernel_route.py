"""Which replica a request goes to, and waking a replica up.

Runs interpreted and compiled; see `kernel_rows`.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_memory import give_back, grown, matched
from railwright.serving.simulator.kernel_price import run_time
from railwright.serving.simulator.kernel_queue import due_rise, queue_last
from railwright.serving.simulator.kernel_rows import (
    AFTER,
    ALIVE,
    APART,
    APART_TIMES,
    BUSY,
    DECODE_POOL,
    DECODE_TURN,
    DECODERS,
    ENDS,
    FIRST_REPLICA,
    HANDED,
    HELD,
    LANE0,
    LIMBO,
    LIMBO_END,
    LOAD,
    MATCH,
    MOST,
    NEXT_TOUCHED,
    NOBODY,
    OWN,
    PART_TOKENS,
    PLACE,
    POLICY,
    POOL,
    PREFIX_AWARE,
    QUEUE,
    REMOTE,
    REPLICA,
    REPLICAS,
    ROUND_ROBIN,
    ROUTER,
    RUNNING_NOW,
    SHARED,
    SLOPE,
    SOURCE,
    SOURCE_OWN,
    SOURCE_SHARED,
    STAGES,
    STANDING,
    START,
    STATIC,
    STEP,
    STEPS,
    TAKES,
    TOUCHED,
    TOUCHED_HEAD,
    TURN,
    USED,
    WAITING,
)
from railwright.serving.simulator.kernel_schedule import dismiss, schedule


def route(s: Any, i: int, now: float) -> None:
    """Request i goes to a replica that computes prompts, or waits for one to come back."""
    v = choose(s, i, 0, TURN)
    s.request[STANDING][i] = WAITING
    if v == NOBODY:
        to_limbo(s, i)
        return
    s.request[REPLICA][i] = v
    s.replica[LOAD][v] += 1
    queue_last(s, v, i)
    if s.replica[QUEUE][v] == 1:
        # Where others wait already the first of them cannot be admitted before something ends.
        cut(s, v, now)
        touch(s, v)


def to_limbo(s: Any, i: int) -> None:
    """Request i waits for a replica to come back."""
    s.request[REPLICA][i] = NOBODY
    s.request[AFTER][i] = NOBODY
    if s.count[LIMBO] == NOBODY:
        s.count[LIMBO] = i
    else:
        s.request[AFTER][s.count[LIMBO_END]] = i
    s.count[LIMBO_END] = i


def choose(s: Any, i: int, y: int, turn: int) -> int:
    """The replica of pool y that the router picks for request i, or NOBODY where none is alive."""
    first, num = s.pool[FIRST_REPLICA][y], s.pool[REPLICAS][y]
    if s.count[ROUTER] == ROUND_ROBIN:
        for k in range(num):
            v = first + (s.count[turn] + k) % num
            if s.replica[ALIVE][v]:
                s.count[turn] = (v - first + 1) % num
                return int(v)
        return NOBODY
    least, most, idle = -1, 0, NOBODY
    for v in range(first, first + num):
        if s.replica[ALIVE][v]:
            load = s.replica[LOAD][v]
            if idle == NOBODY or load < least:
                least, idle = load, v
            most = max(most, load)
    if idle == NOBODY or s.count[ROUTER] != PREFIX_AWARE or y == s.count[DECODE_POOL]:
        return idle
    if most - least > APART and most > APART_TIMES * least:
        return idle
    best, known = 0, idle
    for v in range(first, first + num):
        if s.replica[ALIVE][v]:
            found = matched(s, v, i)
            if found > best or (found == best and s.replica[LOAD][v] < s.replica[LOAD][known]):
                best, known = found, v
    return int(known if best * s.count[PART_TOKENS] > MATCH * s.request[HELD][i] else idle)


def hand_over(s: Any, v: int, lane: int, i: int, now: float) -> None:
    """Request i's prompt is computed; its keys and values wait for a replica that decodes."""
    dismiss(s, lane, i)
    s.replica[RUNNING_NOW][v] -= 1
    s.replica[LOAD][v] -= 1
    w = choose(s, i, s.count[DECODE_POOL], DECODE_TURN)
    if w == NOBODY:
        give_back(s, v, i, s.request[OWN][i], s.request[SHARED][i])
        s.request[STANDING][i] = WAITING
        to_limbo(s, i)
        return
    s.request[SOURCE][i] = v
    s.request[SOURCE_OWN][i] = s.request[OWN][i]
    s.request[SOURCE_SHARED][i] = s.request[SHARED][i]
    s.request[REPLICA][i] = w
    s.request[STANDING][i] = REMOTE
    s.when[HANDED][i] = now
    s.replica[LOAD][w] += 1
    queue_last(s, w, i)
    if s.replica[QUEUE][w] == 1:
        cut(s, w, now)
        touch(s, w)


def touch(s: Any, v: int) -> None:
    """Idle lanes of replica v look for work once all events of this moment are taken."""
    if s.replica[TOUCHED][v] == 0:
        s.replica[TOUCHED][v] = 1
        s.replica[NEXT_TOUCHED][v] = s.count[TOUCHED_HEAD]
        s.count[TOUCHED_HEAD] = v


def run_touched(s: Any, now: float) -> None:
    """Start steps on the idle lanes of all replicas that something happened to, those that decode first."""
    while s.count[TOUCHED_HEAD] != NOBODY:
        v = s.count[TOUCHED_HEAD]
        s.count[TOUCHED_HEAD] = s.replica[NEXT_TOUCHED][v]
        s.replica[TOUCHED][v] = 0
        if s.replica[ALIVE][v]:
            first = s.replica[LANE0][v]
            lanes = s.pool[STAGES][s.replica[POOL][v]]
            for lane in range(first, first + lanes):
                if s.lane[BUSY][lane] == 0 and s.lane[DECODERS][lane] > 0:
                    schedule(s, lane, now)
            for lane in range(first, first + lanes):
                if s.lane[BUSY][lane] == 0:
                    schedule(s, lane, now)


def cut(s: Any, v: int, now: float) -> None:
    """A run of decode steps under way on replica v ends with the step that is under way now."""
    y = s.replica[POOL][v]
    lane = s.replica[LANE0][v]
    if s.pool[STAGES][y] > 1 or s.pool[POLICY][y] == STATIC or s.lane[BUSY][lane] == 0:
        return
    steps = s.lane[STEPS][lane]
    if steps == 1 or s.replica[RUNNING_NOW][v] >= s.pool[MOST][y]:
        return
    start, takes, slope = s.run[START][lane], s.run[TAKES][lane], s.run[SLOPE][lane]
    low, high = 1, steps
    while low < high:
        middle = (low + high) >> 1
        if start + run_time(takes, slope, middle) >= now:
            high = middle
        else:
            low = middle + 1
    if low < steps:
        s.replica[USED][v] -= grown(s, lane, y, s.lane[STEP][lane] + low, steps - low)
        s.lane[STEPS][lane] = low
        s.run[ENDS][lane] = start + run_time(takes, slope, low)
        due_rise(s, s.due[PLACE][lane])
