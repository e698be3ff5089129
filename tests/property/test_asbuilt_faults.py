"""The punch list's promise: break a designed fabric, and every injected fault is reported, and nothing else.

What must be reported, and from what (up to 10 % of the cables broken, no cable twice):

| injected | with the design | from the dump alone |
|---|---|---|
| cable removed | missing link, or missing device where an adapter vanishes with it | the same |
| cable degraded or down | degraded link, down port | the same |
| two cables exchanged | one finding naming both | the same |
| cable plugged into a free port of a wrong switch | extra link | the same |
| adapter, leaf or spine removed | one missing device | adapters and rail leaves; a spine only as a note |
| whole server removed | one missing device | invisible |
| name lost, or another's name taken | unnamed host, two hosts of one name | the same |
| switch renamed | renamed device | invisible |

From the dump alone a design must have witnesses: at least `WITNESSES` servers per unit and spines, no server
that lost half of its cables and no switch that lost more than a quarter.
RAILWRIGHT_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from railwright import fabric
from railwright.asbuilt import Link, Node, Wiring, as_text, punch_list, to_wiring
from railwright.asbuilt.infer_places import WITNESSES
from railwright.asbuilt.read import read
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.spec.study import Cluster, ComputeNetwork

THOROUGH = bool(os.environ.get("RAILWRIGHT_THOROUGH"))
CATALOG = load_catalog()
QM9700, DGX = CATALOG.switches["qm9700"], CATALOG.servers["dgx-h100"]
QUICK = settings(
    max_examples=4000 if THOROUGH else 100,
    derandomize=not THOROUGH,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
TEXT = settings(QUICK, max_examples=1000 if THOROUGH else 25)


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


def parts(ports: int, nics: int, twin: int = 1):
    return replace(
        CATALOG,
        nics={"cx7-400": replace(CATALOG.nics["cx7-400"], ports=twin)},
        servers={"s": replace(DGX, name="s", gpus=nics, nics=nics)},
        switches={"sw": replace(QM9700, name="sw", ports=ports)},
    )


@st.composite
def any_design(draw):
    """Anything that can be built, however small."""
    catalog = parts(
        draw(st.sampled_from([8, 12, 16, 32])),
        draw(st.sampled_from([1, 2, 4, 8])),
        draw(st.sampled_from([1, 1, 2])),
    )
    network = ComputeNetwork(
        family=draw(st.sampled_from(sorted(fabric.FAMILIES))),
        switch="sw",
        tiers=draw(st.sampled_from(["auto", "auto", 2, 3])),
        oversubscription=draw(st.sampled_from([1.0, 2.0])),
        spare_spines=draw(st.sampled_from([0, 0, 1])),
        servers_per_group=draw(st.sampled_from([None, None, 2, 3])),
    )
    return built(draw(st.integers(2, 24)), network, catalog)


def witnessed(wiring: Wiring) -> Wiring:
    """Of two spines that disagree either may be wrong; a leaf needs a majority that stays one."""
    assume(sum(node.name.startswith("spine") for node in wiring.nodes) not in (1, 2))
    on_leaf = Counter(k.b for k in wiring.links if wiring.nodes[k.a].kind == "host")
    assume(min(on_leaf.values()) >= 2 * WITNESSES - 1)
    return wiring


@st.composite
def regular_design(draw):
    """Designs with witnesses: enough servers per unit and enough switches per block for a vote."""
    family = draw(
        st.sampled_from(
            ["rail-optimised", "rail-optimised", "rail-3", "fat-tree", "fat-3", "rail-only", "one"]
        )
    )
    ratio = draw(st.sampled_from([1.0, 2.0]))
    if family == "rail-optimised":
        group = draw(st.integers(6, 8))
        network = ComputeNetwork(
            family=family, switch="sw", tiers=2, oversubscription=ratio, servers_per_group=group
        )
        catalog = parts(32, draw(st.sampled_from([4, 8])))
        return witnessed(built(group * draw(st.integers(1, 3)) - draw(st.integers(0, 1)), network, catalog))
    if family == "rail-3":
        network = ComputeNetwork(
            family="rail-optimised", switch="sw", tiers=3, servers_per_group=6, groups_per_pod=3
        )
        return witnessed(built(6 * 3 * 3, network, parts(12, 4)))
    if family == "fat-tree":
        network = ComputeNetwork(family=family, switch="sw", tiers=2, oversubscription=ratio)
        return witnessed(built(draw(st.integers(24, 60)), network, parts(16, draw(st.sampled_from([1, 2])))))
    if family == "fat-3":
        network = ComputeNetwork(family="fat-tree", switch="sw", tiers=3)
        return witnessed(built(36 * 3, network, parts(12, 1)))
    if family == "rail-only":
        return witnessed(
            built(draw(st.integers(8, 30)), ComputeNetwork(family=family, switch="sw"), parts(32, 4))
        )
    return witnessed(
        built(draw(st.integers(12, 30)), ComputeNetwork(family="single-switch", switch="sw"), parts(64, 2))
    )


def built(servers: int, network: ComputeNetwork, catalog) -> Wiring:
    try:
        return to_wiring(
            fabric.build(Cluster(servers=servers, server="s", compute=network), catalog), catalog
        )
    except PlanError:
        assume(False)
        raise


def break_it(data, wiring: Wiring, ways, gentle: bool = True) -> Machine:
    """Faults drawn until the budget of one cable in ten is spent.

    gentle  no server loses half of its cables, and no switch more than a quarter: each keeps its witnesses
    """
    machine = Machine(wiring, gentle)

    def pick(choices):
        choices = list(choices)
        if not choices:
            raise LookupError
        return choices[data.draw(st.integers(0, len(choices) - 1))]

    for _ in range(data.draw(st.integers(1, 6))):
        way = pick(ways)
        before = machine.budget
        if before <= 0:
            break
        try:
            way(machine, pick)
        except LookupError:
            continue
        assume(machine.budget >= 0 or len(machine.faults) == 1)
    assume(machine.faults)
    return machine


def check(machine: Machine, found) -> None:
    """One finding for each fault and no other, each of a kind that names the fault and touching it."""
    story = "\n".join([*(f"{f.what}: {sorted(f.touches)[:4]}" for f in machine.faults), *as_text(found)])
    wrong = [f for f in found if f.severity != "note"]
    for fault in machine.faults:
        telling = [f for f in wrong if f.kind in fault.kinds and touches(f, fault)]
        assert telling, f"not reported: {fault.what}\n{story}"
    for f in wrong:
        assert any(f.kind in x.kinds and touches(f, x) for x in machine.faults), (
            f"nothing of the kind\n{story}"
        )
    assert len(wrong) == len(machine.faults), story


def touches(finding, fault: Broken) -> bool:
    """Whether a finding names a port that the fault is about (or a device, where it names no port)."""
    devices = {device for device, _ in fault.touches}
    return any((e in fault.touches) if e[1] else (e[0] in devices) for e in finding.ends)


@QUICK
@given(any_design())
def test_a_sound_design_has_no_findings(wiring):
    assert [f for f in punch_list(wiring) if f.severity != "note"] == []
    assert punch_list(wiring, wiring) == []


@QUICK
@given(any_design(), st.data())
def test_with_its_design_every_fault_is_found_and_nothing_else(wiring, data):
    ways = (*CABLES, remove_switch, remove_adapter, remove_server, lose_name, take_name, rename_switch)
    machine = break_it(data, wiring, ways, gentle=False)
    check(machine, punch_list(machine.wiring(), wiring))


@QUICK
@given(regular_design(), st.data())
def test_from_the_dump_alone_every_cable_fault_is_found_and_nothing_else(wiring, data):
    machine = break_it(data, wiring, CABLES)
    check(machine, punch_list(machine.wiring()))


@QUICK
@given(regular_design(), st.data())
def test_from_the_dump_alone_lost_names_and_adapters_are_found(wiring, data):
    machine = break_it(data, wiring, (*CABLES, lose_name, take_name, remove_adapter))
    check(machine, punch_list(machine.wiring()))


@TEXT
@given(regular_design(), st.data())
def test_through_ibnetdiscover_text_the_same_faults_are_found(wiring, data):
    """Text holds no cable that is down and no adapter without a cable, so those two are not injected here."""
    assume(len({n.adapter for n in wiring.nodes if n.kind == "host"}) > 1)
    machine = break_it(data, wiring, (remove_link, degrade, swap, add_link, lose_name, remove_adapter))
    read_back = read_text(ibnetdiscover(machine.wiring()))
    check(machine, punch_list(read_back))
    check(machine, punch_list(read_back, wiring))


def ibnetdiscover(wiring: Wiring) -> str:
    """The wiring as `ibnetdiscover` prints it: every switch, then every adapter that a switch can see."""
    guids = [f"{i + 1:016x}" for i in range(len(wiring.nodes))]
    rows: dict[int, list[tuple[int, int, int, Link]]] = {}
    for k in wiring.links:
        rows.setdefault(k.a, []).append((k.a_port, k.b, k.b_port, k))
        rows.setdefault(k.b, []).append((k.b_port, k.a, k.a_port, k))
    ids = [("S-" if n.kind == "switch" else "H-") + g for n, g in zip(wiring.nodes, guids, strict=True)]
    lines: list[str] = []
    for i in sorted(rows, key=lambda i: (wiring.nodes[i].kind == "host", i)):
        node, switch = wiring.nodes[i], wiring.nodes[i].kind == "switch"
        lines += ["", "vendid=0x2c9", "devid=0xd2f2", f"sysimgguid=0x{guids[i]}"]
        name = description(node)
        if switch:
            lines += [f"switchguid=0x{guids[i]}({guids[i]})"]
            lines += [f'Switch\t{node.ports} "{ids[i]}"\t\t# "{name}" base port 0 lid {i + 1} lmc 0']
        else:
            lines += [f"caguid=0x{guids[i]}", f'Ca\t{node.ports} "{ids[i]}"\t\t# "{name}"']
        for port, far, far_port, k in sorted(rows[i], key=lambda row: row[0]):
            there = f'"{ids[far]}"[{far_port}]' + (
                "" if wiring.nodes[far].kind == "switch" else f"({guids[far]})"
            )
            own = f"[{port}]" if switch else f"[{port}]({guids[i]})"
            lid = "" if switch else f"lid {i + 1} lmc 0 "
            comment = f'{lid}"{description(wiring.nodes[far])}" lid {far + 1} {k.width}x{k.speed}'
            lines.append(f"{own}\t{there}\t\t# {comment}")
    return "\n".join(lines) + "\n"


def description(node: Node) -> str:
    return f"{node.host} {node.adapter}" if node.host else node.name


def read_text(text: str) -> Wiring:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fabric.out"
        path.write_text(text)
        return read(path)
