"""Whether forwarding tables hold: every destination reached, by how many hops, without a circle of waiting.

Legend: S switches, D destinations as in `tables`; F walks, from every leaf in use to every live destination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from railwright.fabric.graph import Fabric, Kind
from railwright.network.routing.shortest import shortest_paths, switch_graph
from railwright.network.routing.tables import (
    ASTRAY,
    DEAD,
    HOLE,
    LOOP,
    REACHED,
    Tables,
    Walks,
    destinations,
    switches,
    walk,
    wrong,
)

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]

KINDS = {HOLE: "no route", DEAD: "failed cable", ASTRAY: "wrong NIC", LOOP: "circle"}


@dataclass(frozen=True)
class TableCheck:
    """Every destination from every leaf.

    pairs      (leaf, destination) pairs that any live path joins
    reached    how many of them the tables join
    failures   what goes wrong -> pairs; empty when all arrive
    examples   one sentence for the first pair of each failure
    hops       switches crossed -> pairs that arrive so
    longer     pairs that arrive by more switches than the shortest way has
    turns      pairs whose way goes up again after it went down
    waits_in_circle  whether packets that wait for one another's buffers can do so in a circle; None where
               that is not to be told because pairs fail
    """

    pairs: int
    reached: int
    failures: Mapping[str, int]
    examples: tuple[str, ...]
    hops: Mapping[int, int]
    longer: int
    turns: int
    waits_in_circle: bool | None

    @property
    def valid(self) -> bool:
        return self.reached == self.pairs


@dataclass(frozen=True, eq=False)
class TableUse:
    """What a check found, and what the tables do with the up-links.

    up_links      (U,) live links from a switch to a higher one
    destinations  (U,) destinations that each serves, on the ways from leaves
    """

    check: TableCheck
    up_links: Ints
    destinations: Longs


def check_tables(fabric: Fabric, tables: Tables) -> TableUse:
    """Follow the tables from every leaf that has live NICs to every live NIC port.

    Credit loops: InfiniBand and lossless Ethernet hold a packet until the next buffer is free, so a circle
    of links each waited for by the one before can lock up.  Routes are free of that if and only if the graph
    of links, joined where a way goes from one to the next, has no circle.  Ways that only go up and then
    down never make one.
    Source: Dally, Seitz, "Deadlock-free message routing in multiprocessor interconnection networks",
    IEEE Trans. Computers C-36 (1987), theorem 1.
    """
    cables = destinations(fabric)
    live = np.flatnonzero((fabric.capacity[2 * cables] > 0) & (fabric.capacity[2 * cables + 1] > 0))
    home = fabric.b[cables[live]]
    leaves = np.unique(home)
    start, place = np.repeat(leaves, len(live)).astype(np.int32), np.tile(np.arange(len(live)), len(leaves))
    distance = _distances(fabric, start, home[place])
    start, place, distance = start[distance >= 0], place[distance >= 0], distance[distance >= 0]
    column = live[place]
    walks = walk(fabric, tables, start, column)
    arrived = walks.end == REACHED
    crossed = np.count_nonzero(walks.links >= 0, axis=1)
    rises = _rises(fabric)
    turns = _turns(walks, rises)
    failures = {KINDS[end]: int(np.count_nonzero(walks.end == end)) for end in KINDS}
    examples = [
        wrong(fabric, tables, walks, start, column, int(np.argmax(walks.end == end)))
        for end in KINDS
        if failures[KINDS[end]]
    ]
    hops, number = np.unique(crossed[arrived], return_counts=True)
    check = TableCheck(
        len(start),
        int(np.count_nonzero(arrived)),
        {kind: count for kind, count in failures.items() if count},
        tuple(examples),
        dict(zip(hops.tolist(), number.tolist(), strict=True)),
        int(np.count_nonzero(arrived & (crossed > distance + 1))),
        int(np.count_nonzero(arrived & turns)),
        _waits_in_circle(walks, fabric.num_links) if arrived.all() else None,
    )
    up = np.flatnonzero((rises > 0) & (fabric.capacity > 0)).astype(np.int32)
    used = walks.links >= 0
    key = walks.links[used].astype(np.int64) * len(cables) + np.repeat(column, used.sum(axis=1))
    served = np.bincount(np.unique(key) // max(len(cables), 1), minlength=fabric.num_links)
    return TableUse(check, up, served[up])


def differing(fabric: Fabric, one: Tables, other: Tables) -> tuple[int, int]:
    """(entries of leaves that differ, entries that both have), of destinations at other leaves."""
    rows = fabric.kind[switches(fabric)] == Kind.LEAF
    both = (one.out[rows] >= 0) & (other.out[rows] >= 0)
    local = 2 * destinations(fabric) + 1
    both &= one.out[rows] != local
    return int(np.count_nonzero(both & (one.out[rows] != other.out[rows]))), int(np.count_nonzero(both))


def _distances(fabric: Fabric, start: Ints, home: Ints) -> Longs:
    """(F,) hops between leaves on the shortest live way; -1 where there is none."""
    graph = switch_graph(fabric)
    here, there = graph.inner[start].astype(np.int64), graph.inner[home].astype(np.int64)
    pairs, pair = np.unique(there * graph.num_nodes + here, return_inverse=True)
    source, target = pairs % max(graph.num_nodes, 1), pairs // max(graph.num_nodes, 1)
    far = np.zeros(len(pairs), np.int64)
    apart = np.flatnonzero(source != target)
    paths = shortest_paths(graph, source[apart], target[apart])
    joined = paths.start >= 0
    far[apart] = -1
    far[apart[joined]] = paths.level[paths.start[joined]]
    found: Longs = far[pair.reshape(-1)]
    return found


def _rises(fabric: Fabric) -> Ints:
    """(L,) 1 for links between switches that go up a tier, -1 for those that go down, 0 for all others."""
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    between = (fabric.kind[tail] >= Kind.LEAF) & (fabric.kind[head] >= Kind.LEAF)
    return np.where(between, np.sign(fabric.kind[head] - fabric.kind[tail]), 0).astype(np.int32)


def _turns(walks: Walks, rises: Ints) -> NDArray[np.bool_]:
    """(F,) whether a way goes up after it went down."""
    fallen = np.zeros(len(walks.end), bool)
    turned = np.zeros(len(walks.end), bool)
    for column in walks.links.T:
        step = np.where(column >= 0, rises[column], 0)
        turned |= fallen & (step > 0)
        fallen |= step < 0
    return turned


def _waits_in_circle(walks: Walks, num_links: int) -> bool:
    """Whether the graph of consecutive links has a circle."""
    links = walks.links
    if links.shape[1] < 2:
        return False
    held, wanted = links[:, :-1].reshape(-1), links[:, 1:].reshape(-1)
    on = wanted >= 0
    edges = np.unique(held[on].astype(np.int64) * num_links + wanted[on])
    graph = coo_array(
        (np.ones(len(edges), np.int8), (edges // num_links, edges % num_links)), (num_links,) * 2
    )
    groups, _ = connected_components(graph, connection="strong")
    return bool(groups < num_links)
