"""The compiled kernel gives what its NumPy definition gives, and is absent until it is needed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import network_fabrics as hand
from network_systems import random_system
from other_process import printed
from railwright.fabric.graph import Role
from railwright.network import Network, solve
from railwright.network.fluid.symmetry import flow_system
from railwright.network.maxmin import FluidSystem, compiled_rates, finish_times, max_min_rates
from railwright.network.routing.paths import find_routes
from railwright.traffic import Communicator, all_to_all

SIZES = (1.0, 2.0, 7.0)


def every_event(system: FluidSystem) -> NDArray[np.float64]:
    """Finish times by the plainest loop: solve all rates anew, advance to the next finish, one at a time."""
    left, finish, now = system.size.copy(), np.zeros(len(system)), 0.0
    active = np.arange(len(system))
    while len(active):
        rate = max_min_rates(system, active, system.capacity)
        wait = (left[active] / rate).min()
        now += wait
        left[active] -= rate * wait
        done = left[active] <= 1e-12 * system.size[active]
        finish[active[done]] = now
        active = active[~done]
    return finish


@pytest.mark.parametrize("seed", range(30))
def test_random_systems(seed: int) -> None:
    system = random_system(seed, SIZES)
    everyone = np.arange(len(system))
    fast = compiled_rates(system, everyone, system.capacity)
    assert fast == pytest.approx(max_min_rates(system, everyone, system.capacity), rel=1e-9)
    assert finish_times(system, rates=compiled_rates) == pytest.approx(finish_times(system), rel=1e-9)


@pytest.mark.parametrize("seed", range(100, 130))
def test_solving_only_what_can_change_equals_solving_everything(seed: int) -> None:
    system = random_system(seed, SIZES)
    assert finish_times(system) == pytest.approx(every_event(system), rel=1e-9)


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
def test_all_to_all_of_mixed_sizes_with_a_failed_uplink(routing: str) -> None:
    fabric = hand.make(servers=6, gpus=4, spines=3, servers_per_group=3)
    fabric = hand.with_capacity(fabric, {hand.links_of(fabric, Role.LEAF_SPINE)[5]: 0.0})
    sizes = np.random.default_rng(1).integers(1, 5, (24, 24)) * 10.0
    traffic = all_to_all(fabric, Communicator(np.arange(24, dtype=np.int32)), sizes, pxn=False)
    routes = find_routes(Network(fabric, routing), traffic)  # type: ignore[arg-type]
    system = flow_system(routes, traffic.size, fabric.capacity)
    slow = finish_times(system)
    assert finish_times(system, rates=compiled_rates) == pytest.approx(slow, rel=1e-9)
    assert solve(Network(fabric, routing), traffic).finish == pytest.approx(slow, rel=1e-9)  # type: ignore[arg-type]


def test_a_240_gpu_all_to_all_needs_no_numba() -> None:
    code = f"""
import sys; sys.path.insert(0, {str(Path(hand.__file__).parent)!r})
import numpy as np, network_fabrics as hand
from railwright.network import Network, solve
from railwright.traffic import Communicator, all_to_all
fabric = hand.make(servers=30, gpus=8, spines=4, cables=8)
for pxn in (True, False):
    for routing in ("adaptive", "ecmp", "static"):
        traffic = all_to_all(fabric, Communicator(np.arange(240, dtype=np.int32)), 1e6, pxn)
        assert solve(Network(fabric, routing), traffic).exact
print("numba" in sys.modules)
"""
    assert printed(code) == "False"
