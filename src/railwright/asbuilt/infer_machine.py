"""From a dump alone to the design behind it: tiers, rails, units, bundles and speeds, by majority."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from railwright.asbuilt.compare_plan import Blueprint, label, listed, mode, relative_speed, speed_name
from railwright.asbuilt.infer_draft import draft
from railwright.asbuilt.infer_hosts import Hosts, Lane, joined, read_hosts
from railwright.asbuilt.infer_mesh import Mesh, read_mesh
from railwright.asbuilt.infer_tiers import directors, tiers
from railwright.asbuilt.wiring import Wiring


@dataclass(frozen=True)
class Inferred:
    """The design that a machine looks like.

    family      'rail-optimised', 'rail-only', 'fat-tree', 'single-switch', 'irregular', or 'no network'
    tier        tier of each node: 0 hosts, 1 leaves, 2 spines, 3 cores, …; -1 where it has none
    rail        (nodes,) rail of a host's adapter and of a leaf, from 0; -1 without rails
    unit        (nodes,) scalable unit of a leaf, from 0, with rails; -1 otherwise
    rails       what each rail's adapters are called, as 'mlx5_0'
    servers     servers with a name
    servers_per_unit  of the commonest unit, the largest of several as common; 0 without rails
    radix       ports of a leaf; 0 where the dump does not say
    down, up    cables of the commonest leaf to hosts, and to spines; of several as common the fullest
    bundle      cables between two joined switches, tier by tier: (leaf-spine, spine-core, …)
    speeds      what most cables of each tier run at, from the hosts up: ('4xNDR', '4xNDR')
    oversubscription  bandwidth down over bandwidth up of the commonest leaf; 0 without spines
    directors   chassis -> its modules
    turned      leaves whose lane is not that of the rest of their rail's plane: (leaf, lane, usual lane)
    design      every cable as it should be, by majority
    notes       what was assumed and what cannot be told
    """

    wiring: Wiring
    family: str
    tier: tuple[int, ...]
    rail: tuple[int, ...]
    unit: tuple[int, ...]
    rails: tuple[str, ...]
    servers: int
    servers_per_unit: int
    radix: int
    down: int
    up: int
    bundle: tuple[int, ...]
    speeds: tuple[str, ...]
    oversubscription: float
    directors: Mapping[str, tuple[int, ...]]
    turned: tuple[tuple[int, Lane, Lane], ...]
    design: Blueprint
    notes: tuple[str, ...]

    def switches(self, tier: int) -> tuple[int, ...]:
        """Nodes of one tier of switches: 1 leaves, 2 spines, 3 cores."""
        return tuple(i for i, t in enumerate(self.tier) if t == tier)

    @property
    def tiers(self) -> int:
        return max(self.tier, default=0)

    @property
    def units(self) -> int:
        return max(self.unit, default=-1) + 1


def infer(wiring: Wiring) -> Inferred:
    """The design behind a dump.  Works while at most about one cable in ten is wrong.

    What the majority cannot prove (a port order without rule, a unit of fewer than three servers) is taken as
    found, and said in `notes`.
    """
    tier = tiers(wiring)
    hosts = read_hosts(wiring, tier)
    meshes = [read_mesh(wiring, tier, level) for level in range(1, max(tier, default=0))]
    rail, unit = _rails(wiring, tier, hosts)
    blueprint, notes = draft(wiring, tier, rail, hosts, meshes)
    down, up = _usual(wiring, tier)
    speeds = _speeds(wiring, tier)
    lanes = hosts.rails()
    sizes = Counter(hosts.home.values())
    inferred = Inferred(
        wiring=wiring,
        family=_family(tier, hosts, meshes),
        tier=tier,
        rail=rail,
        unit=unit,
        rails=tuple(_lane_name(lane, lanes) for lane in lanes),
        servers=len(hosts.kinds),
        servers_per_unit=_fullest(sizes.values()),
        radix=mode([wiring.nodes[i].ports for i, t in enumerate(tier) if t == 1 and wiring.nodes[i].ports]),
        down=down,
        up=up,
        bundle=tuple(mesh.bundle for mesh in meshes),
        speeds=tuple(name for name, _ in speeds),
        oversubscription=_oversubscription(down, up, [value for _, value in speeds]),
        directors=directors(wiring),
        turned=tuple(_turned(hosts, meshes)),
        design=blueprint,
        notes=(),
    )
    return replace(inferred, notes=(*wiring.notes, *notes, *_limits(inferred)))


def summary(inferred: Inferred) -> list[str]:
    """The inferred design in a few lines of plain text."""
    names = ("leaves", "spines", "cores")
    count = [len(inferred.switches(t)) for t in range(1, inferred.tiers + 1)]
    tiers_ = ", ".join(f"{n} {names[i] if i < 3 else f'in tier {i + 1}'}" for i, n in enumerate(count))
    adapters = sum(node.kind == "host" for node in inferred.wiring.nodes)
    lines = [
        f"{inferred.family}: {tiers_ or 'no switches'}; {inferred.servers} servers, {adapters} adapters, "
        f"{len(inferred.wiring.links)} cables"
    ]
    if count:
        ports = f" of {inferred.radix} ports" if inferred.radix else ""
        text = f"leaf{ports}: {inferred.down} down, {inferred.up} up"
        if inferred.oversubscription:
            text += f", oversubscription {inferred.oversubscription:.3g}"
        lines.append(text)
    if inferred.bundle:
        each = ", ".join(
            f"{n} between {a} and {b}" for n, (a, b) in zip(inferred.bundle, _TIERS, strict=False)
        )
        lines.append(f"cables per pair: {each}")
    filled = inferred.units * inferred.servers_per_unit
    if inferred.rails:
        lines.append(
            f"{len(inferred.rails)} rails ({listed(inferred.rails, 8)}); {inferred.units} scalable unit(s) "
            f"of {'up to ' if filled > inferred.servers else ''}{inferred.servers_per_unit} servers"
        )
    if any(inferred.speeds):
        lines.append("speeds from the hosts up: " + ", ".join(s or "unknown" for s in inferred.speeds))
    lines += [
        f"director {system}: {len(modules)} modules "
        f"({listed(label(inferred.wiring.nodes[m]) for m in modules)})"
        for system, modules in inferred.directors.items()
    ]
    return lines


_TIERS = (("leaf", "spine"), ("spine", "core"), ("tier 3", "tier 4"))


def _lane_name(lane: Lane, lanes: Sequence[Lane]) -> str:
    twin = any(port != lane[1] for _, port in lanes)
    return f"{lane[0]} port {lane[1]}" if twin else lane[0]


def _rails(wiring: Wiring, tier: Sequence[int], hosts: Hosts) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rail and unit columns.  The rail of a leaf is that of its lane; of an adapter, that of its name."""
    number = {lane: r for r, lane in enumerate(hosts.rails())}
    by_adapter: dict[str, int] = {}
    for (adapter, _), r in number.items():
        by_adapter.setdefault(adapter, r)
    rail = [-1] * len(wiring.nodes)
    unit = [-1] * len(wiring.nodes)
    for i, node in enumerate(wiring.nodes):
        if tier[i] == 1 and hosts.by_rail:
            rail[i] = number.get(hosts.rail_of.get(i, ("", 0)), -1)
            unit[i] = hosts.unit.get(i, -1)
        elif node.kind == "host":
            rail[i] = by_adapter.get(node.adapter, -1)
    return tuple(rail), tuple(unit)


