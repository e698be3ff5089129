"""In-network reduction (IB SHARP): every NIC sends its share of S up once and receives the sum once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railwright.collectives.algorithm import Algorithm, Path, ring_wire
from railwright.collectives.constants import base_latency, step_latency
from railwright.collectives.group import Group
from railwright.collectives.nvls import missing, multicast_rate
from railwright.collectives.prediction import Op
from railwright.collectives.ring import channels_of
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join

ARITY = 0.4e-6
"""Serialisation of one more local rank [s]. Source: NCCL 2.30 src/graph/tuning.cc, COLLNET_DIRECT."""


def steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """NVLS and one network round where the switch can multicast, else CollNetDirect. [s]

    Source: NCCL 2.30 src/graph/tuning.cc ncclTopoTuneModel, NVLS with nNodes > 1 and COLLNET_DIRECT.
    """
    if not missing(group):
        return step_latency("nvlink", "nvls", protocol) + step_latency("net", "nvls", protocol) + path.worst
    local = group.ranks // group.nodes - 1
    gather = min(1, local) * step_latency(group.medium, "collnet", protocol) + local * ARITY
    return (
        base_latency("collnet", protocol) + 2 * gather + step_latency("net", "collnet", protocol) + path.worst
    )


def inside(op: Op, protocol: str, group: Group) -> float:
    """busbw inside the nodes: NVLS multicast, or 0.85 of the ring's rate. [byte/s]"""
    if not missing(group):
        return multicast_rate(op, group, 2 * channels_of(group))
    return 0.85 * group.usable_lane if group.ranks > group.nodes else float("inf")


def per_nic(op: Op, group: Group) -> float:
    """Each NIC sends its share of S once and receives it once."""
    return 1.0 / group.nics


def traffic(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Demands of in-network all-reduces of S = 1 byte."""
    return join([_of(fabric, comm) for comm in groups])


def _of(fabric: Fabric, comm: Communicator) -> Traffic:
    """Each rail's NICs send their share of S once and receive it once.

    The switches' sums are drawn as a shift from each domain to the next on the same rail, which loads the
    servers' cables exactly and the switches' own links at least as much as aggregation does.
    """
    from railwright.traffic.rings import heads, local_members

    entry = heads(fabric, local_members(fabric, comm))
    src = entry.reshape(-1).astype(np.int32)
    dst = np.roll(entry, -1, axis=0).reshape(-1).astype(np.int32)
    return Traffic(src, dst, np.full(len(src), -1, np.int32), np.full(len(src), 1.0 / entry.shape[1]))


def _unavailable(op: Op, group: Group, sharp: bool) -> str:
    if group.nodes == 1:
        return "in-network reduction joins several nodes"
    if group.transport != "ib":
        return "in-network reduction needs InfiniBand"
    return "" if sharp else "in-network reduction is off (nccl.sharp)"


COLLNET = Algorithm(
    "collnet", ("all_reduce",), ("simple",), _unavailable, steps, inside, ring_wire, per_nic, traffic
)
