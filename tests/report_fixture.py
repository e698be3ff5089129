"""A small but realistic result to write reports of: five variants of 30 servers with 8 H100 each.

Everything here is made up by simple formulas; nothing of it is a prediction.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from html import unescape
from typing import Any

import numpy as np

from railwright.collectives.prediction import CollectivePrediction, Op, Term
from railwright.fabric.counts import Counts
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.solution import Bottleneck
from railwright.spec.study import Cluster, ComputeNetwork, Study, Variant
from railwright.spec.training import TrainingJob
from railwright.study.result import (
    Assumption,
    Curve,
    JobResult,
    PublishedEffect,
    Result,
    SensitivityRow,
    VariantResult,
)
from railwright.training.lanes.result import Memory, StepResult, UsedCollective
from railwright.training.lanes.timeline import Event, Share, Timeline

NDR = 50e9
NVLINK = 450e9


def example_result(**changes: Any) -> Result:
    """The result; `changes` replace its fields."""
    rails = toy_fabric(30, leaves_per_group=8, spines=4, by_rail=True)
    tree = toy_fabric(30, leaves_per_group=8, spines=4, by_rail=False)
    rail_only = toy_fabric(30, leaves_per_group=8, spines=0, by_rail=True)
    broken = fail(rails, int(rails.devices(Kind.LEAF)[2]))
    variants = (
        variant("Rails with PXN", "the study as written", rails, 1.0, 1.0),
        variant("Fat tree", "one leaf per server group", tree, 0.82, 1.04),
        variant("Rails without PXN", "", rails, 0.62, 1.1),
        variant("Rail-only", "no spines at all", rail_only, 0.97, 1.01),
        variant("Rails with PXN, one leaf failed", "leaf-03 is down", broken, 0.86, 1.07),
    )
    result = Result(
        study=example_study(),
        version="0.1.0",
        spec_hash="0123456789abcdef" * 4,
        models_used=("network: max-min fluid (docs/network.md)", "training: event-driven step timeline"),
        answer=(
            "Build 'Rail-only': 8 switches and 240 cables, 1.85 s a step, 283,000 tokens/s.",
            "The network is your bottleneck: exposed communication is 30 % of the step, most of it expert.",
            "PXN changes training throughput by +10 % and all-to-all bandwidth by +61 % on small messages.",
        ),
        variants=variants,
        sensitivity=(
            SensitivityRow("Overlap the expert all-to-all", "hidden behind experts", 1.52, 0.204, 0.02),
            SensitivityRow("Expert imbalance 1.5", "busiest expert over mean", 2.06, -0.112, 0.12),
            SensitivityRow("NIC latency doubled", "", 1.84, -0.006, 0.11),
            SensitivityRow("ECMP routing", "hashed paths", 1.97, -0.071, 0.16),
            SensitivityRow(
                "Micro-batch 8", "", None, None, None, "needs 96 GB of memory and the GPU has 80 GB"
            ),
        ),
        published=(
            PublishedEffect(
                "PXN, small messages", "about +50 %", "+40 % … +61 %", "fewer messages", "Crusoe blog"
            ),
            PublishedEffect(
                "Fine-tuning throughput", "+14 %", "+10.0 %", "exposed all-to-all", "Crusoe blog"
            ),
        ),
        assumptions=(
            Assumption("NIC latency", "1.0 µs", "ConnectX-7 datasheet"),
            Assumption("Kernel efficiency", "fit of measured GEMMs", "docs/compute.md"),
        ),
        warnings=("fine-tune: expert loads are taken as balanced",),
        seconds=4.2,
    )
    return replace(result, **changes)


def example_study(name: str = "Mixtral 8x7B on 240 H100", **changes: Any) -> Study:
    """A study that names the example's variants."""
    sets: Mapping[str, dict[str, Any]] = {
        "Fat tree": {"cluster.compute.family": "fat-tree"},
        "Rails without PXN": {"nccl.pxn": False},
        "Rail-only": {"cluster.compute.family": "rail-only"},
        "Rails with PXN, one leaf failed": {"cluster.faults": [{"element": "leaf-03"}]},
    }
    study = Study(
        railwright=1,
        name=name,
        question="Which fabric should we build, is the network our bottleneck, and do rails and PXN help?",
        cluster=Cluster(
            servers=30, server="dgx-h100", compute=ComputeNetwork(family="rail-optimised", switch="qm9700")
        ),
        jobs=(
            TrainingJob(name="fine-tune", model="mixtral-8x7b", sequence=4096, global_batch=128, tokens=2e9),
        ),
        variants=tuple(Variant(name=key, set=value) for key, value in sets.items()),
    )
    return study.model_copy(update=changes)


