"""Where the ranks of a group sit, as nodes beside the group: its part in each server, leaf, pod and rail.

Refinement sees neighbours and no circles: of two groups it cannot tell which has both ranks under one leaf.
With a node per group and place it sees the group as a tree, and groups need not be known by name.

Legend: A groups, M members of all groups; P places, each of one group.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Role
from railwright.network.routing.switching import splitmix
from railwright.traffic import Groups, domain_of_gpu, rail_of_gpu

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Places:
    """Nodes 0..P-1 and edges; GPUs and groups keep numbers of their own.

    kind     (P,) what place a node is: server, leaf, pod or rail
    gpu, at  GPU of a member and a place it is in
    word     what is known of that: how many ranks of the group share its other places too
    place, group  every place and its group
    """

    kind: Longs
    gpu: Longs
    at: Longs
    word: Words
    place: Longs
    group: Longs


def places_of(fabric: Fabric, groups: Groups, pods: Longs) -> Places:
    """The places of all groups; `pods` is the pod of each device."""
    gpu = groups.gpus.astype(np.int64)
    row = np.repeat(np.arange(groups.num_groups), np.diff(groups.ptr))
    server, rail = domain_of_gpu(fabric)[gpu].astype(np.int64), rail_of_gpu(fabric)[gpu].astype(np.int64)
    member, leaf = _leaves(fabric, gpu)
    first = np.full(len(gpu), -1, np.int64)
    first[member[::-1]] = leaf[::-1]
    pod = np.where(first >= 0, pods[first], -1)
    word = np.zeros(len(gpu), np.uint64)
    for one, other in ((server, first), (server, pod), (rail, first), (rail, pod), (rail, server)):
        word = splitmix(word + _sharing(row, one, other, fabric.num_devices).astype(np.uint64))
    every = np.arange(len(gpu))
    columns = [(every, server), (member, leaf), (member, pods[leaf]), (every, rail)]
    who = np.concatenate([x for x, _ in columns])
    kind = np.repeat(np.arange(len(columns)), [len(x) for x, _ in columns])
    key = (row[who] * len(columns) + kind) * (fabric.num_devices + 1) + np.concatenate(
        [y for _, y in columns]
    )
    _, example, at = np.unique(key, return_index=True, return_inverse=True)
    return Places(
        kind[example], gpu[who], at.reshape(-1), word[who], np.arange(len(example)), row[who][example]
    )


def _leaves(fabric: Fabric, gpu: Longs) -> tuple[Longs, Longs]:
    """Each member and a leaf that its NIC has a live cable to or from, one row per cable."""
    cable = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    live = np.maximum(fabric.capacity[2 * cable], fabric.capacity[2 * cable + 1]) > 0
    cable = cable[live]
    nic, leaf = fabric.a[cable].astype(np.int64), fabric.b[cable].astype(np.int64)
    order = np.lexsort((leaf, nic))
    nic, leaf = nic[order], leaf[order]
    wanted = fabric.nic_of_gpu[gpu]
    begin, end = np.searchsorted(nic, wanted), np.searchsorted(nic, wanted, side="right")
    count = end - begin
    member = np.repeat(np.arange(len(gpu)), count)
    within = np.arange(len(member)) - np.repeat(np.cumsum(count) - count, count)
    return member, leaf[np.repeat(begin, count) + within]


def _sharing(group: Longs, one: Longs, other: Longs, width: int) -> Longs:
    """(M,) how many members of the group share both places with each."""
    key = (group * (width + 1) + one) * (width + 1) + other + 1
    _, which, number = np.unique(key, return_inverse=True, return_counts=True)
    shared: Longs = number[which.reshape(-1)]
    return shared
