"""Dumps that nobody here wrote, where they are at hand: what each is known to hold."""

import time
from collections import Counter
from pathlib import Path

import pytest

from railwright.asbuilt.read import read, read_host, recognised

REAL = Path("/work/shared/data")
pytestmark = pytest.mark.skipif(
    not REAL.is_dir(), reason="the collection of real dumps is not on this machine"
)


def kinds(wiring):
    return Counter(node.kind for node in wiring.nodes)


def test_a_four_leaf_two_spine_edr_fabric_with_one_slow_link():
    wiring = read(REAL / "ibnetdiscover/edr_4leaf_2spine_reconstructed.out")
    assert kinds(wiring) == {"switch": 6, "host": 96}
    speeds = Counter(link.speed for link in wiring.links)
    assert speeds["EDR"] == len(wiring.links) - 1
    assert speeds["DDR"] == 1


def test_a_truncated_director_dump_with_a_sharp_node():
    wiring = read(REAL / "ibnetdiscover/superbench_ibnetdiscover.txt")
    directors = [node for node in wiring.nodes if node.system]
    assert len(directors) == 3
    assert {node.model for node in directors} == {"MCS8500"}
    assert kinds(wiring)["aggregation"] == 1
    assert any("described nowhere" in note for note in wiring.notes)


@pytest.mark.parametrize("cut", ["", "_linkdown"])
def test_both_tools_tell_the_same_rail_fabric(cut):
    folder = REAL / "reliability/ibsim_rail_8hosts_8rails"
    one, two = read(folder / f"ibnetdiscover{cut}.txt"), read(folder / f"iblinkinfo{cut}.txt")
    assert (one.nodes, one.links) == (two.nodes, two.links)
    assert kinds(one) == {"switch": 12, "host": 64}
    assert len(one.links) == (127 if cut else 128), "8 * 8 to hosts, 8 * 4 * 2 to spines, one unlinked"


def test_ports_reports_with_down_ports_and_missing_switches():
    folder = REAL / "ibnetdiscover"
    assert [len(read(folder / f"treydock_test{n}.out").links) for n in ("", "2", "3")] == [4, 2, 0]
    assert any("ib-i1l2s01" in note for note in read(folder / "treydock_test.out").notes)


def test_real_cabling_workbooks():
    golden = read(REAL / "canu/Full_Architecture_Golden_Config_1.1.5.xlsx")
    assert not any("contradicts" in note for note in golden.notes)
    assert len(golden.links) == 106
    broken = read(REAL / "canu/test_validate_shcd.xlsx")
    assert any("sw-25g01 port 52" in note and "contradicts" in note for note in broken.notes)


def test_a_netq_graph():
    wiring = read(REAL / "topograph/netq_topologyGraph.json")
    assert {n.name for n in wiring.nodes if n.kind == "switch"} == {
        "net-unit-l1",
        "net-unit-l2",
        "net-unit-s1",
    }
    assert len({n.host for n in wiring.nodes if n.kind == "host"}) == 8


def test_servers_are_as_their_makers_say():
    dgx = read_host(REAL / "nccl/infragraph_dgx_a100_nccl_topo.xml")
    assert (len(dgx.gpus), len(dgx.nics)) == (8, 10)
    assert {gpu.switch_nvlinks for gpu in dgx.gpus} == {12}, "A100: 12 NVLinks, all into NVSwitches"
    ndv5 = read_host(REAL / "nccl/azhpc_ndv5-topo.xml")
    assert [row[i] for i, row in enumerate(ndv5.paths)] == ["PIX"] * 8, "each H100 with its own NIC"
    dgx2 = read_host(REAL / "hwloc/infragraph_NVIDIA-DGX2H.xml")
    assert (len(dgx2.gpus), len(dgx2.cpus)) == (16, 2)
    assert sum(path == "PIX" for path in dgx2.paths[0]) == 1
    v100 = read_host(REAL / "nvsmi/aws_p3.16xlarge.topo.txt")
    assert {sum(row) for row in v100.nvlink} == {6}, "V100: 6 NVLinks"
    h100 = read_host(REAL / "nvsmi/aws_p5.48xlarge.topo.txt")
    assert {n for i, row in enumerate(h100.nvlink) for j, n in enumerate(row) if i != j} == {18}


@pytest.mark.alone
def test_every_file_of_the_collection_is_read_or_refused_within_a_second():
    from railwright.errors import RailwrightError

    for path in sorted(REAL.glob("*/*")):
        if path.is_file() and path.parent.name not in ("inference", "traces"):
            start = time.perf_counter()
            try:
                kind = recognised(path)
                (read_host if kind in ("nccl-xml", "hwloc", "nvidia-smi-topo") else read)(path)
            except RailwrightError:
                continue
            finally:
                seconds = time.perf_counter() - start
            assert seconds < 2.0, path
