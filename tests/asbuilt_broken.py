"""A fabric's wiring that cables, devices and names are broken in, with what must be reported of each."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from hypothesis import assume

from railwright.asbuilt import Link, Node, Wiring


@dataclass(frozen=True)
class Broken:
    """One injected fault: kinds of finding that would name it, and what such a finding must touch."""

    what: str
    kinds: tuple[str, ...]
    touches: frozenset[tuple[str, int]]


class Machine:
    """A wiring that faults are done to; every cable and device suffers one fault at most."""

    def __init__(self, wiring: Wiring, gentle: bool) -> None:
        self.gentle = gentle
        self.nodes: list[Node | None] = list(wiring.nodes)
        self.links: list[Link | None] = list(wiring.links)
        self.origin = wiring
        self.hurt: set[int] = set()
        self.touched: set[int] = set()
        self.taken: set[str] = set()
        self.rows: list[list[int]] = [[] for _ in wiring.nodes]
        for i, k in enumerate(wiring.links):
            self.rows[k.a].append(i)
            self.rows[k.b].append(i)
        self.faults: list[Broken] = []
        self.budget = max(1, len(wiring.links) // 10)
        cables = Counter(place for k in wiring.links for place in self.places(k))
        hosts = {node.host for node in wiring.nodes}
        self.bearable = {
            x: (n + 1) // 2 - 1 if x in hosts and n > 1 else max(1, n // 4) for x, n in cables.items()
        }

    def label(self, node: int) -> str:
        return self.origin.nodes[node].name

    def ends(self, *links: int) -> frozenset[tuple[str, int]]:
        found = [self.origin.links[i] for i in links]
        return frozenset(e for k in found for e in ((self.label(k.a), k.a_port), (self.label(k.b), k.b_port)))

    def whole(self) -> list[int]:
        """Cables unhurt, as are their devices, that their devices can lose and keep a majority."""
        spent = {place for place, n in self.wounds().items() if n >= self.bearable.get(place, 0)}
        return [
            i
            for i, k in enumerate(self.origin.links)
            if i not in self.hurt
            and not {k.a, k.b} & self.touched
            and not (self.gentle and set(self.places(k)) & spent)
        ]

    def places(self, link: Link) -> list[str]:
        """Server and switches that a cable belongs to."""
        ends = [self.origin.nodes[n] for n in (link.a, link.b)]
        return [n.host or n.name for n in ends]

    def wounds(self) -> Counter[str]:
        return Counter(place for i in self.hurt for place in self.places(self.origin.links[i]))

    def cables_of(self, node: int) -> list[int]:
        return self.rows[node]

    def free(self, nodes: list[int]) -> list[int]:
        """Those of some devices none of whose cables has been hurt or spared."""
        whole = set(self.whole())
        return [i for i in nodes if whole.issuperset(self.rows[i])]

    def has_sisters(self, node: int) -> bool:
        """Whether the server of an adapter has others left: alone, it would go with its server, unseen."""
        server = self.origin.nodes[node].host
        left = [n for i, n in enumerate(self.nodes) if n and n.host == server and i != node]
        return bool(server) and len(left) > 0

    def is_host(self, link: int) -> bool:
        k = self.origin.links[link]
        return "host" in (self.origin.nodes[k.a].kind, self.origin.nodes[k.b].kind)

    def hurt_links(self, links: list[int], what: str, kinds: tuple[str, ...]) -> None:
        self.hurt |= set(links)
        self.budget -= len(links)
        self.faults.append(Broken(what, kinds, self.ends(*links)))

    def wiring(self) -> Wiring:
        number = {i: n for n, i in enumerate(i for i, node in enumerate(self.nodes) if node is not None)}
        nodes = tuple(node for node in self.nodes if node is not None)
        links = tuple(
            replace(k, a=number[k.a], b=number[k.b])
            for k in self.links
            if k is not None and k.a in number and k.b in number
        )
        return Wiring("broken", nodes, links)


def remove_link(machine: Machine, pick) -> None:
    i = pick(machine.whole())
    k = machine.origin.links[i]
    machine.links[i] = None
    for end in (k.a, k.b):
        if len(machine.cables_of(end)) == 1 and machine.has_sisters(end) and pick([0, 1]):
            machine.nodes[end] = None  # a subnet manager does not see an adapter without a cable
    machine.hurt_links([i], "link removed", ("missing link", "missing device"))


def degrade(machine: Machine, pick) -> None:
    i = pick(machine.whole())
    machine.links[i] = replace(machine.origin.links[i], **pick([{"speed": "EDR"}, {"width": 1}]), rate=0.0)
    machine.hurt_links([i], "degraded", ("degraded link",))


def take_down(machine: Machine, pick) -> None:
    i = pick(machine.whole())
    machine.links[i] = replace(machine.origin.links[i], up=False)
    machine.hurt_links([i], "down", ("down port",))


def swap(machine: Machine, pick) -> None:
    """Exchange the upper ends of two cables of one tier."""
    i = pick(machine.whole())
    others = [j for j in machine.whole() if j != i and machine.is_host(i) == machine.is_host(j)]
    kind = machine.origin.nodes[machine.origin.links[i].b].name.split("-")[0]
    others = [j for j in others if machine.origin.nodes[machine.origin.links[j].b].name.startswith(kind)]
    j = pick(others)
    one, two = machine.origin.links[i], machine.origin.links[j]
    machine.links[i] = replace(one, b=two.b, b_port=two.b_port)
    machine.links[j] = replace(two, b=one.b, b_port=one.b_port)
    machine.hurt_links([i, j], "swapped", ("swapped cables", "rail mismatch", "port misplaced"))


def add_link(machine: Machine, pick) -> None:
    """A cable between free ports of two switches of one tier."""
    tops = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "switch" and i not in machine.touched]
    a = pick(tops)
    tier = machine.label(a).split("-")[0]
    b = pick([i for i in tops if i != a and machine.label(i).startswith(tier)])
    ports = []
    for n in (a, b):
        links = [k for k in (*machine.origin.links, *machine.links) if k]
        used = {p for k in links for m, p in ((k.a, k.a_port), (k.b, k.b_port)) if m == n}
        ports.append(pick([p for p in range(1, machine.origin.nodes[n].ports + 1) if p not in used]))
    machine.links.append(Link(a, ports[0], b, ports[1], 4, "NDR", 50e9))
    machine.budget -= 1
    machine.touched |= {a, b}
    ends = frozenset({(machine.label(a), ports[0]), (machine.label(b), ports[1])})
    machine.faults.append(Broken("extra link", ("extra link", "wrong tier link"), ends))


def remove_switch(machine: Machine, pick) -> None:
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "switch"]
    node = pick(machine.free(nodes))
    machine.nodes[node] = None
    machine.touched.add(node)
    for i in machine.cables_of(node):
        machine.links[i] = None
    machine.hurt_links(machine.cables_of(node), "switch removed", ("missing device",))


def remove_adapter(machine: Machine, pick) -> None:
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "host"]
    nodes = [i for i in nodes if machine.has_sisters(i)]
    node = pick(machine.free(nodes))
    machine.nodes[node] = None
    machine.touched.add(node)
    machine.hurt_links(machine.cables_of(node), "adapter removed", ("missing device",))


def remove_server(machine: Machine, pick) -> None:
    servers = sorted({n.host for n in machine.origin.nodes if n.host})
    server = pick(servers)
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.host == server]
    cables = [c for n in nodes for c in machine.cables_of(n)]
    assume(set(cables) <= set(machine.whole()))
    for n in nodes:
        machine.nodes[n] = None
        machine.touched.add(n)
    machine.hurt_links(cables, "server removed", ("missing device",))


def lose_name(machine: Machine, pick) -> None:
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "host"]
    node = pick(machine.free(nodes))
    name = pick(["localhost mlx5_0", "MT4129 ConnectX7   Mellanox Technologies"])
    machine.nodes[node] = replace(machine.origin.nodes[node], key="0x1", name=name, host="", adapter="")
    machine.nodes[node] = replace(machine.nodes[node], key=f"0x{node:x}")
    machine.touched.add(node)
    machine.hurt_links(machine.cables_of(node), "name lost", ("unnamed host",))


def take_name(machine: Machine, pick) -> None:
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "host"]
    free = machine.free(nodes)
    node = pick(free)
    other = pick([i for i in free if i != node and machine.origin.nodes[i].host not in machine.taken])
    named = machine.origin.nodes[other]
    machine.taken.add(named.host)
    machine.nodes[node] = replace(
        machine.origin.nodes[node], name=named.name, host=named.host, adapter=named.adapter
    )
    machine.touched |= {node, other}
    machine.hurt_links(
        [*machine.cables_of(node), *machine.cables_of(other)], "name taken", ("two hosts of one name",)
    )


def rename_switch(machine: Machine, pick) -> None:
    nodes = [i for i, n in enumerate(machine.origin.nodes) if n.kind == "switch" and i not in machine.touched]
    node = pick(machine.free(nodes))
    machine.nodes[node] = replace(machine.origin.nodes[node], name=f"switch {node}")
    machine.touched.add(node)
    links = machine.cables_of(node)
    machine.hurt_links(links, "switch renamed", ("renamed device",))
    fault = machine.faults[-1]
    machine.faults[-1] = replace(fault, touches=fault.touches | {(f"switch {node}", 0)})


CABLES = (remove_link, degrade, take_down, swap, add_link)
