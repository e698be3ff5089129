"""PAT: all-gather and reduce-scatter over one GPU per node in log2(n) rounds at distances 1, 2, 4, ..."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2

import numpy as np

from railwright.collectives.algorithm import Algorithm, Path, ring_wire
from railwright.collectives.constants import base_latency, step_latency
from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join

PER_RANK = 2.8e-6
"""The part of PAT's latency that grows with every rank [s]. Source: NCCL 2.30 src/graph/tuning.cc, PAT."""
EFFICIENCY = 0.75
"""Of the channels' rate. Source: NCCL 2.30 src/graph/tuning.cc, PAT."""


def steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """base + log2(nodes) x network / 3.5 + 2.8 us x ranks. [s] Source: NCCL 2.30 src/graph/tuning.cc."""
    outer = step_latency("net", "tree", protocol) + path.worst
    return base_latency("pat", protocol) + floor(log2(group.nodes)) * outer / 3.5 + group.ranks * PER_RANK


def inside(op: Op, protocol: str, group: Group) -> float:
    """No NVLink is involved."""
    return float("inf")


def per_nic(op: Op, group: Group) -> float:
    """Every rank sends all parts but its own once."""
    return (group.ranks - 1) / group.ranks / group.nics


def traffic(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Demands of S = 1 byte."""
    return join([_of(comm) for comm in groups])


def _of(comm: Communicator) -> Traffic:
    """Round k: rank i sends min(2^k, n - 2^k) parts of S / n to rank i + 2^k."""
    n = len(comm)
    parts: list[Traffic] = []
    distance = 1
    while distance < n:
        dst = np.roll(comm.gpus, -distance).astype(np.int32)
        size = np.full(n, min(distance, n - distance) / n)
        parts.append(Traffic(comm.gpus.astype(np.int32), dst, np.full(n, -1, np.int32), size))
        distance *= 2
    return join(parts)


def _wire(protocol: str) -> float:
    return ring_wire(protocol) / EFFICIENCY


def _unavailable(op: Op, group: Group, sharp: bool) -> str:
    alone = group.ranks == group.nodes and group.nodes > 1
    return group.rings_alone or ("" if alone else "PAT is used with one GPU per node only")


PAT = Algorithm(
    "pat",
    ("all_gather", "reduce_scatter"),
    ("simple",),
    _unavailable,
    steps,
    inside,
    _wire,
    per_nic,
    traffic,
)
