"""The switch part of paths: shortest live paths, and how a routing picks among them.

Legend: N nodes (switches and multi-homed NICs), E live directed links between them, F flows, H hops,
T targets (the nodes where flows leave the switches), B spreads; CSR pairs are ptr, link.
Nodes carry fabric device ids outside and 0..N-1 inside this file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Kind

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

UNREACHED = np.iinfo(np.int32).max


@dataclass(frozen=True, eq=False)
class SwitchGraph:
    """Live links among switches and multi-homed NICs, and the next hops of every shortest path.

    device     (N,) fabric device id of each node, ascending; inner is the inverse, -1 elsewhere
    tier       (N,) Kind of each node: up is towards a higher one
    tail, head, link, capacity  (E,) of each live link
    targets    (T,) nodes for which next hops are known
    distance   (T, N) hops to each target; UNREACHED where there is no live path
    next_ptr   (T * N + 1,) CSR over (target, node) of next_edge: the edges on shortest paths, by head, link
    """

    device: Ints
    inner: Ints
    tier: Ints
    tail: Ints
    head: Ints
    link: Ints
    capacity: Floats
    targets: Ints
    distance: Ints
    next_ptr: Longs
    next_edge: Ints

    @property
    def num_nodes(self) -> int:
        return len(self.device)


@dataclass(frozen=True, eq=False)
class SwitchPaths:
    """Either one path per flow (links, padded with -1) or one spread per flow (-1: none), or both empty.

    links   (F, H) fabric link ids
    spread  (F,) row of the CSR below
    spread_ptr, spread_link, spread_weight  fraction on each link; those of one hop add to 1
    """

    links: Ints
    spread: Ints
    spread_ptr: Longs
    spread_link: Ints
    spread_weight: Floats


def switch_graph(fabric: Fabric, live_tail: Ints, live_head: Ints, live: Ints, targets: Ints) -> SwitchGraph:
    """The graph among switches plus the NICs in `targets` or with several live uplinks.

    live_tail, live_head, live  device ids and link ids of all live NIC-leaf and switch-switch links
    targets                     device ids of the nodes where flows leave the switches
    """
    is_nic = fabric.kind == Kind.NIC
    uplinks = np.bincount(live_tail[is_nic[live_tail]], minlength=fabric.num_devices)
    member = (fabric.kind >= Kind.LEAF) | (is_nic & (uplinks > 1))
    member[targets] = True
    device = np.flatnonzero(member).astype(np.int32)
    inner = np.full(fabric.num_devices, -1, np.int32)
    inner[device] = np.arange(len(device), dtype=np.int32)
    keep = member[live_tail] & member[live_head]
    tail, head, link = inner[live_tail[keep]], inner[live_head[keep]], live[keep]
    order = np.lexsort((link, head, tail))
    tail, head, link = tail[order], head[order], link[order]
    transit = fabric.kind[device] >= Kind.LEAF
    inside = inner[targets]
    distance = (
        np.stack([_distances(len(device), tail, head, transit, int(t)) for t in inside])
        if len(inside)
        else np.zeros((0, len(device)), np.int32)
    )
    edges: list[Ints] = []
    counts: list[Longs] = []
    for row, target in zip(distance, inside, strict=True):
        shortest = (row[head] < UNREACHED) & (row[tail] == row[head] + 1) & (transit[head] | (head == target))
        edges.append(np.flatnonzero(shortest).astype(np.int32))
        counts.append(np.bincount(tail[shortest], minlength=len(device)).astype(np.int64))
    next_ptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]) if counts else np.zeros(1, np.int64)
    next_edge = np.concatenate(edges) if edges else np.zeros(0, np.int32)
    return SwitchGraph(
        device,
        inner,
        fabric.kind[device],
        tail,
        head,
        link,
        fabric.capacity[link],
        inside,
        distance,
        next_ptr,
        next_edge,
    )


def adaptive(
    graph: SwitchGraph, entry: Ints, target: Ints, flow: Words, owner: Longs, seed: int
) -> SwitchPaths:
    """Spread every flow over all shortest live paths: the ideal of adaptive routing and packet spraying.

    At each hop bytes divide over next switches in proportion to what the way through each can carry to the
    target: min(live capacity to it, its own such width).  On a healthy fabric that is an even spread; a slow
    or lost link, here or further on, gets less.  It knows capacities but not the load of other flows.
    Source: Zhou et al., "WCMP: Weighted cost multipathing for improved fairness in data centers",
    EuroSys 2014.
    """
    pairs, row = np.unique(entry.astype(np.int64) * len(graph.targets) + target, return_inverse=True)
    sources, ends = (pairs // max(len(graph.targets), 1)), (pairs % max(len(graph.targets), 1))
    spread_ptr, links, weights = [0], [], []
    by_end: dict[int, list[int]] = {}
    for pair, end in enumerate(ends):
        by_end.setdefault(int(end), []).append(pair)
    slots: list[tuple[Ints, Floats]] = [(np.zeros(0, np.int32), np.zeros(0))] * len(pairs)
    for end, members in by_end.items():
        edges, share = _shares(graph, end, sources[members])
        for k, pair in enumerate(members):
            used = share[k] > 0
            slots[pair] = (graph.link[edges[used]], share[k][used])
    for link, weight in slots:
        spread_ptr.append(spread_ptr[-1] + len(link))
        links.append(link)
        weights.append(weight)
    return SwitchPaths(
        np.zeros((len(entry), 0), np.int32),
        row.reshape(-1).astype(np.int32),
        np.array(spread_ptr, np.int64),
        np.concatenate([np.zeros(0, np.int32), *links]),
        np.concatenate([np.zeros(0), *weights]),
    )


def ecmp(graph: SwitchGraph, entry: Ints, target: Ints, flow: Words, owner: Longs, seed: int) -> SwitchPaths:
    """Hash every flow onto one shortest path: at each switch, an even choice among live equal next hops.

    `flow` identifies the flow (its 5-tuple, so to speak); each switch salts the hash with its own id, so
    choices at different switches are independent (no polarisation).
    Source: RFC 2992 (equal-cost multipath by hash); mixing function: splitmix64 (Steele et al., OOPSLA 2014).
    """
    key = splitmix(flow ^ splitmix(np.array([seed], np.uint64)))

    def pick(walker: Longs, node: Ints, count: Longs, up: NDArray[np.bool_]) -> Longs:
        salt = splitmix(graph.device[node].astype(np.uint64) + np.uint64(1))
        return (splitmix(key[walker] ^ salt) % count.astype(np.uint64)).astype(np.int64)

    return _one_path(_walk(graph, entry, target, pick))


def static(
    graph: SwitchGraph, entry: Ints, target: Ints, flow: Words, owner: Longs, seed: int
) -> SwitchPaths:
    """Destination-based tables: all packets to one NIC take the same path from a given switch.

    `owner` numbers destination NICs leaf by leaf.  Going up, the first switch takes up-port owner mod k1,
    the next (owner div k1) mod k2: D-mod-k, which balances destinations over up-ports and makes shift
    permutations free of contention on a full tree; going down, parallel cables are taken owner mod k.
    k counts live ports on shortest paths, so tables are recomputed after a fault.
    Source: Zahavi, "Fat-tree routing and node ordering providing contention free traffic for MPI global
    collectives", JPDC 72 (2012); OpenSM ftree is its implementation.
    """
    stride = np.ones(len(entry), np.int64)

    def pick(walker: Longs, node: Ints, count: Longs, up: NDArray[np.bool_]) -> Longs:
        chosen = np.where(up, owner[walker] // stride[walker], owner[walker]) % count
        stride[walker] = np.where(up, stride[walker] * count, stride[walker])
        return chosen

    return _one_path(_walk(graph, entry, target, pick))


ROUTINGS: dict[str, Callable[[SwitchGraph, Ints, Ints, Words, Longs, int], SwitchPaths]] = {
    "adaptive": adaptive,
    "ecmp": ecmp,
    "static": static,
}


def splitmix(word: Words) -> Words:
    """A well mixed 64-bit word of each 64-bit word. Source: Steele, Lea, Flood, OOPSLA 2014 (splitmix64)."""
    with np.errstate(over="ignore"):
        z = word + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: Words = z ^ (z >> np.uint64(31))
        return mixed


def _distances(num_nodes: int, tail: Ints, head: Ints, transit: NDArray[np.bool_], target: int) -> Ints:
    """(N,) hops to the target over live links, backwards breadth-first; NICs are not passed through."""
    distance = np.full(num_nodes, UNREACHED, np.int32)
    distance[target] = 0
    frontier = np.zeros(num_nodes, bool)
    frontier[target] = True
    step = 0
    while frontier.any():
        step += 1
        found = tail[frontier[head]]
        found = found[distance[found] == UNREACHED]
        distance[found] = step
        frontier[:] = False
        frontier[found] = transit[found]
    return distance


def _shares(graph: SwitchGraph, end: int, sources: Longs) -> tuple[Ints, Floats]:
    """Edges on shortest paths to one target, and the share (S, edges) that each source puts on each."""
    n = graph.num_nodes
    distance = graph.distance[end]
    edges = graph.next_edge[graph.next_ptr[end * n] : graph.next_ptr[(end + 1) * n]]
    tail, head, capacity = graph.tail[edges], graph.head[edges], graph.capacity[edges]
    width = np.zeros(n)
    width[graph.targets[end]] = np.inf
    part = np.zeros(len(edges))
    level = distance[tail]
    steps = np.unique(level)
    for step in steps:
        here = np.flatnonzero(level == step)
        pair, group = np.unique(tail[here].astype(np.int64) * n + head[here], return_inverse=True)
        together = np.bincount(group, weights=capacity[here])
        through = np.minimum(together, width[pair % n])
        part[here] = through[group] * capacity[here] / together[group]
        width += np.bincount(pair // n, weights=through, minlength=n)
    part /= width[tail]
    amount = np.zeros((len(sources), n))
    amount[np.arange(len(sources)), sources] = 1.0
    share = np.zeros((len(sources), len(edges)))
    for step in steps[::-1]:
        here = np.flatnonzero(level == step)
        here = here[np.argsort(head[here], kind="stable")]
        moved = amount[:, tail[here]] * part[here]
        share[:, here] = moved
        starts = np.flatnonzero(np.diff(head[here], prepend=-1))
        amount[:, head[here][starts]] += np.add.reduceat(moved, starts, axis=1)
    return edges, share


def _walk(
    graph: SwitchGraph,
    entry: Ints,
    target: Ints,
    pick: Callable[[Longs, Ints, Longs, NDArray[np.bool_]], Longs],
) -> Ints:
    """(F, H) link ids of the path that `pick` chooses hop by hop; every entry must reach its target."""
    n = graph.num_nodes
    here = entry.copy()
    columns: list[Ints] = []
    while True:
        walker = np.flatnonzero(here != graph.targets[target])
        if not len(walker):
            break
        row = target[walker].astype(np.int64) * n + here[walker]
        first = graph.next_ptr[row]
        count = graph.next_ptr[row + 1] - first
        up = graph.tier[graph.head[graph.next_edge[first]]] > graph.tier[here[walker]]
        edge = graph.next_edge[first + pick(walker, here[walker], count, up)]
        column = np.full(len(entry), -1, np.int32)
        column[walker] = graph.link[edge]
        here[walker] = graph.head[edge]
        columns.append(column)
    return np.stack(columns, axis=1) if columns else np.zeros((len(entry), 0), np.int32)


def _one_path(links: Ints) -> SwitchPaths:
    none = np.full(len(links), -1, np.int32)
    return SwitchPaths(links, none, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
