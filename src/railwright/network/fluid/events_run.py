"""A schedule run on a network: routes once, then flows that come and go at max-min fair rates.

Legend: F flows, N phases, L directed links.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.network.fluid.events import Schedule, Simulation, check, critical_chain, successors, together
from railwright.network.fluid.events_plain import Played, play
from railwright.network.fluid.symmetry import flow_system, without_twins
from railwright.network.maxmin import FluidSystem
from railwright.network.routing.bottleneck import busiest, demands_on
from railwright.network.routing.paths import Routes, find_routes
from railwright.network.routing.solution import Network
from railwright.traffic import Traffic

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

EventEngine = Literal["auto", "numpy", "numba"]

COMPILED_FROM = 60_000_000
"""Flows times their link crossings from which the compiled kernel answers: the definition solves all rates
once per flow, and below takes less than 3 s, in which the kernel is compiled where nothing is cached."""


def simulate(
    network: Network, schedule: Schedule, engine: EventEngine = "auto", batch: float = 0.0
) -> Simulation:
    """When every flow and phase starts and finishes, and which phases the end waited for.

    engine  'numpy' is the definition (every event solves all rates), 'numba' its twin (only what changed),
            'auto' takes the second from COMPILED_FROM on
    batch   above 0, what a finished flow leaves is handed on up to this much later, together with that of
            others [s]: a feasible schedule, reported as not exact; starts are never late

    Rates are max-min fair, weighted by schedule.weight, at every moment; flows sharing no link with what
    changed are not touched.  With all flows in one phase at 0 finishes are those of `solve`.
    Latencies are not part of the times; give them as delays of phases.
    Raises PlanError for a schedule that cannot run and where a flow has no live path.
    """
    routes = _routes(network, schedule)
    if not (np.isfinite(batch) and batch >= 0):
        raise PlanError(f"A batch of {batch} s cannot be; give seconds, or 0 for every event by itself.")
    played, name = _play(network, schedule, routes, engine, batch, np.zeros(0, np.int64))
    size = schedule.traffic.size
    load = routes.carried(size, network.fabric.num_links)
    time = float(played.ended.max(initial=0.0))
    coarse = f", finishes within {batch:.3g} s taken as one event" if batch > 0 else ""
    return Simulation(
        time,
        played.start,
        played.finish,
        played.opened,
        played.ended,
        critical_chain(schedule, played.ended),
        load,
        routes.latency,
        routes.hops,
        busiest(network, load, time, lambda link: demands_on(routes, size, link)),
        f"event-driven max-min ({name}, {len(schedule):,} flows, {schedule.num_phases:,} phases{coarse})",
        batch == 0,
        played.solutions,
    )


def load_over_time(
    network: Network, schedule: Schedule, links: Longs, engine: EventEngine = "auto", batch: float = 0.0
) -> tuple[Floats, Floats]:
    """Moments (E,) [s] at which rates changed, and load (E, len(links)) of some links from each on [byte/s].

    The run is repeated, so that no run has to keep what nobody asks for.
    """
    links = np.asarray(links, np.int64)
    wrong = np.flatnonzero((links < 0) | (links >= network.fabric.num_links))
    if len(wrong):
        last = network.fabric.num_links - 1
        raise PlanError(f"Link {links[wrong[0]]} is not in the fabric, whose links run from 0 to {last}.")
    played, _ = _play(network, schedule, _routes(network, schedule), engine, batch, links)
    return played.times, played.loads


def _routes(network: Network, schedule: Schedule) -> Routes:
    check(schedule)
    return find_routes(network, schedule.traffic)


def _play(
    network: Network, schedule: Schedule, routes: Routes, engine: str, batch: float, watch: Longs
) -> tuple[Played, str]:
    if engine not in ("auto", "numpy", "numba"):
        raise PlanError(f"No engine '{engine}' runs a schedule: it can be 'auto', 'numpy' or 'numba'.")
    capacity = network.fabric.capacity
    slim = routes if len(watch) else without_twins(routes, capacity)
    system = flow_system(slim, schedule.traffic.size, capacity)
    v = schedule.weight
    system = replace(
        system, weight=system.weight * np.repeat(v, np.diff(system.ptr)), size=schedule.traffic.size / v
    )
    if engine == "numba" or (engine == "auto" and len(system) * len(system.link) >= COMPILED_FROM):
        return play_compiled(system, schedule, batch, watch), "numba"
    return play(system, schedule, batch, watch), "NumPy"


def finish_compiled(system: FluidSystem) -> Floats:
    """(F,) when each flow has sent its size, all starting at 0: `maxmin.finish_times`, incremental."""
    none = np.zeros(len(system), np.int32)
    everything = together(Traffic(none, none, none - 1, system.size))
    return play_compiled(system, everything, 0.0, np.zeros(0, np.int64)).finish


def play_compiled(system: FluidSystem, schedule: Schedule, batch: float, watch: Longs) -> Played:
    """`events_plain.play` by the compiled kernel, which is imported here, when first needed."""
    from railwright.network.compiled.kernel_events import play as kernel

    phase = schedule.phase.astype(np.int64)
    member = np.argsort(phase, kind="stable")
    member_ptr = np.searchsorted(phase[member], np.arange(schedule.num_phases + 1)).astype(np.int64)
    next_ptr, after = successors(schedule)
    waits = np.bincount(schedule.after, minlength=schedule.num_phases).astype(np.int64)
    start, finish, opened, ended, times, loads, solutions, _ = kernel(
        system.ptr.astype(np.int64),
        system.link,
        system.weight * np.repeat(system.count, np.diff(system.ptr)),
        system.capacity,
        system.size.astype(np.float64),
        phase,
        schedule.start.astype(np.float64),
        member_ptr,
        member,
        waits,
        next_ptr,
        after,
        schedule.delay.astype(np.float64),
        float(batch),
        watch,
    )
    return Played(start, finish, opened, ended, times, loads, solutions)
