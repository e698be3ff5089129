"""Machines that differ in nothing that traffic feels share what was solved, and get what they would alone."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import railwright.network.solve  # noqa: F401  (the module, beside the function of its name)
from railwright.collectives import predict
from railwright.collectives.machine import Machine, is_multiple
from railwright.network import Network
from railwright.spec import load_study_text, override
from railwright.study.evaluate import Workshop
from railwright.traffic.demand import Communicator
from railwright.training.whatif.machine import at_rate

STUDY = load_study_text(
    "railwright: 1\nname: s\ncluster: {servers: 8, server: dgx-b200, compute: {family: rail-optimised, "
    "switch: qm9700, routing: ecmp}}\n"
)
"""GPUs whose PCIe lanes are as fast as their NICs': a Hopper GPU's own slot stays where NICs get faster."""


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Demands of every traffic that is solved."""
    module, seen = sys.modules["railwright.network.solve"], []
    plain = module.ENGINES["last"]

    def counted(network: Network, traffic: Any) -> Any:
        seen.append(len(traffic))
        return plain(network, traffic)

    monkeypatch.setitem(module.ENGINES, "last", counted)
    return seen


def rails(machine: Machine) -> list[Communicator]:
    """One group for each rail: no byte rides NVLink."""
    gpus = np.arange(machine.network.fabric.num_gpus, dtype=np.int32)
    return [Communicator(gpus[rail::8]) for rail in range(8)]


def everyone(machine: Machine) -> list[Communicator]:
    return [Communicator(np.arange(machine.network.fabric.num_gpus, dtype=np.int32))]


def alone(machine: Machine) -> Machine:
    """The machine on a network of its own, which nothing has been solved on."""
    return replace(machine, network=replace(machine.network), alike=None)


def test_other_gpus_and_settings_ask_for_nothing_again(solved: list[int]) -> None:
    machine = Workshop.of(STUDY).machine(STUDY)
    before = predict(machine, "all_gather", 1e9, rails(machine))
    asked = len(solved)
    faster = replace(machine.gpu, hbm_bandwidth=2 * machine.gpu.hbm_bandwidth)
    for other in (replace(machine, gpu=faster), replace(machine, nccl=replace(machine.nccl, pxn=False))):
        assert predict(other, "all_gather", 1e9, rails(other)).time == before.time
    assert len(solved) == asked


@pytest.mark.parametrize("factor", [2.0, 0.5, 3.0])
def test_a_faster_network_needs_no_solution_where_no_byte_rides_nvlink(
    solved: list[int], factor: float
) -> None:
    machine = Workshop.of(STUDY).machine(STUDY)
    predict(machine, "all_gather", 1e9, rails(machine))
    asked, fast = len(solved), at_rate(machine, factor)
    quick = predict(fast, "all_gather", 1e9, rails(fast))
    assert len(solved) == asked
    slow = predict(alone(fast), "all_gather", 1e9, rails(fast))
    assert len(solved) > asked
    assert quick.time == pytest.approx(slow.time, rel=1e-12)
    assert quick.bottleneck is not None
    assert slow.bottleneck is not None
    assert quick.bottleneck.name == slow.bottleneck.name


def test_a_faster_network_is_solved_anew_where_nvlink_stays_as_it_was(solved: list[int]) -> None:
    rings = override(STUDY, {"nccl.algorithm": "ring"})
    machine = Workshop.of(rings).machine(rings)
    predict(machine, "all_reduce", 1e9, everyone(machine))
    asked, fast = len(solved), at_rate(machine, 64.0)
    quick = predict(fast, "all_reduce", 1e9, everyone(fast))
    assert len(solved) > asked
    assert quick.time == predict(alone(fast), "all_reduce", 1e9, everyone(fast)).time


def test_a_network_is_a_multiple_of_another_only_where_all_of_it_is() -> None:
    machine = Workshop.of(STUDY).machine(STUDY)
    fast = at_rate(machine, 2.0)
    assert is_multiple(fast.network, machine.network, 2.0)
    assert not is_multiple(fast.network, machine.network, 3.0)
    assert not is_multiple(replace(fast.network, seed=1), machine.network, 2.0)
    broken = fast.network.fabric.capacity.copy()
    broken[-1] = 0.0
    other = replace(fast.network, fabric=replace(fast.network.fabric, capacity=broken))
    assert not is_multiple(other, machine.network, 2.0)


def test_routings_share_a_fabric_and_settings_a_network() -> None:
    workshop = Workshop.of(STUDY)
    first = workshop.machine(STUDY).network
    hashed = workshop.machine(override(STUDY, {"cluster.compute.seed": 1})).network
    static = workshop.machine(override(STUDY, {"cluster.compute.routing": "static"})).network
    assert hashed.fabric is first.fabric is static.fabric
    assert (first.routing, first.seed, hashed.seed, static.routing) == ("ecmp", 0, 1, "static")
    assert workshop.machine(override(STUDY, {"nccl.pxn": False})).network is first
    assert workshop.assuming(0.2).machine(STUDY).network is first
    thin = workshop.machine(override(STUDY, {"cluster.compute.oversubscription": 2.0})).network
    assert thin.fabric is not first.fabric
