"""Exports read back by what reads them in the world: Graphviz, NetworkX, InfraGraph."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from export_fabrics import built, cables_by_name, small_parts
from railwright import export
from railwright.fabric import Role, apply_faults
from railwright.spec.study import Fault

CATALOG = small_parts(8)
FAMILIES = {
    "single-switch": 2,
    "rail-only": 6,
    "fat-tree": 16,
    "rail-optimised": 8,
}


def made(family: str):
    return built(FAMILIES[family], family, "small", "tiny", CATALOG)


@pytest.mark.skipif(not shutil.which("dot"), reason="Graphviz (dot) is not installed")
@pytest.mark.parametrize("family", FAMILIES)
def test_graphviz_reads_every_device_and_bundle(family):
    """`dot -Tplain` without layout trouble: a node per server and switch, an edge per bundle."""
    f = made(family)
    text = export.render(f, "dot", 'a "quoted" \\ name', CATALOG)["fabric.dot"]
    done = subprocess.run(
        ["dot", "-Tplain"], input=text, capture_output=True, text=True, timeout=20, check=True
    )
    assert not done.stderr
    nodes = {line.split()[1].strip('"') for line in done.stdout.splitlines() if line.startswith("node ")}
    bundles = {(a.split()[0], b) for a, _, b, _ in cables_by_name(f)}
    assert nodes == {end for bundle in bundles for end in bundle}
    assert sum(line.startswith("edge ") for line in done.stdout.splitlines()) == len(bundles)


def test_faults_are_marked_in_the_drawing():
    """Servers of 4 NICs; one of four cables of leaf 1 and spine 1 fails, then all of leaf 2's port 5."""
    f = built(30, "rail-optimised")
    broken = apply_faults(
        f, (Fault(element="leaf-01 port 33"), Fault(element="server-01/nic-1", state="failed"))
    )
    text = export.render(broken, "dot")["fabric.dot"]
    assert re.search(r'"leaf-01" -- "spine-01" \[label="7 of 8", color=orange\]', text)
    assert re.search(r'"server-01" -- "leaf-02" \[label="0 of 1", color=red, style=dashed\]', text)


@pytest.mark.parametrize("family", FAMILIES)
def test_networkx_reads_the_graph_with_its_figures(family, tmp_path):
    networkx = pytest.importorskip("networkx", reason="networkx is not installed")
    f = made(family)
    (path,) = export.write(f, "graphml", tmp_path, catalog=CATALOG)
    graph = networkx.MultiGraph(networkx.read_graphml(path))
    assert graph.number_of_nodes() == f.num_devices
    assert graph.number_of_edges() == f.num_cables
    assert sum(d["rate"] for *_, d in graph.edges(data=True)) == pytest.approx(float(f.rate.sum()))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("suffix", ["json", "yaml"])
def test_infragraph_expands_to_every_device_lane_and_cable(family, suffix):
    """Its graph has the asic and ports of every switch, and what is in every server."""
    pytest.importorskip("infragraph", reason="infragraph is not installed")
    from infragraph import Infrastructure
    from infragraph.infragraph_service import InfraGraphService

    f = made(family)
    infrastructure = Infrastructure()
    infrastructure.deserialize(export.render(f, "infragraph", "", CATALOG)[f"infragraph.{suffix}"])
    service = InfraGraphService()
    service.set_graph(infrastructure)
    graph = service.get_networkx_graph()
    switches, servers = int((f.kind >= 3).sum()), f.num_servers
    assert graph.number_of_nodes() == servers * (4 + 4 + 1) + switches * (1 + 8)
    between = {frozenset((a, b)) for a, b in graph.edges if a.rsplit(".", 2)[0] != b.rsplit(".", 2)[0]}
    assert len(between) == int((f.role >= Role.NODE_LEAF).sum())
    for a, p, b, q in cables_by_name(f):
        assert frozenset((vertex(a, p), vertex(b, q))) in between


def vertex(name: str, port: int) -> str:
    """'server-03 mlx5_1' is server.2.nic.1 there, port 5 of leaf-02 is leaf.1.port.4."""
    instance, number, nic = re.fullmatch(r"(\w+)-(\d+)(?: mlx5_(\d+))?", name).groups()
    inside = f"nic.{nic}" if nic else f"port.{port - 1}"
    return f"{instance}.{int(number) - 1}.{inside}"
