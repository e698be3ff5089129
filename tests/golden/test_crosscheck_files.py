"""The files written for other simulators, for one small problem: what a line of each looks like."""

from __future__ import annotations

from network_fabrics import make
from railwright.catalog import load_catalog
from railwright.crosscheck import Problem, astra, chakra, htsim, make_problem, simai, simgrid
from railwright.network import Network
from railwright.network.routing.solution import RoutingName


def four(pattern: str = "all-to-all", routing: RoutingName = "static", gpus: int = 1) -> Problem:
    """Two leaves of two hosts below two spines, 50 GB/s, 4,000 bytes."""
    fabric = make(
        4 // gpus, gpus, "fat-tree", servers_per_group=2 // gpus, spines=2, nic=50e9, lane=450e9, uplink=50e9
    )
    return make_problem("four", Network(fabric, routing), load_catalog(), pattern, 4, 4000)


def test_simgrid_has_a_route_per_flow_over_directed_links() -> None:
    files = simgrid.write(four("send-recv"))
    assert sorted(files) == ["flows.csv", "platform.xml", "simgrid_driver.py"]
    assert files["flows.csv"] == (
        "server-01/gpu-0,server-03/gpu-0,4000\n"
        "server-02/gpu-0,server-04/gpu-0,4000\n"
        "server-03/gpu-0,server-01/gpu-0,4000\n"
        "server-04/gpu-0,server-02/gpu-0,4000\n"
    )
    lines = str(files["platform.xml"]).splitlines()
    assert lines[:7] == [
        "<?xml version='1.0'?>",
        '<!DOCTYPE platform SYSTEM "https://simgrid.org/simgrid.dtd">',
        "<!-- four: send-recv, 4 ranks -->",
        '<platform version="4.1">',
        '<zone id="fabric" routing="Full">',
        '<host id="server-01/gpu-0" speed="1f"/>',
        '<host id="server-03/gpu-0" speed="1f"/>',
    ]
    assert '<link id="2" bandwidth="100000000000.0Bps" latency="0s"/>' in lines
    routes = [line for line in lines if line.startswith("<route")]
    assert routes[0] == (
        '<route src="server-01/gpu-0" dst="server-03/gpu-0" symmetrical="NO">'
        '<link_ctn id="2"/><link_ctn id="16"/><link_ctn id="24"/><link_ctn id="29"/>'
        '<link_ctn id="21"/><link_ctn id="11"/></route>'
    )
    assert len(routes) == 4


def test_simgrid_names_the_ways_of_a_spread_apart() -> None:
    flows = str(simgrid.write(four("send-recv", "adaptive"))["flows.csv"]).splitlines()
    assert flows[:2] == ["server-01/gpu-0,server-03/gpu-0,2000", "server-01/gpu-0.2,server-03/gpu-0.2,2000"]


def test_htsim_numbers_hosts_leaf_by_leaf() -> None:
    files = htsim.write(four("send-recv", "adaptive"))
    assert files["traffic.cm"] == (
        "Nodes 4\nConnections 4\n"
        "0->2 id 1 start 0 size 4000\n1->3 id 2 start 0 size 4000\n"
        "2->0 id 3 start 0 size 4000\n3->1 id 4 start 0 size 4000\n"
    )
    assert str(files["hosts.csv"]).splitlines()[1] == "0,server-01/nic-0,1,leaf-01"


def test_astra_sim_gets_a_collective_per_rank() -> None:
    """Length, head (version 0.0.4), length, node: id 0, name, COMM_COLL_NODE, three attributes."""
    files = astra.write(four())
    assert sorted(f for f in files if f.endswith(".et")) == [f"workload.{r}.et" for r in range(4)]
    node = (
        b"\x08\x00\x12\x0aall-to-all\x18\x07"
        b"\x52\x0e\x0a\x09is_cpu_op\xd8\x01\x00"
        b"\x52\x0d\x0a\x09comm_type\x48\x06"
        b"\x52\x0e\x0a\x09comm_size\x48\xa0\x1f"
    )
    assert files["workload.2.et"] == b"\x07\x0a\x050.0.4" + bytes([len(node)]) + node
    assert "bandwidth: [ 46.566128731 ]" in str(files["crossbar.yml"])
    assert "npus_count: [ 4 ]" in str(files["crossbar.yml"])


def test_chakra_sends_name_both_ends() -> None:
    node = chakra.node(0, "send", chakra.SEND, comm_src=0, comm_dst=2, comm_tag=300, comm_size=4000)
    # int32 (field 7) where the feeder asks int32_val, int64 (field 9) where it asks int64_val
    assert b"\x52\x0c\x0a\x08comm_src\x38\x00\x52\x0c\x0a\x08comm_dst\x38\x02" in node
    assert node.endswith(b"\x52\x0d\x0a\x08comm_tag\x38\xac\x02\x52\x0e\x0a\x09comm_size\x48\xa0\x1f")


def test_simai_has_one_layer_and_one_link_per_pair_of_devices() -> None:
    fabric = make(2, 2, "rail-optimised", spines=1, cables=2, nic=50e9, lane=450e9, uplink=50e9)
    files = simai.write(make_problem("rails", Network(fabric), load_catalog(), "all-to-all", 4, 4000))
    assert files["workload.txt"] == (
        "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 1 ep: 1 pp: 1 vpp: 1 ga: 1 all_gpus: 4 "
        "checkpoints: 0 checkpoint_initiates: 0\n1\n"
        "exchange -1 1 NONE 0 1 NONE 0 1 ALLTOALL 4000 1\n"
    )
    lines = str(files["simai.topo"]).splitlines()
    assert lines[:2] == ["9 2 2 3 10 NONE", "4 5 6 7 8"]
    assert [line for line in lines if "800Gbps" in line] == [
        "6 8 800Gbps 0.000350ms 0",
        "7 8 800Gbps 0.000350ms 0",
    ]


def test_simai_thresholds_cover_every_rate() -> None:
    theirs = "KMAX_MAP 1 25 400\nKMIN_MAP 1 25 100\nPMAX_MAP 1 25 0.2\nX /etc/astra-sim/simulation/a\n"
    topology = "3 1 0 1 2 NONE\n2\n0 2 400Gbps 0ms 0\n1 2 800Gbps 0ms 0\n"
    assert simai.config(theirs, topology) == (
        "KMAX_MAP 2 400000000000 3200 800000000000 6400\n"
        "KMIN_MAP 2 400000000000 800 800000000000 1600\n"
        "PMAX_MAP 2 400000000000 0.2 800000000000 0.2\nX simulation/a\n"
    )
