"""Between a designed fabric and a machine's wiring: what a dump of the design would say, and the machine as a
fabric that the network engine runs on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from railwright.asbuilt.compare_plan import alike, label, listed, natural, relative_speed, unnamed
from railwright.asbuilt.infer_machine import Inferred, infer
from railwright.asbuilt.racks import Racks, in_racks, trays_by_name
from railwright.asbuilt.read.speeds import name_of
from railwright.asbuilt.wiring import Link, Node, Wiring
from railwright.catalog import find
from railwright.catalog.parts import Catalog, Nic, Server, Switch
from railwright.errors import PlanError
from railwright.fabric.faults import apply_faults
from railwright.fabric.graph import Fabric, Kind, Role, server_name
from railwright.fabric.names import device_names
from railwright.fabric.trays import host_names, tray_name
from railwright.fabric.wired.devices import scale_up_name
from railwright.spec.study import CableLengths, Fault


def to_wiring(fabric: Fabric, catalog: Catalog | None = None) -> Wiring:
    """What a dump of this fabric's scale-out network would say: one host node per NIC, one node per switch.

    catalog  says how many ports each switch has; without it `Node.ports` is 0
    Names are those of `Fabric.device_name`; a NIC's host and adapter are 'server-03' and 'nic-2'.
    A slowed cable has the rate left, a failed one is plugged but down.
    """
    names = device_names(fabric)
    network = np.flatnonzero(fabric.kind >= Kind.LEAF).tolist()
    nics = fabric.devices(Kind.NIC).tolist()
    ports = _ports(fabric, catalog)
    twin = np.bincount(fabric.a[fabric.role == Role.NODE_LEAF], minlength=fabric.num_devices)
    nodes: list[Node] = []
    index: dict[int, int] = {}
    for device in (*nics, *network):
        index[device] = len(nodes)
        name = names[device]
        kind = Kind(int(fabric.kind[device]))
        if kind is Kind.NIC:
            host, _, adapter = name.partition("/")
            nodes.append(Node(name, "host", name, int(twin[device]), host, adapter))
        else:
            nodes.append(
                Node(name, "switch", name, ports.get(kind, 0), model=fabric.parts.get(_PART[kind], ""))
            )
    links: list[Link] = []
    for c in np.flatnonzero(fabric.role >= Role.NODE_LEAF).tolist():
        left = float(min(fabric.capacity[2 * c], fabric.capacity[2 * c + 1]))
        rate = left or float(fabric.rate[c])
        width, speed = name_of(rate)
        a, b = index[int(fabric.a[c])], index[int(fabric.b[c])]
        a_port, b_port = int(fabric.port_a[c]), int(fabric.port_b[c])
        links.append(Link(a, a_port, b, b_port, width, speed, rate, left > 0, float(fabric.length[c])))
    return Wiring(f"{fabric.name} (design)", tuple(nodes), tuple(links))


def to_fabric(machine: Inferred | Wiring, catalog: Catalog, server: str | None = None) -> Fabric:
    """The machine as built, as a fabric: servers from host names, switches by tier, cables as found.

    server  catalogue name of the servers; by default the catalogue's first with as many NICs as most servers
            of the dump have adapters, and the nearest NIC rate
    Hosts are the trays of racks (asbuilt/racks.py) where they are called so or `server` is such a rack.
    Devices are named as in any fabric; `fabric_names` says which of the dump each one is.  What a dump does
    not tell (GPUs, NVLink, latencies, lengths) is that of catalogue parts, and said in the fabric's notes.
    A NIC without a working cable stays, failed, and its GPU sends through another NIC of the server.
    Raises PlanError for a dump without named servers, of more than three tiers, or of other servers.
    """
    inferred = infer(machine) if isinstance(machine, Wiring) else machine
    layout = _layout(inferred)
    if server:
        layout = _with_trays(layout, find(catalog.servers, server))
    elif all(known.nics != layout.nics for known in catalog.servers.values()):
        layout = replace(layout, racks=in_racks(layout.hosts, 1))
    parts = _choose_parts(inferred, layout, catalog, server)
    fabric = _assemble(inferred, layout, parts)
    dead = _dead_nics(fabric)
    if not dead:
        return fabric
    return apply_faults(fabric, [Fault(element=fabric.device_name(nic)) for nic in dead])


def fabric_names(machine: Inferred | Wiring, fabric: Fabric | None = None) -> dict[str, str]:
    """Name in the fabric of `to_fabric` -> name in the dump: {'leaf-03': 'IB-L3', …}; trays of racks too.

    fabric  the one that `to_fabric` gave, where it was told which servers the machine has
    """
    inferred = infer(machine) if isinstance(machine, Wiring) else machine
    layout = _layout(inferred)
    if fabric is not None:
        nics = len(fabric.devices(Kind.NIC)) // fabric.num_servers
        layout = replace(layout, racks=in_racks(layout.hosts, nics // len(layout.adapters)))
    racks, each = layout.racks, len(layout.adapters)
    names = {server_name(i): name for i, name in enumerate(racks.names)}
    for host, (server, tray) in racks.at.items():
        for j, adapter in enumerate(layout.adapters, tray * each):
            names[f"{server_name(server)}/nic-{j}"] = f"{host}/{adapter}"
        if racks.trays > 1:
            names[tray_name(server_name(server), tray)] = host
    for word, switches in zip(("leaf", "spine", "core"), layout.switches, strict=True):
        names |= {f"{word}-{i + 1:02d}": label(inferred.wiring.nodes[s]) for i, s in enumerate(switches)}
    return names


_PART = {Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}


@dataclass(frozen=True)
class _Layout:
    """Which hosts, adapters of each and switches of a dump the fabric has, in its order.

    racks  which server each host is, or is a tray of
    """

    hosts: tuple[str, ...]
    racks: Racks
    adapters: tuple[str, ...]
    switches: tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]
    left_out: tuple[str, ...]

    @property
    def nics(self) -> int:
        """Of one server."""
        return self.racks.trays * len(self.adapters)


@dataclass(frozen=True)
class _Parts:
    server: Server
    generation: str
    nic: Nic
    switch: Switch
    scale_up: float
    scale_up_name: str
    lane: float
    notes: tuple[str, ...]


def _ports(fabric: Fabric, catalog: Catalog | None) -> dict[Kind, int]:
    if catalog is None:
        return {}
    return {
        kind: find(catalog.switches, fabric.parts[part]).ports
        for kind, part in _PART.items()
        if part in fabric.parts
    }


def _layout(inferred: Inferred) -> _Layout:
    nodes = inferred.wiring.nodes
    if inferred.tiers > 3:
        raise PlanError(
            f"the dump has {inferred.tiers} tiers of switches; a fabric has at most three (leaves, spines, "
            "cores), so the network engine cannot run on it yet"
        )
    hosts: dict[str, set[str]] = {}
    for node in nodes:
        if node.kind == "host" and not unnamed(node):
            hosts.setdefault(node.host, set()).add(node.adapter)
    if not hosts or not inferred.tiers:
        raise PlanError(
            "the dump has no server with a name and a cable to a switch, so there is nothing to run traffic "
            "between; give a node-name map that names the hosts"
        )
    servers = alike(hosts)
    counts = Counter(adapter for name in servers for adapter in hosts[name])
    adapters = sorted((a for a, n in counts.items() if 2 * n > len(servers)), key=natural)
    if not adapters:
        raise PlanError(
            f"no adapter name is on more than half of the {len(servers)} servers like '{servers[0]}', so "
            "their rails cannot be told; give a node-name map with one adapter name per rail"
        )
    strangers = sorted(set(hosts) - set(servers), key=natural)
    nameless = sum(node.kind == "host" and unnamed(node) for node in nodes)
    left_out = ([f"hosts of other names ({listed(strangers)})"] if strangers else []) + (
        [f"{nameless} adapters without a server's name"] if nameless else []
    )
    tiers = inferred.switches(1), inferred.switches(2), inferred.switches(3)
    racks = in_racks(servers, trays_by_name(servers))
    return _Layout(tuple(servers), racks, tuple(adapters), tiers, tuple(left_out))


def _with_trays(layout: _Layout, server: Server) -> _Layout:
    """The layout with hosts as trays of racks where the server is a rack with as many adapters a tray."""
    each = len(layout.adapters)
    trays = len(host_names("", server.gpus))
    if server.nics == trays * each:
        return replace(layout, racks=in_racks(layout.hosts, trays))
    return replace(layout, racks=in_racks(layout.hosts, 1))


def _choose_parts(inferred: Inferred, layout: _Layout, catalog: Catalog, named: str | None) -> _Parts:
    rate = _host_rate(inferred)
    count, trays = layout.nics, layout.racks.trays
    notes: list[str] = []
    if trays > 1:
        notes.append(f"{trays} hosts each are taken as the trays of one server, a rack of {count} adapters")
        if layout.racks.missing:
            notes.append(f"the dump lacks {layout.racks.missing} of these trays; their NICs count as failed")
    if named:
        server = find(catalog.servers, named)
        if server.nics != count:
            raise PlanError(
                f"server '{server.name}' has {server.nics} NICs, but most hosts of the dump have {count} "
                f"adapters ({listed(layout.adapters, 9)}); name a server with {count} NICs"
            )
    else:
        fits = [s for s in catalog.servers.values() if s.nics == count and find(catalog.gpus, s.gpu)]
        if not fits:
            raise PlanError(
                f"no catalogue server has {count} NICs, as most servers of the dump have; say which server "
                "it is, from a catalogue of your own if need be"
            )
        server = min(fits, key=lambda s: abs(find(catalog.nics, s.nic).rate - rate) if rate else 0.0)
        notes.append(
            f"assumed servers '{server.name}' ({server.gpus} GPUs, {server.nics} NICs), the nearest in the "
            f"catalogue to {count} adapters of {rate * 8 / 1e9:g} Gb/s; name the server to be certain"
        )
    radix = inferred.radix
    switch = min(catalog.switches.values(), key=lambda s: (abs(s.rate - rate), abs(s.ports - radix)))
    notes.append(f"assumed the latency of switch '{switch.name}' and default cable lengths")
    gpu, nic = find(catalog.gpus, server.gpu), find(catalog.nics, server.nic)
    rate_inside = gpu.scale_up_bandwidth or gpu.slot
    lane = gpu.lane_to(nic)
    return _Parts(server, gpu.generation, nic, switch, rate_inside, scale_up_name(gpu), lane, tuple(notes))


def _host_rate(inferred: Inferred) -> float:
    """The commonest known rate of a host cable [byte/s]; 0 when the dump tells none."""
    rates = Counter(
        k.rate or relative_speed(k)
        for k in inferred.wiring.links
        if 0 in (inferred.tier[k.a], inferred.tier[k.b])
    )
    known = {rate: n for rate, n in rates.items() if rate}
    return min(known, key=lambda r: (-known[r], r)) if known else 0.0


def _assemble(inferred: Inferred, layout: _Layout, parts: _Parts) -> Fabric:
    """All columns of the fabric; server by server, then tier by tier."""
    servers, nics, gpus = len(layout.racks.names), layout.nics, parts.server.gpus
    counts = (servers * gpus, servers * nics, servers, *(len(tier) for tier in layout.switches))
    first = np.cumsum((0, *counts)).tolist()
    kind = np.repeat(np.arange(6, dtype=np.int32), counts)
    device = _devices(inferred, layout, first[1], first[3])
    of = np.arange(servers)
    each = max(gpus, nics)
    lane = np.arange(servers * each)
    at, local = lane // each, lane % each
    nic_of_local = np.arange(gpus) * nics // gpus
    columns = [
        (np.arange(counts[0]), first[2] + np.repeat(of, gpus), parts.scale_up, Role.SCALE_UP),
        (
            at * gpus + local * gpus // each,
            first[1] + at * nics + local * nics // each,
            parts.lane,
            Role.PCIE,
        ),
    ]
    rows: list[tuple[int, int, int, int, float, float, float, int]] = []
    for a, b, rate, role in columns:
        rows += [(x, y, 0, 0, rate, rate, 0.0, role) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    cables, skipped = _cables(inferred, device, kind.tolist(), parts.nic.rate)
    rows += sorted(cables, key=lambda row: row[7])
    table = np.array(rows, dtype=np.float64).reshape(-1, 8)
    rail, group = _places(inferred, layout, gpus, nic_of_local.tolist())
    notes = [*parts.notes]
    if layout.left_out:
        notes.append(f"left out of the fabric: {', '.join(layout.left_out)}")
    if skipped:
        notes.append(f"{skipped} cable(s) that join no neighbouring tiers are left out")
    switches = [parts.switch.latency] * 3
    whole = table[:, [0, 1, 2, 3, 7]].astype(np.int32)
    return Fabric(
        name=f"as built, {inferred.wiring.source}",
        family=_family(inferred, layout),
        kind=kind,
        server=np.concatenate(
            [np.repeat(of, gpus), np.repeat(of, nics), of, np.full(sum(counts[3:]), -1)]
        ).astype(np.int32),
        rail=rail,
        group=group,
        a=whole[:, 0],
        b=whole[:, 1],
        port_a=whole[:, 2],
        port_b=whole[:, 3],
        rate=table[:, 4],
        length=table[:, 6],
        role=whole[:, 4],
        capacity=np.repeat(table[:, 5], 2),
        nic_of_gpu=(first[1] + np.repeat(of, gpus) * nics + np.tile(nic_of_local, servers)).astype(np.int32),
        latency=np.repeat(np.array([0.0, parts.nic.latency, 0.0, *switches]), counts),
        parts={
            "server": parts.server.name,
            "gpu": parts.server.gpu,
            "nic": parts.nic.name,
            **{
                p: parts.switch.name
                for p, t in zip(("leaf", "spine", "core"), layout.switches, strict=True)
                if t
            },
        },
        generation=parts.generation,
        notes=tuple(notes),
        scale_up=parts.scale_up_name,
    )


def _family(inferred: Inferred, layout: _Layout) -> str:
    if layout.racks.trays > 1 and inferred.family == "rail-optimised":
        return "rack-rails"
    return inferred.family if inferred.family != "irregular" else "fat-tree"


def _devices(inferred: Inferred, layout: _Layout, first_nic: int, first_switch: int) -> dict[int, int]:
    """Dump node -> device id, for all that the fabric has."""
    racks, each = layout.racks, len(layout.adapters)
    adapter = {name: j for j, name in enumerate(layout.adapters)}
    device: dict[int, int] = {}
    for i, node in enumerate(inferred.wiring.nodes):
        if node.kind == "host" and node.host in racks.at and node.adapter in adapter:
            server, tray = racks.at[node.host]
            device[i] = first_nic + server * layout.nics + tray * each + adapter[node.adapter]
    ordered = [s for tier in layout.switches for s in tier]
    return device | {s: first_switch + i for i, s in enumerate(ordered)}


def _cables(
    inferred: Inferred, device: dict[int, int], kind: Sequence[int], default: float
) -> tuple[list[tuple[int, int, int, int, float, float, float, int]], int]:
    """Rows of the network's cables between neighbouring tiers, and how many others there are."""
    roles = {
        (Kind.NIC, Kind.LEAF): (Role.NODE_LEAF, CableLengths().node_leaf),
        (Kind.LEAF, Kind.SPINE): (Role.LEAF_SPINE, CableLengths().leaf_spine),
        (Kind.SPINE, Kind.CORE): (Role.SPINE_CORE, CableLengths().spine_core),
    }
    rows: list[tuple[int, int, int, int, float, float, float, int]] = []
    skipped = 0
    for k in inferred.wiring.links:
        if k.a not in device or k.b not in device:
            continue
        low, high = (device[k.a], k.a_port), (device[k.b], k.b_port)
        if low[0] > high[0]:
            low, high = high, low
        role = roles.get((Kind(kind[low[0]]), Kind(kind[high[0]])))
        if role is None:
            skipped += 1
            continue
        rate = k.rate or relative_speed(k) or default
        rows.append(
            (low[0], high[0], low[1], high[1], rate, rate if k.up else 0.0, k.length or role[1], role[0])
        )
    return rows, skipped


