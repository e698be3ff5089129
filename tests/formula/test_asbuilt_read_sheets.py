"""Ethernet neighbours, schedulers' topologies and cable sheets, in files made by hand."""

import json
import zipfile

import pytest

from asbuilt_wirings import cables
from railwright.asbuilt.read import read, recognised

OURS = """cable,tier,from,from_port,to,to_port,rate_bytes_per_s,length_m,state
1,node-leaf,server-01/nic-0,1,leaf-01,1,50000000000.0,3.0,ok
2,node-leaf,server-01/nic-1,1,leaf-02,1,50000000000.0,3.0,failed
3,leaf-spine,leaf-01,33,spine-01,1,100000000000.0,20.0,slow
"""
P2P = """A-Node Name,A-Type,A-Port,Z-Node Name,Z-Type,Z-Port
memx-1,Host,1,fabric-a,Switch,10/1
memx-1,Host,2,fabric-a,Switch,10/2
fabric-a,Switch,1/1,fabric-b,Switch,1/1
"""


def test_our_own_cable_list(tmp_path):
    path = tmp_path / "cables.csv"
    path.write_text(OURS)
    wiring = read(path)
    assert recognised(path) == "cable-sheet"
    assert cables(wiring) == [
        ("leaf-01", 1, "server-01/nic-0", 1),
        ("leaf-01", 33, "spine-01", 1),
        ("leaf-02", 1, "server-01/nic-1", 1),
    ]
    assert [(link.width, link.speed, link.up, link.length) for link in wiring.links] == [
        (4, "NDR", True, 3.0), (4, "XDR", True, 20.0), (4, "NDR", False, 3.0),
    ]  # fmt: skip
    hosts = [(n.host, n.adapter) for n in wiring.nodes if n.kind == "host"]
    assert hosts == [("server-01", "nic-0"), ("server-01", "nic-1")]
    assert any("slow" in note for note in wiring.notes)


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_a_point_to_point_sheet_counts_adapters_and_split_ports(tmp_path, delimiter):
    path = tmp_path / "p2p.csv"
    path.write_text(P2P.replace(",", delimiter))
    assert cables(read(path)) == [
        ("fabric-a", 1, "fabric-b", 1),
        ("fabric-a", 19, "memx-1 mlx5_0", 1),
        ("fabric-a", 20, "memx-1 mlx5_1", 1),
    ]


def workbook(path, tables):
    """A minimal .xlsx: {sheet: (first row, first column letter, rows)}, cells as inline strings."""
    main = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
    rel = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    with zipfile.ZipFile(path, "w") as archive:
        entries, relations = "", ""
        for n, (title, (first, column, rows)) in enumerate(tables.items(), start=1):
            entries += f'<sheet name="{title}" sheetId="{n}" r:id="rId{n}"/>'
            relations += f'<Relationship Id="rId{n}" Type="x" Target="worksheets/sheet{n}.xml"/>'
            body = ""
            for r, row in enumerate(rows, start=first):
                cells = "".join(
                    f'<c r="{chr(ord(column) + c)}{r}" t="inlineStr"><is><t>{text}</t></is></c>'
                    if isinstance(text, str)
                    else f'<c r="{chr(ord(column) + c)}{r}"><v>{text}</v></c>'
                    for c, text in enumerate(row)
                )
                body += f'<row r="{r}">{cells}</row>'
            archive.writestr(
                f"xl/worksheets/sheet{n}.xml", f"<worksheet {main}><sheetData>{body}</sheetData></worksheet>"
            )
        archive.writestr(
            "xl/workbook.xml", f'<workbook {main} xmlns:r="{rel}"><sheets>{entries}</sheets></workbook>'
        )
        archive.writestr(
            "xl/_rels/workbook.xml.rels",
            '<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            f"{relations}</Relationships>",
        )


def test_a_workbook_needs_no_library_and_its_heading_may_stand_anywhere(tmp_path):
    heading = [
        "Source",
        "Rack",
        "Location",
        "Slot",
        "",
        "Port",
        "Destination",
        "Rack",
        "Location",
        "",
        "Port",
    ]
    path = tmp_path / "shcd.xlsx"
    up = ["sw-leaf-1", "x3000", "u1", "", "-", 52.0, "sw-spine-1", "x3001", "u2", "-", "j3"]
    node = ["cn01", "x3000", "u3", "ocp", "-", "1", "sw-leaf-1", "x3000", "u1", "", "7"]
    half = ["cn02", "x3000", "u3", "ocp", "-", "1", "", "", "", "", ""]
    tables = {"notes": (1, "A", [["drawn by hand"]]), "uplinks": (14, "J", [heading, up])}
    workbook(path, tables | {"nodes": (2, "A", [heading, node, half])})
    wiring = read(path)
    assert cables(wiring) == [("sw-leaf-1", 7, "cn01 ocp", 1), ("sw-leaf-1", 52, "sw-spine-1", 3)]
    assert any("'notes' has no heading" in note for note in wiring.notes)
    assert any("one end only" in note and "4" in note for note in wiring.notes)


