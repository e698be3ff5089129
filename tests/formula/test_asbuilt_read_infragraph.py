"""InfraGraph in: what we export reads back cable for cable, and slices expand as the format says."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

import railwright as rw
from railwright.asbuilt import punch_list, to_wiring
from railwright.asbuilt.read import read
from railwright.errors import SpecError
from railwright.export import render
from railwright.fabric import build
from railwright.spec.study import Cluster, ComputeNetwork, Fault

NETWORK = ComputeNetwork(family="rail-optimised", switch="qm9700", servers_per_group=4)


def fabric(**changes):
    return build(Cluster(servers=8, server="dgx-h100", compute=NETWORK, **changes), rw.load_catalog())


def cables(wiring):
    names = [node.name for node in wiring.nodes]
    return {
        frozenset({(names[x.a], x.a_port), (names[x.b], x.b_port), round(x.rate)})
        for x in wiring.links
        if x.up
    }


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_our_export_reads_back_cable_for_cable(tmp_path, suffix):
    f = fabric()
    path = tmp_path / f"fabric.{suffix}"
    path.write_text(render(f, "infragraph")[f"infragraph.{suffix}"], encoding="utf-8")
    assert cables(read(path)) == cables(to_wiring(f))


def test_a_cable_that_is_not_there_is_the_only_fault(tmp_path):
    path = tmp_path / "broken.json"
    broken = fabric(faults=(Fault(element="leaf-03 port 63"),))
    path.write_text(render(broken, "infragraph")["infragraph.json"], encoding="utf-8")
    found = [f for f in punch_list(read(path), to_wiring(fabric())) if f.severity == "fault"]
    assert [f.kind for f in found] == ["missing link"]
    assert "leaf-03 port 63" in found[0].element


def small(edges):
    port = {"name": "port", "choice": "port", "count": 4}
    return {
        "name": "small",
        "devices": [
            {"name": "box", "components": [{"name": "nic", "choice": "nic", "count": 2}], "edges": []},
            {
                "name": "sw",
                "components": [{"name": "asic", "choice": "switch", "count": 1}, port],
                "edges": [],
            },
        ],
        "links": [
            {
                "name": "l",
                "physical": {"bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 400}},
            }
        ],
        "instances": [
            {"name": "host", "device": "box", "count": 4},
            {"name": "leaf", "device": "sw", "count": 2},
        ],
        "edges": edges,
    }


def edge(a, b, scheme="one2one"):
    ends = [dict(zip(("instance", "component"), end, strict=True)) for end in (a, b)]
    return {"ep1": ends[0], "ep2": ends[1], "scheme": scheme, "link": "l"}


def test_slices_expand_instance_by_instance(tmp_path):
    # 4 hosts' first adapters to the 4 ports of the first leaf, in order
    path = tmp_path / "g.json"
    path.write_text(json.dumps(small([edge(("host", "nic[0]"), ("leaf[0]", "port"))])), encoding="utf-8")
    wiring = read(path)
    names = [node.name for node in wiring.nodes]
    ends = {
        names[x.b if names[x.a].startswith("leaf") else x.a]: max(x.a_port, x.b_port) for x in wiring.links
    }
    assert ends == {f"host-0{i}/nic-0": i for i in (1, 2, 3, 4)}
    assert all(x.rate == 50e9 for x in wiring.links)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        ([], "no edge"),
        ([edge(("hots[0]", "nic[0]"), ("leaf[0]", "port[0]"))], "hots"),
        ([edge(("host[0]", "nci[0]"), ("leaf[0]", "port[0]"))], "nci"),
        ([edge(("host[0", "nic[0]"), ("leaf[0]", "port[0]"))], "slice"),
        ([{"ep1": "host", "ep2": None, "link": "l"}], "endpoint"),
    ],
)
def test_what_does_not_hang_together_is_refused_in_one_sentence(tmp_path, edges, said):
    path = tmp_path / "g.json"
    path.write_text(json.dumps(small(edges)), encoding="utf-8")
    with pytest.raises(SpecError, match=said):
        read(path)


def test_a_count_of_a_million_millions_is_refused_at_once(tmp_path):
    graph = small([edge(("host", "nic"), ("leaf[0]", "port"), "many2many")])
    graph["instances"][0]["count"] = 10**12
    path = tmp_path / "g.json"
    path.write_text(json.dumps(graph), encoding="utf-8")
    with pytest.raises(SpecError, match="damaged"):
        read(path)


@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_a_truncated_file_is_refused_or_read_in_part(tmp_path, suffix):
    text = render(fabric(), "infragraph")[f"infragraph.{suffix}"]
    for part in (0.3, 0.6, 0.9):
        path = tmp_path / f"cut-{part}.{suffix}"
        path.write_text(text[: int(len(text) * part)], encoding="utf-8")
        with suppress(SpecError):
            assert read(path).nodes
