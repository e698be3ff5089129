"""How a routing picks among the shortest live paths between two nodes of the switch graph.

Legend: P pairs (source, target), F flows, H hops, K links of spreads; CSR pairs are ptr, link.
Nodes, arcs and states are those of `shortest`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.network.routing.shortest import ShortestPaths, SwitchGraph, ragged
from railwright.network.routing.solution import Network
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]

AT_ONCE = 1 << 15
"""Words or walkers worked on at a time: what lies between two steps stays in the processor's cache."""

CELLS = 4_000_000
"""Pairs times nodes spread at a time: bounds memory at about 100 MB."""


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


@dataclass(frozen=True, eq=False)
class Crossing:
    """Flows that cross the switches.

    pair      (F,) which of the paths' pairs
    identity  makes the (F,) 64-bit identity of the q-th queue pair of each flow: its 5-tuple, so to speak
    digits    makes the (F, H) static choices that lead to each flow's destination (see `static_tables`)
    qps       queue pairs per flow that a hash can tell apart
    salted    whether each switch has a hash of its own
    """

    pair: Longs
    identity: Callable[[int], Words]
    digits: Callable[[], Longs]
    qps: int = 1
    salted: bool = True

    def __len__(self) -> int:
        return len(self.pair)


def adaptive(graph: SwitchGraph, paths: ShortestPaths, flows: Crossing, seed: int) -> SwitchPaths:
    """Spread every flow over all shortest live paths: the ideal of adaptive routing and packet spraying.

    At each hop bytes divide over next switches in proportion to what the way through each can carry to the
    target: min(live capacity to it, its own such width).  On a healthy fabric that is an even spread; a slow
    or lost link, here or further on, gets less.  It knows capacities but not the load of other flows.
    Source: Zhou et al., "WCMP: Weighted cost multipathing for improved fairness in data centers",
    EuroSys 2014.
    """
    step = max(CELLS // max(graph.num_nodes, 1), 1)
    blocks = [
        _spread(graph, paths, paths.start[begin : begin + step]) for begin in range(0, len(paths.start), step)
    ]
    count, arc, share = (np.concatenate(x) for x in zip(*blocks, strict=True)) if blocks else _NOTHING
    cables = np.diff(graph.first)[arc]
    place = ragged(graph.first[arc], cables)
    together = np.repeat(graph.width[arc], cables)
    ends = np.concatenate([[0], np.cumsum(cables)])[np.concatenate([[0], np.cumsum(count)])]
    return SwitchPaths(
        np.zeros((len(flows), 0), np.int32),
        flows.pair.astype(np.int32),
        ends,
        graph.link[place],
        np.repeat(share, cables) * (graph.capacity[place] / together),
    )


def ecmp(graph: SwitchGraph, paths: ShortestPaths, flows: Crossing, seed: int) -> SwitchPaths:
    """Hash every queue pair onto one shortest path: at each switch, an even choice among live next hops.

    A salted switch mixes its own id into the hash, so choices at different switches are independent; without
    salt every switch sees the same number, and the ports of one tier decide those of the next (polarisation).
    A flow of several queue pairs is a spread over their paths, an even part on each: NCCL deals the requests
    of a connection to its queue pairs in turn and keeps few in flight, so none runs ahead of the others.
    Source: RFC 2992 (equal-cost multipath by hash); mixing function: splitmix64 (Steele et al., OOPSLA 2014);
    NCCL 2.30.7, src/transport/net_ib/common.h (ncclIbCommBaseGetQpForRequest: request id modulo queue pairs).
    """
    salt = switch_salt(graph, flows.salted)

    def walk(qp: int) -> SwitchPaths:
        key = splitmix(flows.identity(qp) ^ splitmix(np.array([seed], np.uint64)))

        def pick(walker: Longs, state: Longs, count: Longs, climbed: Longs) -> Longs:
            mixed = splitmix(key[walker] ^ salt[paths.node[state]])
            choice: Longs = (mixed % count.astype(np.uint64)).astype(np.int64)
            return choice

        return _walk(graph, paths, flows.pair, pick)

    if flows.qps == 1:
        return walk(0)
    links = np.concatenate([walk(qp).links for qp in range(flows.qps)], axis=1)
    used = links >= 0
    ptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
    return SwitchPaths(
        np.zeros((len(flows), 0), np.int32),
        np.arange(len(flows), dtype=np.int32),
        ptr,
        links[used],
        np.full(ptr[-1], 1.0 / flows.qps),
    )


def switch_salt(graph: SwitchGraph, salted: bool) -> Words:
    """(N,) what each switch mixes into the hash: a word of its own id, or 0 on every switch."""
    return splitmix(graph.device.astype(np.uint64) + np.uint64(1)) * np.uint64(salted)


def static(graph: SwitchGraph, paths: ShortestPaths, flows: Crossing, seed: int) -> SwitchPaths:
    """Destination-based tables: all packets to one NIC take the same path from a given switch.

    Up-hop number h takes the destination's digit h modulo the live ports on shortest paths; going down,
    parallel cables are taken by the digit of the destination's own climb through them.  So a flow comes
    down the line of ports that `static_tables` chose for its destination, wherever it comes from.
    """
    digits = flows.digits()

    def pick(walker: Longs, state: Longs, count: Longs, climbed: Longs) -> Longs:
        down = climbed < 0
        hop = np.where(down, paths.level[state] - 1, climbed)
        choice: Longs = digits[walker, np.minimum(hop, digits.shape[1] - 1)] % count
        return choice

    return _walk(graph, paths, flows.pair, pick)


ROUTINGS: dict[str, Callable[[SwitchGraph, ShortestPaths, Crossing, int], SwitchPaths]] = {
    "adaptive": adaptive,
    "ecmp": ecmp,
    "static": static,
}


def static_tables(graph: SwitchGraph, node: Longs) -> Longs:
    """(D, H) up-port that each hop of the climb from each destination takes, modulo the ports it has.

    node  (D,) where each destination hangs: its leaf, or its own node where it has several cables;
          destinations are taken in order of node and, on one node, as given

    From its node every destination climbs to the top.  Each switch on the way deals the destinations below
    it to its live up-ports in turn, so their numbers differ by at most one; switches with the same switches
    above begin where the one before stopped, so that those above are dealt alike too.
    Source: OpenSM, osm_ucast_ftree.c (each switch counts the destinations of every up-going port and takes
    the least loaded); Zahavi, "Fat-tree routing and node ordering providing contention free traffic for MPI
    global collectives", JPDC 72 (2012), for shifts without contention on a full tree.
    """
    rising = graph.tier[graph.head] > graph.tier[graph.tail]
    edge_arc = np.repeat(np.arange(len(graph.head)), np.diff(graph.first))
    edge = np.flatnonzero(rising[edge_arc])
    below, above = graph.tail[edge_arc[edge]], graph.head[edge_arc[edge]]
    ports = np.bincount(below, minlength=graph.num_nodes)
    first = np.cumsum(ports) - ports
    with np.errstate(over="ignore"):
        seen = np.zeros(graph.num_nodes, np.uint64)
        np.add.at(seen, below, splitmix(above.astype(np.uint64)))
    here, digits = node.astype(np.int64).copy(), []
    while len(climbing := np.flatnonzero(ports[here] > 0)):
        at = here[climbing]
        order = np.argsort(at, kind="stable")
        rank = np.empty(len(at), np.int64)
        rank[order] = np.arange(len(at))
        # Siblings in order of node; each one's first destination follows the last of the one before.
        mates, mate = np.unique(at, return_inverse=True)
        number = np.bincount(mate)
        family = np.argsort(seen[mates], kind="stable")
        before = np.cumsum(number[family]) - number[family]
        fresh = np.diff(seen[mates][family], prepend=np.uint64(0)) != 0
        fresh[0] = True
        start = np.empty(len(mates), np.int64)
        start[family] = before - np.maximum.accumulate(np.where(fresh, before, 0))
        column = np.zeros(len(here), np.int64)
        column[climbing] = rank - (np.cumsum(number) - number)[mate] + start[mate]
        here[climbing] = above[first[at] + column[climbing] % ports[at]]
        digits.append(column)
    return np.stack(digits, axis=1) if digits else np.zeros((len(node), 1), np.int64)


def splitmix(word: Words) -> Words:
    """A well mixed 64-bit word of each 64-bit word. Source: Steele, Lea, Flood, OOPSLA 2014 (splitmix64)."""
    with np.errstate(over="ignore"):
        mixed: Words = word + np.uint64(0x9E3779B97F4A7C15)
        for begin in range(0, len(mixed), AT_ONCE):
            z = mixed[begin : begin + AT_ONCE]
            z ^= z >> np.uint64(30)
            z *= np.uint64(0xBF58476D1CE4E5B9)
            z ^= z >> np.uint64(27)
            z *= np.uint64(0x94D049BB133111EB)
            z ^= z >> np.uint64(31)
        return mixed


def identities(network: Network, traffic: Traffic, flow: Longs) -> Callable[[int], Words]:
    """Makes the (flows,) identity of the q-th queue pair, as far as the network's hash looks at it."""
    if network.qps < 1:
        raise PlanError(f"qps is {network.qps}; a connection has at least 1 queue pair")
    if network.entropy == "qp":
        return lambda qp: flow_identity(traffic, flow, qp, network.qps)
    out = np.where(traffic.relay >= 0, traffic.relay, traffic.src)[flow]
    nics = network.fabric.nic_of_gpu
    none = np.full(1, -1, np.int32)
    return lambda qp: splitmix(connection_word(nics[out], nics[traffic.dst[flow]], none))


def flow_identity(traffic: Traffic, flow: Longs, qp: int = 0, qps: int = 1) -> Words:
    """(flows,) 64-bit identity: source, relay, destination, which of several alike it is, and queue pair."""
    src, dst, relay = traffic.src[flow], traffic.dst[flow], traffic.relay[flow]
    number = alike_before(src, dst, relay) * qps + qp
    return splitmix(connection_word(src, dst, relay) ^ number.astype(np.uint64))


def connection_word(src: Ints, dst: Ints, relay: Ints) -> Words:
    """(F,) what a connection is known by, to be mixed with the number of the queue pair."""
    ends = splitmix(src.astype(np.uint64) << np.uint64(32) | dst.astype(np.uint64))
    return ends ^ (relay + 1).astype(np.uint64) << np.uint64(32)


def alike_before(src: Ints, dst: Ints, relay: Ints) -> Longs:
    """(F,) how many earlier demands have the same source, destination and relay."""
    if _ascending(src, dst):
        return np.zeros(len(src), np.int64)
    order = np.lexsort((dst, relay, src))
    fresh = np.ones(len(src), bool)
    if len(src) > 1:
        fresh[1:] = np.any([np.diff(x[order]) != 0 for x in (src, dst, relay)], axis=0)
    position = np.arange(len(src))
    occurrence = np.empty(len(src), np.int64)
    occurrence[order] = position - np.maximum.accumulate(np.where(fresh, position, 0))
    return occurrence


def _ascending(src: Ints, dst: Ints) -> bool:
    """Whether pairs come in order and none twice, as in an all-to-all: then nothing is alike."""
    same, further = src[1:] == src[:-1], dst[1:] > dst[:-1]
    return bool(np.all(np.where(same, further, src[1:] > src[:-1])))


_NOTHING = (np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0))