def _family(tier: Sequence[int], hosts: Hosts, meshes: Sequence[Mesh]) -> str:
    leaves = [i for i, t in enumerate(tier) if t == 1]
    if not leaves:
        return "no network"
    if len(leaves) == 1 and not meshes:
        return "single-switch"
    if any(not mesh.regular for mesh in meshes):
        return "irregular"
    if not hosts.by_rail:
        return "fat-tree" if meshes else "irregular"
    switches = [i for i, t in enumerate(tier) if t >= 1]
    part = joined(
        switches,
        [(block.lowers[0], x) for m in meshes for block in m.blocks for x in block.lowers + block.uppers],
    )
    lanes: dict[int, set[str]] = {}
    for leaf, (adapter, _) in hosts.rail_of.items():
        lanes.setdefault(part[leaf], set()).add(adapter)
    apart = len(lanes) > 1 and all(len(names) == 1 for names in lanes.values())
    return "rail-only" if apart else "rail-optimised"


def _usual(wiring: Wiring, tier: Sequence[int]) -> tuple[int, int]:
    """Cables down and up of the commonest leaf."""
    down, up = Counter[int](), Counter[int]()
    for link in wiring.links:
        for a, b in ((link.a, link.b), (link.b, link.a)):
            if tier[a] == 1:
                down[a] += tier[b] == 0
                up[a] += tier[b] == 2
    leaves = [i for i, t in enumerate(tier) if t == 1]
    return _fullest(down[i] for i in leaves), _fullest(up[i] for i in leaves)


