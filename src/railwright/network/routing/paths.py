"""The directed links that each demand crosses, from GPU to GPU.

Legend: F demands, L directed links, G GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.faults import check_joins
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.latency import link_delay
from railwright.network.routing.routes import Routes as Routes
from railwright.network.routing.routes import along as along
from railwright.network.routing.routes import along_columns, rows_of
from railwright.network.routing.shortest import shortest_paths, switch_graph
from railwright.network.routing.solution import Network
from railwright.network.routing.switching import ROUTINGS, Crossing, SwitchPaths, identities, static_tables
from railwright.network.routing.tables import table_paths
from railwright.traffic import Traffic, domain_of_gpu
from railwright.traffic.per_fabric import per_fabric

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


def find_routes(network: Network, traffic: Traffic) -> Routes:
    """The links of every demand, under the network's routing, over live links only.

    A demand inside one scale-up domain crosses its switch.  Any other goes source -> (scale-up -> relay)
    -> PCIe -> NIC -> leaves and further switches -> NIC -> PCIe -> destination; where a GPU's NIC hangs on
    another GPU's PCIe link (remapped after a fault), it is reached through that GPU over the scale-up switch.
    Raises PlanError naming the first pair that has no live path.
    """
    fabric = network.fabric
    ports = _host_ports(fabric)
    src, dst = traffic.src, traffic.dst
    out = np.where(traffic.relay >= 0, traffic.relay, src)
    inside = ports.domain[src] == ports.domain[dst]
    same = src == dst

    leave, carry_out, carry_in = ~inside, ports.carrier[out], ports.carrier[dst]
    _check_hosts(fabric, traffic, ports, leave, out)
    nic_out, nic_in = fabric.nic_of_gpu[out], fabric.nic_of_gpu[dst]
    wired = leave & (nic_out != nic_in)

    hop_relay = (inside & ~same) | (leave & (out != src))
    hop_out, hop_in = leave & (carry_out != out), leave & (carry_in != dst)
    lanes = [
        (ports.up, src, hop_relay),
        (ports.down, np.where(inside, dst, out), hop_relay),
        (ports.up, out, hop_out),
        (ports.down, carry_out, hop_out),
        (ports.pcie_up, out, leave),
        (ports.pcie_down, dst, leave),
        (ports.up, carry_in, hop_in),
        (ports.down, dst, hop_in),
    ]
    hosts = [_column(table, gpu, where) for table, gpu, where in lanes]
    dead = np.zeros(len(src), bool)
    for column, (_, _, where) in zip(hosts, lanes, strict=True):
        if column is not None:
            dead |= where & (column < 0)
    if dead.any():
        _refuse(fabric, traffic, int(np.flatnonzero(dead)[0]), "a scale-up link on its way has failed")

    middle = _between_nics(network, traffic, nic_out, nic_in, wired)
    every = [*hosts[:5], middle.before, *middle.links.T, middle.after, *hosts[5:]]
    columns = [column for column in every if column is not None]
    ptr, link = rows_of(columns, len(src))
    routes = Routes(
        ptr, link, middle.spread, middle.spread_ptr, middle.spread_link, middle.spread_weight,
        np.zeros(len(src), np.int32), np.zeros(len(src)),
    )  # fmt: skip
    latency = np.where(same, 0.0, along_columns(columns, routes, _delay(fabric)) - fabric.latency[dst])
    hops = np.rint(along_columns(columns, routes, _to_switch(fabric))).astype(np.int32)
    return replace(routes, hops=hops, latency=latency)


def arrival(fabric: Fabric, traffic: Traffic) -> Ints:
    """(F,) device where each demand would leave the switches: a leaf, or a NIC with several live cables."""
    return _wires(fabric).exit[fabric.nic_of_gpu[traffic.dst]]


@dataclass(frozen=True, eq=False)
class _HostPorts:
    """Per GPU (G,): its scale-up domain, live lanes to and from the scale-up switch, the GPU whose PCIe link
    reaches its NIC (-1: none), and that link's two directions."""

    domain: Ints
    up: Ints
    down: Ints
    carrier: Ints
    pcie_up: Ints
    pcie_down: Ints


@dataclass(frozen=True, eq=False)
class _Middle:
    """NIC to NIC: first and last links where the NIC has one leaf, one path or a spread between leaves."""

    before: Ints
    links: Ints
    after: Ints
    spread: Ints
    spread_ptr: Longs
    spread_link: Ints
    spread_weight: Floats