def _spread(graph: SwitchGraph, paths: ShortestPaths, start: Longs) -> tuple[Longs, Ints, Floats]:
    """Arcs on the way of each of some pairs: how many of each pair, then arc and share, pair by pair."""
    nodes = graph.num_nodes
    level = paths.level[start]
    state_at = np.zeros(len(start) * nodes, np.int64)
    cell = np.zeros(0, np.int64)
    amount: Floats = np.zeros(0)
    steps: list[tuple[Longs, Ints, Floats]] = []
    for left in range(int(level.max(initial=0)), 0, -1):
        begins = np.flatnonzero(level == left)
        state_at[begins * nodes + paths.node[start[begins]]] = start[begins]
        pair = np.concatenate([cell // nodes, begins])
        order = np.argsort(pair, kind="stable")
        pair, state = pair[order], np.concatenate([state_at[cell], start[begins]])[order]
        amount = np.concatenate([amount, np.ones(len(begins))])[order]
        count = np.diff(paths.ptr)[state]
        k = ragged(paths.ptr[state], count)
        moved = np.repeat(amount, count) * paths.part[k]
        row = np.repeat(pair, count)
        steps.append((row, paths.arc[k], moved))
        ahead = row * nodes + paths.node[paths.to[k]]
        state_at[ahead] = paths.to[k]
        gathered: Floats = np.bincount(ahead, moved, len(state_at)).astype(np.float64, copy=False)
        cell = np.flatnonzero(gathered)
        amount = gathered[cell]
    counts = [np.bincount(row, minlength=len(start)) for row, _, _ in steps]
    total = sum(counts, np.zeros(len(start), np.int64))
    fill = np.cumsum(total) - total
    arc, share = np.empty(int(total.sum()), np.int32), np.empty(int(total.sum()))
    for (_, arcs, moved), count in zip(steps, counts, strict=True):
        place = ragged(fill, count)
        arc[place], share[place] = arcs, moved
        fill = fill + count
    return total, arc, share


def _walk(
    graph: SwitchGraph,
    paths: ShortestPaths,
    pair: Longs,
    pick: Callable[[Longs, Longs, Longs, Longs], Longs],
) -> SwitchPaths:
    """The path that `pick` chooses link by link.

    pick  from walkers, their states, how many links each may take, and how often each has climbed (-1 where
          this hop goes down), the number of the link, by head and then by link
    """
    cables = np.diff(graph.first)[paths.arc]
    stops = np.concatenate([[0], np.cumsum(cables)])
    ways = stops[paths.ptr]
    links = ragged(graph.first[paths.arc], cables)
    to = np.repeat(paths.to, cables)
    tier = graph.tier[paths.node]
    rises = (
        tier[to[np.minimum(ways[:-1], max(len(to) - 1, 0))]] > tier if len(to) else np.zeros(len(tier), bool)
    )
    link = graph.link[links]
    every = np.full((len(pair), int(paths.level[paths.start[pair]].max(initial=0))), -1, np.int32)
    for begin in range(0, len(pair), AT_ONCE):
        walker = np.arange(begin, min(begin + AT_ONCE, len(pair)))
        here = paths.start[pair[walker]]
        climbed = np.zeros(len(walker), np.int64)
        hop = 0
        while len(walker):
            first = ways[here]
            up = rises[here]
            way = first + pick(walker, here, ways[here + 1] - first, np.where(up, climbed, -1))
            every[walker, hop] = link[way]
            climbed += up
            here = to[way]
            hop += 1
            on = paths.level[here] > 0
            if not on.all():
                walker, here, climbed = walker[on], here[on], climbed[on]
    none = np.full(len(pair), -1, np.int32)
    return SwitchPaths(every, none, np.zeros(1, np.int64), np.zeros(0, np.int32), np.zeros(0))
