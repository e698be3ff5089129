"""What a step is said to hide can be hidden: no link carries more in any part of it than it can."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.collectives import p2p
from railwright.collectives.choice import ALGORITHMS
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, NcclSettings
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network import solve
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.spec.training import Layout, Overlap, TrainingJob
from railwright.traffic.demand import Communicator, Traffic, join
from railwright.training import place, simulate
from railwright.training.lanes.result import StepResult
from training_cases import DENSE, MOE

WIDE = replace(DENSE, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336)
EXPERTS = replace(MOE, hidden=4096, heads=32, kv_heads=8, head_dim=128, experts=64, experts_per_token=6)

FABRICS = {
    "rails": ("dgx-h100", 4, "rail-optimised", 1.0),
    "thin rails": ("dgx-b200", 6, "rail-optimised", 4.0),
    "rail-only": ("dgx-h100", 4, "rail-only", 1.0),
    "thin tree": ("dgx-a100", 4, "fat-tree", 2.0),
    "thinner tree": ("dgx-a100", 4, "fat-tree", 8.0),
    "two planes": ("dgx-h100", 4, "dual-plane", 1.0),
    "racks": ("gb200-nvl72", 2, "rack-rails", 1.0),
    "two GPUs a NIC": ("server-8x-h100-pcie", 4, "fat-tree", 2.0),
}


@cache
def cluster(name: str, pxn: bool) -> Machine:
    server, servers, family, oversubscription = FABRICS[name]
    network = ComputeNetwork(
        family=family,  # type: ignore[arg-type]
        switch="qm9700",
        oversubscription=oversubscription,
        servers_per_group=2 if oversubscription > 1 else None,
    )
    return Machine.of(
        Cluster(servers=servers, server=server, compute=network), load_catalog(), NcclSettings(pxn=pxn)
    )


def drawn(rng: random.Random, machine: Machine) -> tuple[TrainingJob, bool]:
    """A job on all GPUs, which may be impossible, and whether its model has experts."""
    tensor, context, stages = rng.choice([1, 2, 4, 8]), rng.choice([1, 1, 2]), rng.choice([1, 1, 2])
    data = machine.network.fabric.num_gpus // (tensor * context * stages)
    experts = rng.random() < 0.6
    expert = rng.choice([1, 4, 8, 16, 32]) if experts else 1
    layout = Layout(
        tensor=tensor,
        context=context,
        pipeline=stages,
        expert=expert,
        expert_tensor=1 if experts and tensor > 1 else None,
        sequence_parallel=tensor > 1,
        zero=rng.choice([0, 1, 3] if stages == 1 else [0, 1]),  # type: ignore[arg-type]
        context_kind=rng.choice(["ring", "all-to-all", "all-gather"]),  # type: ignore[arg-type]
        placement=rng.choice(["packed", "spread"]),  # type: ignore[arg-type]
    )
    job = TrainingJob(
        name="drawn",
        model="drawn",
        sequence=rng.choice([1024, 4096]),
        global_batch=data * stages * rng.choice([1, 2]),
        tokens=1e9,
        layout=layout,
        overlap=Overlap(dp=rng.random() < 0.8, tp=rng.random() < 0.4, ep=rng.random() < 0.4),
        expert_nodes=rng.choice([None, 2, 4]) if expert > 1 else None,
    )
    return job, experts


def on_the_wire(machine: Machine, answer: CollectivePrediction, groups: tuple[Communicator, ...]) -> Traffic:
    """Demands of one collective of all groups, flags of its protocol included."""
    several = [group for group in groups if len(group) > 1]
    if answer.algorithm == "p2p":
        build, wire = p2p.traffic, p2p.wire(answer.protocol)
    else:
        build, wire = ALGORITHMS[answer.algorithm].traffic, ALGORITHMS[answer.algorithm].wire(answer.protocol)
    return build(machine.network.fabric, several, answer.op, machine.nccl.pxn).scaled(answer.size * wire)


def seconds_of_slots(machine: Machine, traffic: Traffic) -> np.ndarray:
    """(2 G,) How long each GPU's PCIe slot carries traffic, out and in: every byte it sends or gets, once."""
    count = machine.network.fabric.num_gpus
    each = [np.bincount(end, traffic.size, count) for end in (traffic.src, traffic.dst)]
    return np.concatenate(each) / machine.gpu.slot


