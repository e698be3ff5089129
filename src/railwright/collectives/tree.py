"""Double binary tree over the nodes with a chain inside each: all-reduce in 2 log2(nodes) network steps."""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, log2

from railwright.collectives.algorithm import Algorithm, Path
from railwright.collectives.constants import PROTOCOLS, base_latency, by_nodes, nccl, step_latency
from railwright.collectives.group import Group
from railwright.collectives.prediction import Op
from railwright.collectives.ring import channels_of
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join


def steps(op: Op, protocol: str, group: Group, path: Path) -> float:
    """Latency up and down the tree. [s]

    base + 2 ((ranks per node - 1) x inside + log2(nodes) x network).
    Source: NCCL 2.30 src/graph/tuning.cc ncclTopoTuneModel, tree.
    """
    chain = (group.ranks // group.nodes - 1) * step_latency(group.medium, "tree", protocol)
    climb = depth(group) * (step_latency("net", "tree", protocol) + path.worst)
    return base_latency("tree", protocol) + 2 * (chain + climb)


def depth(group: Group) -> int:
    """Network steps from leaf to root."""
    return floor(log2(group.nodes))


def inside(op: Op, protocol: str, group: Group) -> float:
    """busbw that the chains and the channels' reduction can carry, as NCCL's tuner assumes. [byte/s]

    Source: NCCL 2.30 src/graph/tuning.cc: 0.92 of the channels' rate, perChMaxTreeBws,
    perChMaxTreeLL128Bws, and 1/3.8 of it for LL; ncclTopoTuneModel halves it to algbw.
    """
    return _within(protocol, group, group.searched_nic)


def carried(op: Op, protocol: str, group: Group) -> float:
    """busbw that they carry in a call, where the fabric tells what NICs and slots let through. [byte/s]"""
    return _within(protocol, group, group.usable_nic)


def per_nic(op: Op, group: Group) -> float:
    """Bytes the busiest NIC sends per byte of S.

    A node inside one tree is a leaf of the other: half of S up and to two children, half of S up. Two nodes
    have one edge per tree, so S crosses once each way (the two-node trap: busbw above the NIC rate).
    """
    if group.nodes == 1:
        return 0.0
    return (1.0 if group.nodes == 2 else 2.0) / group.nics


def traffic(fabric: Fabric, groups: Sequence[Communicator], op: Op, pxn: bool) -> Traffic:
    """Demands of tree all-reduces of S = 1 byte."""
    from railwright.traffic.trees import tree

    return join([tree(fabric, comm, 1.0) for comm in groups])


def _within(protocol: str, group: Group, nic: float) -> float:
    """busbw of the chains beside NICs of that rate. [byte/s]"""
    channels = channels_of(group)
    full = group.usable_lane if group.nodes < group.ranks else float("inf")
    if group.nodes > 2:  # with two nodes the tuner takes the rate inside them
        full = min(full, group.nics * nic)
    full = min(0.92 * full, channels * by_nodes("channel_max_tree", group.generation, group.nodes))
    if protocol == "ll":
        row = group.generation if group.nodes == 1 else str(nccl()["ll_max_cpu"][group.cpu])
        full = min(full / 3.8, by_nodes("ll_max", row, group.nodes))
    if protocol == "ll128":
        payload = 7 / 9 if group.nodes == 1 else 120 / 128
        limit = channels * by_nodes("channel_max_tree_ll128", group.generation, group.nodes)
        full = min(full * payload, limit)
    return full * (group.ranks - 1) / group.ranks


def _wire(protocol: str) -> float:
    return {"ll": 2.0, "ll128": 128 / 120 / 0.92, "simple": 1 / 0.92}[protocol]


def _unavailable(op: Op, group: Group, sharp: bool) -> str:
    return group.rings_alone


TREE = Algorithm(
    "tree",
    ("all_reduce",),
    PROTOCOLS,
    _unavailable,
    steps,
    inside,
    _wire,
    per_nic,
    traffic,
    carried=carried,
)