def _fullest(sizes: Iterable[int]) -> int:
    """The commonest size; the largest of several: the last unit may be part-filled.  0 for none."""
    counts = Counter(sizes)
    return max(counts, key=lambda size: (counts[size], size), default=0)


def _speeds(wiring: Wiring, tier: Sequence[int]) -> list[tuple[str, float]]:
    """Name and rate [byte/s] of the commonest speed between tiers t and t + 1."""
    found: list[tuple[str, float]] = []
    for level in range(max(tier, default=0)):
        seen = Counter(
            (speed_name(k.width, k.speed, k.rate), relative_speed(k))
            for k in wiring.links
            if {tier[k.a], tier[k.b]} == {level, level + 1} and k.up
        )
        found.append(min(seen, key=lambda s: (-seen[s], s)) if seen else ("", 0.0))
    return found


def _oversubscription(down: int, up: int, speeds: Sequence[float]) -> float:
    if not up:
        return 0.0
    below, above = (speeds[0], speeds[1]) if len(speeds) > 1 and all(speeds[:2]) else (1.0, 1.0)
    return down * below / (up * above)


def _turned(hosts: Hosts, meshes: Sequence[Mesh]) -> list[tuple[int, Lane, Lane]]:
    """Leaves whose servers number their adapters in another order than those of the same plane elsewhere."""
    if not hosts.by_rail or not meshes or len(meshes[0].blocks) < 2:
        return []
    found: list[tuple[int, Lane, Lane]] = []
    for block in meshes[0].blocks:
        lanes = Counter(hosts.rail_of[leaf] for leaf in block.lowers if leaf in hosts.rail_of)
        if len(lanes) < 2:
            continue
        usual, count = lanes.most_common(1)[0]
        if count * 4 >= sum(lanes.values()) * 3:
            found += [
                (leaf, hosts.rail_of[leaf], usual)
                for leaf in block.lowers
                if leaf in hosts.rail_of and hosts.rail_of[leaf] != usual
            ]
    return found


def _limits(inferred: Inferred) -> list[str]:
    """What is invisible in this dump: whole parts that would leave the rest regular."""
    notes: list[str] = []
    used = inferred.down + inferred.up
    if inferred.radix > used > 0:
        notes.append(
            f"most leaves use {used} of {inferred.radix} ports; a spine or a server missing on all of them "
            "would look just like that, so only a design can tell"
        )
    top = inferred.switches(2)
    if top:
        ports = mode([inferred.wiring.nodes[i].ports for i in top])
        cables = Counter(x for link in inferred.wiring.links for x in (link.a, link.b))
        busy = mode([cables[i] for i in top])
        if ports > busy:
            notes.append(
                f"most spines use {busy} of {ports} ports; a whole scalable unit that is missing would look "
                "just like that, so only a design can tell"
            )
    return notes
