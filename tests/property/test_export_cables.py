"""Whatever the design: every format that carries cables carries exactly the graph's, port to port."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from export_fabrics import built, cable_name, cables_by_name, ib_name, small_parts
from railwright import export
from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind, Role, apply_faults
from railwright.spec.study import Fault

CATALOG = small_parts(8)


@st.composite
def fabrics(draw) -> Fabric:
    """Up to 16 servers of 4 NICs on switches of 8 ports, in every family that has room for them."""
    family = draw(st.sampled_from(["single-switch", "rail-only", "fat-tree", "rail-optimised"]))
    servers = draw(st.integers(1, 2 if family == "single-switch" else 16))
    return built(servers, family, "small", "tiny", CATALOG)


def text(f: Fabric, format: str, file: str = "") -> str:
    files = export.render(f, format, catalog=CATALOG)
    return files[file] if file else next(iter(files.values()))


def table(f: Fabric, format: str, file: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text(f, format, file))))


def from_schedule(f: Fabric) -> set[tuple[str, int, str, int]]:
    return {
        (ib(r["device_a"]), int(r["port_a"]), ib(r["device_b"]), int(r["port_b"]))
        for r in table(f, "cable-schedule", "cables.csv")
    }


def from_netbox(f: Fabric) -> set[tuple[str, int, str, int]]:
    def end(row: dict[str, str], side: str) -> tuple[str, int]:
        assert row[f"side_{side}_type"] == "dcim.interface"
        port = re.fullmatch(r"(nic-\d+ )?port (\d+)", row[f"side_{side}_name"])
        inner = f"/{port[1].strip()}" if port[1] else ""
        return ib(row[f"side_{side}_device"] + inner), int(port[2])

    return {(*end(r, "a"), *end(r, "b")) for r in table(f, "netbox", "cables.csv")}


def from_cvt(f: Fabric) -> set[tuple[str, int, str, int]]:
    """The sheet numbers adapters from 1 and, on switches with one port a cage, ports as they are."""

    def end(row: dict[str, str], side: str) -> tuple[str, int]:
        name, port = row[f"{side}-Node Name"], int(row[f"{side}-Port"])
        return (f"{name} mlx5_{port - 1}", 1) if row[f"{side}-Type"] == "Host" else (name, port)

    return {(*end(r, "A"), *end(r, "Z")) for r in table(f, "cvt", "p2p.csv")}


def from_topo(f: Fabric) -> set[tuple[str, int, str, int]]:
    """Every cable of two switches stands in both of their sections; the lower one says it here."""
    found, switch = set(), ""
    for line in text(f, "cvt", "fabric.topo").splitlines():
        if not line.startswith(" "):
            switch = line.split()[1] if line else ""
        elif match := re.fullmatch(r"   P(\d+) -4x-100G-> HCA_\S+ (\S+) (\S+)/P(\d+)", line):
            found.add((f"{match[2]} {match[3]}", int(match[4]), switch, int(match[1])))
        else:
            match = re.fullmatch(r"   P(\d+) -4x-100G-> TINY (\S+) P(\d+)", line)
            ends = [(switch, int(match[1])), (match[2], int(match[3]))]
            found.add(tuple(x for end in sorted(ends, key=lambda e: TIERS[e[0].split("-")[0]]) for x in end))
    return found


TIERS = {"leaf": 0, "spine": 1, "core": 2}


def from_discovered(text: str) -> set[tuple[str, int, str, int]]:
    """Both ends say a cable; the lower one's line is taken, and the other's checked against it."""
    names: dict[str, str] = {}
    lines: list[tuple[str, int, str, int]] = []
    node = ""
    for line in text.splitlines():
        if match := re.match(r'(Switch|Ca)\t(\d+) "(\S+)"\t\t# "([^"]+)"', line):
            node = match[3]
            names[node] = match[4]
        elif match := re.match(r'\[(\d+)\](?:\(\w+\))? ?\t"(\S+)"\[(\d+)\]', line):
            lines.append((node, int(match[1]), match[2], int(match[3])))
    assert {(b, q, a, p) for a, p, b, q in lines} == set(lines)
    rank = {"S": 1, "H": 0} | {"server": -1, **TIERS}
    found = set()
    for a, p, b, q in lines:
        low, high = names[a], names[b]
        if rank[low.split("-")[0]] < rank[high.split("-")[0]]:
            found.add((low, p, high, q))
    return found


def from_ports(f: Fabric) -> set[tuple[str, int, str, int]]:
    pattern = re.compile(
        r"(CA|SW) +\d+ +(\d+) 0x\w{16} 4x NDR - SW +\d+ +(\d+) 0x\w{16} \( '([^']+)' - '([^']+)' \)"
    )
    found = set()
    for line in text(f, "ibnetdiscover-ports").splitlines():
        if (m := pattern.fullmatch(line)) and TIERS.get(m[4].split("-")[0], -1) < TIERS[m[5].split("-")[0]]:
            found.add((m[4], int(m[2]), m[5], int(m[3])))
    return found


def from_graphml(f: Fabric) -> set[tuple[str, int, str, int]]:
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    root = ElementTree.fromstring(text(f, "graphml"))
    found = set()
    for edge in root.iterfind(".//g:edge", space):
        data = {d.get("key"): d.text for d in edge}
        if data["role"] not in ("scale_up", "pcie"):
            ends = (ib(edge.get("source")), int(data["port_a"]), ib(edge.get("target")), int(data["port_b"]))
            found.add(ends)
    return found


def from_infragraph(f: Fabric) -> set[tuple[str, int, str, int]]:
    """Slices one2one, as InfraGraph expands them; its indices count from 0."""
    found = set()
    for edge in json.loads(text(f, "infragraph", "infragraph.json"))["edges"]:
        assert edge["scheme"] == "one2one"
        ends = [[*expanded(edge[side])] for side in ("ep1", "ep2")]
        assert len(ends[0]) == len(ends[1])
        found |= {(*a, *b) for a, b in zip(*ends, strict=True)}
    return found


def expanded(endpoint: dict[str, str]):
    instance, which = re.fullmatch(r"(\w+)\[(\d+)\]", endpoint["instance"]).groups()
    component, first, last = re.fullmatch(r"(\w+)\[(\d+)(?::(\d+))?\]", endpoint["component"]).groups()
    for index in range(int(first), int(last or int(first) + 1)):
        name = f"{instance}-{int(which) + 1:02d}"
        yield (f"{name} mlx5_{index}", 1) if component == "nic" else (name, index + 1)


def ib(name: str) -> str:
    return name.replace("/nic-", " mlx5_")


READERS = {
    "cable-schedule": from_schedule,
    "netbox": from_netbox,
    "cvt sheet": from_cvt,
    "cvt topo": from_topo,
    "ibnetdiscover": lambda f: from_discovered(text(f, "ibnetdiscover")),
    "ibsim": lambda f: from_discovered(text(f, "ibsim")),
    "ibnetdiscover -p": from_ports,
    "graphml": from_graphml,
    "infragraph": from_infragraph,
}
AS_IT_STANDS = ("ibnetdiscover", "ibsim", "ibnetdiscover -p", "infragraph")


@settings(max_examples=15)
@given(fabrics())
def test_every_format_has_every_cable_port_to_port(f):
    cables = cables_by_name(f)
    assert {name: reader(f) ^ cables for name, reader in READERS.items()} == {n: set() for n in READERS}


@settings(max_examples=15)
@given(st.data(), fabrics())
def test_what_says_the_fabric_as_it_stands_lacks_exactly_the_failed_cables(data, f):
    """Some cables fail in one direction or both; designs (the schedule, NetBox, …) do not change."""
    pulled = np.flatnonzero(f.role >= Role.NODE_LEAF).tolist()
    failed = data.draw(st.sets(st.sampled_from(pulled), max_size=len(pulled) - 1))
    capacity = f.capacity.copy()
    for cable in sorted(failed):
        capacity[2 * cable + data.draw(st.integers(0, 1))] = 0
    broken = replace(f, capacity=capacity)
    left = {cable_name(f, c) for c in pulled if c not in failed}
    for name, reader in READERS.items():
        assert reader(broken) == (left if name in AS_IT_STANDS else cables_by_name(f)), name


@settings(max_examples=15)
@given(fabrics())
def test_same_fabric_same_bytes_and_an_end_of_line(f):
    for name in export.EXPORTS:
        try:
            once = export.render(f, name, "Test study", CATALOG)
        except PlanError:
            continue
        assert once == export.render(f, name, "Test study", CATALOG)
        assert all(t.endswith("\n") and "\r" not in t for t in once.values())


@settings(max_examples=15)
@given(fabrics())
def test_guids_and_their_ports_are_unique_and_names_are_those_of_the_map(f):
    names = dict(re.findall(r'0x(\w{16}) "([^"]+)"', text(f, "node-names")))
    devices = np.flatnonzero((f.kind == Kind.NIC) | (f.kind >= Kind.LEAF))
    assert sorted(names.values()) == sorted(ib_name(f, int(d)) for d in devices)
    assert len(names) == len(devices)
    assert len({int(guid, 16) >> 4 for guid in names}) == len(devices)
    if (f.role >= Role.LEAF_SPINE).any():
        assert set(re.findall(r'"[SH]-(\w{16})"', text(f, "ibnetdiscover"))) == set(names)


def test_a_swapped_pair_of_cables_is_written_as_swapped():
    """Exports read the arrays, so an edited graph is written as edited."""
    f = built(4, "rail-optimised", "small", "tiny", CATALOG)
    b, port_b = f.b.copy(), f.port_b.copy()
    first, second = np.flatnonzero(f.role == Role.NODE_LEAF)[:2]
    b[[first, second]], port_b[[first, second]] = b[[second, first]], port_b[[second, first]]
    swapped = replace(f, b=b, port_b=port_b)
    found = from_discovered(text(swapped, "ibnetdiscover"))
    assert {("server-01 mlx5_0", 1, "leaf-02", 1), ("server-01 mlx5_1", 1, "leaf-01", 1)} <= found
    assert len(found) == len(cables_by_name(f))


@pytest.mark.parametrize(
    ("rate", "shown"), [(25e9, "4xHDR"), (12.5e9, "4xEDR"), (3.125e9, "1xEDR"), (1.25e9, "4xSDR")]
)
def test_a_slow_cable_shows_a_lower_width_or_speed(rate, shown):
    """200 Gb/s is four lanes of 50, 100 four of 25, 25 one lane of 25, 10 four of 2.5."""
    f = built(4, "rail-optimised", "small", "tiny", CATALOG)
    slow = apply_faults(f, (Fault(element="leaf-02 port 1", state="slow", rate=f"{rate * 8 / 1e9:g} Gb/s"),))
    lines = [x for x in text(slow, "ibnetdiscover").splitlines() if x.endswith(shown)]
    assert len(lines) == 2
    assert all('"leaf-02"' in x or '"server-01 mlx5_1"' in x for x in lines)
