"""Topologies for simulators, against figures worked out by hand and the graph's own arrays."""

from __future__ import annotations

import csv
import io
import json
import re
import time
from collections import Counter
from xml.etree import ElementTree

import numpy as np
import pytest
from ruamel.yaml import YAML

from export_fabrics import built, small_parts
from railwright import export
from railwright.errors import PlanError
from railwright.fabric import Kind, Role, apply_faults
from railwright.spec.study import CableLengths, Fault

CATALOG = small_parts(8)


def test_simai_counts_nodes_switches_and_links_in_its_first_line():
    """2 servers of 8 GPUs on one unit: 16 GPUs, 2 NVSwitches, 8 leaves and 1 spine."""
    f = built(2, "rail-optimised")
    head, ids, *links = export.render(f, "simai")["simai.topo"].splitlines()
    mesh = np.flatnonzero(f.role == Role.LEAF_SPINE)
    between = len(set(zip(f.a[mesh].tolist(), f.b[mesh].tolist(), strict=True)))
    assert head.split() == ["27", "8", "2", "9", str(16 + 16 + between), "H100"]
    assert ids.split() == [str(i) for i in range(16, 27)]
    assert len(links) == 16 + 16 + between
    assert links[0] == "0 16 3600Gbps 0.000000ms 0"
    # 10 m at 5 ns/m, a whole NIC (600 ns) and half a switch (65 ns): 715 ns.
    assert links[16] == "0 18 400Gbps 0.000715ms 0"
    # Cables that run side by side are one link: SimAI keeps the last of them only.
    assert {line.split()[2] for line in links[32:]} == {f"{400 * len(mesh) // between}Gbps"}


def test_simai_gives_gpus_that_share_a_nic_equal_parts_of_it():
    """Four NICs for eight GPUs: 100 Gb/s each is 50 Gb/s a GPU."""
    f = built(2, "single-switch", "aws-p4d", "sn4600c")
    links = export.render(f, "simai")["simai.topo"].splitlines()[2:]
    assert Counter(line.split()[2] for line in links) == {"2400Gbps": 16, "50Gbps": 16}


def test_simai_needs_a_scale_up_domain():
    f = built(2, "single-switch", "workstation-4x-l40s", "sn4600c")
    with pytest.raises(PlanError, match="GPU 'l40s' has no scale-up link; take format simgrid or graphml"):
        export.render(f, "simai")


def tiers(text: str) -> list[dict[str, int]]:
    """Settings before the first tier, then those of each tier."""
    found: list[dict[str, int]] = [{}]
    for line in text.splitlines():
        if line and not line.startswith("#"):
            key, value = line.split()
            found.append({}) if key == "Tier" else found[-1].update({key: int(value)})
    return found


