"""Flows made ready for hashing: where each leaves and enters the hosts, and where it meets the switches.

Legend: F flows, G GPUs, L links, E nodes where flows enter the switches, X nodes where they leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.network.ecmp.walk import Hashed, Ways, ways_of
from railwright.network.routing.paths import _host_ports, _HostPorts, _Wires, _wires, find_routes
from railwright.network.routing.shortest import (
    ShortestPaths,
    SwitchGraph,
    ragged,
    shortest_paths,
    switch_graph,
)
from railwright.network.routing.solution import Network
from railwright.network.routing.switching import alike_before, connection_word
from railwright.traffic import Communicator, Traffic
from railwright.traffic.per_fabric import per_fabric
from railwright.traffic.placement import relay

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BLOCK = 1 << 16
"""Flows made ready at a time: about 100 bytes each while it lasts."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Demands that are made block by block, each time they are gone through, and never held together.

    num     demands in all
    blocks  makes the blocks, the same ones each time; no two demands of the stream may have the same source,
            destination and relay
    """

    num: int
    blocks: Callable[[], Iterator[Traffic]]

    def __len__(self) -> int:
        return self.num


def all_to_all_stream(fabric: Fabric, comm: Communicator, size_per_pair: float, pxn: bool) -> Stream:
    """`traffic.all_to_all` block by block: for groups whose pairs do not fit into memory.

    size_per_pair  bytes each rank sends to each other one [byte]
    """
    n = len(comm)
    step = max(BLOCK // max(n, 1), 1)

    def blocks() -> Iterator[Traffic]:
        for begin in range(0, n, step):
            senders = comm.gpus[begin : begin + step]
            src, dst = np.repeat(senders, n), np.tile(comm.gpus, len(senders))
            src, dst = src[src != dst].astype(np.int32), dst[src != dst].astype(np.int32)
            via = relay(fabric, comm.gpus, src, dst) if pxn else np.full(len(src), -1, np.int32)
            yield Traffic(src, dst, via, np.full(len(src), float(size_per_pair)))

    return Stream(n * (n - 1), blocks)


@dataclass(frozen=True, eq=False)
class Block:
    """Some flows made ready.

    hashed     what the hash needs
    out, into  (F,) GPU through whose NIC each leaves and enters, -1 where it stays in its scale-up domain
    lane_up, lane_down  (F,) links to and from the scale-up switch inside the source's domain, or -1
    """

    hashed: Hashed
    out: Ints
    into: Ints
    lane_up: Ints
    lane_down: Ints

    def __len__(self) -> int:
        return len(self.hashed)

    def part(self, rows: Longs | slice) -> Block:
        """Some of its flows."""
        h = self.hashed
        return Block(
            Hashed(h.word[rows], h.number[rows], h.start[rows], h.size[rows]),
            self.out[rows], self.into[rows], self.lane_up[rows], self.lane_down[rows],
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Switched:
    """A network made ready for some traffic: its switches, the pairs of nodes that occur, and their paths.

    start     (E, X) state of each pair of nodes, -1 where it does not occur or both are one node
    entry, leaving  (G,) row and column of the table above for each GPU's NIC, -1 where it has no live cable
    """

    network: Network
    graph: SwitchGraph
    paths: ShortestPaths
    ways: Ways
    start: Ints
    entry: Ints
    leaving: Ints

    @property
    def qps(self) -> int:
        """Queue pairs of a connection that the hash can tell apart."""
        return self.network.qps if self.network.entropy == "qp" else 1


def switched(network: Network, traffic: Traffic | Stream) -> Switched:
    """Paths for all pairs of nodes that the traffic crosses; PlanError where a demand has no live path."""
    if network.qps < 1:
        raise PlanError(f"qps is {network.qps}; a connection has at least 1 queue pair")
    fabric, graph = network.fabric, switch_graph(network.fabric)
    ports, wires = _host_ports(fabric), _wires(fabric)
    entries, entry = _places(wires.entry[fabric.nic_of_gpu])
    exits, leaving = _places(wires.exit[fabric.nic_of_gpu])
    present = np.zeros((len(entries), len(exits)), bool)
    for part in _parts(traffic):
        out, inside = _check(network, ports, wires, part)
        present[entry[out[~inside]], leaving[part.dst[~inside]]] = True
    present &= entries[:, None] != exits
    end, begin = np.nonzero(present.T)
    paths = shortest_paths(
        graph, graph.inner[entries[begin]].astype(np.int64), graph.inner[exits[end]].astype(np.int64)
    )
    start = np.full(present.shape, -1, np.int32)
    start[begin, end] = paths.start
    ways = ways_of(graph, paths, network.salt == "switch", fabric.num_links)
    ready = Switched(network, graph, paths, ways, start, entry, leaving)
    if np.any(paths.start < 0):
        _no_path(ready, ports, traffic, present)
    return ready


def blocks(ready: Switched, traffic: Traffic | Stream) -> Iterator[Block]:
    """The traffic's flows, made ready block by block; demands of no bytes are kept."""
    fabric, network = ready.network.fabric, ready.network
    ports = _host_ports(fabric)
    alike = None if isinstance(traffic, Stream) else _alike(fabric, traffic)
    done = 0
    for part in _parts(traffic):
        span = slice(done, done := done + len(part))
        out = np.where(part.relay >= 0, part.relay, part.src)
        inside = ports.domain[part.src] == ports.domain[part.dst]
        hop = np.where(inside, part.src != part.dst, out != part.src)
        start = np.where(inside, -1, ready.start[ready.entry[out], ready.leaving[part.dst]])
        if network.entropy == "qp":
            word = connection_word(part.src, part.dst, part.relay)
            number = np.zeros(len(part), np.int32) if alike is None else alike[span]
        else:
            nics = fabric.nic_of_gpu
            word = connection_word(nics[out], nics[part.dst], np.full(1, -1, np.int32))
            number = np.zeros(len(part), np.int32)
        yield Block(
            Hashed(word, number, start.astype(np.int32), part.size.astype(np.float64)),
            np.where(inside, -1, out).astype(np.int32),
            np.where(inside, -1, part.dst).astype(np.int32),
            np.where(hop, ports.up[part.src], -1).astype(np.int32),
            np.where(hop, ports.down[np.where(inside, part.dst, out)], -1).astype(np.int32),
        )


