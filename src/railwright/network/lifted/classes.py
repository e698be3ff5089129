"""Classes of demands of groups: which sources are alike, and which destinations are alike to each.

Legend: A groups, X classes of demands, L directed links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.network.lifted.partition import Graph, Partition
from railwright.traffic import Groups, Traffic
from railwright.traffic.placement import relay

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DemandClasses:
    """One demand of each class, and how many there are.

    traffic  X demands, one of each class
    members  (X,) demands of each class
    group    (X,) the group it belongs to
    kind     (X,) class of that group once the source is singled out
    source   (X,) class of its source in the partition
    target   (X,) class of its destination once its source is singled out
    each     (X,) destinations of the class that one source has
    """

    traffic: Traffic
    members: Floats
    group: Longs
    kind: Longs
    source: Longs
    target: Longs
    each: Longs


def demand_classes(fabric: Fabric, groups: Groups, graph: Graph, partition: Partition) -> DemandClasses:
    """Classes of the demands of all groups, under a stable partition of their graph.

    Demands (u, v) and (u', v') of one group are alike when u and u' are, and v is to u what v' is to u': for
    one source of each class the graph is refined with that source singled out, and the destinations that
    stay alike are alike to it.
    """
    none = np.zeros(0, np.int64)
    columns: list[list[Longs]] = [[none] for _ in range(8)]
    for gpu, number, joined in sources(groups, partition.label):
        fine = partition.singled_out(graph, gpu)
        for group in joined:
            target, each, example = destinations(groups, fine, gpu, group)
            kind, own = fine.label[fabric.num_devices + group], partition.label[gpu]
            same = [np.full(len(target), x) for x in (gpu, number, group, kind, own)]
            for column, values in zip(columns, [*same, target, each, example], strict=True):
                column.append(values)
    src, alike, owner, kinds, source, target, each, dst = (np.concatenate(column) for column in columns)
    return DemandClasses(
        Traffic(
            src.astype(np.int32),
            dst.astype(np.int32),
            relays(fabric, groups, src, dst, owner),
            groups.size[owner],
        ),
        (each * alike).astype(np.float64),
        owner,
        kinds,
        source,
        target,
        each,
    )


def destinations(groups: Groups, fine: Partition, gpu: int, group: int) -> tuple[Longs, Longs, Longs]:
    """Classes that the other ranks of a group fall into once a GPU is singled out: class, ranks, first rank.

    Classes are numbered alike for GPUs that a symmetry of the graph maps to each other.
    """
    ranks = groups.members(group).astype(np.int64)
    label = fine.label[ranks]
    number = np.bincount(label, minlength=fine.count)
    example = np.empty(fine.count, np.int64)
    example[label[::-1]] = ranks[::-1]
    number[fine.label[gpu]] = 0
    found = np.flatnonzero(number)
    return found, number[found], example[found]


def relays(fabric: Fabric, groups: Groups, src: Longs, dst: Longs, group: Longs) -> Ints:
    """The GPU that forwards each demand, -1 where none does; `group` says whose it is."""
    forward = np.full(len(src), -1, np.int32)
    for g in np.unique(group[groups.pxn[group]]):
        here = np.flatnonzero(group == g)
        forward[here] = relay(
            fabric, groups.members(int(g)), src[here].astype(np.int32), dst[here].astype(np.int32)
        )
    return forward


def link_classes(fabric: Fabric, label: Longs, mark: Longs) -> Longs:
    """(L,) class of each directed link: by its ends' classes, what it can carry and what marks it, 0..Y-1."""
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    kinds = int(label.max(initial=0)) + 1
    answer = label[tail] * kinds + label[head]
    for column in (_own_lane(fabric), fabric.capacity, fabric.rate.repeat(2), fabric.length.repeat(2), mark):
        values, which = _numbered(column)
        if values > 1:
            answer = _numbered(answer)[1] * values + which
    return _numbered(answer)[1]


def sources(groups: Groups, label: Longs) -> list[tuple[int, int, list[int]]]:
    """For each class of sources: its first GPU, its members, and the groups that GPU is in."""
    order = np.argsort(groups.gpus, kind="stable")
    row = np.repeat(np.arange(groups.num_groups), np.diff(groups.ptr))[order]
    gpus = groups.gpus[order]
    ranks, first, count = np.unique(gpus, return_index=True, return_counts=True)
    _, example, members = np.unique(label[ranks], return_index=True, return_counts=True)
    return [
        (int(ranks[x]), int(m), row[first[x] : first[x] + count[x]].tolist())
        for x, m in zip(example, members, strict=True)
    ]


def _own_lane(fabric: Fabric) -> NDArray[np.int64]:
    """(L,) whether a link is the PCIe lane between a GPU and the NIC it sends through."""
    gpu = np.minimum(fabric.a, fabric.num_gpus - 1)
    own = (fabric.a < fabric.num_gpus) & (fabric.nic_of_gpu[gpu] == fabric.b)
    return np.repeat(own.astype(np.int64), 2)


def _numbered(column: NDArray[np.int64] | Floats) -> tuple[int, Longs]:
    """How many values a column has, and which each entry is."""
    if len(column) and np.all(column == column[0]):
        return 1, np.zeros(len(column), np.int64)
    values, which = np.unique(column, return_inverse=True)
    return len(values), which.reshape(-1)
