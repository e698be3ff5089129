"""The double binary tree of NCCL over servers, with a chain inside each.

Legend: D scale-up domains of the communicator, R channels (one per NIC of a domain).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join
from railwright.traffic.rings import heads, local_members

Ints = NDArray[np.int32]


def tree(fabric: Fabric, comm: Communicator, size: float) -> Traffic:
    """What an all-reduce over two binary trees puts on the wire, chains inside the domains included.

    size  bytes held by each rank [byte]

    Each channel carries size / R, half of it over each tree, up (reduce) and down (broadcast).
    Source: PHYSICS notes section 2 (Tree), NCCL 2.30 src/graph/trees.cc.
    """
    members = local_members(fabric, comm)
    return join([tree_across(fabric, comm, size), _chains(heads(fabric, members), members, size)])


def tree_across(fabric: Fabric, comm: Communicator, size: float) -> Traffic:
    """The part of `tree` between domains alone: what NVLSTree sends, whose inside is multicast.

    size  bytes held by each rank [byte]
    """
    entry = heads(fabric, local_members(fabric, comm))
    num_domains, channels = entry.shape
    parts: list[Traffic] = []
    for parents in double_tree(num_domains):
        child = np.flatnonzero(parents >= 0)
        low, high = entry[child].reshape(-1), entry[parents[child]].reshape(-1)
        parts += [_messages(low, high, size / (2 * channels)), _messages(high, low, size / (2 * channels))]
    return join(parts)


def double_tree(count: int) -> tuple[Ints, Ints]:
    """Parent of each of `count` nodes (-1: root) in two trees; a node inside one is a leaf of the other.

    The second tree is the first one mirrored (even count) or shifted by one (odd count).
    Source: NCCL 2.30, src/graph/trees.cc; Sanders, Speck, Traff, "Two-tree algorithms for full bandwidth
    broadcast, reduction and scan", Parallel Computing 35 (2009).
    """
    first = np.array([_parent(node, count) for node in range(count)], np.int32)
    nodes = np.arange(count)
    rename = count - 1 - nodes if count % 2 == 0 else (nodes + 1) % count
    second = np.full(count, -1, np.int32)
    second[rename] = np.where(first >= 0, rename[first], -1)
    return first, second


def _parent(node: int, count: int) -> int:
    """In the binary tree whose odd nodes are leaves: clear the lowest bit, set the next, if that exists."""
    if node == 0:
        return -1
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < count else node ^ bit


def _chains(entry: Ints, members: list[Ints], size: float) -> Traffic:
    """Each channel's chain from its head through the domain, both ways, for both trees together."""
    channels = entry.shape[1]
    parts: list[Traffic] = []
    for d, gpus in enumerate(members):
        for head in entry[d]:
            walk = np.roll(gpus, -int(np.flatnonzero(gpus == head)[0]))
            parts += [
                _messages(walk[1:], walk[:-1], size / channels),
                _messages(walk[:-1], walk[1:], size / channels),
            ]
    return join(parts)


def _messages(src: Ints, dst: Ints, size: float) -> Traffic:
    return Traffic(
        src.astype(np.int32), dst.astype(np.int32), np.full(len(src), -1, np.int32), np.full(len(src), size)
    )
