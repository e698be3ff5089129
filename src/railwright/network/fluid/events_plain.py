"""Flows that start and finish over time: the definition, in NumPy. All rates are solved anew at every event.

Legend: F flows, L links, N phases.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.network.fluid.events import Schedule, successors
from railwright.network.maxmin import FluidSystem, load, max_min_rates

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

ONE_MOMENT = 1e-12
"""Events this close, relatively, are one: above rounding, far below what a reader could see."""


@dataclass(frozen=True, eq=False)
class Played:
    """Start and finish of flows (F,), opening and end of phases (N,), moments and watched loads (E, W)."""

    start: Floats
    finish: Floats
    opened: Floats
    ended: Floats
    times: Floats
    loads: Floats
    solutions: int


def play(system: FluidSystem, schedule: Schedule, batch: float, watch: Longs) -> Played:
    """Every event in order of time: phases open, flows start and finish, then rates are max-min fair again.

    system    flows on links; a flow of fairness weight v has weights v times as large and size / v
    schedule  phases and waits; its traffic and weights are not looked at
    batch     a finish alone changes the other rates only this much later, with all finishes until then [s]
    watch     (W,) links whose load is recorded after every change of rates
    """
    flows, phases = len(system), schedule.num_phases
    opens = np.full(phases, np.inf)
    waits = np.bincount(schedule.after, minlength=phases)
    opens[waits == 0] = schedule.delay[waits == 0]
    next_ptr, after = successors(schedule)
    members = np.bincount(schedule.phase, minlength=phases)
    opened, ended = np.zeros(phases), np.zeros(phases)
    starts, due = np.full(flows, np.inf), np.full(flows, np.inf)
    start, finish, rate, left = np.zeros(flows), np.zeros(flows), np.zeros(flows), system.size.copy()
    empty = (system.size <= 0) | (np.diff(system.ptr) == 0)
    times: list[float] = []
    loads: list[Floats] = []
    now, must_solve, solutions, since = 0.0, np.inf, 0, 0.0

    def end(phase: int, moment: float) -> None:
        ended[phase] = moment
        for follower in after[next_ptr[phase] : next_ptr[phase + 1]]:
            waits[follower] -= 1
            if waits[follower] == 0:
                opens[follower] = moment + schedule.delay[follower]

    def over(flow: int, moment: float) -> None:
        finish[flow] = moment
        members[schedule.phase[flow]] -= 1
        if members[schedule.phase[flow]] == 0:
            end(schedule.phase[flow], moment)

    while True:
        soonest = min(x.min(initial=np.inf) for x in (opens, starts, due))
        if np.isinf(soonest) and np.isinf(must_solve):
            break
        started = changed = False
        now = min(soonest, must_solve)
        while now < must_solve:
            moments = np.concatenate([due, starts, opens])
            which = int(np.argmin(moments))
            moment = float(moments[which])
            if np.isinf(moment) or moment > now * (1 + ONE_MOMENT):
                break
            now = max(now, moment)
            if which < flows:
                due[which] = np.inf
                changed = True
                over(which, moment)
            elif which < 2 * flows:
                flow = which - flows
                starts[flow], start[flow] = np.inf, moment
                if empty[flow]:
                    over(flow, moment)
                else:
                    started = True
                    due[flow] = np.finfo(np.float64).max  # sends; its rate follows
            else:
                phase = which - 2 * flows
                opens[phase], opened[phase] = np.inf, moment
                own = np.flatnonzero(schedule.phase == phase)
                starts[own] = moment + schedule.start[own]
                if not len(own):
                    end(phase, moment)
        sending = np.flatnonzero(np.isfinite(due))
        if changed and not started and batch > 0 and len(sending):
            must_solve = min(must_solve, now + batch)
            if now < must_solve:
                continue
        if not (changed or started or now >= must_solve):
            continue
        must_solve = np.inf
        left[sending] = np.maximum(left[sending] - rate[sending] * (now - since), 0.0)
        rate[:] = 0.0
        rate[sending] = max_min_rates(system, sending, system.capacity)
        due[sending] = now + left[sending] / rate[sending]
        since, solutions = now, solutions + 1
        if len(watch):
            times.append(float(now))
            loads.append(load(system, sending, rate[sending])[watch])
    return Played(
        start, finish, opened, ended, np.array(times), np.array(loads).reshape(len(times), len(watch)),
        solutions,
    )  # fmt: skip