@dataclass(frozen=True, eq=False)
class HostLinks:
    """(G, 4) links between each GPU and its leaf, out and in, -1 for none; see `find_routes`."""

    out: Ints
    into: Ints


@per_fabric
def host_links(fabric: Fabric) -> HostLinks:
    """Links of every GPU's way out and in."""
    return _host_links(fabric, binding=False)


@per_fabric
def binding_host_links(fabric: Fabric) -> HostLinks:
    """The same without links that cannot be the tightest.

    PCIe beside a slower cable that all its flows cross too, or a cable beside a slower PCIe link that all
    flows of the cable cross.
    """
    return _host_links(fabric, binding=True)


def _host_links(fabric: Fabric, binding: bool) -> HostLinks:
    ports, wires = _host_ports(fabric), _wires(fabric)
    gpu = np.arange(fabric.num_gpus)
    nic, carrier = fabric.nic_of_gpu, ports.carrier
    owner = np.where(carrier >= 0, carrier, gpu)
    far = owner != gpu
    sides = []
    for pcie, cable, lanes in (
        (ports.pcie_up, wires.first[nic], (ports.up[gpu], ports.down[owner])),
        (ports.pcie_down, wires.last[nic], (ports.up[owner], ports.down[gpu])),
    ):
        pcie, cable = pcie.copy(), cable.copy()
        if binding:
            both = np.flatnonzero((pcie >= 0) & (cable >= 0))
            pairs = np.unique(np.stack([cable[both], pcie[both]]), axis=1)
            shared = np.bincount(pairs[0], minlength=fabric.num_links) > 1
            slower = fabric.capacity[cable[both]] <= fabric.capacity[pcie[both]]
            alone = ~shared[cable[both]]
            pcie[both[slower]] = -1
            cable[both[~slower & alone]] = -1
        sides.append(
            np.stack([*(np.where(far, lane, -1) for lane in lanes), pcie, cable], axis=1).astype(np.int32)
        )
    return HostLinks(*sides)


def _parts(traffic: Traffic | Stream) -> Iterator[Traffic]:
    if isinstance(traffic, Stream):
        yield from traffic.blocks()
        return
    for begin in range(0, len(traffic), BLOCK):
        rows = slice(begin, begin + BLOCK)
        yield Traffic(traffic.src[rows], traffic.dst[rows], traffic.relay[rows], traffic.size[rows])