def _places(
    inferred: Inferred, layout: _Layout, gpus: int, nic_of_local: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Rail and group of every device."""
    home: dict[int, Counter[int]] = {}
    at = layout.racks.at
    nodes = inferred.wiring.nodes
    for k in inferred.wiring.links:
        for a, b in ((k.a, k.b), (k.b, k.a)):
            if nodes[a].kind == "host" and nodes[a].host in at and inferred.tier[b] == 1:
                group = inferred.unit[b] if inferred.unit[b] >= 0 else layout.switches[0].index(b)
                home.setdefault(at[nodes[a].host][0], Counter())[group] += 1
    units = [
        min(home[s], key=lambda g: (-home[s][g], g)) if s in home else -1
        for s in range(len(layout.racks.names))
    ]
    leaves = layout.switches[0]
    above = len(layout.switches[1]) + len(layout.switches[2])
    nics, rails = layout.nics, len(layout.adapters)
    of_gpu, of_nic = [nic % rails for nic in nic_of_local], [nic % rails for nic in range(nics)]
    rail = [*(of_gpu * len(units)), *(of_nic * len(units)), *([-1] * len(units))]
    rail += [inferred.rail[leaf] for leaf in leaves] + [-1] * above
    group_ = [u for u in units for _ in range(gpus)] + [u for u in units for _ in range(nics)] + units
    group_ += [inferred.unit[f] if inferred.unit[f] >= 0 else i for i, f in enumerate(leaves)] + [-1] * above
    return np.array(rail, dtype=np.int32), np.array(group_, dtype=np.int32)


def _dead_nics(fabric: Fabric) -> list[int]:
    """NICs without a working cable."""
    alive = (fabric.capacity[0::2] > 0) & (fabric.role == Role.NODE_LEAF)
    ways = np.bincount(fabric.a[alive], minlength=fabric.num_devices)
    return [n for n in fabric.devices(Kind.NIC).tolist() if not ways[n]]
