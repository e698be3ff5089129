"""Traffic solved on a network: paths, fluid finish times, link loads, latency and the bottleneck in words.

Legend: F demands, L directed links.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError, nearest
from railwright.network.fluid.events_run import finish_compiled
from railwright.network.fluid.last import busiest_time, first_latest, latest_finishes
from railwright.network.fluid.symmetry import flow_system, quotient, without_twins
from railwright.network.maxmin import SAME, FluidSystem, compiled_rates, finish_times, max_min_rates
from railwright.network.routing.bottleneck import busiest, busiest_link, demands_on
from railwright.network.routing.paths import Routes, arrival, find_routes
from railwright.network.routing.solution import Engine, Network, Solution
from railwright.traffic import Groups, Traffic

Floats = NDArray[np.float64]

LARGEST = 2_000_000
"""Demands solved explicitly: above, memory (about 400 bytes each) and time leave the interactive range."""

BLOCK = 500_000
"""Demands routed at a time when only loads are kept: about 150 bytes each, and the spreads they use."""

MOST_LISTED = 40_000_000
"""Demands of `Groups` written out for an engine that needs them so: 20 bytes each."""

COMPILED_FROM = 4_000
"""Flows of several sizes (after merging alike ones) from which the kernel answers: NumPy takes 2.6 s there,
loading the kernel 0.5 s and compiling it, once, 3.4 s."""

COMPILED_ENTRIES = 1_000_000
"""Flow-link crossings from which it pays for a single solution too."""

UNLIKE_LOADS = 64
"""Different loads of links above which a million crossings of demands of one size are filled unmerged."""

EXACT_UP_TO = 8_000
"""Flows of several sizes whose finishes are followed one by one; above, those within COARSE are one event.
Where every flow is coupled to every other, as in an all-to-all, cost grows with the square."""

COARSE = 0.005

SPARSE = 64
"""Flows on a link, the mean over all crossings, up to which any number is followed one by one: a million of a
PAT collective under ECMP (15 on a link) take 45 s so, and more than 400 s in coarse events."""

PROVEN = "last finish: load / capacity of the busiest link, proven reached"

Finishes = tuple[Floats, str, bool]
"""Finish of each demand [s], the engine in words, whether it is exact."""
Finisher = Callable[[Routes, Floats, Floats, Floats], Finishes]
"""From routes, sizes, capacities and loads."""
Merged = tuple[FluidSystem, NDArray[np.int64] | None]


def solve(network: Network, traffic: Traffic | Groups, engine: Engine = "auto") -> Solution:
    """When every demand has finished on the network, all starting together, and what each link carried.

    engine  'auto'   the quickest that serves: 'numpy', 'numba', 'lifted' for `Groups` or, for too many
                     demands, 'bound'
            'last'   for the time and loads alone: where bounds prove that max-min ends when the busiest link
                     has carried its load, no event is played and `finish` holds the latest of each demand
                     (see `last`); else as 'auto'
            'numpy'  max-min, as defined in `maxmin`
            'numba'  its compiled twin
            'bound'  load / capacity of the busiest link, a lower bound
            'lifted' max-min by symmetry, no demand listed, exact: what 'auto' does with `Groups` under
                     adaptive routing; its entries are classes (`Solution.members`)
            'fifo'   every chunk over every link, for small traffic: all messages posted at once, without
                     latency; `fifo.run.simulate` has orders, windows, buffers and packets

    Rates are max-min fair at every moment and rise when demands finish (see `maxmin`).  Demands that
    symmetry makes alike are solved as one, which is exact (see `symmetry`).  exact=False in two cases:
    more than EXACT_UP_TO different demands of several sizes, many to a link (finishes within COARSE of each
    other are one event: a feasible schedule that hands freed bandwidth on a little late; under 'last' also a
    time proven within COARSE), and more than LARGEST demands
    (the busiest link's load / capacity: a lower bound).
    Raises PlanError where a demand has no live path, is of a GPU or size that cannot be, or the engine cannot
    take this traffic.
    """
    if engine not in ENGINES:
        known = ", ".join(f"'{name}'" for name in ENGINES)
        meant = nearest(engine, ENGINES) or "."
        raise PlanError(f"No engine '{engine}' solves {type(traffic).__name__}: it can be {known}{meant}")
    if isinstance(traffic, Groups):
        _check_groups(network, traffic)
        if engine == "lifted" or (engine in ("auto", "last") and network.routing == "adaptive"):
            return _lifted(network, traffic)
        traffic = _listed(network, traffic)
    _check(network, traffic)
    return ENGINES[engine](network, traffic)


def _auto(network: Network, traffic: Traffic) -> Solution:
    return (
        _bound(network, traffic) if len(traffic) > LARGEST else _explicit(network, traffic, _every_finish())
    )


def _last(network: Network, traffic: Traffic) -> Solution:
    if len(traffic) <= LARGEST:
        return _explicit(network, traffic, _last_finish)
    solution = _bound(network, traffic)
    if not _of_one_size(traffic):
        return solution
    return replace(solution, engine=f"{PROVEN} ({len(traffic):,} demands of one size)", exact=True)


def _of_one_size(traffic: Traffic) -> bool:
    sent = traffic.size[traffic.size > 0]
    return not len(sent) or float(sent.min()) == float(sent.max())


def _numpy(network: Network, traffic: Traffic) -> Solution:
    return _explicit(network, _few(traffic, "numpy"), _every_finish(compiled=False))


def _numba(network: Network, traffic: Traffic) -> Solution:
    return _explicit(network, _few(traffic, "numba"), _every_finish(compiled=True))


def _lifted(network: Network, traffic: Traffic | Groups) -> Solution:
    from railwright.network.lifted import solve_lifted

    return solve_lifted(network, traffic)


def _listed(network: Network, groups: Groups) -> Traffic:
    if len(groups) > MOST_LISTED:
        raise PlanError(
            f"{len(groups):,} demands of groups are more than the {MOST_LISTED:,} that can be listed one by "
            "one; take routing 'adaptive' (engine 'lifted' or 'auto'), which lists none, or smaller groups."
        )
    return groups.expand(network.fabric)


def _fifo(network: Network, traffic: Traffic) -> Solution:
    from railwright.network.fifo import run as fifo

    return fifo.simulate(network, traffic, delay=np.zeros(network.fabric.num_links)).solution


def _check(network: Network, traffic: Traffic) -> None:
    if not len(traffic):
        return
    smallest, largest = float(traffic.size.min()), float(traffic.size.max())
    if not (smallest >= 0 and np.isfinite(largest)):
        wrong = int(np.flatnonzero(~(np.isfinite(traffic.size) & (traffic.size >= 0)))[0])
        raise PlanError(
            f"Demand {wrong} of the traffic has {traffic.size[wrong]:g} bytes; give a number from 0."
        )
    last = network.fabric.num_gpus - 1
    for name, gpu, least in (("src", traffic.src, 0), ("dst", traffic.dst, 0), ("relay", traffic.relay, -1)):
        if gpu.min() < least or gpu.max() > last:
            wrong = int(np.flatnonzero((gpu < least) | (gpu > last))[0])
            raise PlanError(
                f"'{name}' of demand {wrong} is GPU {gpu[wrong]}; the fabric's GPUs run from 0 to {last}."
            )


def _check_groups(network: Network, groups: Groups) -> None:
    _check(network, groups.explicit)
    last = network.fabric.num_gpus - 1
    wrong = np.flatnonzero((groups.gpus < 0) | (groups.gpus > last))
    if len(wrong):
        group = int(np.searchsorted(groups.ptr, wrong[0], side="right")) - 1
        raise PlanError(
            f"Group {group} holds GPU {groups.gpus[wrong[0]]}; the fabric's GPUs run from 0 to {last}."
        )
    if not np.all(np.isfinite(groups.size)):
        group = int(np.flatnonzero(~np.isfinite(groups.size))[0])
        raise PlanError(f"Group {group} sends {groups.size[group]:g} bytes per pair; give a number from 0.")


def _few(traffic: Traffic, engine: str) -> Traffic:
    if len(traffic) > LARGEST:
        raise PlanError(
            f"Engine '{engine}' takes at most {LARGEST:,} demands and this traffic has {len(traffic):,}; "
            "choose 'bound', or 'auto'."
        )
    return traffic


def _explicit(network: Network, traffic: Traffic, finisher: Finisher) -> Solution:
    routes = find_routes(network, traffic)
    size = traffic.size
    load = routes.carried(size, network.fabric.num_links)
    finish, engine, exact = finisher(routes, size, network.fabric.capacity, load)
    time = float(finish.max(initial=0.0))
    return Solution(
        time,
        finish,
        load,
        routes.latency,
        routes.hops,
        busiest(network, load, time, lambda link: demands_on(routes, size, link)),
        engine,
        exact,
    )


def _every_finish(compiled: bool | None = None) -> Finisher:
    """By the kernel or by NumPy; None: by what is quicker."""

    def finisher(routes: Routes, size: Floats, capacity: Floats, load: Floats) -> Finishes:
        return _played(_system(routes, size, capacity, load), len(size), compiled)

    return finisher


def _last_finish(routes: Routes, size: Floats, capacity: Floats, load: Floats) -> Finishes:
    """Bounds of all finishes where they prove the last; else the finishes themselves."""
    least = busiest_time(load, capacity)
    latest = first_latest(routes, size, capacity, load)
    if latest.max(initial=0.0) <= least * (1 + SAME):
        return np.minimum(latest, least), f"{PROVEN} ({len(size):,} demands)", True
    merged = _system(routes, size, capacity, load, several=True)
    system, flow_class = merged
    latest = latest_finishes(system, least * (1 + SAME))
    beyond = float(latest.max()) / least - 1
    if beyond > (SAME if len(system) <= EXACT_UP_TO or _sparse(system) else COARSE):
        return _played(merged, len(size), None)
    finish = np.minimum(latest, least)
    exact = beyond <= SAME
    within = "" if exact else f", within {beyond:.2%}"
    engine = f"{PROVEN} ({_number(merged, len(size))}{within})"
    return finish if flow_class is None else finish[flow_class], engine, exact


def _system(routes: Routes, size: Floats, capacity: Floats, load: Floats, several: bool = False) -> Merged:
    """The demands as flows, alike ones merged where that pays, and the class of each (None: unmerged).

    several  demands of several sizes are not worth merging either where few are alike
    """
    apart = _hashed_apart(routes, load)
    # a job of few GPUs on a large fabric: what follows costs as much as the links it crosses, not as all
    routes, crossed = routes.renumbered(len(capacity))
    capacity = capacity[crossed]
    if not (apart and (several or size.min() == size.max())):
        routes = without_twins(routes, capacity)
        merged = quotient(routes, size, capacity, worthwhile=0.5)
        if merged is not None:
            return merged
    return flow_system(routes, size, capacity), None


def _number(merged: Merged, demands: int) -> str:
    system, flow_class = merged
    return f"{demands:,} demands" + (f" in {len(system):,} classes" if flow_class is not None else "")


def _played(merged: Merged, demands: int, forced: bool | None) -> Finishes:
    system, flow_class = merged
    several = len(np.unique(system.size[system.size > 0])) > 1
    pays = len(system.link) > COMPILED_ENTRIES or (several and len(system) > COMPILED_FROM)
    compiled = pays if forced is None else forced
    exact = not several or len(system) <= EXACT_UP_TO or (compiled and _sparse(system))
    if compiled and several and exact:
        finish = finish_compiled(system)
    else:
        finish = finish_times(
            system, SAME if exact else COARSE, compiled_rates if compiled else max_min_rates
        )
    if flow_class is not None:
        finish = finish[flow_class]
    coarse = "" if exact else f", finishes within {COARSE:.1%} taken as one event"
    number = _number(merged, demands)
    return finish, f"explicit max-min ({'numba' if compiled else 'NumPy'}, {number}{coarse})", exact


def _sparse(system: FluidSystem) -> bool:
    """Whether the links that a flow crosses are crossed by few others, so that few feel it finish."""
    crossing = np.bincount(system.link, minlength=len(system.capacity))
    return float(crossing @ crossing) <= SPARSE * len(system.link)


def _hashed_apart(routes: Routes, load: Floats) -> bool:
    """Whether one filling of the demands as they are costs less than looking for alike ones.

    Links of one class carry the same load, so many different loads mean many classes.
    """
    if len(routes.link) <= COMPILED_ENTRIES or routes.num_spreads:
        return False
    return len(np.unique(load)) > UNLIKE_LOADS


def _bound(network: Network, traffic: Traffic) -> Solution:
    """Busiest link's load / capacity, block by block; alike demands of two blocks share an ECMP path.

    Blocks are cut from demands in order of the switch they arrive at, so that few pairs of switches, and the
    spreads between them, belong to any block and none to many.
    """
    fabric = network.fabric
    order = np.argsort(arrival(fabric, traffic), kind="stable")
    blocks = [order[start : start + BLOCK] for start in range(0, len(traffic), BLOCK)]
    load = np.zeros(fabric.num_links)
    latency, hops, finish = np.zeros(len(traffic)), np.zeros(len(traffic), np.int32), np.zeros(len(traffic))

    def routed(block: NDArray[np.intp]) -> Routes:
        part = Traffic(traffic.src[block], traffic.dst[block], traffic.relay[block], traffic.size[block])
        return find_routes(network, part)

    for block in blocks:
        routes = routed(block)
        load += routes.carried(traffic.size[block], fabric.num_links)
        latency[block], hops[block] = routes.latency, routes.hops
    busy = np.divide(load, fabric.capacity, out=np.zeros(len(load)), where=fabric.capacity > 0)
    top = busiest_link(busy)
    share = 0
    for block in blocks:
        routes = routed(block)
        finish[block] = np.where(traffic.size[block] > 0, routes.worst(busy), 0.0)
        share += demands_on(routes, traffic.size[block], top)
    time = float(finish.max(initial=0.0))
    many = ", too many for max-min" if len(traffic) > LARGEST else ""
    engine = f"lower bound: load / capacity of the busiest link ({len(traffic):,} demands{many})"
    bottleneck = busiest(network, load, time, lambda link: share)
    return Solution(time, finish, load, latency, hops, bottleneck, engine, False)


ENGINES: dict[str, Callable[[Network, Traffic], Solution]] = {
    "auto": _auto,
    "last": _last,
    "numpy": _numpy,
    "numba": _numba,
    "bound": _bound,
    "lifted": _lifted,
    "fifo": _fifo,
}
