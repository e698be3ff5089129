"""Engines forced by name: what each cannot take, and traffic that cannot be."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import network_fabrics as hand
import railwright.network.solve  # noqa: F401  (the module, beside the function of its name)
from railwright.errors import PlanError
from railwright.network import Network, solve
from railwright.network.fifo import paths as fifo_paths
from railwright.traffic import Communicator, Groups, Traffic, all_to_all


def world(fabric: Any) -> Traffic:
    return all_to_all(fabric, Communicator(np.arange(fabric.num_gpus, dtype=np.int32)), 1e6, True)


@pytest.mark.parametrize("kind", ["Traffic", "Groups"])
def test_an_unknown_engine(kind: str) -> None:
    fabric = hand.make()
    work = world(fabric) if kind == "Traffic" else Groups.all_to_all([np.arange(2)], 1.0)
    with pytest.raises(
        PlanError, match=rf"No engine 'liftd' solves {kind}: it can be .*; did you mean 'lifted'"
    ):
        solve(Network(fabric), work, "liftd")  # type: ignore[arg-type]


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_more_demands_than_max_min_takes(monkeypatch: pytest.MonkeyPatch, engine: Any) -> None:
    fabric = hand.make()
    monkeypatch.setattr(sys.modules["railwright.network.solve"], "LARGEST", 5)
    with pytest.raises(
        PlanError, match=f"Engine '{engine}' takes at most 5 demands .* choose 'bound', or 'auto'"
    ):
        solve(Network(fabric), world(fabric), engine)


def test_more_chunks_than_the_fifo_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = hand.make()
    monkeypatch.setattr(fifo_paths, "MOST_HOPS", 100)
    with pytest.raises(PlanError, match=r"the FIFO engine follows at most 100: .* or use the fluid engine"):
        solve(Network(fabric), world(fabric), "fifo")


@pytest.mark.parametrize("routing", ["ecmp", "static"])
def test_the_lifted_engine_under_hashes_and_tables(routing: Any) -> None:
    fabric = hand.make()
    with pytest.raises(PlanError, match=f"adaptive.*{routing}|{routing}.*adaptive"):
        solve(Network(fabric, routing), world(fabric), "lifted")


@pytest.mark.parametrize("routing", ["adaptive", "ecmp"])
def test_groups_of_other_gpus_or_endless_size(routing: Any) -> None:
    network = Network(hand.make(), routing)
    with pytest.raises(PlanError, match="Group 1 holds GPU 8; the fabric's GPUs run from 0 to 7"):
        solve(network, Groups.all_to_all([np.arange(4), np.arange(4, 9)], 1.0))
    with pytest.raises(PlanError, match="Group 0 sends inf bytes per pair"):
        solve(network, Groups.all_to_all([np.arange(4)], np.inf))
    wrong = Traffic(*(np.array([x], np.int32) for x in (0, 8, -1)), np.array([1.0]))
    with pytest.raises(PlanError, match="'dst' of demand 0 is GPU 8"):
        solve(network, Groups.all_to_all([np.arange(4)], 1.0, explicit=wrong))


def test_groups_too_large_to_list(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = hand.make()
    monkeypatch.setattr(sys.modules["railwright.network.solve"], "MOST_LISTED", 5)
    groups = Groups.all_to_all([np.arange(4)], 1.0)
    with pytest.raises(PlanError, match="12 demands of groups are more than the 5 that can be listed"):
        solve(Network(fabric, "ecmp"), groups)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"size": -1.0}, "Demand 2 of the traffic has -1 bytes; give a number from 0"),
        ({"size": np.nan}, "Demand 2 of the traffic has nan bytes"),
        ({"size": np.inf}, "Demand 2 of the traffic has inf bytes"),
        ({"dst": 99}, "'dst' of demand 2 is GPU 99; the fabric's GPUs run from 0 to 7"),
        ({"src": -1}, "'src' of demand 2 is GPU -1"),
        ({"relay": -2}, "'relay' of demand 2 is GPU -2"),
    ],
)
@pytest.mark.parametrize("engine", ["auto", "last", "numpy", "numba", "bound", "lifted", "fifo"])
def test_traffic_that_cannot_be(change: dict[str, float], sentence: str, engine: Any) -> None:
    fabric = hand.make()
    traffic = world(fabric)
    for name, value in change.items():
        getattr(traffic, name)[2] = value
    with pytest.raises(PlanError, match=sentence):
        solve(Network(fabric), traffic, engine)


def test_no_demands_and_no_bytes_take_no_time_with_any_engine() -> None:
    fabric = hand.make()
    nothing = np.zeros(0, np.int32)
    for engine in ("auto", "last", "numpy", "numba", "bound", "lifted", "fifo"):
        for traffic in (Traffic(nothing, nothing, nothing, np.zeros(0)), world(fabric).scaled(0.0)):
            answer = solve(Network(fabric), traffic, engine)  # type: ignore[arg-type]
            assert answer.time == 0.0
            assert answer.bottleneck is None
            assert not answer.load.any()
