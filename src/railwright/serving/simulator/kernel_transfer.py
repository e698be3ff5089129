"""Keys and values on their way from prefill to decode replicas: max-min fair rates on the fabric's links.

Runs interpreted and compiled; see `kernel_rows`.  Transfers of one pair of replicas cross the same links with
the same weights (a byte of the transfer puts `weight` bytes on the link), so that a transfer is one flow;
other jobs' standing traffic takes part as flows with a bound of their own.
"""

from __future__ import annotations

from typing import Any

from railwright.serving.simulator.kernel_rows import (
    ACTIVE,
    AFTER,
    CAPACITY,
    DEMAND,
    FIRST_DECODE,
    HELD,
    LANDING,
    LANDINGS,
    LANDINGS_END,
    LATENCY,
    MOVED_AT,
    MOVING,
    NEVER,
    NEXT_MOVE,
    NOBODY,
    NUM_DECODE,
    NUM_LINKS,
    NUM_REPLICAS,
    OTHERS,
    REMAINING,
    REPLICA,
    SLACK,
    SOURCE,
    SPEED,
    STANDING,
    TOKEN_BYTES,
)


def begin_transfer(s: Any, i: int, now: float) -> None:
    """Request i's keys and values set out from its SOURCE to its REPLICA."""
    settle(s, now)
    s.request[STANDING][i] = MOVING
    s.flow[REMAINING][i] = s.request[HELD][i] * s.clock[TOKEN_BYTES]
    s.active[s.count[ACTIVE]] = i
    s.count[ACTIVE] += 1
    share(s, now)


def settle(s: Any, now: float) -> None:
    """Bytes moved since rates last changed are taken off."""
    passed = now - s.clock[MOVED_AT]
    s.clock[MOVED_AT] = now
    if passed > 0.0:
        for k in range(s.count[ACTIVE]):
            i = s.active[k]
            s.flow[REMAINING][i] = max(s.flow[REMAINING][i] - s.flow[SPEED][i] * passed, 0.0)


def pair_of(s: Any, i: int) -> int:
    """Row of `path` for request i's transfer."""
    row: int = s.request[SOURCE][i] * s.count[NUM_DECODE] + s.request[REPLICA][i] - s.count[FIRST_DECODE]
    return row


def share(s: Any, now: float) -> None:
    """Max-min fair rates of all transfers under way, and when the first ends."""
    num = s.count[ACTIVE]
    s.clock[NEXT_MOVE] = NEVER
    if num == 0:
        return
    if s.count[NUM_LINKS] == 0:
        for k in range(num):
            s.flow[SPEED][s.active[k]] = NEVER
        s.clock[NEXT_MOVE] = now
        return
    for y in range(s.count[NUM_LINKS]):
        s.link[SLACK][y] = s.link[CAPACITY][y]
        s.link[DEMAND][y] = 0.0
    # Rows of the table beyond the pairs of replicas are other jobs' traffic, always there.
    pairs = (s.count[NUM_REPLICAS] - s.count[NUM_DECODE]) * s.count[NUM_DECODE]
    flows = num + s.count[OTHERS]
    for k in range(flows):
        row = pair_of(s, s.active[k]) if k < num else pairs + k - num
        s.row[k] = row
        for e in range(s.path_ptr[row], s.path_ptr[row + 1]):
            s.link[DEMAND][s.path[e]] += s.weight[e]
    left = flows
    while left > 0:
        level, full = NEVER, NOBODY
        for y in range(s.count[NUM_LINKS]):
            if s.link[DEMAND][y] > 1e-12 and s.link[SLACK][y] < level * s.link[DEMAND][y]:
                level, full = s.link[SLACK][y] / s.link[DEMAND][y], y
        level = max(level, 0.0)
        for k in range(flows):
            row = s.row[k]
            if row == NOBODY:
                continue
            crosses = full == NOBODY
            for e in range(s.path_ptr[row], s.path_ptr[row + 1]):
                if s.path[e] == full:
                    crosses = True
            if crosses:
                s.row[k] = NOBODY
                left -= 1
                for e in range(s.path_ptr[row], s.path_ptr[row + 1]):
                    s.link[DEMAND][s.path[e]] -= s.weight[e]
                    s.link[SLACK][s.path[e]] -= s.weight[e] * level
                if k < num:
                    s.flow[SPEED][s.active[k]] = level
        if full != NOBODY:
            s.link[DEMAND][full] = 0.0
    for k in range(num):
        i = s.active[k]
        if s.flow[SPEED][i] > 0.0:
            s.clock[NEXT_MOVE] = min(s.clock[NEXT_MOVE], now + s.flow[REMAINING][i] / s.flow[SPEED][i])


def first_to_end(s: Any) -> int:
    """Place among the active transfers of the one that ends first."""
    best, soonest = 0, NEVER
    for k in range(s.count[ACTIVE]):
        i = s.active[k]
        if s.flow[SPEED][i] > 0.0 and s.flow[REMAINING][i] / s.flow[SPEED][i] < soonest:
            best, soonest = k, s.flow[REMAINING][i] / s.flow[SPEED][i]
    return best


def drop_transfer(s: Any, k: int) -> int:
    """Take the transfer at this place off; its request."""
    i: int = s.active[k]
    s.count[ACTIVE] -= 1
    s.active[k] = s.active[s.count[ACTIVE]]
    return i


def end_transfer(s: Any, now: float) -> int:
    """The first transfer to end has: it lands a latency later. Its request."""
    i = drop_transfer(s, first_to_end(s))
    s.when[LANDING][i] = now + s.clock[LATENCY]
    s.request[AFTER][i] = NOBODY
    if s.count[LANDINGS] == NOBODY:
        s.count[LANDINGS] = i
    else:
        s.request[AFTER][s.count[LANDINGS_END]] = i
    s.count[LANDINGS_END] = i
    return i
