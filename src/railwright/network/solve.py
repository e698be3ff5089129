"""Traffic solved on a network: paths, fluid finish times, link loads, latency and the bottleneck in words.

Legend: F demands, L directed links.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError, nearest
from railwright.network.bottleneck import busiest, busiest_link, demands_on
from railwright.network.events_run import finish_compiled
from railwright.network.maxmin import SAME, compiled_rates, finish_times, max_min_rates
from railwright.network.paths import Routes, arrival, find_routes
from railwright.network.solution import Engine, Network, Solution
from railwright.network.symmetry import flow_system, quotient, without_twins
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


def solve(network: Network, traffic: Traffic | Groups, engine: Engine = "auto") -> Solution:
    """When every demand has finished on the network, all starting together, and what each link carried.

    engine  'auto'   the quickest that serves: 'numpy', 'numba', 'lifted' for `Groups` or, for too many
                     demands, 'bound'
            'numpy'  max-min, as defined in `maxmin`
            'numba'  its compiled twin
            'bound'  load / capacity of the busiest link, a lower bound
            'lifted' max-min by symmetry, no demand listed, exact: what 'auto' does with `Groups` under
                     adaptive routing; its entries are classes (`Solution.members`)
            'fifo'   every chunk over every link, for small traffic: all messages posted at once, without
                     latency; `fifo.simulate` has orders, windows, buffers and packets

    Rates are max-min fair at every moment and rise when demands finish (see `maxmin`).  Demands that
    symmetry makes alike are solved as one, which is exact (see `symmetry`).  exact=False in two cases:
    more than EXACT_UP_TO different demands of several sizes (finishes within COARSE of each other are one
    event: a feasible schedule that hands freed bandwidth on a little late), and more than LARGEST demands
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
        if engine == "lifted" or (engine == "auto" and network.routing == "adaptive"):
            return _lifted(network, traffic)
        traffic = _listed(network, traffic)
    _check(network, traffic)
    return ENGINES[engine](network, traffic)


def _auto(network: Network, traffic: Traffic) -> Solution:
    return _bound(network, traffic) if len(traffic) > LARGEST else _explicit(network, traffic, None)


def _numpy(network: Network, traffic: Traffic) -> Solution:
    return _explicit(network, _few(traffic, "numpy"), compiled=False)


def _numba(network: Network, traffic: Traffic) -> Solution:
    return _explicit(network, _few(traffic, "numba"), compiled=True)


def _lifted(network: Network, traffic: Traffic | Groups) -> Solution:
    from railwright.network.lifted import solve_lifted

    return solve_lifted(network, traffic)


def _listed(network: Network, groups: Groups) -> Traffic:
    if len(groups) > MOST_LISTED:
        raise PlanError(
            f"{len(groups):,} demands of groups are more than the {MOST_LISTED:,} that can be listed one by "
            "one; take routing 'adaptive' with engine 'lifted' or 'auto', which lists none."
        )
    return groups.expand(network.fabric)


def _fifo(network: Network, traffic: Traffic) -> Solution:
    from railwright.network import fifo

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


def _explicit(network: Network, traffic: Traffic, compiled: bool | None) -> Solution:
    routes = find_routes(network, traffic)
    size = traffic.size
    load = routes.carried(size, network.fabric.num_links)
    finish, engine, exact = _finish(routes, size, network.fabric.capacity, load, compiled)
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


def _finish(
    routes: Routes, size: Floats, capacity: Floats, load: Floats, forced: bool | None
) -> tuple[Floats, str, bool]:
    merged = None
    if not _hashed_apart(routes, size, load):
        routes = without_twins(routes, capacity)
        merged = quotient(routes, size, capacity, worthwhile=0.5)
    if merged is None:
        system = flow_system(routes, size, capacity)
        number = f"{len(size):,} demands"
    else:
        system, flow_class = merged
        number = f"{len(size):,} demands in {len(system):,} classes"
    several = len(np.unique(system.size[system.size > 0])) > 1
    pays = len(system.link) > COMPILED_ENTRIES or (several and len(system) > COMPILED_FROM)
    compiled = pays if forced is None else forced
    exact = not several or len(system) <= EXACT_UP_TO
    if compiled and several and exact:
        finish = finish_compiled(system)
    else:
        finish = finish_times(
            system, SAME if exact else COARSE, compiled_rates if compiled else max_min_rates
        )
    if merged is not None:
        finish = finish[flow_class]
    coarse = "" if exact else f", finishes within {COARSE:.1%} taken as one event"
    return finish, f"explicit max-min ({'numba' if compiled else 'NumPy'}, {number}{coarse})", exact


def _hashed_apart(routes: Routes, size: Floats, load: Floats) -> bool:
    """Whether one filling of the demands as they are costs less than looking for alike ones.

    Links of one class carry the same load, so many different loads mean many classes.
    """
    if len(routes.link) <= COMPILED_ENTRIES or routes.num_spreads or size.min() != size.max():
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
    "numpy": _numpy,
    "numba": _numba,
    "bound": _bound,
    "lifted": _lifted,
    "fifo": _fifo,
}
