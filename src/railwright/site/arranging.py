"""Which rack holds what: server racks group by group, switches in or amid the racks they serve.

A leaf of a rail-optimised group has a cable to every server of the group, so the sum of its cables is least
in the middle of the group's racks: rails do not change that, and all leaves of a group stand there together,
in the order of their rails.  Spines stand amid the groups of their pod, everything above amid the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from railwright.catalog import find
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind, Role
from railwright.fabric.graph import Ints, server_name
from railwright.fabric.names import device_names
from railwright.site.circuits import Machine
from railwright.site.filling import Fill, Rooms, fullest, host_machine, servers_per_rack, switch_machine
from railwright.site.loading import constant

SWITCHES = {Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}


@dataclass(frozen=True)
class Item:
    """A machine with its name, and where it stands in a network: its device there, or its server number."""

    name: str
    machine: Machine
    network: str
    number: int


@dataclass(frozen=True)
class Draft:
    """One rack before it has a place: what it holds from the bottom up (servers), then from the top down."""

    kind: str
    items: tuple[Item, ...]


@dataclass
class _Block:
    """A server group: its server racks, and the switches that stand amid them."""

    racks: list[Draft]
    switches: list[Item]


def arrange(
    networks: Mapping[str, Fabric], server: Machine, rooms: Rooms, catalog: Catalog
) -> tuple[list[Draft], Fill]:
    """All racks in the order they stand in, and how a server rack is filled.

    Raises PlanError where a machine fits no rack, or `site.switches` cannot be had.
    """
    for name, fabric in networks.items():
        if fabric.directors:
            raise PlanError(
                f"{name}: a director drawn as its modules has no place in a rack; "
                "set expand_directors: false",
                f"cluster.{name}.expand_directors",
            )
    compute = networks["compute"]
    group_of = _groups(compute)
    switches = {name: _switches(name, fabric, rooms, catalog) for name, fabric in networks.items()}
    blocks, fill = _blocks(group_of, switches["compute"][Kind.LEAF], compute, server, rooms)
    central: list[Item] = []
    for name, fabric in networks.items():
        if name != "compute":
            _place_leaves(name, fabric, switches[name][Kind.LEAF], group_of, blocks, central, rooms)
    by_pod, pods = _pods(compute, switches["compute"][Kind.SPINE], len(blocks))
    if not by_pod:
        central = [*switches["compute"][Kind.SPINE], *central]
    central += switches["compute"][Kind.CORE]
    for name in networks:
        if name != "compute":
            central += [*switches[name][Kind.SPINE], *switches[name][Kind.CORE]]
    central += _hosts(networks, compute.num_servers, rooms)
    whole = _one_rack(blocks, [*by_pod.get(0, []), *central], rooms)
    if whole is not None:
        return [whole], fill
    return _sequence(blocks, pods, by_pod, central, rooms), fill


def _groups(compute: Fabric) -> Ints:
    """Group of every server."""
    nics = compute.devices(Kind.NIC)
    group = np.zeros(compute.num_servers, np.int32)
    group[compute.server[nics]] = compute.group[nics]
    return group


def _switches(name: str, fabric: Fabric, rooms: Rooms, catalog: Catalog) -> dict[Kind, list[Item]]:
    names = device_names(fabric)
    prefix = "" if name == "compute" else f"{name}/"
    found: dict[Kind, list[Item]] = {}
    for kind, word in SWITCHES.items():
        devices = fabric.devices(kind).tolist()
        if not devices:
            found[kind] = []
            continue
        machine = switch_machine(find(catalog.switches, fabric.parts[word]), word, rooms.parts)
        found[kind] = [Item(f"{prefix}{names[d]}", machine, name, d) for d in devices]
    return found


def _blocks(
    group_of: Ints, leaves: list[Item], compute: Fabric, server: Machine, rooms: Rooms
) -> tuple[list[_Block], Fill]:
    fill = servers_per_rack(server, rooms)
    mode, wanted = rooms.site.switches, rooms.site.servers_per_rack
    blocks = []
    servers = [Item(server_name(i), server, "compute", i) for i in range(len(group_of))]
    of_group: dict[int, list[Item]] = {}
    for leaf in leaves:
        of_group.setdefault(int(compute.group[leaf.number]), []).append(leaf)
    bounds = np.searchsorted(group_of, np.arange(int(group_of.max()) + 2)).tolist()
    for group, (begin, end) in enumerate(pairwise(bounds)):
        own, mine = of_group.get(group, []), servers[begin:end]
        together = [*mine, *own]
        refusal = "" if len(mine) <= (wanted or len(mine)) else "more servers than site.servers_per_rack"
        if mode in ("auto", "in-rack"):
            refusal = refusal or rooms.accepts([item.machine for item in together])
            if not refusal:
                blocks.append(_Block([Draft("servers", tuple(together))], []))
                continue
            if mode == "in-rack":
                raise PlanError(
                    f"site.switches: {own[0].name} serves {len(mine)} servers, which do not stand in one "
                    f"rack with its {len(own)} leaves ({refusal}); use middle, or fewer servers_per_group"
                )
        racks = [
            Draft("servers", tuple(mine[at : at + fill.servers])) for at in range(0, len(mine), fill.servers)
        ]
        blocks.append(_Block(racks, own))
    return blocks, fill


def _place_leaves(
    name: str,
    fabric: Fabric,
    leaves: list[Item],
    group_of: Ints,
    blocks: list[_Block],
    central: list[Item],
    rooms: Rooms,
) -> None:
    """Leaves of a service network: on top of their rack where they serve one, else amid their servers."""
    cables = fabric.role == Role.NODE_LEAF
    a, b = fabric.a[cables], fabric.b[cables]
    at_leaf = np.where(fabric.kind[a] == Kind.LEAF, a, b)
    host = fabric.server[np.where(fabric.kind[a] == Kind.LEAF, b, a)]
    order = np.argsort(at_leaf, kind="stable")
    at_leaf, host = at_leaf[order], host[order]
    rack_of = {
        item.number: (block, rack)
        for block, of in enumerate(blocks)
        for rack, draft in enumerate(of.racks)
        for item in draft.items
        if item.machine.kind == "server"
    }
    for leaf in leaves:
        begin, end = np.searchsorted(at_leaf, [leaf.number, leaf.number + 1]).tolist()
        served = np.sort(host[begin:end])
        if not len(served) or served[len(served) // 2] >= len(group_of):
            central.append(leaf)
            continue
        homes = {rack_of[s] for s in np.unique(served).tolist() if s in rack_of}
        block = blocks[int(group_of[served[len(served) // 2]])]
        if len(homes) == 1 and served[-1] < len(group_of) and rooms.site.switches in ("auto", "in-rack"):
            _, rack = next(iter(homes))
            together = (*block.racks[rack].items, leaf)
            if not rooms.accepts([item.machine for item in together]):
                block.racks[rack] = Draft("servers", together)
                continue
        block.switches.append(leaf)


def _pods(compute: Fabric, spines: list[Item], blocks: int) -> tuple[dict[int, list[Item]], list[int]]:
    """Spines of every pod, empty where all blocks are one; and the pod of every block."""
    if not len(compute.devices(Kind.CORE)):
        return {}, [0] * blocks
    cables = compute.role == Role.LEAF_SPINE
    a, b = compute.a[cables], compute.b[cables]
    leaf = np.where(compute.kind[a] == Kind.LEAF, a, b)
    spine = np.where(compute.kind[a] == Kind.LEAF, b, a)
    pod = np.zeros(blocks, np.int32)
    pod[compute.group[leaf]] = compute.group[spine]
    by_pod: dict[int, list[Item]] = {}
    for item in spines:
        by_pod.setdefault(int(compute.group[item.number]), []).append(item)
    return by_pod, pod.tolist()


def _hosts(networks: Mapping[str, Fabric], servers: int, rooms: Rooms) -> list[Item]:
    """Storage and management hosts: host i of every service network is the same machine."""
    most = max((f.num_servers - servers for n, f in networks.items() if n != "compute"), default=0)
    machine = host_machine(rooms.parts)
    return [Item(f"host-{i + 1:02d}", machine, "", servers + i) for i in range(most)]


def _one_rack(blocks: list[_Block], central: list[Item], rooms: Rooms) -> Draft | None:
    """Everything in one rack, where the study allows switches there and they fit."""
    servers = [item for block in blocks for draft in block.racks for item in draft.items]
    items = [*servers, *(item for block in blocks for item in block.switches), *central]
    if rooms.site.switches not in ("auto", "in-rack") or len(items) > rooms.rack.units:
        return None
    if (asked := rooms.site.servers_per_rack) is not None and len(servers) > asked:
        return None
    if rooms.accepts([item.machine for item in items]):
        return None
    return Draft("servers", tuple(items))


def _sequence(
    blocks: list[_Block], pods: list[int], by_pod: dict[int, list[Item]], central: list[Item], rooms: Rooms
) -> list[Draft]:
    end = rooms.site.switches == "end"
    blocks, pods = _merged(blocks, pods, rooms)
    if len(blocks) == 1:
        above = [item for pod in sorted(by_pod) for item in by_pod[pod]]
        return _amid(blocks[0].racks, _packed([*blocks[0].switches, *above, *central], "network", rooms), end)
    lines: list[list[Draft]] = []
    for pod in sorted(set(pods)):
        mine = [_line(blocks[i], end, rooms) for i in range(len(blocks)) if pods[i] == pod]
        lines.append(_spread(mine, _packed(by_pod.get(pod, []), "spines", rooms), end))
    if len(lines) == 1:
        mine = [_line(block, end, rooms) for block in blocks]
        above = [item for items in by_pod.values() for item in items]
        return _spread(mine, _packed([*above, *central], "spines", rooms), end)
    return _spread(lines, _packed(central, "core", rooms), end)


def _merged(blocks: list[_Block], pods: list[int], rooms: Rooms) -> tuple[list[_Block], list[int]]:
    """Neighbouring groups of a pod as one, while their switches fill one rack and their racks one row."""
    spare = int(constant("spare_unit"))
    joined: list[_Block] = []
    of: list[int] = []
    for block, pod in zip(blocks, pods, strict=True):
        if joined and of[-1] == pod:
            last = joined[-1]
            switches = [*last.switches, *block.switches]
            racks = [*last.racks, *block.racks]
            in_row = len(racks) + 1 <= rooms.site.racks_per_row
            if in_row and not rooms.accepts([item.machine for item in switches], spare):
                joined[-1] = _Block(racks, switches)
                continue
        joined.append(block)
        of.append(pod)
    return joined, of


def _line(block: _Block, end: bool, rooms: Rooms) -> list[Draft]:
    return _amid(block.racks, _packed(block.switches, "network", rooms), end)


def _amid(racks: list[Draft], network: list[Draft], end: bool) -> list[Draft]:
    at = len(racks) if end else -(-len(racks) // 2)
    return [*racks[:at], *network, *racks[at:]]


def _spread(lines: list[list[Draft]], above: list[Draft], end: bool) -> list[Draft]:
    at = len(lines) if end else -(-len(lines) // 2)
    before = [draft for line in lines[:at] for draft in line]
    return [*before, *above, *(draft for line in lines[at:] for draft in line)]


def _packed(items: list[Item], kind: str, rooms: Rooms) -> list[Draft]:
    """Switches and hosts in the fewest racks, in their order."""
    drafts = []
    while items:
        count = fullest([item.machine for item in items], rooms)
        drafts.append(Draft(kind, tuple(items[:count])))
        items = items[count:]
    return drafts


def elevation(draft: Draft, units: int) -> list[tuple[Item, int]]:
    """Every item of a rack with its lowest unit: servers from the bottom up, switches and hosts from the top
    down; in a rack of switches a unit of cable management is left below each."""
    spare = 0 if draft.kind == "servers" else int(constant("spare_unit"))
    low, high = 1, units
    placed = []
    for item in draft.items:
        if item.machine.kind == "server":
            placed.append((item, low))
            low += item.machine.units
        else:
            placed.append((item, high - item.machine.units + 1))
            high -= item.machine.units + spare
    assert low - 1 <= high + spare, "a rack was filled beyond its height"
    return placed
