"""htsim (Broadcom/UEC): its fat-tree file, which knows regular trees by their radices, and who is which host.

Format: htsim, sim/datacenter/fat_tree_topology.cpp (the `.topo` file: Nodes, Tiers, Podsize, and per tier
Downlink_speed_Gbps, Radix_Up, Radix_Down, Oversubscribed, Bundle, Switch_Latency_ns, Downlink_Latency_ns).
There hosts are numbered leaf by leaf, spine j of every pod joins cores j, j + A, j + 2 A, … (A spines a pod),
and every leaf, pod and spine is full; a host is a NIC port.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from railwright.errors import PlanError
from railwright.export.sheet import METRE, Sheet, csv_text
from railwright.fabric.graph import Kind, Role

Bundles = Counter[tuple[int, int]]


def render(sheet: Sheet) -> dict[str, str]:
    """The design, without faults.  Part-filled leaves are filled with hosts that stay idle.

    A rail-optimised fabric is a fat tree whose leaves serve rails: hosts.csv says which NIC is which host.
    Lanes inside servers are left out.
    Raises PlanError where the fabric is not such a tree: less than two tiers, rails that meet only inside
    servers, tiers of several speeds, bundles or radices that differ.
    """
    tree = _tree(sheet)
    f, latency = sheet.fabric, sheet.fabric.latency.tolist()
    lengths = {role: float(f.length[f.role == role][0]) for role in Role if (f.role == role).any()}
    lines = [
        f"# {sheet.title}",
        f"Nodes {len(tree.pods) * tree.leaves * tree.down}",
        f"Tiers {3 if tree.core_down else 2}",
        f"Podsize {tree.leaves * tree.down}",
    ]
    tiers = [
        (Kind.LEAF, Role.NODE_LEAF, tree.down, tree.up, 1),
        (Kind.SPINE, Role.LEAF_SPINE, tree.leaves * tree.bundle, tree.spine_up, tree.bundle),
    ]
    if tree.core_down:
        tiers.append((Kind.CORE, Role.SPINE_CORE, tree.core_down, 0, tree.core_bundle))
    for number, (kind, role, down, up, bundle) in enumerate(tiers):
        first = int(f.devices(kind)[0])
        lines += [
            "",
            f"Tier {number}",
            f"Downlink_speed_Gbps {round(tree.rate * 8 / 1e9)}",
            f"Radix_Down {down}",
        ]
        if up:
            lines += [f"Radix_Up {up}", f"Oversubscribed {down // up}"]
        lines += [
            f"Bundle {bundle}",
            f"Switch_Latency_ns {_nanoseconds(latency[first])}",
            f"Downlink_Latency_ns {_nanoseconds(lengths[role] * METRE)}",
        ]
    return {"fabric.topo": "\n".join(lines) + "\n", "hosts.csv": _hosts(sheet, tree)}


def _nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, at least one: htsim refuses a latency of 0."""
    return max(1, round(seconds * 1e9))


@dataclass(frozen=True)
class _Tree:
    """pods: leaves of each; then leaves a pod, hosts a leaf, up-links a leaf, cables a leaf and spine, …"""

    pods: tuple[tuple[int, ...], ...]
    leaves: int
    down: int
    up: int
    bundle: int
    spine_up: int
    core_down: int
    core_bundle: int
    rate: float


def _tree(sheet: Sheet) -> _Tree:
    f = sheet.fabric
    by_role = {role: Counter[tuple[int, int]]() for role in Role}
    for c in sheet.cables:
        by_role[Role(c.role)][c.a, c.b] += 1
    mesh, top = by_role[Role.LEAF_SPINE], by_role[Role.SPINE_CORE]
    if not mesh:
        raise _refused("it has one tier of switches, and htsim's trees have two or three")
    rates = {c.rate for c in sheet.cables}
    if len(rates) > 1:
        raise _refused("its cables run at several rates, and htsim checks its radices for one rate")
    pods, spines = _pods(mesh)
    if len(pods) > 1 and not top:
        raise _refused(f"it is {len(pods)} networks that meet only inside servers")
    bundle, up = (
        _same(mesh.values(), "bundles of leaf and spine"),
        _same(_sums(mesh, 0), "up-links of a leaf"),
    )
    if up != bundle * len(spines[0]) or len({len(s) for s in spines}) > 1:
        raise _refused("its pods have different numbers of spines, or not every leaf joins all of them")
    hosts = Counter(c.b for c in sheet.cables if c.role == Role.NODE_LEAF)
    down = -(-max(hosts.values()) // up) * up
    leaves = max(map(len, pods))
    spine_up = _same(_sums(top, 0), "up-links of a spine") if top else 0
    if top and leaves * bundle % spine_up:
        raise _refused(
            f"a spine has {leaves * bundle} ports down and {spine_up} up, and htsim takes whole ratios only"
        )
    core_bundle = _same(top.values(), "bundles of spine and core") if top else 0
    return _Tree(
        pods,
        leaves,
        down,
        up,
        bundle,
        spine_up,
        len(pods) * core_bundle,
        core_bundle,
        float(f.rate[sheet.cables[0].link]),
    )


def _pods(mesh: Bundles) -> tuple[tuple[tuple[int, ...], ...], list[frozenset[int]]]:
    """Leaves that share all their spines, in order of the first leaf, and the spines of each set."""
    above: dict[int, set[int]] = {}
    for leaf, spine in mesh:
        above.setdefault(leaf, set()).add(spine)
    pods: dict[frozenset[int], list[int]] = {}
    for leaf in sorted(above):
        pods.setdefault(frozenset(above[leaf]), []).append(leaf)
    return tuple(tuple(leaves) for leaves in pods.values()), list(pods)


def _hosts(sheet: Sheet, tree: _Tree) -> str:
    """htsim's host number of every NIC port, in the order of leaves and their ports."""
    at: dict[int, list[tuple[int, int, int]]] = {}
    for c in sheet.cables:
        if c.role == Role.NODE_LEAF:
            at.setdefault(c.b, []).append((c.port_b, c.a, c.port_a))
    rows = []
    for pod, leaves in enumerate(tree.pods):
        for place, leaf in enumerate(leaves):
            first = (pod * tree.leaves + place) * tree.down
            for slot, (_, nic, port) in enumerate(sorted(at.get(leaf, []))):
                rows.append((first + slot, sheet.names[nic], port, sheet.names[leaf]))
    return csv_text(("host", "nic", "port", "leaf"), rows)


def _sums(bundles: Bundles, end: int) -> list[int]:
    """Cables of every device at one end."""
    sums = Counter[int]()
    for pair, count in bundles.items():
        sums[pair[end]] += count
    return list(sums.values())


def _same(counts: Iterable[int], what: str) -> int:
    values = sorted(set(counts))
    if len(values) > 1:
        raise _refused(f"its {what} differ ({values[0]} to {values[-1]})")
    return values[0]


def _refused(why: str) -> PlanError:
    return PlanError(f"htsim's fat-tree file cannot say this fabric: {why}; take format simgrid or simai")