@per_fabric
def _host_ports(fabric: Fabric) -> _HostPorts:
    n = fabric.num_gpus
    tail, head = _tails(fabric), _heads(fabric)
    role = np.repeat(fabric.role, 2)
    live = fabric.capacity > 0
    up, down, carrier = (np.full(n, -1, np.int32) for _ in range(3))
    scale_up = np.flatnonzero((role == Role.SCALE_UP) & live)[::-1]
    rising, falling = scale_up[tail[scale_up] < n], scale_up[head[scale_up] < n]
    up[tail[rising]] = rising
    down[head[falling]] = falling

    pcie = np.flatnonzero((role == Role.PCIE) & live & (tail < n))
    pcie = pcie[live[pcie ^ 1]]
    owner, nic = tail[pcie], head[pcie]
    link_of: dict[tuple[int, int], int] = {}
    owners: dict[int, list[int]] = {}
    for link, gpu, card in zip(pcie.tolist(), owner.tolist(), nic.tolist(), strict=True):
        link_of[gpu, card] = link
        owners.setdefault(card, []).append(gpu)
    pcie_up = np.full(n, -1, np.int32)
    domain = domain_of_gpu(fabric)
    for gpu in range(n):
        card = int(fabric.nic_of_gpu[gpu])
        near = [g for g in owners.get(card, []) if domain[g] == domain[gpu]]
        if near:
            carrier[gpu] = gpu if gpu in near else near[0]
            pcie_up[gpu] = link_of[int(carrier[gpu]), card]
    return _HostPorts(
        domain, up, down, carrier, pcie_up, np.where(pcie_up >= 0, pcie_up ^ 1, -1).astype(np.int32)
    )


def _check_hosts(
    fabric: Fabric, traffic: Traffic, ports: _HostPorts, leave: NDArray[np.bool_], out: Ints
) -> None:
    wrong = np.flatnonzero((traffic.relay >= 0) & (ports.domain[traffic.src] != ports.domain[out]))
    if len(wrong):
        _refuse(fabric, traffic, int(wrong[0]), "its relay is not in the source's scale-up domain")
    for gpu in (out, traffic.dst):
        cut = np.flatnonzero(leave & (ports.carrier[gpu] < 0))
        if len(cut):
            name = fabric.device_name(int(gpu[cut[0]]))
            _refuse(fabric, traffic, int(cut[0]), f"{name} has no live PCIe link to a NIC")