def _places(node: Ints) -> tuple[Ints, Ints]:
    """The different nodes, and which one each is (-1 stays)."""
    nodes, place = np.unique(node, return_inverse=True)
    gone = int(len(nodes) > 0 and nodes[0] < 0)
    return nodes[gone:], (place.reshape(-1) - gone).astype(np.int32)


def _alike(fabric: Fabric, traffic: Traffic) -> Ints | None:
    """Which of several alike each demand is; None where none are: found without sorting if in order."""
    g = np.int64(fabric.num_gpus + 1)
    before = np.int64(-1)
    for part in _parts(traffic):
        key = (part.src.astype(np.int64) * g + part.dst) * g + part.relay + 1
        if len(key) and (key[0] <= before or np.any(np.diff(key) <= 0)):
            number = alike_before(traffic.src, traffic.dst, traffic.relay).astype(np.int32)
            return number if number.any() else None
        before = key[-1] if len(key) else before
    return None


def _check(network: Network, ports: _HostPorts, wires: _Wires, part: Traffic) -> tuple[Ints, Flags]:
    """GPU whose NIC each demand leaves by, and whether it stays inside; PlanError where it cannot be sent."""
    nics = network.fabric.nic_of_gpu
    src, dst = part.src, part.dst
    out = np.where(part.relay >= 0, part.relay, src)
    inside = ports.domain[src] == ports.domain[dst]
    near, far = ports.carrier[out], ports.carrier[dst]
    lost = (near < 0) | (far < 0) | (wires.entry[nics[out]] < 0) | (wires.exit[nics[dst]] < 0)
    lost |= ((near != out) & ((ports.up[out] < 0) | (ports.down[near] < 0))) | (
        (far != dst) & ((ports.up[far] < 0) | (ports.down[dst] < 0))
    )
    hop = np.where(inside, src != dst, out != src)
    lanes = hop & ((ports.up[src] < 0) | (ports.down[np.where(inside, dst, out)] < 0))
    bad = np.flatnonzero((~inside & lost) | lanes | (ports.domain[src] != ports.domain[out]))
    if len(bad):
        _refuse(network, part, int(bad[0]))
    odd = np.flatnonzero(~inside & (nics[out] == nics[dst]))
    if len(odd):
        names = [network.fabric.device_name(int(x[odd[0]])) for x in (src, dst)]
        raise PlanError(
            f"{names[0]} and {names[1]} are of different scale-up domains and share a NIC; hashed ECMP "
            "cannot sample that, network.solve can"
        )
    return out, inside


def _refuse(network: Network, part: Traffic, row: int) -> None:
    """Raise what `find_routes` says of these demands, of which at least this row cannot be sent."""
    find_routes(network, part)
    src, dst = (network.fabric.device_name(int(x[row])) for x in (part.src, part.dst))
    raise PlanError(f"{src} cannot reach {dst}: a link between its GPU and the switches has failed.")


def _no_path(ready: Switched, ports: _HostPorts, traffic: Traffic | Stream, present: Flags) -> None:
    for part in _parts(traffic):
        out = np.where(part.relay >= 0, part.relay, part.src)
        inside = ports.domain[part.src] == ports.domain[part.dst]
        place = ready.entry[out], ready.leaving[part.dst]
        cut = np.flatnonzero(~inside & (ready.start[place] < 0) & present[place])
        if len(cut):
            _refuse(ready.network, part, int(cut[0]))


def adaptive_load(ready: Switched, amount: Floats) -> Floats:
    """(L,) what adaptive routing would put on each link among the switches.

    amount  (S,) bytes that begin in each state

    What is in a state goes on by `ShortestPaths.part`, whatever its source: one pass from far to near.
    """
    graph, paths = ready.graph, ready.paths
    amount, on_arc = amount.copy(), np.zeros(len(graph.head))
    order = np.argsort(-paths.level, kind="stable")
    bounds = np.searchsorted(-paths.level[order], -np.arange(ready.ways.hops, -1, -1))
    for low, high in pairwise(bounds.tolist()):
        state = order[low:high]
        count = np.diff(paths.ptr)[state]
        k = ragged(paths.ptr[state], count)
        moved = np.repeat(amount[state], count) * paths.part[k]
        on_arc += np.bincount(paths.arc[k], moved, len(on_arc))
        amount += np.bincount(paths.to[k], moved, len(amount))
    load = np.zeros(ready.network.fabric.num_links)
    cables = np.diff(graph.first)
    load[graph.link] = np.repeat(on_arc / np.maximum(graph.width, 1e-300), cables) * graph.capacity
    return load
