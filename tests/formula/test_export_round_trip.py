"""Written by export and read by asbuilt: the same cables come back, and nothing is wrong with them."""

from __future__ import annotations

import pytest

from export_fabrics import built, cables_by_name, small_parts
from railwright import asbuilt, export
from railwright.asbuilt import read

CATALOG = small_parts(8)
DESIGNS = {
    "rails of two units": lambda: built(40, "rail-optimised"),
    "rails, 3 tiers": lambda: built(8, "rail-optimised", "dgx-h100", "tiny", CATALOG),
    "fat tree, 3 tiers": lambda: built(16, "fat-tree", "small", "tiny", CATALOG),
    "rails that never meet": lambda: built(20, "rail-only"),
}
SHEETS = ("cables.csv", "p2p.csv")


@pytest.mark.parametrize("design", DESIGNS)
@pytest.mark.parametrize("format", ["ibnetdiscover", "ibnetdiscover-ports", "ibsim", "cable-schedule", "cvt"])
def test_cables_come_back_port_to_port(design, format, tmp_path):
    f = DESIGNS[design]()
    path = export.write(f, format, tmp_path, catalog=CATALOG)[0]
    wiring = read.read(path)
    found = set()
    for link in wiring.links:
        ends = [(wiring.nodes[link.a].name, link.a_port), (wiring.nodes[link.b].name, link.b_port)]
        found |= {(*ends[0], *ends[1]), (*ends[1], *ends[0])}
    names = {(a.replace("/nic-", " mlx5_"), p, b.replace("/nic-", " mlx5_"), q) for a, p, b, q in found}
    cables = cables_by_name(f)
    assert names == cables | {(b, q, a, p) for a, p, b, q in cables}
    assert len(wiring.links) == len(cables)
    assert not wiring.notes


@pytest.mark.parametrize("design", ["rails of two units", "fat tree, 3 tiers"])
def test_nothing_is_wrong_with_a_design_as_dumped(design, tmp_path):
    f = DESIGNS[design]()
    (path,) = export.write(f, "ibnetdiscover", tmp_path, catalog=CATALOG)
    found = asbuilt.punch_list(asbuilt.infer(read.read(path)))
    assert not asbuilt.is_wrong(found)
    assert [f for f in found if f.severity != "note"] == []


def test_slurm_topologies_name_the_same_tree_in_both_files(tmp_path):
    conf, yaml, *_ = export.write(built(40, "rail-optimised"), "slurm", tmp_path)
    trees = []
    for path in (conf, yaml):
        wiring = read.read(path)
        names = [node.name for node in wiring.nodes]
        trees.append({frozenset((names[link.a], names[link.b])) for link in wiring.links})
    assert trees[0] == trees[1]
    assert {frozenset(("su-01", "spines")), frozenset(("su-02", "server-40"))} <= trees[0]


def test_the_host_topology_has_every_gpu_beside_its_nic(tmp_path):
    (path,) = export.write(built(2, "rail-optimised"), "nccl", tmp_path)
    host = read.read_host(path)
    assert len(host.gpus) == len(host.nics) == 8
    assert [g.bridge for g in host.gpus] == [n.bridge for n in host.nics]
    assert {n.speed for n in host.nics} == {50e9}
    assert {g.switch_nvlinks for g in host.gpus} == {18}


def test_the_node_name_map_renames_a_dump(tmp_path):
    f = built(2, "single-switch")
    (dump,) = export.write(f, "ibnetdiscover", tmp_path / "dump")
    (names,) = export.write(f, "node-names", tmp_path / "names")
    assert read.read(dump, names).nodes == read.read(dump).nodes
