"""Send orders: which peer each rank serves first.

Legend: F demands; n ranks of a communicator; (n, n) means [sender, receiver].
An order is a round for every ordered pair of ranks: a sender posts its messages by ascending round.
A node here is a scale-up domain, as it is for NCCL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError, nearest
from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic
from railwright.traffic.placement import domain_of_gpu

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

BATCH = 8
"""Ranks of one group of NCCL's schedule. Source: NCCL 2.28.9 src/init.cc, NCCL_P2P_SCHEDULE_GROUP_SIZE,
whose default is NCCL_MAX_DEV_WORK_P2P_PER_BATCH = 8 (src/include/device.h)."""


def nccl(fabric: Fabric, comm: Communicator, seed: int = 0) -> Longs:
    """(n, n) rounds of NCCL's point-to-point schedule.

    Ranks are cut into groups of 8 inside a node, or of what divides 8 and every node's ranks; one node is one
    group.  Groups at distance 0, 1, 3, 6, 10, ... (triangular numbers modulo the next power of two, those
    beyond the last group left out) follow one another; inside a group, the ranks 0, 1, 2, ... places further.
    Source: NCCL 2.28.9 and later, src/init.cc, ncclP2pSchedule.  From 2.22 to 2.27 (src/init.cc,
    initTransportsRank) a node was one group, and places inside it followed triangular numbers too.
    """
    node, local = _nodes(fabric, comm)
    counts = np.bincount(node)
    size = BATCH if len(counts) > 1 else int(counts.max(initial=1))
    for count in counts.tolist():
        size = gcd(size, count)
    first = np.concatenate([[0], np.cumsum(counts // size)])
    group, place = first[node] + local // size, local % size
    turn = _triangular(int(first[-1]))
    away = (group[None, :] - group[:, None]) % int(first[-1])
    rounds: Longs = turn[away] * size + (place[None, :] - place[:, None]) % size
    return rounds


def by_rank(fabric: Fabric, comm: Communicator, seed: int = 0) -> Longs:
    """(n, n) everyone serves rank 0 first, then rank 1, and so on."""
    return np.tile(np.arange(len(comm)), (len(comm), 1))


def rank_shift(fabric: Fabric, comm: Communicator, seed: int = 0) -> Longs:
    """(n, n) in round r, rank i serves rank i + r: in every round each rank receives from one other."""
    rank = np.arange(len(comm))
    return (rank[None, :] - rank[:, None]) % max(len(comm), 1)


def host_rail_shift(fabric: Fabric, comm: Communicator, seed: int = 0) -> Longs:
    """(n, n) node i serves node i + a and, within, place j serves place j + b: b runs through, then a.

    In every round each rank receives from one other, and each node sends to one other node.
    """
    node, local = _nodes(fabric, comm)
    nodes, places = int(node.max(initial=0)) + 1, int(local.max(initial=0)) + 1
    away = (node[None, :] - node[:, None]) % nodes
    return away * places + (local[None, :] - local[:, None]) % places


def random(fabric: Fabric, comm: Communicator, seed: int = 0) -> Longs:
    """(n, n) a permutation of its own for every sender."""
    drawn = np.random.default_rng(seed).random((len(comm), len(comm)))
    return np.argsort(np.argsort(drawn, axis=1, kind="stable"), axis=1, kind="stable")


ORDERS: Mapping[str, Callable[[Fabric, Communicator, int], Longs]] = {
    "nccl": nccl,
    "host-rail-shift": host_rail_shift,
    "rank-shift": rank_shift,
    "random": random,
    "by-rank": by_rank,
}
"""Name -> rounds of every ordered pair of ranks."""


def places(
    fabric: Fabric, traffic: Traffic, order: str, groups: Sequence[Communicator] = (), seed: int = 0
) -> Longs:
    """(F,) round in which each demand's sender posts it, under an order of `ORDERS`.

    groups  disjoint communicators, one of which holds both ends of every demand; none: all GPUs of the
            traffic, ascending, are one
    Raises PlanError for an unknown order, and for a demand that no group holds.
    """
    if order not in ORDERS:
        raise PlanError(f"no send order '{order}'; known: {', '.join(ORDERS)}{nearest(order, ORDERS)}")
    if not groups:
        groups = [Communicator(np.unique(np.concatenate([traffic.src, traffic.dst])).astype(np.int32))]
    round_of = np.full(len(traffic), -1, np.int64)
    for group in groups:
        if not len(group):
            continue
        rank = np.full(fabric.num_gpus, -1, np.int64)
        rank[group.gpus] = np.arange(len(group))
        held = np.flatnonzero((rank[traffic.src] >= 0) & (rank[traffic.dst] >= 0))
        rounds = ORDERS[order](fabric, group, seed)
        round_of[held] = rounds[rank[traffic.src[held]], rank[traffic.dst[held]]]
    lost = np.flatnonzero(round_of < 0)
    if len(lost):
        src, dst = (fabric.device_name(int(end[lost[0]])) for end in (traffic.src, traffic.dst))
        raise PlanError(
            f"{src} sends to {dst}, but no group holds both, so order '{order}' does not say when; "
            "give the communicators that the traffic was made of."
        )
    return round_of


def _nodes(fabric: Fabric, comm: Communicator) -> tuple[Longs, Longs]:
    """Node of each rank, counted as nodes first occur in rank order, and its place among that node's."""
    domain = domain_of_gpu(fabric)[comm.gpus]
    _, first, which = np.unique(domain, return_index=True, return_inverse=True)
    node = np.argsort(np.argsort(first, kind="stable"), kind="stable")[which.reshape(-1)]
    by_node = np.argsort(node, kind="stable")
    begin = np.concatenate([[0], np.cumsum(np.bincount(node))])
    local = np.empty(len(comm), np.int64)
    local[by_node] = np.arange(len(comm)) - begin[node[by_node]]
    return node, local


def _triangular(groups: int) -> Longs:
    """(groups,) turn of each distance: x (x + 1) / 2 modulo a power of two meets each number below once."""
    power = 1 << max(groups - 1, 0).bit_length()
    x = np.arange(power)
    passed = (x * (x + 1) // 2) % power
    passed = passed[passed < groups]
    turn = np.empty(groups, np.int64)
    turn[passed] = np.arange(groups)
    return turn