def variant(name: str, why: str, fabric: Fabric, bandwidth: float, slower: float) -> VariantResult:
    """One variant whose collectives run at a share of the full bandwidth and whose messages are slower."""
    curves = (
        Curve(
            "all_to_all",
            "all_to_all over 240 GPUs",
            sweep("all_to_all", 48e9 * bandwidth, 220e-6 / bandwidth),
        ),
        Curve(
            "all_reduce",
            "all_reduce over 240 GPUs",
            sweep("all_reduce", 370e9 * (0.9 + 0.1 * bandwidth), 60e-6),
        ),
    )
    return VariantResult(
        name, why, fabric, toy_counts(fabric), curves, (JobResult("fine-tune", toy_step(slower)),)
    )


def sweep(op: Op, peak: float, latency: float) -> tuple[CollectivePrediction, ...]:
    """Predictions from 1 KiB to 1 GiB."""
    return tuple(prediction(op, 2.0**power, peak, latency) for power in range(10, 31))


def prediction(op: Op, size: float, peak: float, latency: float) -> CollectivePrediction:
    """Latency and bandwidth, no more."""
    time = latency + size / peak
    where = Bottleneck(
        0, "server-01/nic-0 -> leaf-01 port 1", 0.98, 232, "every byte for other servers crosses it"
    )
    terms = (Term("steps", latency, "fixed"), Term("bandwidth", size / peak, "the busiest link"))
    name = ("ring", "simple") if op == "all_reduce" else ("p2p", "simple")
    return CollectivePrediction(
        op, size, 240, 1, time, size / time, size / time, *name, terms, where, 0.85, 1.2
    )


def toy_step(slower: float) -> StepResult:
    """A step of two pipeline stages whose expert all-to-all is exposed."""
    events: list[Event] = []
    for rank in range(2):
        at = 0.02 * rank
        if rank:
            events.append(Event(rank, "compute", "bubble", "bubble", 0.0, at))
        for micro in range(8):
            for _layer in range(16):
                for lane, name, kind, long in (
                    ("compute", "attention", "attention", 1.5e-3),
                    ("ep", "ep dispatch", "all_to_all", 0.9e-3 * slower),
                    ("compute", "experts", "experts", 3.1e-3),
                    ("ep", "ep combine", "all_to_all", 0.9e-3 * slower),
                ):
                    events.append(Event(rank, lane, name, kind, at, at + long))  # type: ignore[arg-type]
                    at += long
            events.append(Event(rank, "pp", f"send {micro}", "send", at, at + 0.4e-3))
        events.append(Event(rank, "dp", "dp gradients", "reduce_scatter", at - 0.2, at + 0.05))
        events.append(Event(rank, "compute", "optimizer", "optimizer", at + 0.05, at + 0.08))
    span = max(e.end for e in events)
    compute, ep = 8 * 16 * 4.6e-3 + 0.03, 8 * 16 * 1.8e-3 * slower
    rest = span - compute - ep
    shares = (
        Share("compute", compute, compute),
        Share("ep", ep, ep),
        Share("dp", 0.25, rest * 0.6),
        Share("pp", 3.2e-3, rest * 0.1),
        Share("bubble", rest * 0.2, rest * 0.2),
        Share("host", rest * 0.1, rest * 0.1),
    )
    tokens = 128 * 4096
    gib = 2.0**30
    parts = {
        "weights": 11.8 * gib,
        "gradients": 11.8 * gib,
        "optimizer": 9.6 * gib,
        "activations": 27.0 * gib,
    }
    return StepResult(
        step_time=span,
        tokens=tokens,
        tokens_per_second=tokens / span,
        tokens_per_second_per_gpu=tokens / span / 240,
        model_flops=4.1e16,
        mfu=0.31 / slower,
        shares=shares,
        memory=Memory(parts, sum(parts.values()), 80e9),
        collectives=(
            UsedCollective(
                "ep dispatch", "ep", 256, prediction("all_to_all", 32e6, 48e9, 200e-6), "ep", True
            ),
            UsedCollective(
                "dp gradients", "dp", 1, prediction("reduce_scatter", 3e9, 350e9, 200e-6), "dp", False
            ),
        ),
        timeline=Timeline(tuple(sorted(events, key=lambda e: (e.rank, e.start))), span),
        tokens_total=2e9,
        time_to_train=2e9 / (tokens / span),
        gpu_hours=2e9 / (tokens / span) * 240 / 3600,
        error_low=0.88,
        error_high=1.22,
        warnings=("expert loads are taken as balanced",),
    )