def test_a_sheet_that_uses_a_port_twice_contradicts_itself(tmp_path):
    path = tmp_path / "cables.csv"
    path.write_text(OURS + "4,leaf-spine,leaf-02,33,spine-01,1,50000000000.0,20.0,ok\n")
    wiring = read(path)
    assert len(wiring.links) == 3
    assert any(
        "line 4" in note and "line 5" in note and "contradicts itself" in note for note in wiring.notes
    )


def test_slurm_topology_conf(tmp_path):
    path = tmp_path / "topology.conf"
    path.write_text(
        "# three switches\nSwitchName=s0 Nodes=n[1-2],m1 LinkSpeed=100\nswitchname=s1 \\\n  Nodes=n[3-4]\n"
        "SwitchName=top Switches=s[0-1]\n"
    )
    wiring = read(path)
    assert recognised(path) == "slurm-conf"
    below = {(wiring.nodes[k.a].name, wiring.nodes[k.b].name) for k in wiring.links}
    assert below == {
        ("s0", "n1"),
        ("s0", "n2"),
        ("s0", "m1"),
        ("s1", "n3"),
        ("s1", "n4"),
        ("s0", "top"),
        ("s1", "top"),
    }
    assert {(k.a_port, k.b_port) for k in wiring.links} == {(0, 0)}
    assert [n.host for n in wiring.nodes if n.kind == "host"] == ["m1", "n1", "n2", "n3", "n4"]


TREE = """---
- topology: other
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
      - block: b2
        nodes: n[3-4]
- topology: main
  cluster_default: true
  tree:
    switches:
      - switch: top
        children: s[0-1]
      - switch: s0
        nodes: n[1-2]
      - switch: s1
        nodes: n[3-4]
"""


def test_slurm_topology_yaml(tmp_path):
    path = tmp_path / "topology.yaml"
    path.write_text(TREE)
    wiring = read(path)
    assert recognised(path) == "slurm-yaml"
    assert [n.name for n in wiring.nodes if n.kind == "switch"] == ["s0", "s1", "top"]
    assert len(wiring.links) == 6
    assert any("'main'" in note and "other" in note for note in wiring.notes)
    path.write_text(TREE[: TREE.index("- topology: main")])
    blocks = read(path)
    assert [n.name for n in blocks.nodes] == ["b1", "b2", "n1", "n2", "n3", "n4"]
    assert any("2 blocks" in note for note in blocks.notes)


def test_netq_graph(tmp_path):
    def cable(a, a_if, b, b_if):
        return {
            "id": f"{a}-{b}",
            "interfaces": [{"node": a, "interface": a_if}, {"node": b, "interface": b_if}],
        }

    def box(name, kind):
        return {"id": name, "name": name.upper(), "device_type": kind, "node_type": "device"}

    hosts = [cable("l1", "swp1s0", "h1", "eth1"), cable("h1", "eth2", "l1", "swp1s1")]
    graph = [{
        "nodes": [{"node_type": "tier", "compounded_nodes": [box("l1", "switch"), box("s1", "switch")]},
                  {"node_type": "tier", "compounded_nodes": [box("h1", "discovered_via_lldp")]}],
        "links": [{"compounded_links": hosts},
                  {"compounded_links": [cable("l1", "swp32s0", "s1", "swp1")]}],
    }]  # fmt: skip
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(graph))
    wiring = read(path)
    assert recognised(path) == "netq"
    assert cables(wiring) == [("L1", 1, "H1 eth1", 1), ("L1", 2, "H1 eth2", 1), ("L1", 63, "S1", 1)]
    assert wiring.notes == ()


def test_lldpctl_lists_the_neighbours_of_the_file_s_device(tmp_path):
    def hears(chassis, port, kind):
        capability = [{"type": kind, "enabled": True}]
        return {
            "chassis": {chassis: {"capability": capability}},
            "port": {"id": {"type": "ifname", "value": port}},
        }

    told = {
        "lldp": {
            "interface": [
                {"swp1": hears("n1", "eth0", "Station")},
                {"swp9": hears("spine", "swp3", "Bridge")},
            ]
        }
    }
    path = tmp_path / "leaf-01.json"
    path.write_text(json.dumps(told))
    wiring = read(path)
    assert recognised(path) == "lldp"
    assert cables(wiring) == [("leaf-01", 1, "n1 eth0", 1), ("leaf-01", 9, "spine", 3)]
    path.write_text(
        json.dumps(
            {"leaf-01": told, "spine": {"lldp": {"interface": {"swp3": hears("leaf-01", "swp9", "Bridge")}}}}
        )
    )
    both = read(path)
    assert len(both.links) == 2, "a cable told from both ends is one cable"
