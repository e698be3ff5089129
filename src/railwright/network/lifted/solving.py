"""Groups of ranks solved without listing their demands.

Legend: X classes of demands, F explicit demands, Y classes of links, L directed links.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.network.fluid.symmetry import refine
from railwright.network.lifted.classes import DemandClasses, demand_classes, link_classes
from railwright.network.lifted.graph import symmetry_graph
from railwright.network.lifted.partition import Graph, Partition
from railwright.network.maxmin import SAME, FluidSystem, add_up, compiled_rates, finish_times, max_min_rates
from railwright.network.routing.bottleneck import busiest
from railwright.network.routing.paths import Routes, find_routes
from railwright.network.routing.shortest import ragged
from railwright.network.routing.solution import Network, Solution
from railwright.traffic import Groups, Traffic

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

COMPILED_FROM = 4_000
"""Classes of several sizes from which compiling the filling kernel pays, as in `network.solve`."""


@dataclass(frozen=True, eq=False)
class Lifted:
    """A problem reduced by its symmetry.

    groups     what is solved
    classes    X classes of the groups' demands
    routes     of one demand of each class
    explicit   of the F explicit demands
    alike      (F,) class of each explicit demand, 0..
    link_class (L,) class of each link, 0..Y-1
    graph, partition  what the classes were found on
    """

    groups: Groups
    classes: DemandClasses
    routes: Routes
    explicit: Routes
    alike: Longs
    link_class: Longs
    graph: Graph
    partition: Partition


def solve_lifted(network: Network, traffic: Groups | Traffic) -> Solution:
    """What `network.solve` answers for the same demands listed one by one, without listing them. Exact.

    For `Groups`, entries of finish, latency and hops are classes of alike demands; `members` says how many
    each stands for (classes of groups first, then of explicit demands).  For `Traffic` they are the demands
    themselves.  `load` is of every link.
    Raises PlanError where a demand has no live path, and for routings that leave no symmetry to use.
    """
    work = lift(network, traffic)
    system, crossed, example = _quotient(network.fabric, work)
    several = len(np.unique(system.size[system.size > 0])) > 1
    compiled = several and len(system) > COMPILED_FROM
    finish = finish_times(system, SAME, compiled_rates if compiled else max_min_rates)
    time = float(finish.max(initial=0.0))
    load = _spread_out(system, work.link_class, network.fabric)

    latency = np.concatenate([work.routes.latency, work.explicit.latency[example]])
    hops = np.concatenate([work.routes.hops, work.explicit.hops[example]])
    bottleneck = busiest(network, load, time, lambda link: _crossing(system, crossed, work.link_class, link))
    engine = (
        f"lifted max-min ({'numba' if compiled else 'NumPy'}, {system.count.sum():,.0f} demands in "
        f"{len(system):,} classes on {len(system.capacity):,} classes of links)"
    )
    if isinstance(traffic, Traffic):
        finish, latency, hops = finish[work.alike], work.explicit.latency, work.explicit.hops
    members = system.count if isinstance(traffic, Groups) else None
    return Solution(time, finish, load, latency, hops, bottleneck, engine, True, members)


def lift(network: Network, traffic: Groups | Traffic) -> Lifted:
    """The classes of demands and links under which a problem is solved; see `solve_lifted`."""
    if network.routing != "adaptive":
        raise PlanError(
            f"The lifted engine needs routing 'adaptive', and this network's is '{network.routing}': hashes "
            "and tables choose by address, which leaves no two demands alike; take engine 'auto'."
        )
    fabric = network.fabric
    groups = traffic if isinstance(traffic, Groups) else Groups.all_to_all([], 0.0, False, traffic)
    explicit = find_routes(network, groups.explicit)
    mark = np.zeros(fabric.num_links, np.int64)
    alike = np.zeros(len(groups.explicit), np.int64)
    graph = symmetry_graph(fabric, groups, mark)
    partition = Partition.coarsest(graph)
    links = link_classes(fabric, partition.label, mark)
    while len(alike):
        # Explicit demands tell links apart, links tell devices apart, and devices links: until none does.
        colours = refine(explicit, groups.explicit.size, links.astype(np.float64))
        assert colours is not None
        alike = np.unique(colours[0], return_inverse=True)[1].reshape(-1).astype(np.int64)
        marked = np.unique(colours[1], return_inverse=True)[1].reshape(-1).astype(np.int64)
        if int(marked.max(initial=0)) == int(links.max(initial=0)):
            break
        mark = marked
        graph = symmetry_graph(fabric, groups, mark)
        partition = Partition.coarsest(graph)
        links = link_classes(fabric, partition.label, mark)
    classes = demand_classes(fabric, groups, graph, partition)
    routes = find_routes(network, classes.traffic)
    return Lifted(groups, classes, routes, explicit, alike, links, graph, partition)


def _quotient(fabric: Fabric, work: Lifted) -> tuple[FluidSystem, Longs, Longs]:
    """One demand per class on one link per class; how many links of the class it crosses; and the explicit
    demand that stands for each class of explicit ones.

    A class of y links of capacity c becomes one of capacity y c; a class of x demands has count x.
    """
    _, example, number = np.unique(work.alike, return_index=True, return_counts=True)
    kinds = int(work.link_class.max(initial=-1)) + 1
    parts = [
        _on_classes(work.routes, np.arange(len(work.routes)), work.link_class, kinds),
        _on_classes(work.explicit, example, work.link_class, kinds),
    ]
    counts, link, weight, links = (np.concatenate(column) for column in zip(*parts, strict=True))
    row = np.repeat(np.arange(len(counts)), counts)
    slot, place = np.unique(row * max(kinds, 1) + link, return_inverse=True)
    merged = add_up(place.reshape(-1), weight, len(slot))
    crossed = np.rint(add_up(place.reshape(-1), links, len(slot))).astype(np.int64)
    used = merged > 0
    slot, merged, crossed = slot[used], merged[used], crossed[used]
    ptr = np.searchsorted(slot // max(kinds, 1), np.arange(len(counts) + 1)).astype(np.int64)
    system = FluidSystem(
        ptr,
        (slot % max(kinds, 1)).astype(np.int32),
        merged,
        add_up(work.link_class, fabric.capacity, kinds),
        np.concatenate([work.classes.traffic.size, work.groups.explicit.size[example]]),
        np.concatenate([work.classes.members, number.astype(np.float64)]),
    )
    return system, crossed, example


def _on_classes(
    routes: Routes, rows: Longs, link_class: Longs, kinds: int
) -> tuple[Longs, NDArray[np.int32], Floats, Floats]:
    """Classes of links that some demands cross: number of each demand, then class, weight and links of all.

    Spreads are summed by class before they are written out per demand: many demands share one.
    """
    count = np.diff(routes.ptr)[rows]
    spread = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
    slot, place = np.unique(spread * max(kinds, 1) + link_class[routes.spread_link], return_inverse=True)
    place = place.reshape(-1)
    some = replace(
        routes,
        ptr=np.concatenate([[0], np.cumsum(count)]),
        link=link_class[routes.link[ragged(routes.ptr[rows], count)]].astype(np.int32),
        spread=routes.spread[rows],
        spread_ptr=np.searchsorted(slot // max(kinds, 1), np.arange(routes.num_spreads + 1)),
        spread_link=(slot % max(kinds, 1)).astype(np.int32),
        spread_weight=add_up(place, routes.spread_weight, len(slot)),
    )
    ptr, link, weight = some.flat()
    crossed = add_up(place, (routes.spread_weight > 0).astype(np.float64), len(slot))
    return np.diff(ptr), link, weight, replace(some, spread_weight=crossed).flat()[2]


def _spread_out(system: FluidSystem, link_class: Longs, fabric: Fabric) -> Floats:
    """(L,) bytes on each link: those of its class divided by its members."""
    amount = np.repeat(system.size * system.count, np.diff(system.ptr)) * system.weight
    total = add_up(system.link, amount, len(system.capacity))
    links: Floats = np.bincount(link_class, minlength=len(total)).astype(np.float64)
    return (total / np.maximum(links, 1.0))[link_class]


def _crossing(system: FluidSystem, crossed: Longs, link_class: Longs, link: int) -> int:
    """Demands with bytes that cross a link, whole or in part."""
    here = system.link == link_class[link]
    row = np.repeat(np.arange(len(system)), np.diff(system.ptr))[here]
    demands = (system.count[row] * crossed[here])[system.size[row] > 0].sum()
    return round(float(demands) / int(np.count_nonzero(link_class == link_class[link])))
