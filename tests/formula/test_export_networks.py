"""Networks of other shapes: without GPUs, two ports a NIC, broken-out ports, directors."""

from __future__ import annotations

import csv
import io
import re

import pytest

from export_fabrics import SHIPPED, built
from railwright import export
from railwright.errors import PlanError
from railwright.fabric import Kind, Role, build_networks, count
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

WITHOUT_GPUS = {
    "slurm", "slurm-block", "kueue", "topograph", "nccl", "infragraph", "simai", "simgrid", "astra-sim",
}  # fmt: skip


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.fixture(scope="module")
def storage():
    """8 GPU servers and 4 storage hosts with two ports each on switches of 64 x 400 Gb/s."""
    cluster = Cluster(
        servers=8,
        server="dgx-h100",
        compute=ComputeNetwork(switch="qm9700", family="rail-optimised"),
        storage=ServiceNetwork(switch="qm9700", family="single-switch", ports_per_server=2, hosts=4),
    )
    return build_networks(cluster, SHIPPED)["storage"]


def test_a_storage_network_has_its_cables_and_devices(storage):
    schedule = rows(export.render(storage, "cable-schedule")["cables.csv"])
    assert len(schedule) == 12 * 2
    netbox = export.render(storage, "netbox")
    assert len(rows(netbox["devices.csv"])) == 12 + 1
    assert len(rows(netbox["cables.csv"])) == 24
    bill = rows(export.render(storage, "bom")["bom.csv"])
    assert sum(int(r["quantity"]) for r in bill if r["item"] == "cable") == 24
    assert "server" not in {r["item"] for r in bill}, "servers are on the bill of the compute network"


def test_formats_about_gpus_refuse_a_storage_network(storage):
    refused = set()
    for name in export.EXPORTS:
        try:
            export.render(storage, name)
        except PlanError as error:
            refused.add((name, "is about GPUs, and this network joins none" in str(error)))
    assert refused == {(name, True) for name in WITHOUT_GPUS} | {("htsim", False)}


def test_ports_of_a_two_port_nic_stay_apart():
    """Dual-plane: port 1 of every NIC goes to plane 1, port 2 to plane 2; SimAI gets a link for each."""
    f = built(8, "dual-plane")
    assert 'Ca\t2 "H-' in export.render(f, "ibnetdiscover")["fabric.ibnetdiscover"]
    sheet = rows(export.render(f, "cvt")["p2p.csv"])
    assert [r["A-Port"] for r in sheet[:16]] == [str(i) for i in range(1, 17)]
    numbers = rows(export.render(f, "cvt")["hca_map.csv"])
    assert numbers[2] == {"HCA/Port": "3", "device": "mlx5_1", "port": "1"}
    graph = export.render(f, "infragraph")["infragraph.json"]
    assert '"component": "port[15]"' in graph
    links = export.render(f, "simai")["simai.topo"].splitlines()[2:]
    assert sum(line.split()[2] == "200Gbps" for line in links) == 8 * 8 * 2


def test_broken_out_ports_are_named_as_their_switch_names_them():
    """SN5600 with two cables a port: graph ports 1 and 2 are swp1s0 and swp1s1; a spine's are whole."""
    f = built(40, "rail-optimised", "dgx-h100", "sn5600", breakout=2)
    sheet = rows(export.render(f, "cvt")["p2p.csv"])
    down = {r["Z-Port"] for r in sheet if r["Z-Node Name"] == "leaf-01" and r["A-Type"] == "Host"}
    assert down == {f"swp{p}s{s}" for p in range(1, 21) for s in (0, 1)}
    assert all(re.fullmatch(r"swp\d+", r["Z-Port"]) for r in sheet if r["Z-Node Name"].startswith("spine"))
    assert 'Switch\t128 "S-' in export.render(f, "ibnetdiscover")["fabric.ibnetdiscover"]


def test_a_director_drawn_as_its_modules_is_bought_as_one():
    f = built(40, "rail-optimised", "dgx-1-v100", "sb7800", spine_switch="cs7520", expand_directors=True)
    bill = rows(export.render(f, "bom")["bom.csv"])
    assert [(r["item"], r["quantity"]) for r in bill if "switch" in r["item"] or r["item"] == "director"] == [
        ("director", "1"),
        ("leaf switch", "12"),
    ]
    discovered = export.render(f, "ibnetdiscover")["fabric.ibnetdiscover"]
    assert len(re.findall(r"^Switch\t", discovered, re.MULTILINE)) == int((f.kind >= Kind.LEAF).sum())
    assert "\t216 " not in discovered
    pulled = int(((f.role >= Role.NODE_LEAF) & ~f.backplane).sum())
    assert len(rows(export.render(f, "netbox")["cables.csv"])) == pulled


def inband(servers: int, node_leaf: str = "10 m"):
    """Ports of 25 Gb/s, four to a port of a SN4600C, as 40 servers' management has them."""
    cluster = Cluster(
        servers=servers,
        server="dgx-h100",
        compute=ComputeNetwork(switch="qm9700", family="fat-tree"),
        inband=ServiceNetwork(
            switch="sn4600c", family="fat-tree", tiers=2, breakout=4, lengths={"node_leaf": node_leaf}
        ),
    )
    return build_networks(cluster, SHIPPED)["inband"]


