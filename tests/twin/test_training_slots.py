"""Collectives that share PCIe slots, in lanes and flow by flow in the fluid network.

Every GPU of that network has a slot between it and all else, host and NICs.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from railwright.collectives import p2p, predict
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.fabric.graph import Role
from railwright.network.maxmin import FluidSystem, finish_times
from railwright.network.routing.paths import find_routes
from railwright.traffic.demand import Communicator, Traffic, join
from railwright.training.lanes.contention import on_links
from railwright.training.lanes.tasks import Task, run
from training_cases import machine

RANKS = 8
Asked = tuple[Op, bool, float]
"""Collective, whether its groups are the GPUs at one place of all servers instead of those of one, size."""


@cache
def groups(crossing: bool) -> tuple[Communicator, ...]:
    gpu = np.arange(RANKS * RANKS, dtype=np.int32).reshape(RANKS, RANKS)
    return tuple(Communicator(np.ascontiguousarray(row)) for row in (gpu.T if crossing else gpu))


def priced(one: Machine, asked: Asked) -> CollectivePrediction:
    op, crossing, size = asked
    return predict(one, op, size, groups(crossing))


def flows(one: Machine, asked: Asked) -> Traffic:
    answer = priced(one, asked)
    build = p2p.traffic if answer.algorithm == "p2p" else ALGORITHMS[answer.algorithm].traffic
    return build(one.network.fabric, groups(asked[1]), answer.op, one.nccl.pxn).scaled(answer.size)


def fluid(one: Machine, parts: list[Traffic]) -> list[float]:
    """When the last flow of each part is over, all starting together. [s]"""
    fabric, traffic = one.network.fabric, join(parts)
    ptr, link, weight = find_routes(one.network, traffic).flat()
    rows = [
        np.append(link[a:b], [fabric.num_links + src, fabric.num_links + fabric.num_gpus + dst])
        for (a, b), src, dst in zip(pairwise(ptr), traffic.src, traffic.dst, strict=True)
    ]
    weights = [np.append(weight[a:b], [1.0, 1.0]) for a, b in pairwise(ptr)]
    inside = np.repeat(np.isin(fabric.role, (Role.SCALE_UP, Role.PCIE)), 2)
    capacity = np.append(
        np.where(inside, 1e15, fabric.capacity * 0.96),
        np.full(2 * fabric.num_gpus, one.gpu.slot * 0.762),
    )
    system = FluidSystem(
        np.append(0, np.cumsum([len(row) for row in rows])),
        np.concatenate(rows).astype(np.int32),
        np.concatenate(weights),
        capacity,
        traffic.size,
        np.ones(len(traffic)),
    )
    finish = np.split(finish_times(system), np.cumsum([len(part) for part in parts])[:-1])
    return [float(part.max()) for part in finish]


def both(one: Machine, first: Asked, second: Asked) -> tuple[list[float], list[float]]:
    """When each of two collectives that begin together is over, in lanes and flow by flow. [s]

    Flows are as large as take the bandwidth-bound part of the prediction when one collective runs alone.
    """
    tasks, sent = [], []
    for lane, asked in zip(("tp", "dp"), (first, second), strict=True):
        wire, uses = on_links(priced(one, asked), asked[1])
        tasks.append(Task(lane, lane, asked[0], wire, wire=wire, uses=uses))  # type: ignore[arg-type]
        alone = flows(one, asked)
        sent.append(alone.scaled(wire / fluid(one, [alone])[0]))
    end = Task("compute", "end", "x", 0.0, (0, 1))
    ends = {span.task.name: span.end for span in run([*tasks, end]).spans}
    return [ends["tp"], ends["dp"]], fluid(one, sent)


@pytest.mark.parametrize("server", ["server-8x-h100-pcie", "server-8x-l40s"])
@pytest.mark.parametrize("size", [32e6, 256e6, 2e9])
def test_an_exchange_inside_servers_beside_one_across_them(server: str, size: float) -> None:
    """Seven flows of each out of every GPU: fair among flows is fair among collectives."""
    found, expected = both(
        machine(8, server=server), ("all_to_all", False, 256e6), ("all_to_all", True, size)
    )
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("size", [64e6, 256e6, 1e9])
def test_two_exchanges_inside_servers(size: float) -> None:
    one = machine(8, server="server-8x-h100-pcie")
    found, expected = both(one, ("all_to_all", False, 256e6), ("all_to_all", False, size))
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("size", [64e6, 256e6, 1e9])
def test_a_ring_inside_servers_beside_one_across_them(size: float) -> None:
    """One flow of each out of every GPU.  Rings rest while a chunk is received for the last time (nccl.yaml,
    last_receive), flows do not: up to 6 % with eight ranks."""
    one = machine(8, server="server-8x-h100-pcie")
    found, expected = both(one, ("all_gather", False, 256e6), ("reduce_scatter", True, size))
    assert found == pytest.approx(expected, rel=0.06)


def test_flows_of_gpus_with_scale_up_links_meet_on_no_slot() -> None:
    one = machine(8)
    for asked in (("all_to_all", False, 256e6), ("all_to_all", True, 256e6), ("all_gather", True, 1e9)):
        answer = priced(one, asked)  # type: ignore[arg-type]
        assert (answer.slot, answer.slot_share) == (0.0, 0.0)
