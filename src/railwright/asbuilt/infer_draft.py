"""Drawing the intended machine: every cable that the machine's regularity proves, the others as they are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from railwright.asbuilt.compare_plan import Blueprint, Planned, unnamed
from railwright.asbuilt.infer_hosts import Endpoint, Hosts, Lane
from railwright.asbuilt.infer_mesh import Block, Mesh, planned_mesh
from railwright.asbuilt.infer_places import Place, places
from railwright.asbuilt.wiring import Link, Node, Wiring

STRAY = 0.2
"""Up to this share of switch cables may join switches that are not in neighbouring tiers and be called wrong;
above it the machine is no Clos and such cables are its design."""

STRAY_OF_ALL = 0.1
"""With rails, at least this share of all cables must be of that sort: up to as many may simply be wrong."""

SAME_SPEED = 0.9
"""Share of a tier's cables with one speed above which that speed is expected of cables of no known kind."""

Speed = tuple[int, str, float]


def draft(
    wiring: Wiring, tier: Sequence[int], rail: Sequence[int], hosts: Hosts, meshes: Sequence[Mesh]
) -> tuple[Blueprint, list[str]]:
    """The intended machine, and what could not be proven about it."""
    sketch = _Sketch(wiring, tier, rail)
    notes: list[str] = []
    _draw_hosts(sketch, hosts)
    for mesh in meshes:
        if mesh.regular:
            sketch.plan(planned_mesh(mesh))
            for block in mesh.blocks:
                _draw_missing_uppers(sketch, block, mesh)
        else:
            notes.append(
                f"tiers {mesh.level} and {mesh.level + 1} are no regular mesh (pairs of switches have "
                "different numbers of cables), so nothing is proven about the cables between them"
            )
            sketch.keep(_between(wiring, tier, mesh.level))
    stray = [k for k in wiring.links if _is_stray(k, wiring, tier)]
    between = sum(tier[k.a] > 0 and tier[k.b] > 0 for k in wiring.links)
    # Rails need no cables between their leaves; other leaves without spines have no other way to meet.
    if len(stray) > STRAY * between and (not hosts.by_rail or len(stray) > STRAY_OF_ALL * len(wiring.links)):
        notes.append(
            f"{len(stray)} of {between} switch cables join switches that are not in neighbouring tiers: this "
            "is no folded Clos, and they are taken as intended"
        )
        sketch.keep(stray)
    sketch.keep(k for k in wiring.links if min(tier[k.a], tier[k.b]) <= 0)
    if lost := [i for i, n in enumerate(wiring.nodes) if n.kind == "switch" and tier[i] < 0]:
        notes.append(f"{len(lost)} switch(es) are not joined to any host's switch and have no tier")
    return Blueprint(
        tuple(sketch.nodes), tuple(_with_speeds(sketch, hosts)), tuple(sketch.tier), tuple(sketch.rail)
    ), notes


class _Sketch:
    """A blueprint being drawn: nodes, cables, and which ports already have one."""

    def __init__(self, wiring: Wiring, tier: Sequence[int], rail: Sequence[int]) -> None:
        self.wiring = wiring
        self.nodes = list(wiring.nodes)
        self.tier = list(tier)
        self.rail = list(rail)
        self.links: list[Planned] = []
        self.taken: set[tuple[int, int]] = set()

    def plan(self, links: Iterable[Planned]) -> None:
        for link in links:
            self.links.append(link)
            self.taken |= {(n, p) for n, p in ((link.a, link.a_port), (link.b, link.b_port)) if p}

    def keep(self, links: Iterable[Link]) -> None:
        """Plan cables as they are, where no port of theirs is planned for another."""
        for k in links:
            if not {(k.a, k.a_port), (k.b, k.b_port)} & self.taken:
                self.plan([Planned(k.a, k.a_port, k.b, k.b_port, why="nothing disproves it", confidence=0.5)])

    def add(self, node: Node, tier: int, rail: int = -1) -> int:
        self.nodes.append(node)
        self.tier.append(tier)
        self.rail.append(rail)
        return len(self.nodes) - 1