def toy_fabric(
    servers: int, *, leaves_per_group: int, spines: int, by_rail: bool, groups: int = 1, gpus: int = 8
) -> Fabric:
    """Servers in groups under leaves; NIC r on leaf r (by_rail) or a server's NICs all on one leaf."""
    n = servers * gpus
    leaves = leaves_per_group * groups
    kind = (
        [Kind.GPU] * n
        + [Kind.NIC] * n
        + [Kind.SCALE_UP] * servers
        + [Kind.LEAF] * leaves
        + [Kind.SPINE] * spines
    )
    nic, nvswitch, leaf, spine = n, 2 * n, 2 * n + servers, 2 * n + servers + leaves
    per_group = math.ceil(servers / groups)
    of_server = np.arange(servers) // per_group
    tor = [(s % per_group) * leaves_per_group // per_group for s in range(servers)]
    pairs: list[tuple[int, int, int, int, Role]] = []
    ports = np.zeros(len(kind), np.int64)
    for g in range(n):
        pairs.append((g, nvswitch + g // gpus, 0, 0, Role.SCALE_UP))
        pairs.append((g, nic + g, 0, 0, Role.PCIE))
    for g in range(n):
        s = g // gpus
        at = (
            leaf + int(of_server[s]) * leaves_per_group + (g % gpus % leaves_per_group if by_rail else tor[s])
        )
        ports[at] += 1
        pairs.append((nic + g, at, 1, int(ports[at]), Role.NODE_LEAF))
    for i in range(leaves):
        for j in range(spines):
            for _ in range(max(1, math.ceil(n / leaves / spines))):
                ports[leaf + i] += 1
                ports[spine + j] += 1
                pairs.append(
                    (leaf + i, spine + j, int(ports[leaf + i]), int(ports[spine + j]), Role.LEAF_SPINE)
                )
    a, b, port_a, port_b, role = (np.array(column, np.int32) for column in zip(*pairs, strict=True))
    rate = np.where(role == Role.SCALE_UP, NVLINK, NDR)
    server = np.concatenate([np.arange(n) // gpus, np.arange(n) // gpus, np.arange(servers)])
    rail = np.concatenate([np.arange(n) % gpus, np.arange(n) % gpus, np.full(servers, -1)])
    leaf_rail = np.arange(leaves) % leaves_per_group if by_rail else np.full(leaves, -1)
    return Fabric(
        name="toy",
        family="rail-optimised" if by_rail and spines else "rail-only" if by_rail else "fat-tree",
        kind=np.array(kind, np.int32),
        server=np.concatenate([server, np.full(leaves + spines, -1)]).astype(np.int32),
        rail=np.concatenate([rail, leaf_rail, np.full(spines, -1)]).astype(np.int32),
        group=np.concatenate(
            [of_server[server], np.arange(leaves) // leaves_per_group, np.full(spines, -1)]
        ).astype(np.int32),
        a=a,
        b=b,
        port_a=port_a,
        port_b=port_b,
        rate=rate,
        length=np.where(role == Role.LEAF_SPINE, 30.0, np.where(role == Role.NODE_LEAF, 10.0, 0.0)),
        role=role,
        capacity=np.repeat(rate, 2),
        nic_of_gpu=np.arange(nic, 2 * n, dtype=np.int32),
        latency=np.zeros(len(kind)),
        parts={"server": "dgx-h100", "gpu": "h100", "nic": "cx7", "leaf": "qm9700", "spine": "qm9700"},
    )


def fail(fabric: Fabric, device: int) -> Fabric:
    """The fabric with one device's cables dead."""
    capacity = fabric.capacity.copy()
    for cable in np.flatnonzero((fabric.a == device) | (fabric.b == device)):
        capacity[[2 * cable, 2 * cable + 1]] = 0.0
    return replace(fabric, capacity=capacity)


def toy_counts(fabric: Fabric) -> Counts:
    """Counted from the graph."""
    cables = {role: int(np.count_nonzero(fabric.role == role)) for role in Role}
    leaves, spines = len(fabric.devices(Kind.LEAF)), len(fabric.devices(Kind.SPINE))
    return Counts(
        servers=fabric.num_servers,
        gpus=fabric.num_gpus,
        leaves=leaves,
        spines=spines,
        cores=0,
        node_leaf=cables[Role.NODE_LEAF],
        leaf_spine=cables[Role.LEAF_SPINE],
        spine_core=0,
        optics=2 * (cables[Role.NODE_LEAF] + cables[Role.LEAF_SPINE]),
        switch_power=1700.0 * (leaves + spines),
        hops_max=3 if spines else 1,
        bisection=NDR * fabric.num_gpus / 2,
    )


def section_text(html: str, name: str) -> str:
    """One section of the page as text, a space between cells."""
    found = re.search(rf'<section id="{name}">(.*?)</section>', html, re.S)
    assert found
    return " ".join(unescape(re.sub("<[^>]+>", " ", found[1])).replace("\u00a0", " ").split())
