"""The fabric as schedulers see it: hosts under one logical switch each, under pods, under a top.

Slurm, Kueue and topograph know a tree in which a node hangs on one switch.  A server of a rail-optimised
fabric hangs on one leaf per rail; what its servers share is the scalable unit, so the unit is the switch.
Where a group has a single leaf, that leaf is it.  A pod is the groups that meet in the same spines, and the
top is where pods meet; a level with nothing to join is left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from railwright.export.sheet import Sheet
from railwright.fabric.graph import Kind, Role
from railwright.fabric.trays import TRAY_GPUS, host_names, is_rack


@dataclass(frozen=True)
class Unit:
    """One logical switch: its name and the servers (numbers from 0) that hang on it."""

    name: str
    servers: tuple[int, ...]


@dataclass(frozen=True)
class Hierarchy:
    """units by pod, pods by island.

    units    logical switches that servers hang on
    pods     (name, indices of units) of each pod; empty where units meet in nothing or in one set of spines
    islands  (name, names below) of every top; several where the network does not join them (rail-only)
    """

    units: tuple[Unit, ...]
    pods: tuple[tuple[str, tuple[int, ...]], ...]
    islands: tuple[tuple[str, tuple[str, ...]], ...]

    def parent(self) -> dict[str, str]:
        """Switch -> the one above it."""
        above = {self.units[u].name: pod for pod, members in self.pods for u in members}
        return above | {child: top for top, children in self.islands for child in children}


def hierarchy(sheet: Sheet) -> Hierarchy:
    """The logical tree of the design; faults are not looked at."""
    f = sheet.fabric
    groups = _groups(sheet)
    units = tuple(Unit(_unit_name(sheet, g, i), tuple(servers)) for i, (g, servers) in enumerate(groups))
    index = {group: i for i, (group, _) in enumerate(groups)}
    if len(units) == 1:
        return Hierarchy(units, (), ())
    below = _joined(sheet, index, Role.LEAF_SPINE)
    pods = [(f"pod-{i + 1:02d}", members) for i, members in enumerate(m for m in below if len(m) > 1)]
    if not len(f.devices(Kind.CORE)):
        spines = "spines" if len(pods) == 1 else ""
        return Hierarchy(units, (), tuple((spines or pod, _names(units, m)) for pod, m in pods))
    inside = {u for _, members in pods for u in members}
    tops = []
    for members in _joined(sheet, index, Role.SPINE_CORE):
        children = [pod for pod, m in pods if set(m) <= set(members)]
        children += [units[u].name for u in members if u not in inside]
        if len(children) > 1:
            tops.append(tuple(children))
    named = [("cores" if len(tops) == 1 else f"cores-{i + 1:02d}", t) for i, t in enumerate(tops)]
    return Hierarchy(units, tuple(pods), tuple(named))


def hosts_of(sheet: Sheet) -> list[list[str]]:
    """Operating systems of every server: itself, or the trays of a rack-scale scale-up domain."""
    return [host_names(name, sheet.gpus) for name in sheet.hosts]


def rack_scale(sheet: Sheet) -> bool:
    """Whether a server of the fabric is a rack of trays that share one scale-up domain."""
    return is_rack(sheet.gpus)


def gpus_per_host(sheet: Sheet) -> int:
    return TRAY_GPUS if rack_scale(sheet) else sheet.gpus


def host_adapters(sheet: Sheet) -> list[str]:
    """Linux names of the compute adapters of one host; a tray of a rack has its share of them."""
    hosts = len(host_names("", sheet.gpus))
    return sheet.adapters[: max(len(sheet.adapters) // hosts, 1)]


def _groups(sheet: Sheet) -> list[tuple[int, list[int]]]:
    """(group, its servers), ascending; a fabric without groups is one."""
    f = sheet.fabric
    first = f.devices(Kind.NIC)[:: sheet.nics]
    groups: dict[int, list[int]] = {}
    for server, group in enumerate(f.group[first].tolist()):
        groups.setdefault(group, []).append(server)
    return sorted(groups.items())


def _unit_name(sheet: Sheet, group: int, ordinal: int) -> str:
    f = sheet.fabric
    leaves = f.devices(Kind.LEAF)
    own = leaves[f.group[leaves] == group]
    return sheet.names[int(own[0])] if len(own) == 1 else f"su-{ordinal + 1:02d}"


def _joined(sheet: Sheet, index: dict[int, int], highest: Role) -> list[tuple[int, ...]]:
    """Units that cables up to `highest` join, as sets of units in order of their first."""
    f = sheet.fabric
    used = (f.role >= Role.NODE_LEAF) & (f.role <= highest)
    a, b = f.a[used], f.b[used]
    # A server joins the leaves of its group inside itself, over its scale-up domain.
    leaves = f.devices(Kind.LEAF)
    hub = f.num_devices + np.array([index[g] for g in f.group[leaves].tolist()], dtype=np.int64)
    tail, head = np.concatenate([a, leaves]), np.concatenate([b, hub])
    size = f.num_devices + len(index)
    graph = coo_array((np.ones(len(tail), np.int8), (tail, head)), shape=(size, size))
    _, label = connected_components(graph, directed=False)
    sets: dict[int, list[int]] = {}
    for unit in range(len(index)):
        sets.setdefault(int(label[f.num_devices + unit]), []).append(unit)
    return [tuple(members) for members in sets.values()]


def _names(units: tuple[Unit, ...], members: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(units[u].name for u in members)