def _draw_hosts(sketch: _Sketch, hosts: Hosts) -> None:
    """Each proven endpoint's cable; adapters without a (true) name stand in where just they would fit."""
    proven = places(hosts)
    genuine: dict[tuple[str, Lane], Endpoint] = {}
    spare: dict[tuple[int, int], Endpoint] = {(end.leaf, end.port): end for end in hosts.nameless}
    for key, ends in hosts.at.items():
        place = proven.get(key)
        best = max(ends, key=lambda end: _fit(end, place))
        genuine[key] = best
        spare |= {(end.leaf, end.port): end for end in ends if end is not best}
    known = {
        (node.host, node.adapter): i
        for i, node in enumerate(sketch.wiring.nodes)
        if node.kind == "host" and not unnamed(node)
    }
    absent_leaves: dict[tuple[int, Lane], int] = {}
    rails = {lane: r for r, lane in enumerate(hosts.rails())}
    for key, place in proven.items():
        server, lane = key
        leaf = place.leaf
        if leaf < 0:
            where = hosts.home[server], lane
            if where not in absent_leaves:
                name = f"leaf of {lane[0]} in scalable unit {where[0] + 1}"
                node = Node(f"absent:{name}", "switch", name)
                absent_leaves[where] = sketch.add(node, 1, rails.get(lane, -1))
            leaf = absent_leaves[where]
        if key in genuine:
            host = genuine[key].node
        elif (server, lane[0]) in known:
            host = known[server, lane[0]]
        elif (leaf, place.port) in spare:
            host = spare[leaf, place.port].node
        else:
            node = Node(f"absent:{server}/{lane[0]}", "host", f"{server} {lane[0]}", 0, server, lane[0])
            host = known[server, lane[0]] = sketch.add(node, 0, rails.get(lane, -1))
        sketch.plan([Planned(host, lane[1], leaf, place.port, why=place.why, confidence=place.confidence)])


def _fit(end: Endpoint, place: Place | None) -> tuple[bool, bool]:
    """How well an endpoint fits its place: on the leaf, and on the port."""
    return (False, False) if place is None else (end.leaf == place.leaf, end.port == place.port)


def _draw_missing_uppers(sketch: _Sketch, block: Block, mesh: Mesh) -> None:
    word = {1: "spine", 2: "core"}.get(mesh.level, f"tier-{mesh.level + 1} switch")
    for i in range(block.missing_uppers):
        name = f"a {word} above {sketch.nodes[block.lowers[0]].name or sketch.nodes[block.lowers[0]].key}"
        upper = sketch.add(Node(f"absent:{name} {i}", "switch", name), mesh.level + 1)
        why = "other groups of this tier have one switch more above them"
        sketch.plan(
            Planned(low, 0, upper, 0, why=why, confidence=0.8)
            for low in block.lowers
            for _ in range(mesh.bundle)
        )


def _between(wiring: Wiring, tier: Sequence[int], level: int) -> list[Link]:
    return [k for k in wiring.links if {tier[k.a], tier[k.b]} == {level, level + 1}]


def _is_stray(link: Link, wiring: Wiring, tier: Sequence[int]) -> bool:
    """Whether a cable joins two switches of the same tier, or skips one."""
    both = wiring.nodes[link.a].kind == wiring.nodes[link.b].kind == "switch"
    return both and min(tier[link.a], tier[link.b]) > 0 and abs(tier[link.a] - tier[link.b]) != 1


def _with_speeds(sketch: _Sketch, hosts: Hosts) -> list[Planned]:
    """The cables with the speed that most of their kind run at."""

    def kinds(a: int, b: int) -> tuple[object, object]:
        low, high = sorted((a, b), key=lambda i: sketch.tier[i])
        node = sketch.nodes[low]
        tiers_ = sketch.tier[low], sketch.tier[high]
        return tiers_, (*tiers_, hosts.kinds.get(node.host, ""), node.adapter if node.kind == "host" else "")

    seen: dict[object, Counter[Speed]] = {}
    for k in sketch.wiring.links:
        if k.up and (k.width or k.speed or k.rate):
            for kind in kinds(k.a, k.b):
                seen.setdefault(kind, Counter())[k.width, k.speed, k.rate] += 1

    def expected(a: int, b: int) -> Speed:
        tier, own = kinds(a, b)
        row = seen.get(own, Counter())
        if sum(row.values()) >= 3:
            best = max(row, key=lambda s: (row[s], s))
            if row[best] * 2 > sum(row.values()):
                return best
        row = seen.get(tier, Counter())
        best = max(row, key=lambda s: (row[s], s)) if row else (0, "", 0.0)
        return best if row[best] >= SAME_SPEED * sum(row.values()) and row[best] >= 3 else (0, "", 0.0)

    done: list[Planned] = []
    for p in sketch.links:
        width, speed, rate = expected(p.a, p.b)
        done.append(replace(p, width=width, speed=speed, rate=rate))
    return done