def cables(f) -> dict[str, int]:
    """Cables of the bill of materials."""
    bill = rows(export.render(f, "bom")["bom.csv"])
    return {r["part"]: int(r["quantity"]) for r in bill if r["item"] in ("cable", "breakout cable")}


def test_legs_of_a_breakout_cable_are_bought_and_counted_as_one_cable():
    """41 ports of 25 Gb/s take 11 ports of 100 Gb/s: 11 cables, the last with three legs that hang free.
    In fibre an end at every NIC, one in every port and two of each of 11 uplinks; in copper only those."""
    far, near = inband(41), inband(41, "3 m")
    assert cables(far) == {"100 Gb/s multimode, 30 m": 11, "4 x 25 Gb/s multimode, 10 m": 11}
    assert count(far, SHIPPED).optics == 41 + 11 + 2 * 11
    assert cables(near) == {"100 Gb/s multimode, 30 m": 11, "4 x 25 Gb/s copper, 3 m": 11}
    assert count(near, SHIPPED).optics == 2 * 11


@pytest.mark.parametrize(
    "f", [inband(41), built(8, "dual-plane"), built(40, "rail-optimised", "dgx-h100", "sn5600", breakout=2)]
)
def test_netbox_has_every_interface_that_a_cable_ends_in(f):
    """Leaves whose ports are split are of a type of their own beside spines of the same switch."""
    files = export.render(f, "netbox")
    interfaces = {}
    for name, text in files.items():
        if name.startswith("device-types/"):
            model = re.search(r"^model: '?\"?([^'\"\n]*)", text, re.MULTILINE)[1]
            interfaces[model] = dict(re.findall(r"name: '?\"?([^'\"\n]*)'?\"?\n    type: (\S+)", text))
    type_of = {r["name"]: r["device_type"] for r in rows(files["devices.csv"])}
    for cable in rows(files["cables.csv"]):
        for side in "ab":
            assert cable[f"side_{side}_name"] in interfaces[type_of[cable[f"side_{side}_device"]]]


def test_netbox_types_an_interface_by_what_it_runs_at():
    """Parts of a split port, its uplinks, and a NIC of 400 Gb/s as two ports of 200."""
    leaf = export.render(inband(41), "netbox")["device-types/sn4600c-ports-split-in-4.yaml"]
    assert leaf.count("25gbase-x-sfp28") == 11 * 4
    assert leaf.count("100gbase-x-qsfp28") == 64 - 11
    planes = export.render(built(8, "dual-plane"), "netbox")["device-types/dgx-h100.yaml"]
    assert planes.count("infiniband-hdr") + planes.count("200gbase") == 16


def test_every_leg_is_a_row_of_the_schedule():
    """An installer labels both ends of a leg."""
    schedule = rows(export.render(inband(41), "cable-schedule")["cables.csv"])
    assert sum(r["role"] == "node-leaf" for r in schedule) == 41


def test_uplinks_of_a_broken_out_leaf_take_modules_of_whole_ports():
    """40 ports of 25 Gb/s on 10 cages of one leaf, four a cage; its 10 uplinks of 100 Gb/s take a cage each,
    as they do on the spine: 10 modules of four parts, and 20 of one port."""
    bill = rows(export.render(inband(40), "bom")["bom.csv"])
    found = {(r["item"], r["part"]): int(r["quantity"]) for r in bill if r["item"].startswith("transceiver")}
    assert found == {
        ("transceiver module", "25 Gb/s a port, multimode"): 40,
        ("transceiver 4-port module", "25 Gb/s a port, multimode"): 10,
        ("transceiver module", "100 Gb/s a port, multimode"): 20,
    }


def test_ports_of_one_gigabit_are_sockets_for_twisted_pair():
    """40 BMCs at 10 m: RJ45 at both ends, no transceiver, and NetBox's cable fits its 1000BASE-T ports."""
    cluster = Cluster(
        servers=40,
        server="dgx-h100",
        compute=ComputeNetwork(switch="qm9700", family="fat-tree"),
        oob=ServiceNetwork(switch="ethernet-1g-48", family="single-switch", reserved_ports=2),
    )
    oob = build_networks(cluster, SHIPPED)["oob"]
    assert count(oob, SHIPPED).optics == 0
    bill = {(r["item"], r["part"]): r["quantity"] for r in rows(export.render(oob, "bom")["bom.csv"])}
    assert bill == {
        ("leaf switch", "ethernet-1g-48"): "1",
        ("cable", "1 Gb/s twisted-pair, 10 m"): "42",
    }
    netbox = export.render(oob, "netbox")
    assert {r["type"] for r in rows(netbox["cables.csv"])} == {"cat6"}
    assert "1000base-t" in netbox["device-types/ethernet-1g-48.yaml"]
