"""Max-min fair rates and finish times of fluid flows: the definition, in NumPy.

Legend: F flows (or classes of alike flows), L links, P entries of the incidence; row is the flow of an entry.
A flow of rate r loads link l with weight * count * r.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

SAME = 1e-9
"""Rates and finish times this close, relatively, are one event: far above rounding, far below physics."""


Rates = Callable[["FluidSystem", Longs, Floats], Floats]


@dataclass(frozen=True, eq=False)
class FluidSystem:
    """Flows on links.

    ptr, link, weight  CSR: links of each flow and the fraction of it they carry
    capacity           (L,) [byte/s]
    size               (F,) [byte]
    count              (F,) how many alike flows each stands for
    """

    ptr: Longs
    link: Ints
    weight: Floats
    capacity: Floats
    size: Floats
    count: Floats

    def __len__(self) -> int:
        return len(self.size)


def finish_times(system: FluidSystem, tolerance: float = SAME, rates: Rates | None = None) -> Floats:
    """When each flow has sent its size, all starting together at max-min fair rates. (F,) [s]

    tolerance  finishes within this relative distance of the next event share it: freed bandwidth is handed on
               only after the last of them.  At SAME this is exact; above, rates stay feasible.
    rates      how rates are found: `max_min_rates` (default) or its compiled twin

    When flows finish, only flows at least as fast as the slowest of them can gain: a link that a finished
    flow of rate r crossed saturates at a level of at least r, so slower flows are held by other links.
    Hence rates hold until a flow finishes while a faster or equal one still sends; flows of one size need
    a single solution.  Flows without links or bytes finish at 0.
    """
    rates = rates or max_min_rates
    finish = np.zeros(len(system))
    remaining = system.size.astype(np.float64).copy()
    active = np.flatnonzero((remaining > 0) & (np.diff(system.ptr) > 0))
    rate = np.zeros(len(system))
    rate[active] = rates(system, active, system.capacity)
    if len(active) and remaining[active].min() == remaining[active].max():
        finish[active] = remaining[active] / rate[active]
        return finish
    now = 0.0
    while len(active):
        due = now + remaining[active] / rate[active]
        order = np.argsort(due, kind="stable")
        due, fast = due[order], rate[active][order]
        stop = last_before_change(due, fast, tolerance)
        finish[active[order[: stop + 1]]] = due[: stop + 1]
        slowest = fast[: stop + 1].min()
        left = active[np.sort(order[stop + 1 :])]
        remaining[left] = np.maximum(remaining[left] - rate[left] * (due[stop] - now), 0.0)
        now = due[stop]
        active = left[remaining[left] > 0]
        finish[left[remaining[left] <= 0]] = now
        if not len(active):
            break
        gains = rate[active] >= slowest * (1 - SAME)
        held = active[~gains]
        slack = system.capacity - load(system, held, rate[held])
        rate[active[gains]] = rates(system, active[gains], np.maximum(slack, 0.0))
    return finish


def max_min_rates(system: FluidSystem, flows: Longs, slack: Floats) -> Floats:
    """Max-min fair rate of each of some flows on what the other flows leave. (len(flows),) [byte/s]

    flows  rows of the system that send
    slack  (L,) capacity left for them [byte/s]

    Progressive filling, many levels at once: a link whose flows all have their lowest level on it is
    saturated at that level whatever happens elsewhere, so its flows are fixed and taken off.
    Source: Bertsekas and Gallager, "Data Networks", 2nd ed., section 6.5.2 (max-min flow control).
    """
    rate = np.zeros(len(flows))
    slack = slack.copy()
    pending = np.arange(len(flows))
    links, weights, counts = _rows(system, flows)
    while len(pending):
        row = np.repeat(np.arange(len(pending)), counts)
        starts = np.cumsum(counts) - counts
        demand = np.bincount(links, weights=weights, minlength=len(slack))
        level = np.divide(slack, demand, out=np.full(len(slack), np.inf), where=demand > 0)
        lowest = np.minimum.reduceat(level[links], starts)
        elsewhere = np.zeros(len(slack), bool)
        elsewhere[links[lowest[row] < level[links] * (1 - SAME * 1e-3)]] = True
        settled = np.logical_or.reduceat(~elsewhere[links], starts)
        rate[pending[settled]] = lowest[settled]
        gone = settled[row]
        used = np.bincount(links[gone], weights=(weights * lowest[row])[gone], minlength=len(slack))
        slack = np.maximum(slack - used, 0.0)
        pending, counts = pending[~settled], counts[~settled]
        links, weights = links[~gone], weights[~gone]
    return rate


def compiled_rates(system: FluidSystem, flows: Longs, slack: Floats) -> Floats:
    """`max_min_rates` by the compiled kernel, which is imported here, when first needed."""
    from railwright.network.compiled.kernel_maxmin import fill

    links, weights, counts = _rows(system, flows)
    rate: Floats = fill(np.concatenate([[0], np.cumsum(counts)]), links, weights, slack.copy())
    return rate


def load(system: FluidSystem, flows: Longs, rate: Floats) -> Floats:
    """(L,) what some flows at some rates put on each link [byte/s]."""
    links, weights, counts = _rows(system, flows)
    return add_up(links, weights * np.repeat(rate, counts), len(system.capacity))


def add_up(slot: Ints | Longs, amount: Floats, slots: int) -> Floats:
    """(slots,) sum of the amounts of each slot."""
    total: Floats = np.bincount(slot, weights=amount, minlength=slots).astype(np.float64, copy=False)
    return total


def last_before_change(due: Floats, rate: Floats, tolerance: float) -> int:
    """Index of the last flow that finishes before rates must be solved anew.

    due   finish times at present rates, ascending [s]
    rate  of the same flows [byte/s]
    """
    slowest_done = np.minimum.accumulate(rate)
    fastest_left = np.maximum.accumulate(rate[::-1])[::-1]
    change = np.flatnonzero(fastest_left[1:] >= slowest_done[:-1] * (1 - SAME))
    if not len(change):
        return len(due) - 1
    # Flows of one rate and one size finish together: they are one event, not a change.
    last = np.searchsorted(due, due[change] * (1 + tolerance), side="right") - 1
    beyond = np.append(fastest_left[1:], 0.0)[last] >= slowest_done[last] * (1 - SAME)
    real = np.flatnonzero(beyond)
    return int(last[real[0]]) if len(real) else len(due) - 1


def _rows(system: FluidSystem, flows: Longs) -> tuple[Ints, Floats, Longs]:
    """Links, weight times count, and number of links of some flows."""
    counts = np.diff(system.ptr)
    if len(flows) == len(system):
        return system.link, _counted(system, counts), counts
    counts = counts[flows]
    ends = np.cumsum(counts)
    entry = np.arange(ends[-1] if len(ends) else 0) + np.repeat(system.ptr[flows] - (ends - counts), counts)
    return system.link[entry], system.weight[entry] * np.repeat(system.count[flows], counts), counts


def _counted(system: FluidSystem, counts: Longs) -> Floats:
    """(P,) weight times count of all flows."""
    if np.all(system.count == 1):
        return system.weight
    return system.weight * np.repeat(system.count, counts)