@pytest.mark.parametrize(
    ("servers", "family", "parts"),
    [
        (40, "rail-optimised", None),
        (40, "fat-tree", None),
        (13, "fat-tree", CATALOG),
        (16, "fat-tree", CATALOG),
        (8, "rail-optimised", CATALOG),
        (260, "rail-optimised", None),
    ],
)
def test_htsim_rules_of_a_regular_tree_hold(servers, family, parts):
    """What htsim computes from the file (hosts, up-links, spines a pod, cores) is what the fabric has."""
    tiny = {"server": "small", "switch": "tiny", "catalog": parts} if parts else {}
    f = built(servers, family, **tiny)
    files = export.render(f, "htsim", catalog=parts)
    top, *tier = tiers(files["fabric.topo"])
    leaf, spine = tier[:2]
    assert leaf["Radix_Down"] == leaf["Oversubscribed"] * leaf["Radix_Up"]
    pods = top["Nodes"] // top["Podsize"]
    leaves_per_pod = top["Podsize"] // leaf["Radix_Down"]
    spines_per_pod = leaves_per_pod * leaf["Radix_Up"] // spine["Radix_Down"]
    assert spines_per_pod * spine["Bundle"] == leaf["Radix_Up"]
    assert leaves_per_pod * spine["Bundle"] == spine["Radix_Down"]
    assert pods * spines_per_pod == len(f.devices(Kind.SPINE))
    assert pods * leaves_per_pod >= len(f.devices(Kind.LEAF))
    if top["Tiers"] == 3:
        cores = pods * spines_per_pod * spine["Radix_Up"] // tier[2]["Radix_Down"]
        assert cores == len(f.devices(Kind.CORE))
        assert spine["Radix_Up"] // tier[2]["Bundle"] * spines_per_pod == cores
        assert spine["Radix_Down"] == spine["Oversubscribed"] * spine["Radix_Up"]
    hosts = list(csv.DictReader(io.StringIO(files["hosts.csv"])))
    assert len({row["nic"] for row in hosts}) == len(f.devices(Kind.NIC)) == len(hosts)
    numbers = [int(row["host"]) for row in hosts]
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < top["Nodes"]
    assert {(int(r["host"]) // leaf["Radix_Down"], r["leaf"]) for r in hosts} == {
        (int(r["host"]) // leaf["Radix_Down"], r["leaf"]) for r in hosts
    }
    assert len({int(r["host"]) // leaf["Radix_Down"] for r in hosts}) == len({r["leaf"] for r in hosts})


@pytest.mark.parametrize(
    ("fabric", "why"),
    [
        (lambda: built(2, "single-switch"), "one tier of switches"),
        (lambda: built(20, "rail-only"), "one tier of switches"),
        (lambda: built(100, "rail-only"), "8 networks that meet only inside servers"),
        (lambda: built(40, "fat-tree", "dgx-a100"), "several rates"),
    ],
)
def test_htsim_refuses_what_its_file_cannot_say(fabric, why):
    with pytest.raises(PlanError, match=why):
        export.render(fabric(), "htsim")


def platform(f):
    return ElementTree.fromstring(export.render(f, "simgrid", catalog=CATALOG)["platform.xml"]).find("zone")


def test_simgrid_has_every_device_and_the_summed_rate_of_every_pair():
    """What leaves a device over its links is what its cables carry; every route names a link that exists."""
    f = built(8, "rail-optimised", "small", "tiny", CATALOG)
    zone = platform(f)
    assert {h.get("id") for h in zone.iter("host")} == {f.device_name(d) for d in range(f.num_gpus)}
    routers = {r.get("id") for r in zone.iter("router")}
    assert routers == {f.device_name(d) for d in range(f.num_gpus, f.num_devices)}
    links = {x.get("id"): float(x.get("bandwidth").removesuffix("Bps")) for x in zone.iter("link")}
    carried: Counter[str] = Counter()
    pairs = set()
    for route in zone.iter("route"):
        (part,) = route
        carried[route.get("src")] += links[part.get("id")]
        carried[route.get("dst")] += links[part.get("id")]
        pairs.add((route.get("src"), route.get("dst")))
    assert len(pairs) == len(links)
    for d in range(f.num_devices):
        rate = f.rate[(f.a == d) | (f.b == d)].sum()
        assert carried[f.device_name(d)] == pytest.approx(rate)


def test_simgrid_elements_stand_in_the_order_of_its_dtd():
    order = {"host": 0, "router": 0, "link": 1, "route": 2}
    kinds = [order[e.tag] for e in platform(built(4, "fat-tree", "small", "tiny", CATALOG))]
    assert kinds == sorted(kinds)


def test_simgrid_leaves_failed_cables_out_and_counts_slow_ones():
    f = built(30, "rail-optimised")
    faults = (
        Fault(element="leaf-01 port 33"),
        Fault(element="leaf-01 port 34", state="slow", rate="100 Gb/s"),
    )
    zone = platform(apply_faults(f, faults))
    wanted = {("leaf-01", "spine-01"): 6 * 50e9 + 12.5e9, ("leaf-02", "spine-01"): 8 * 50e9}
    links = {x.get("id"): x.get("bandwidth") for x in zone.iter("link")}
    for route in zone.iter("route"):
        if (pair := (route.get("src"), route.get("dst"))) in wanted:
            assert float(links[route[0].get("id")].removesuffix("Bps")) == wanted.pop(pair)
    assert not wanted


def test_astra_sim_takes_gibibytes_and_half_of_the_way():
    """450 GB/s of NVLink are 419.1 GiB/s, 50 GB/s 46.57.  Half of the way over the spine: NIC 600 ns,
    10 m and 30 m at 5 ns/m, a whole leaf of 130 ns and half a spine: 995 ns."""
    network = YAML(typ="safe").load(export.render(built(40, "rail-optimised"), "astra-sim")["network.yml"])
    assert network == {
        "topology": ["Switch", "Switch"],
        "npus_count": [8, 40],
        "bandwidth": [pytest.approx(450e9 / 2**30), pytest.approx(50e9 / 2**30)],
        "latency": [0.0, pytest.approx(995.0)],
    }


def test_astra_sim_within_one_unit_stays_below_the_spines():
    network = YAML(typ="safe").load(export.render(built(4, "rail-only"), "astra-sim")["network.yml"])
    assert network["latency"] == [0.0, pytest.approx(600 + 50 + 65)]


def test_nccl_puts_every_gpu_beside_its_nic():
    root = ElementTree.fromstring(export.render(built(2, "rail-optimised"), "nccl")["nccl-topo.xml"])
    switches = root.findall("cpu/pci")
    assert [len(cpu) for cpu in root] == [4, 4]
    assert [(s.find("pci/gpu").get("dev"), s.find("pci/nic/net").get("name")) for s in switches] == [
        (str(i), f"mlx5_{i}") for i in range(8)
    ]
    assert {n.get("count") for n in root.iter("nvlink")} == {"18"}
    assert {n.get("speed") for n in root.iter("net")} == {"400000"}
    buses = [p.get("busid") for p in root.iter("pci")]
    assert len(set(buses)) == len(buses) == 24
    assert all(re.fullmatch(r"[0-9a-f]{4}:[0-9a-f]{2}:00\.0", bus) for bus in buses)
    assert {(p.get("link_width"), p.get("link_speed")) for p in root.iter("pci")} == {
        ("16", "32.0 GT/s PCIe")
    }


@pytest.mark.parametrize(
    ("server", "switch", "shapes", "speed"),
    [
        ("aws-p4d", "sn4600c", [(2, 1)] * 4, "8.0 GT/s PCIe"),
        ("gb200-nvl72", "qm9700", [(1, 1)] * 4, "32.0 GT/s PCIe"),
        ("dgx-b300", "q3400-ra", [(1, 1)] * 8, "64.0 GT/s PCIe"),
        ("gh200-1", "qm9700", [(1, 1)], "32.0 GT/s PCIe"),
        ("mi300x-8", "qm9700", [(1, 1)] * 8, "32.0 GT/s PCIe"),
    ],
)
def test_nccl_topologies_of_other_servers(server, switch, shapes, speed):
    """GPUs and NICs on each PCIe switch of one host; a rack-scale server's host is a tray of four GPUs."""
    f = built(1, "fat-tree" if "72" in server else "single-switch", server, switch)
    root = ElementTree.fromstring(export.render(f, "nccl")["nccl-topo.xml"])
    assert [(len(s.findall("pci/gpu")), len(s.findall("pci/nic"))) for s in root.findall("cpu/pci")] == shapes
    assert {p.get("link_speed") for p in root.iter("pci")} == {speed}
    assert bool(list(root.iter("nvlink"))) == (server != "mi300x-8")


def test_infragraph_writes_a_bundle_as_one_edge_of_slices():
    """8 up-links of a leaf to each spine are one edge, ports counted from 0."""
    f = built(30, "rail-optimised")
    graph = json.loads(export.render(f, "infragraph")["infragraph.json"])
    assert len(graph["edges"]) == 240 + 8 * 4
    assert graph["edges"][240] == {
        "ep1": {"instance": "leaf[0]", "component": "port[32:40]"},
        "ep2": {"instance": "spine[0]", "component": "port[0:8]"},
        "scheme": "one2one",
        "link": "leaf-spine-400g",
    }
    assert [(i["name"], i["device"], i["count"]) for i in graph["instances"]] == [
        ("server", "dgx-h100", 30),
        ("leaf", "qm9700", 8),
        ("spine", "qm9700", 4),
    ]
    yaml = YAML(typ="safe").load(export.render(f, "infragraph")["infragraph.yaml"])
    assert yaml == graph


def test_infragraph_endpoints_and_links_exist():
    """Every name an edge uses is declared, and every index is within its count."""
    f = built(5, "fat-tree", "aws-p4d", "sn4600c", lengths=CableLengths(node_leaf="2 m"))
    graph = json.loads(export.render(f, "infragraph")["infragraph.json"])
    devices = {d["name"]: {c["name"]: c["count"] for c in d["components"]} for d in graph["devices"]}
    instances = {i["name"]: i for i in graph["instances"]}
    links = {link["name"] for link in graph["links"]}
    for edge in graph["edges"]:
        assert edge["link"] in links
        for end in (edge["ep1"], edge["ep2"]):
            name, index = re.fullmatch(r"(\w+)\[(\d+)\]", end["instance"]).groups()
            assert int(index) < instances[name]["count"]
            component, *bounds = re.fullmatch(r"(\w+)\[(\d+)(?::(\d+))?\]", end["component"]).groups()
            assert max(int(b) for b in bounds if b) <= devices[instances[name]["device"]][component]
    for device in graph["devices"]:
        local = {link["name"] for link in device["links"]}
        assert all(e["link"] in local for e in device["edges"])


def test_graphml_latency_and_capacity_are_base_units():
    f = built(2, "rail-optimised")
    broken = apply_faults(f, (Fault(element="leaf-01 port 1"),))
    root = ElementTree.fromstring(export.render(broken, "graphml")["fabric.graphml"])
    space = {"g": "http://graphml.graphdrawing.org/xmlns"}
    edges = [{d.get("key"): d.text for d in e} for e in root.iterfind(".//g:edge", space)]
    for direction, key in ((0, "capacity_ab"), (1, "capacity_ba")):
        assert np.array_equal([float(e[key]) for e in edges], broken.capacity[direction::2])
    assert sum(float(e["rate"]) for e in edges) == pytest.approx(broken.rate.sum())


@pytest.mark.slow
def test_sixteen_thousand_gpus_in_every_format_within_thirty_seconds():
    """The bar of the project's plan; about 6 s of one core."""
    f = built(2048, "rail-optimised")
    start = time.process_time()
    refused = []
    for name in export.EXPORTS:
        try:
            export.render(f, name)
        except PlanError:
            refused.append(name)
    assert time.process_time() - start < 30
    assert refused == ["slurm-block"]
