"""The latest finishes are never before the finishes, the kernel gives what the definition gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import network_fabrics as hand
import railwright.network.fluid.last as last
from network_systems import random_system
from railwright.network import Network, solve
from railwright.network.maxmin import FluidSystem, finish_times
from railwright.traffic import Communicator, Traffic, all_to_all

SIZES = (0.0, 1.0, 2.0, 7.0)


def busiest(system: FluidSystem) -> float:
    carried = system.weight * np.repeat(system.size * system.count, np.diff(system.ptr))
    load = np.bincount(system.link, carried, len(system.capacity))
    return last.busiest_time(load, system.capacity)


def latest(system: FluidSystem, target: float, compiled: bool, monkeypatch: Any) -> NDArray[np.float64]:
    monkeypatch.setattr(last, "COMPILED_FROM", 0 if compiled else 10**9)
    monkeypatch.setattr(last, "EFFORT", 10**6)
    return last.latest_finishes(system, target)


@pytest.mark.parametrize("seed", range(60))
def test_no_flow_finishes_after_its_latest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    system = random_system(seed, SIZES)
    exact, least = finish_times(system), busiest(system)
    for target in (0.0, 0.5 * least, least * (1 + 1e-9)):
        plain = latest(system, target, False, monkeypatch)
        kernel = latest(system, target, True, monkeypatch)
        assert kernel == pytest.approx(plain, rel=1e-9)
        assert np.all(plain >= exact * (1 - 1e-9))
    assert exact.max() >= least * (1 - 1e-9)
    if plain.max() <= least * (1 + 1e-9):
        assert exact.max() == pytest.approx(least, rel=1e-8)


def test_a_proof_is_found_often_and_not_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    proven = ends_then = 0
    for seed in range(200, 300):
        system = random_system(seed, SIZES)
        least = busiest(system)
        ends_then += finish_times(system).max() <= least * (1 + 1e-9)
        proven += latest(system, least * (1 + 1e-9), True, monkeypatch).max() <= least * (1 + 1e-9)
    assert 0.7 * ends_then < proven <= ends_then < 100


@pytest.mark.parametrize("seed", range(400, 420))
def test_flows_of_one_size_need_no_look(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They end with the busiest link, whatever they cross."""
    system = random_system(seed, (3.0,))
    monkeypatch.setattr(last, "ROUNDS", 0)
    least = busiest(system)
    assert last.latest_finishes(system, least).max() == pytest.approx(least, rel=1e-12)
    assert finish_times(system).max() == pytest.approx(least, rel=1e-9)


def test_two_flows_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 and 1 bytes share 1 byte/s: the small one ends at 2 s, the large one at 4 s, not at 6."""
    system = FluidSystem(
        np.array([0, 1, 2]), np.zeros(2, np.int32), np.ones(2), np.ones(1), np.array([3.0, 1.0]), np.ones(2)
    )
    assert latest(system, np.inf, False, monkeypatch) == pytest.approx([6.0, 2.0])
    for compiled in (False, True):
        assert latest(system, 0.0, compiled, monkeypatch) == pytest.approx([4.0, 2.0])


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_engine_gives_the_time_of_the_others(
    routing: Any, mixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fabric = hand.make(servers=6, gpus=4, spines=3, servers_per_group=2)
    rng = np.random.default_rng(2)
    sizes = rng.integers(1, 5, (24, 24)) * 10.0 if mixed else 10.0
    traffic = all_to_all(fabric, Communicator(np.arange(24, dtype=np.int32)), sizes, pxn=False)
    network = Network(fabric, routing, seed=4)
    exact, quick = solve(network, traffic), solve(network, traffic, "last")
    assert quick.exact
    assert quick.time == pytest.approx(exact.time, rel=1e-8)
    assert np.all(quick.finish >= exact.finish * (1 - 1e-8))
    assert quick.load == pytest.approx(exact.load)
    assert quick.bottleneck is not None
    assert exact.bottleneck is not None
    assert quick.bottleneck.name == exact.bottleneck.name


def test_demands_of_one_size_are_exact_in_any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    fabric = hand.make(servers=6, gpus=4, spines=3, servers_per_group=2)
    traffic = all_to_all(fabric, Communicator(np.arange(24, dtype=np.int32)), 10.0, pxn=False)
    exact = solve(Network(fabric, "ecmp"), traffic)
    monkeypatch.setattr(sys.modules["railwright.network.solve"], "LARGEST", 50)
    many = solve(Network(fabric, "ecmp"), traffic, "last")
    assert many.exact
    assert many.time == pytest.approx(exact.time, rel=1e-9)
    mixed = Traffic(traffic.src, traffic.dst, traffic.relay, traffic.size * np.linspace(1, 2, len(traffic)))
    assert not solve(Network(fabric, "ecmp"), mixed, "last").exact
