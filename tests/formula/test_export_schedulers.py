"""Slurm, Kueue and topograph: one logical switch per scalable unit, and what hangs above it."""

from __future__ import annotations

import pytest
from ruamel.yaml import YAML

from export_fabrics import built, small_parts
from railwright import export
from railwright.errors import PlanError
from railwright.export.hostlist import hostlist, ranges


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("names", "expression", "apart"),
    [
        (["n01"], "n01", ["n01"]),
        (["n01", "n02", "n03"], "n[01-03]", ["n[01-03]"]),
        (["n01", "n02", "n04"], "n[01-02,04]", ["n[01-02]", "n04"]),
        (["n01", "n03"], "n[01,03]", ["n01", "n03"]),
        (["n99", "n100", "n101"], "n[99,100-101]", ["n99", "n[100-101]"]),
        (["a1", "b1", "b2"], "a1,b[1-2]", ["a1", "b[1-2]"]),
        (["r01-t01", "r01-t02", "r02-t01"], "r01-t[01-02],r02-t01", ["r01-t[01-02]", "r02-t01"]),
        (["spines"], "spines", ["spines"]),
        (["x", "x1", "x2"], "x,x[1-2]", ["x", "x[1-2]"]),
    ],
)
def test_hostlists(names, expression, apart):
    assert hostlist(names) == expression
    assert ranges(names) == apart


def test_rails_hang_on_one_logical_switch_per_scalable_unit():
    """40 servers: units of 32 and 8 under the spines."""
    files = export.render(built(40, "rail-optimised"), "slurm")
    assert lines(files["topology.conf"]) == [
        "SwitchName=su-01 Nodes=server-[01-32]",
        "SwitchName=su-02 Nodes=server-[33-40]",
        "SwitchName=spines Switches=su-[01-02]",
    ]
    (tree,) = YAML(typ="safe").load(files["topology.yaml"])
    assert tree == {
        "topology": "tree",
        "cluster_default": True,
        "tree": {
            "switches": [
                {"switch": "su-01", "nodes": "server-[01-32]"},
                {"switch": "su-02", "nodes": "server-[33-40]"},
                {"switch": "spines", "children": "su-[01-02]"},
            ]
        },
    }
    assert "NodeName=server-[01-40] Gres=gpu:h100:8 State=UNKNOWN" in lines(files["slurm.conf"])
    assert lines(files["gres.conf"]) == ["NodeName=server-[01-40] Name=gpu Type=h100 File=/dev/nvidia[0-7]"]


def test_racks_of_a_fat_tree_keep_the_names_of_their_leaves():
    """16 servers of 4 NICs on 8-port switches: a leaf a server, 4 leaves a pod, 4 pods under the cores."""
    f = built(16, "fat-tree", "small", "tiny", small_parts(8))
    conf = lines(export.render(f, "slurm")["topology.conf"])
    assert conf[0] == "SwitchName=leaf-01 Nodes=server-01"
    assert conf[16:] == [
        "SwitchName=pod-01 Switches=leaf-[01-04]",
        "SwitchName=pod-02 Switches=leaf-[05-08]",
        "SwitchName=pod-03 Switches=leaf-[09-12]",
        "SwitchName=pod-04 Switches=leaf-[13-16]",
        "SwitchName=cores Switches=pod-[01-04]",
    ]


def test_one_unit_is_one_switch():
    conf = lines(export.render(built(8, "rail-only"), "slurm")["topology.conf"])
    assert conf == ["SwitchName=su-01 Nodes=server-[01-08]"]
    conf = lines(export.render(built(2, "single-switch"), "slurm")["topology.conf"])
    assert conf == ["SwitchName=leaf-01 Nodes=server-[01-02]"]


def test_rack_scale_domains_are_blocks_of_their_trays():
    """An NVL72 is 18 trays of 4 GPUs; four racks allow blocks of 18, 36 and 72 trays."""
    files = export.render(built(4, "fat-tree", "gb200-nvl72"), "slurm-block")
    assert lines(files["topology.conf"]) == [
        *(f"BlockName=rack-0{i} Nodes=server-0{i}-tray-[01-18]" for i in (1, 2, 3, 4)),
        "BlockSizes=18,36,72",
    ]
    (block,) = YAML(typ="safe").load(files["topology.yaml"])
    assert block["block"]["block_sizes"] == [18, 36, 72]
    assert block["block"]["blocks"][3] == {"block": "rack-04", "nodes": "server-04-tray-[01-18]"}
    assert "Gres=gpu:gb200:4" in files["slurm.conf"]
    assert "TopologyPlugin=topology/block" in files["slurm.conf"]


def test_blocks_of_single_hosts_are_refused():
    with pytest.raises(PlanError, match="servers of this fabric have 8 GPUs and are one host each"):
        export.render(built(4, "fat-tree"), "slurm-block")


def test_kueue_levels_are_labels_that_every_node_has():
    files = export.render(built(260, "rail-optimised"), "kueue")
    topology, flavor = YAML(typ="safe").load_all(files["topology.yaml"])
    levels = [level["nodeLabel"] for level in topology["spec"]["levels"]]
    prefix = "network.topology.nvidia.com"
    assert levels == [f"{prefix}/core", f"{prefix}/spine", f"{prefix}/leaf", "kubernetes.io/hostname"]
    assert flavor["spec"]["topologyName"] == topology["metadata"]["name"]
    nodes = [n for n in YAML(typ="safe").load_all(files["node-labels.yaml"]) if n]
    assert len(nodes) == 260
    assert all(set(levels) <= set(n["metadata"]["labels"]) for n in nodes)
    (label,) = flavor["spec"]["nodeLabels"].items()
    assert all(label in n["metadata"]["labels"].items() for n in nodes)
    assert nodes[100]["metadata"]["labels"][f"{prefix}/leaf"] == "su-04"
    assert nodes[100]["metadata"]["labels"][f"{prefix}/spine"] == "pod-02"


def test_kueue_has_a_level_for_the_rack_where_racks_are_domains():
    files = export.render(built(2, "fat-tree", "gb200-nvl72"), "kueue")
    nodes = [n for n in YAML(typ="safe").load_all(files["node-labels.yaml"]) if n]
    assert len(nodes) == 36
    racks = [n["metadata"]["labels"]["network.topology.nvidia.com/accelerator"] for n in nodes]
    assert racks == ["rack-01"] * 18 + ["rack-02"] * 18


def test_topograph_has_switches_over_blocks_of_nodes():
    model = YAML(typ="safe").load(export.render(built(40, "rail-optimised"), "topograph")["model.yaml"])
    assert model == {
        "switches": {"spines": {"switches": ["su-01", "su-02"]}},
        "blocks": [
            {"switch": "su-01", "nodes": ["server-[01-32]"]},
            {"switch": "su-02", "nodes": ["server-[33-40]"]},
        ],
    }
    rack = YAML(typ="safe").load(
        export.render(built(2, "fat-tree", "gb200-nvl72"), "topograph")["model.yaml"]
    )
    assert [b["annotations"] for b in rack["blocks"]] == [
        {"accelerator.topology.test/domain": "rack-01"},
        {"accelerator.topology.test/domain": "rack-02"},
    ]
