"""When the last flow has finished, proven without following the flows.

Legend: F flows, L links, P entries of the incidence.

No schedule ends before its busiest link has carried its load: `busiest_time`.  Often max-min fairness ends
just then, and that can be proven.  A flow is always held by a full link on which no other is faster, so its
rate is at least min over its links of capacity / weight of the flows that still send.  From times by which
the others have finished at the latest so follows one for each flow, and better times for one give better
ones for its neighbours.  Where none is left beyond the busiest link's time, that is the makespan: exact.
Flows of one size never go beyond it: what holds a flow is no busier than the busiest link.
Source of the condition: Bertsekas and Gallager, "Data Networks", 2nd ed., section 6.5.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.network.maxmin import SAME, FluidSystem, add_up
from railwright.network.routing.routes import Routes

Floats = NDArray[np.float64]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

ROUNDS = 40
"""Most times that the latest finishes are gone through; three were enough for a million flows."""

EFFORT = 60
"""Neighbours looked at, per entry of the system, before it is given up: some seconds for a million flows."""

COMPILED_FROM = 4_000
"""Flows from which the kernel goes through them."""


def busiest_time(load: Floats, capacity: Floats) -> float:
    """The largest load / capacity of the live links: no schedule ends before. [s]

    load      (L,) [byte]
    capacity  (L,) [byte/s]
    """
    live = capacity > 0
    return float(np.max(load[live] / capacity[live], initial=0.0))


def first_latest(routes: Routes, size: Floats, capacity: Floats, load: Floats | None = None) -> Floats:
    """By when each demand has finished if all others sent all the time. (F,) [s]

    size      (F,) [byte]
    capacity  (L,) [byte/s]
    load      (L,) what each link carries, where it is known: of demands of one size it tells how many [byte]
    """
    if load is not None and len(size) and size.min() == size.max() > 0:
        crowd = load / size[0]
    else:
        crowd = routes.carried((size > 0).astype(np.float64), len(capacity))
    each = np.divide(crowd, capacity, out=np.zeros(len(capacity)), where=capacity > 0)
    latest: Floats = size * routes.worst(each)
    return latest


def latest_finishes(system: FluidSystem, target: float) -> Floats:
    """By when each flow has finished at the latest, looked into where that may be after `target`. (F,) [s]

    Valid whatever the target is; looked into are flows beyond it and, round by round, what they meet.
    Given up after ROUNDS, or where EFFORT says that no proof is near.
    """
    weight = system.weight * np.repeat(system.count * (system.size > 0), np.diff(system.ptr))
    effort = float(EFFORT * len(weight))
    if len(system) > COMPILED_FROM:
        from railwright.network.compiled.kernel_last import look

        latest: Floats = look(
            system.ptr.astype(np.int64), system.link, weight, system.capacity, system.size.astype(np.float64),
            target, SAME, ROUNDS, effort,
        )  # fmt: skip
        return latest
    return look_plainly(system.ptr, system.link, weight, system.capacity, system.size, target, effort)


def look_plainly(
    ptr: Longs,
    link: NDArray[np.int32],
    weight: Floats,
    capacity: Floats,
    size: Floats,
    target: float,
    effort: float,
) -> Floats:
    """`latest_finishes`: the definition of the kernel.

    weight  (P,) fraction times count, 0 for flows without bytes
    """
    row = np.repeat(np.arange(len(size)), np.diff(ptr))
    by_link = np.argsort(link, kind="stable")
    start = np.searchsorted(link[by_link], np.arange(len(capacity) + 1))
    crowd = add_up(link, weight, len(capacity))
    latest = np.zeros(len(size))
    np.maximum.at(latest, row, size[row] * crowd[link] / capacity[link])
    wanted = latest > target
    for _ in range(ROUNDS):
        effort -= float(np.diff(start)[link[wanted[row]]].sum())
        if effort < 0 or latest.max(initial=0.0) <= target:
            break
        moved = False
        # those that finish first come first: what follows from them is then settled in the same round
        turn = np.flatnonzero(wanted & (latest > 0))
        for flow in turn[np.argsort(latest[turn], kind="mergesort")]:
            own = slice(ptr[flow], ptr[flow + 1])
            entries = [by_link[start[y] : start[y + 1]] for y in link[own]]
            now = _latest(size[flow], capacity[link[own]], crowd[link[own]], [
                (latest[row[e]], np.where(row[e] == flow, 0.0, weight[e])) for e in entries
            ])  # fmt: skip
            moved |= now < latest[flow] * (1 - SAME)
            latest[flow] = min(now, latest[flow])
        meets = np.zeros(len(capacity), bool)
        meets[link[(latest > target)[row]]] = True
        more = wanted.copy()
        more[row[meets[link]]] = True
        if not moved and np.array_equal(more, wanted):
            break
        wanted = more
    return latest


def _latest(size: float, capacity: Floats, crowd: Floats, others: list[tuple[Floats, Floats]]) -> float:
    """By when a flow has finished at the latest. [s]

    size             of the flow [byte]
    capacity, crowd  (k,) of its links, and the weight of all flows on each
    others           per link, by when the other flows on it have finished, and their weights
    """
    ends = np.unique(np.concatenate([times for times, _ in others]))
    rate = np.full(len(ends) + 1, np.inf)
    for c, all_of_them, (times, weights) in zip(capacity, crowd, others, strict=True):
        gone = np.bincount(np.searchsorted(ends, times), weights=weights, minlength=len(ends))
        # what is left is a difference, and never less than the flow itself
        left = np.maximum(np.append(all_of_them, all_of_them - np.cumsum(gone)), all_of_them - weights.sum())
        rate = np.minimum(rate, np.divide(c, left, out=np.full(len(left), np.inf), where=left > 0))
    sent = np.concatenate([[0.0], np.cumsum(rate[:-1] * np.diff(ends, prepend=0.0))])
    step = int(np.searchsorted(sent, size)) - 1
    step = max(step, 0)
    before = ends[step - 1] if step else 0.0
    return float(before + (size - sent[step]) / rate[step])