def seconds_of_links(machine: Machine, traffic: Traffic) -> np.ndarray:
    """How long links carry traffic: NICs' and all beyond; where GPUs have no NVLink, their slots too."""
    fabric = machine.network.fabric
    beyond = np.repeat(fabric.role >= Role.NODE_LEAF, 2) & (fabric.capacity > 0)
    busy = (solve(machine.network, traffic, "bound").load / fabric.capacity.clip(1.0))[beyond]
    return np.append(busy, seconds_of_slots(machine, traffic)) if fabric.scale_up == "pcie" else busy


def busiest(machine: Machine, job: TrainingJob, step: StepResult) -> float:
    """How long the busiest link carries what a step sends. [s]"""
    groups, capacity = place(job, machine.network.fabric), machine.network.fabric.capacity
    demands = [
        on_the_wire(machine, one.prediction, groups.of(one.groups)).scaled(one.count)  # type: ignore[arg-type]
        for one in step.collectives
    ]
    load = solve(machine.network, join(demands), "bound").load
    live = capacity > 0
    return float(np.max(load[live] / capacity[live], initial=0.0))


@pytest.mark.parametrize("pxn", [True, False])
@pytest.mark.parametrize("name", FABRICS)
def test_no_link_carries_more_in_a_step_than_it_can(name: str, pxn: bool) -> None:
    rng, found = random.Random(f"{name} {pxn}"), 0
    machine = cluster(name, pxn)
    for _ in range(40):
        job, experts = drawn(rng, machine)
        try:
            step = simulate(job, EXPERTS if experts else WIDE, machine, must_fit=False)
        except PlanError:
            continue
        assert busiest(machine, job, step) <= step.step_time, job.layout
        found += 1
        if found == 6:
            break
    assert found


@pytest.mark.parametrize("name", FABRICS)
def test_no_link_carries_more_while_collectives_overlap_than_it_can(name: str) -> None:
    """Of any interval, from the begin of one collective to the end of another: what links carry for all that
    run within it fits into it.

    So the intervals leave room for every collective (as deadlines do on one processor).  Products are not cut
    for overlap here, of which the timeline has parts; messages between stages share with nothing, so far.
    """
    rng, found, beside = random.Random(f"{name} overlap"), 0, 0
    machine = cluster(name, True)
    for _ in range(60):
        job, experts = drawn(rng, machine)
        job = job.model_copy(
            update={"overlap": job.overlap.model_copy(update={"tp": False}), "expert_nodes": None}
        )
        try:
            step = simulate(job, EXPERTS if experts else WIDE, machine, must_fit=False)
        except PlanError:
            continue
        beside += _fits(machine, job, step)
        found += 1
        if found == 8:
            break
    assert found
    assert beside


def _fits(machine: Machine, job: TrainingJob, step: StepResult) -> int:
    """Hold all intervals of a step against its links; how many collectives run beside another."""
    groups = place(job, machine.network.fabric)
    loads: dict[tuple[str, str, float], np.ndarray] = {}
    for one in step.collectives:
        wire = on_the_wire(machine, one.prediction, groups.of(one.groups))  # type: ignore[arg-type]
        key = one.kind, one.prediction.op, one.prediction.size
        # those of equal size in one lane, of dense parameters and of experts, are not told apart: the lesser
        load = seconds_of_links(machine, wire)
        loads[key] = np.minimum(loads.get(key, load), load)
    events = [e for e in step.timeline.events if e.rank == step.stage and (e.lane, e.kind, e.size) in loads]
    assert events or not step.collectives
    starts, ends = (np.array([getattr(e, at) for e in events]) for at in ("start", "end"))
    each = np.array([loads[e.lane, e.kind, e.size] for e in events])
    each = np.unique(each, axis=1)
    order = np.argsort(ends, kind="stable")
    for begin in np.unique(starts):
        within = order[starts[order] >= begin]
        carried = np.cumsum(each[within], axis=0).max(axis=1)
        room = ends[within] - begin
        assert np.all(carried <= room * (1 + 1e-6)), job.layout
    return int(np.sum(starts[1:] < np.maximum.accumulate(ends)[:-1])) if len(events) else 0
