"""The graph among switches and its shortest live paths, for the pairs of nodes that occur and no others.

Legend: N nodes (switches and multi-homed NICs), E live directed links between them, A arcs (all links from
one node to one other), T targets (nodes where flows leave the switches), P pairs (source, target),
S states (target, node on a shortest path to it), K arcs out of states; CSR pairs are ptr, arc.
Nodes carry fabric device ids outside and 0..N-1 inside this file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Kind, Role
from railwright.traffic.per_fabric import per_fabric

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

FAR = np.iinfo(np.int16).max
"""Hops to a target not reached; real distances are a handful."""

MOST_KEPT = 8_000_000
"""Arcs of answers that are kept for one graph: 25 bytes each and its states, two patterns of 100,000 GPUs."""

COMPILED_FROM = 2_000_000
"""Targets times nodes from which the kernel searches: NumPy takes 1 s there, compiling it once 3 s."""

CELLS = 8_000_000
"""Targets times nodes searched at a time: bounds memory at about 50 MB."""


@dataclass(frozen=True, eq=False)
class SwitchGraph:
    """Live links among switches and multi-homed NICs.

    device     (N,) fabric device id of each node, ascending; inner is the inverse, -1 elsewhere
    tier       (N,) Kind of each node: up is towards a higher one
    transit    (N,) whether paths may pass through (switches; NICs are ends only)
    link, capacity  (E,) of each live link, by tail, head, link
    tail, head, width  (A,) of each arc, by tail, head; width is the capacity of its links together
    first      (A+1,) the arc's links are first[a]..first[a+1]
    out        (N+1,) arcs out of a node are out[n]..out[n+1]
    into_ptr, into  (N+1,), (A,) CSR of the arcs into a node
    """

    device: Ints
    inner: Ints
    tier: Ints
    transit: Flags
    link: Ints
    capacity: Floats
    tail: Ints
    head: Ints
    width: Floats
    first: Longs
    out: Longs
    into_ptr: Longs
    into: Ints

    @property
    def num_nodes(self) -> int:
        return len(self.device)


@dataclass(frozen=True, eq=False)
class ShortestPaths:
    """Every shortest live path of some pairs: per target, an acyclic graph of next hops.

    start   (P,) state in which each pair begins; -1 where no live path leads to the target
    node    (S,) node of each state
    level   (S,) hops left to the target
    ptr     (S+1,) CSR over states of
    arc     (K,) arcs to next hops, ascending: by head
    to      (K,) state that each leads to
    part    (K,) share of what is in the state that the arc's capacity and the way beyond it can carry
    """

    start: Longs
    node: Ints
    level: Ints
    ptr: Longs
    arc: Ints
    to: Longs
    part: Floats


@per_fabric
def switch_graph(fabric: Fabric) -> SwitchGraph:
    """The graph among switches plus the NICs with several live cables either way; kept per fabric.

    Fabrics that differ elsewhere (a dead NIC, a slow cable to one) share one graph, and so its paths.
    """
    graph = _graph(fabric)
    arrays = (graph.device, graph.tier, graph.link, graph.capacity, graph.tail, graph.head, graph.first)
    content = hashlib.blake2b(b"|".join(array.tobytes() for array in arrays), digest_size=16).digest()
    return _GRAPHS.setdefault(content, graph)


_GRAPHS: WeakValueDictionary[bytes, SwitchGraph] = WeakValueDictionary()


def _graph(fabric: Fabric) -> SwitchGraph:
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    live = np.flatnonzero((fabric.capacity > 0) & (np.repeat(fabric.role, 2) >= Role.NODE_LEAF))
    is_nic = fabric.kind == Kind.NIC
    several = np.zeros(fabric.num_devices, bool)
    for end in (tail[live], head[live]):
        several |= np.bincount(end[is_nic[end]], minlength=fabric.num_devices) > 1
    member = (fabric.kind >= Kind.LEAF) | (is_nic & several)
    device = np.flatnonzero(member).astype(np.int32)
    inner = np.full(fabric.num_devices, -1, np.int32)
    inner[device] = np.arange(len(device), dtype=np.int32)
    live = live[member[tail[live]] & member[head[live]]]
    live = live[np.lexsort((live, inner[head[live]], inner[tail[live]]))]
    nodes, here, there = len(device), inner[tail[live]], inner[head[live]]
    fresh = np.flatnonzero((np.diff(here, prepend=-1) != 0) | (np.diff(there, prepend=-1) != 0))
    capacity = fabric.capacity[live]
    arc_tail, arc_head = here[fresh], there[fresh]
    into = np.argsort(arc_head, kind="stable").astype(np.int32)
    return SwitchGraph(
        device,
        inner,
        fabric.kind[device],
        fabric.kind[device] >= Kind.LEAF,
        live.astype(np.int32),
        capacity,
        arc_tail,
        arc_head,
        np.add.reduceat(capacity, fresh) if len(fresh) else np.zeros(0),
        np.append(fresh, len(live)),
        np.searchsorted(arc_tail, np.arange(nodes + 1)),
        np.searchsorted(arc_head[into], np.arange(nodes + 1)),
        into,
    )


def shortest_paths(graph: SwitchGraph, source: Longs, target: Longs) -> ShortestPaths:
    """All shortest live paths of pairs of different nodes.

    source, target  (P,) nodes, ordered by target, no pair twice

    Targets are searched many at a time.  A search goes backwards from each target, one hop for all of them
    together, and ends as soon as its sources are met; sources look one hop ahead where that is cheaper than
    the next step back, so that a ring between neighbours never floods the fabric.
    The last answers are kept: other seeds and routings ask for the same pairs.
    """
    kept = _KEPT.setdefault(graph, {})
    pairs = hashlib.blake2b(source.tobytes() + target.tobytes(), digest_size=16).digest()
    if pairs not in kept:
        kept[pairs] = _found(graph, source, target)
        while len(kept) > 1 and sum(len(paths.arc) for paths in kept.values()) > MOST_KEPT:
            del kept[next(iter(kept))]
    return kept[pairs]


_KEPT: WeakKeyDictionary[SwitchGraph, dict[bytes, ShortestPaths]] = WeakKeyDictionary()


def _found(graph: SwitchGraph, source: Longs, target: Longs) -> ShortestPaths:
    ends, end = np.unique(target, return_inverse=True)
    per_block = max(CELLS // max(graph.num_nodes, 1), 1)
    blocks = []
    for begin in range(0, len(ends), per_block):
        span = slice(*np.searchsorted(end, [begin, begin + per_block]))
        blocks.append(_search(graph, ends[begin : begin + per_block], source[span], end[span] - begin))
    return _joined(blocks)


def ragged(start: Longs, length: Longs) -> Longs:
    """start[0], start[0]+1, ... length[0] of them, then the same for the next row."""
    stops = np.cumsum(length)
    place: Longs = np.arange(stops[-1] if len(stops) else 0) + np.repeat(start - (stops - length), length)
    return place


def _search(graph: SwitchGraph, ends: Longs, source: Longs, end: Longs) -> ShortestPaths:
    """The paths of the pairs of one block of targets; a cell is end * N + node.

    States are numbered by level, the farthest first, so that each level's next hops follow it.
    """
    nodes = graph.num_nodes
    begin = end * nodes + source
    if len(ends) * nodes < COMPILED_FROM:
        distance = distances_plainly(graph, ends, begin)
    else:
        distance = _distances_compiled(graph, ends, source, end)
    at = distance[begin]
    highest = int(at[at < FAR].max(initial=0))
    wanted = np.zeros(len(distance), bool)
    number = np.full(len(distance), -1, np.int32)
    cells: list[Longs] = []
    steps: list[tuple[Longs, Ints, Longs]] = []
    count = 0
    for level in range(highest, -1, -1):
        wanted[begin[at == level]] = True
        here = np.flatnonzero(wanted)
        wanted[here] = False
        number[here] = np.arange(count, count + len(here))
        row, arc, ahead = _nearer(graph, ends, here, distance, level)
        steps.append((row + count, arc, ahead))
        wanted[ahead] = True
        cells.append(here)
        count += len(here)
    row, arc, ahead = (np.concatenate(x) for x in zip(*steps, strict=True))
    cell = np.concatenate(cells)
    to = number[ahead].astype(np.int64)
    level_of = distance[cell].astype(np.int32)
    ptr = np.searchsorted(row, np.arange(count + 1))
    part = _parts(graph, level_of, ptr, row, arc, to)
    return ShortestPaths(
        number[begin].astype(np.int64), (cell % nodes).astype(np.int32), level_of, ptr, arc, to, part
    )


def _distances_compiled(graph: SwitchGraph, ends: Longs, source: Longs, end: Longs) -> NDArray[np.int16]:
    """`distances_plainly` by the compiled kernel, which is imported here, when first needed."""
    from railwright.network.compiled.kernel_shortest import distances

    first = np.searchsorted(end, np.arange(len(ends) + 1)).astype(np.int64)
    found: NDArray[np.int16] = distances(
        graph.into_ptr.astype(np.int64), graph.into, graph.tail, graph.out.astype(np.int64), graph.head,
        graph.transit, ends.astype(np.int64), first, source.astype(np.int64), int(FAR),
    )  # fmt: skip
    return found


def distances_plainly(graph: SwitchGraph, ends: Longs, begin: Longs) -> NDArray[np.int16]:
    """(T * N,) hops to each target: known for every cell of `begin` and all that lies on its way."""
    nodes = graph.num_nodes
    distance = np.full(len(ends) * nodes, FAR, np.int16)
    last = np.empty(len(distance), np.int32)
    frontier = np.arange(len(ends)) * nodes + ends
    distance[frontier] = 0
    missing = begin[distance[begin] == FAR]
    step = 0
    while len(missing) and len(frontier):
        step += 1
        back = np.diff(graph.into_ptr)[frontier % nodes]
        if np.diff(graph.out)[missing % nodes].sum() < back.sum():
            row, _, ahead = _onward(graph, ends, missing)
            meets = np.zeros(len(missing), bool)
            meets[row[distance[ahead] == step - 1]] = True
            # A target is done when all its sources meet; until then they are found going back, as transit.
            pending = np.zeros(len(ends), bool)
            pending[missing[~meets] // nodes] = True
            done = ~pending[missing // nodes]
            distance[missing[done]] = step
            missing = missing[~done]
            frontier = frontier[pending[frontier // nodes]]
            back = np.diff(graph.into_ptr)[frontier % nodes]
        arc = graph.into[ragged(graph.into_ptr[frontier % nodes], back)]
        behind = np.repeat(frontier - frontier % nodes, back) + graph.tail[arc]
        behind = behind[distance[behind] == FAR]
        distance[behind] = step
        order = np.arange(len(behind), dtype=np.int32)
        last[behind] = order
        behind = behind[last[behind] == order]
        frontier = behind[graph.transit[behind % nodes]]
        missing = missing[distance[missing] == FAR]
    return distance


def _nearer(
    graph: SwitchGraph, ends: Longs, cells: Longs, distance: NDArray[np.int16], level: int
) -> tuple[Longs, Ints, Longs]:
    """As `_onward`, only arcs to cells one hop nearer: looked at from the side with fewer arcs.

    A spine has an arc down to every leaf of its pod, the target one arc up to each spine.
    """
    nodes = graph.num_nodes
    near = np.flatnonzero(distance == level - 1)
    back = np.diff(graph.into_ptr)[near % nodes]
    if back.sum() >= np.diff(graph.out)[cells % nodes].sum():
        row, arc, ahead = _onward(graph, ends, cells)
        good = distance[ahead] == level - 1
        return row[good], arc[good], ahead[good]
    may = graph.transit[near % nodes] | (near % nodes == ends[near // nodes])
    near, back = near[may], back[may]
    arc = graph.into[ragged(graph.into_ptr[near % nodes], back)]
    ahead = np.repeat(near, back)
    tail = ahead - ahead % nodes + graph.tail[arc]
    row = np.searchsorted(cells, tail)
    found = np.flatnonzero(cells[np.minimum(row, len(cells) - 1)] == tail) if len(cells) else row[:0]
    found = found[np.lexsort((arc[found], row[found]))]
    return row[found], arc[found], ahead[found]


def _onward(graph: SwitchGraph, ends: Longs, cells: Longs) -> tuple[Longs, Ints, Longs]:
    """Arcs out of some cells that may be gone: row of the cell, arc, cell ahead."""
    nodes = graph.num_nodes
    here = cells % nodes
    count = np.diff(graph.out)[here]
    arc = ragged(graph.out[here], count).astype(np.int32)
    row = np.repeat(np.arange(len(cells)), count)
    head = graph.head[arc]
    end = (cells // nodes)[row]
    may = graph.transit[head] | (head == ends[end])
    return row[may], arc[may], (end * nodes + head)[may]


def _parts(graph: SwitchGraph, level: Ints, ptr: Longs, row: Longs, arc: Ints, to: Longs) -> Floats:
    """(K,) share of each arc: min(its width, what its head passes on), over their sum; targets take all."""
    part = np.zeros(len(arc))
    onward = np.where(level == 0, np.inf, 0.0)
    # Levels are contiguous, the farthest first; go from the target outwards.
    bounds = np.flatnonzero(np.diff(level, prepend=-1, append=-1))
    for low, high in zip(bounds[-2::-1], bounds[:0:-1], strict=True):
        span = slice(ptr[low], ptr[high])
        through = np.minimum(graph.width[arc[span]], onward[to[span]])
        state = row[span] - low
        onward[low:high] += np.bincount(state, weights=through, minlength=high - low)
        part[span] = through / onward[row[span]]
    return part


def _joined(blocks: list[ShortestPaths]) -> ShortestPaths:
    """Blocks of targets side by side."""
    if not blocks:
        none = np.zeros(0, np.int64)
        few = np.zeros(0, np.int32)
        return ShortestPaths(none, few, few, np.zeros(1, np.int64), few, none, np.zeros(0))
    if len(blocks) == 1:
        return blocks[0]
    states = np.cumsum([0] + [len(b.node) for b in blocks])
    arcs = np.cumsum([0] + [len(b.arc) for b in blocks])
    return ShortestPaths(
        np.concatenate(
            [np.where(b.start < 0, -1, b.start + s) for b, s in zip(blocks, states, strict=False)]
        ),
        np.concatenate([b.node for b in blocks]),
        np.concatenate([b.level for b in blocks]),
        np.concatenate([[0], *(b.ptr[1:] + k for b, k in zip(blocks, arcs, strict=False))]),
        np.concatenate([b.arc for b in blocks]),
        np.concatenate([b.to + s for b, s in zip(blocks, states, strict=False)]),
        np.concatenate([b.part for b in blocks]),
    )
