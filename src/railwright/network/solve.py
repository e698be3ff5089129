"""Traffic solved on a network: paths, fluid finish times, link loads, latency and the bottleneck in words.

Legend: F demands, L directed links.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.network.bottleneck import busiest
from railwright.network.maxmin import FluidSystem, finish_times
from railwright.network.paths import Routes, find_routes
from railwright.network.solution import Network, Solution
from railwright.network.symmetry import flow_system, quotient
from railwright.traffic import Traffic

Floats = NDArray[np.float64]

LARGEST = 2_000_000
"""Demands held explicitly: above, memory (about 200 bytes each) and time leave the interactive range."""

COMPILED_FROM = 4_000
"""Flows (after merging alike ones) from which compiling the kernel pays; below, NumPy is the product."""


def solve(network: Network, traffic: Traffic) -> Solution:
    """When every demand has finished on the network, all starting together, and what each link carried.

    Rates are max-min fair at every moment and rise when demands finish (see `maxmin`).  Demands that
    symmetry makes alike are solved as one, which is exact (see `symmetry`).  More than LARGEST demands get
    the busiest link's load / capacity instead: a lower bound, exact=False.
    Raises PlanError where a demand has no live path.
    """
    routes = find_routes(network, traffic)
    capacity = network.fabric.capacity
    size = traffic.size
    load = routes.carried(size, network.fabric.num_links)
    if len(traffic) > LARGEST:
        finish = _bound(routes, load, capacity)
        engine, exact = "bound: busiest link's load / capacity (too many demands for max-min)", False
    else:
        finish, engine, exact = _finish(routes, size, capacity)
    time = float(finish.max(initial=0.0))
    return Solution(
        time,
        finish,
        load,
        routes.latency,
        routes.hops,
        busiest(network, routes, size, load, time),
        engine,
        exact,
    )


def ecmp_distribution(network: Network, traffic: Traffic, seeds: list[int]) -> Floats:
    """(len(seeds),) time of the traffic for each seed of the ECMP hash [s]."""
    return np.array([solve(Network(network.fabric, "ecmp", seed), traffic).time for seed in seeds])


def _finish(routes: Routes, size: Floats, capacity: Floats) -> tuple[Floats, str, bool]:
    merged = quotient(routes, size, capacity, worthwhile=0.5)
    if merged is not None:
        system, flow_class = merged
        finish, name = _fluid(system)
        return finish[flow_class], f"max-min ({name}, {len(size):,} demands in {len(system):,} classes)", True
    finish, name = _fluid(flow_system(routes, size, capacity))
    return finish, f"max-min ({name}, {len(size):,} demands)", True


def _fluid(system: FluidSystem) -> tuple[Floats, str]:
    return finish_times(system), "NumPy"


def _bound(routes: Routes, load: Floats, capacity: Floats) -> Floats:
    """(F,) load / capacity of the busiest link of each demand's path [s]."""
    busy = np.divide(load, capacity, out=np.zeros(len(load)), where=capacity > 0)
    finish = np.zeros(len(routes))
    rows = np.repeat(np.arange(len(routes)), np.diff(routes.ptr))
    np.maximum.at(finish, rows, busy[routes.link])
    if routes.num_spreads:
        spreads = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
        each = np.zeros(routes.num_spreads)
        np.maximum.at(each, spreads, busy[routes.spread_link])
        on = routes.spread >= 0
        finish[on] = np.maximum(finish[on], each[routes.spread[on]])
    return finish