def _between_nics(
    network: Network, traffic: Traffic, nic_out: Ints, nic_in: Ints, wired: NDArray[np.bool_]
) -> _Middle:
    fabric = network.fabric
    wires = _wires(fabric)
    for nics, attached in ((nic_out, wires.entry), (nic_in, wires.exit)):
        cut = np.flatnonzero(wired & (attached[nics] < 0))
        if len(cut):
            name = fabric.device_name(int(nics[cut[0]]))
            _refuse(fabric, traffic, int(cut[0]), f"{name} has no live cable to a leaf")

    graph = switch_graph(fabric)
    crossing = np.flatnonzero(wired & (wires.entry[nic_out] != wires.exit[nic_in]))
    source = graph.inner[wires.entry[nic_out[crossing]]].astype(np.int64)
    target = graph.inner[wires.exit[nic_in[crossing]]].astype(np.int64)
    pairs, pair = _distinct(target * graph.num_nodes + source, graph.num_nodes**2)
    paths = shortest_paths(graph, pairs % max(graph.num_nodes, 1), pairs // max(graph.num_nodes, 1))
    lost = np.flatnonzero(paths.start[pair] < 0)
    if len(lost):
        flow = int(crossing[lost[0]])
        _refuse(fabric, traffic, flow, _no_way(fabric, traffic, flow, nic_out[flow], nic_in[flow]))

    if network.routing == "tables":
        chosen = _by_tables(network, nic_out[crossing], nic_in[crossing])
    else:
        flows = Crossing(
            pair,
            identities(network, traffic, crossing),
            lambda: _static_digits(fabric)[nic_in[crossing] - _first_nic(fabric)],
            network.qps if network.entropy == "qp" else 1,
            network.salt == "switch",
        )
        chosen = ROUTINGS[network.routing](graph, paths, flows, network.seed)
    num = len(traffic)
    links = np.full((num, chosen.links.shape[1]), -1, np.int32)
    links[crossing] = chosen.links
    spread = np.full(num, -1, np.int32)
    spread[crossing] = chosen.spread
    before = np.where(wired, wires.first[nic_out], np.int32(-1))
    after = np.where(wired, wires.last[nic_in], np.int32(-1))
    return _Middle(before, links, after, spread, chosen.spread_ptr, chosen.spread_link, chosen.spread_weight)


def _by_tables(network: Network, nic_out: Ints, nic_in: Ints) -> SwitchPaths:
    if network.tables is None:
        raise PlanError("routing 'tables' has no tables; give Network(fabric, 'tables', tables=…)")
    return table_paths(network.fabric, network.tables, nic_out, nic_in)


@dataclass(frozen=True, eq=False)
class _Wires:
    """Per device: the one live link of a single-homed NIC to (first) and from (last) its leaf, -1 otherwise,
    and the node where routing begins (entry) and ends (exit); see `_single_homed`."""

    first: Ints
    entry: Ints
    last: Ints
    exit: Ints


@per_fabric
def _wires(fabric: Fabric) -> _Wires:
    tail, head = _tails(fabric), _heads(fabric)
    live = np.flatnonzero((fabric.capacity > 0) & (np.repeat(fabric.role, 2) >= Role.NODE_LEAF))
    live = live.astype(np.int32)
    rising, falling = live[fabric.kind[tail[live]] == Kind.NIC], live[fabric.kind[head[live]] == Kind.NIC]
    first, entry = _single_homed(fabric.num_devices, tail[rising], head[rising], rising)
    last, exit_ = _single_homed(fabric.num_devices, head[falling], tail[falling], falling)
    return _Wires(first, entry, last, exit_)


@per_fabric
def _static_digits(fabric: Fabric) -> Longs:
    """(NICs, H) static choices towards each NIC, NICs counted leaf by leaf; 0 where it is cut off."""
    graph, exit_ = switch_graph(fabric), _wires(fabric).exit[fabric.kind == Kind.NIC]
    attached = np.flatnonzero(exit_ >= 0)
    chosen = static_tables(graph, graph.inner[exit_[attached]].astype(np.int64))
    digits = np.zeros((len(exit_), chosen.shape[1]), np.int64)
    digits[attached] = chosen
    return digits


def _first_nic(fabric: Fabric) -> int:
    return int(np.argmax(fabric.kind == Kind.NIC))


def _distinct(key: Longs, beyond: int) -> tuple[Longs, Longs]:
    """The different keys, ascending, and which one each is; keys lie below `beyond`."""
    if beyond > 4 * len(key) + 1_000_000:
        different, which = np.unique(key, return_inverse=True)
        return different, which.reshape(-1)
    present = np.zeros(beyond, bool)
    present[key] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[key]


def _single_homed(num_devices: int, nic: Ints, leaf: Ints, link: Ints) -> tuple[Ints, Ints]:
    """Per device: its one live NIC-leaf link (-1 for several or none), and the node where routing begins:
    the leaf of a single-homed NIC, the NIC itself where it has several live cables, -1 where it has none."""
    count = np.bincount(nic, minlength=num_devices)
    only, node = np.full(num_devices, -1, np.int32), np.full(num_devices, -1, np.int32)
    single = count[nic] == 1
    only[nic[single]] = link[single]
    node[nic[single]] = leaf[single]
    several = np.flatnonzero(count > 1)
    node[several] = several
    return only, node


def _no_way(fabric: Fabric, traffic: Traffic, flow: int, nic_out: int, nic_in: int) -> str:
    wires = _wires(fabric)
    here, there = fabric.device_name(int(wires.entry[nic_out])), fabric.device_name(int(wires.exit[nic_in]))
    reason = f"no live path leads from {here} to {there}"
    if fabric.family != "rail-only":
        return f"{reason}; repair a failed switch or cable between them, or add spare spines"
    domain, rail, wanted = domain_of_gpu(fabric), fabric.rail[fabric.nic_of_gpu], fabric.rail[nic_in]
    if not np.any((domain == domain[traffic.src[flow]]) & (rail == wanted)):
        name = fabric.device_name(int(traffic.src[flow])).split("/")[0]
        return (
            f"{reason}: a rail-only fabric joins each rail to itself alone, PXN forwards in the source's "
            f"server only, and no NIC of {name} is live on rail {wanted} (counted from 0); mend that NIC or "
            "its cable, plan without this server, or choose the family 'rail-optimised'"
        )
    if fabric.scale_up == "pcie":
        return (
            f"{reason}: a rail-only fabric joins each rail to itself alone, and GPUs without NVLink forward "
            "nothing for each other (PXN); choose the family 'rail-optimised'"
        )
    return (
        f"{reason}: a rail-only fabric joins each rail to itself alone; switch PXN on so that a GPU of the "
        f"source's server on rail {wanted} (counted from 0) forwards (over NVLink), which takes a rank of "
        "the same group on that GPU, or choose the family 'rail-optimised'"
    )


def _refuse(fabric: Fabric, traffic: Traffic, flow: int, reason: str) -> None:
    src, dst = fabric.device_name(int(traffic.src[flow])), fabric.device_name(int(traffic.dst[flow]))
    ends = np.array([traffic.src[flow], traffic.dst[flow]], np.int32)
    check_joins(fabric, ends, f"{src} to {dst}", "mend it, or ask of a cluster without it")
    raise PlanError(f"{src} cannot reach {dst}: {reason}.")


def _column(table: Ints, gpu: Ints, where: NDArray[np.bool_]) -> Ints | None:
    """The table's link of each demand's GPU where it takes one, else -1; None where no demand does."""
    return np.where(where, table[gpu], np.int32(-1)) if where.any() else None


@per_fabric
def _delay(fabric: Fabric) -> Floats:
    return link_delay(fabric)


@per_fabric
def _to_switch(fabric: Fabric) -> Floats:
    """(L,) 1 where a link leads into a switch that cables join, else 0."""
    return (fabric.kind[_heads(fabric)] >= Kind.LEAF).astype(np.float64)


def _tails(fabric: Fabric) -> Ints:
    return np.stack([fabric.a, fabric.b], axis=1).reshape(-1)


def _heads(fabric: Fabric) -> Ints:
    return np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
