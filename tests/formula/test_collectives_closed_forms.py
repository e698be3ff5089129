"""Hand calculations of NCCL's model; every constant is the one printed in NCCL's source."""

from dataclasses import replace

import numpy as np
import pytest

from collectives_machines import machine, world
from railwright.collectives import NcclSettings, bus_factor, p2p, predict, ranks_of_ratio
from railwright.collectives.algorithm import Path
from railwright.collectives.choice import ALGORITHMS, choose, nominal_seconds_per_byte, tuner_time
from railwright.collectives.cost import on_healthy_fabric
from railwright.collectives.group import Group, group_of, pcie_link
from railwright.collectives.pat import traffic as pat_traffic
from railwright.traffic.demand import Communicator

H100 = {"nic_rate": 50e9, "scale_up": 450e9, "generation": "hopper", "cpu": "intel"}
A100 = {"nic_rate": 25e9, "scale_up": 300e9, "generation": "ampere", "cpu": "amd"}


def h100(ranks: int, nodes: int, nics: int = 8) -> Group:
    return Group(ranks, nodes, nics, **H100)


def test_bus_factors_are_those_of_nccl_tests() -> None:
    # doc/PERFORMANCE.md: 2(n-1)/n for all-reduce, (n-1)/n for all-gather and all-to-all, 1 for broadcast
    assert bus_factor("all_reduce", 8) == 1.75
    assert (
        bus_factor("all_gather", 8) == bus_factor("reduce_scatter", 8) == bus_factor("all_to_all", 8) == 0.875
    )
    assert bus_factor("broadcast", 8) == bus_factor("sendrecv", 8) == 1.0


def test_the_ratio_of_two_columns_tells_the_ranks() -> None:
    # a table captioned 144 ranks prints busbw/algbw = 1.9844, which only 128 ranks give
    assert ranks_of_ratio(bus_factor("all_reduce", 128)) == pytest.approx(128)


def test_ring_of_eight_a100_in_one_node_takes_fourteen_steps() -> None:
    # 6.6 us base + 2 x 7 steps of 0.6 us with LL = 15 us; 8.4 + 14 x 3.4 = 56 us with Simple
    ring = ALGORITHMS["ring"]
    one_node = Group(8, 1, 8, **A100)
    assert ring.steps("all_reduce", "ll", one_node, Path()) == pytest.approx(15.0e-6)
    assert ring.steps("all_reduce", "simple", one_node, Path()) == pytest.approx(56.0e-6)
    assert ring.steps("all_gather", "ll", one_node, Path()) == pytest.approx(10.8e-6)


def test_ring_over_two_nodes_pays_two_network_steps_and_the_posts_in_between() -> None:
    # Simple on AMD: inner steps cost 3 posts of 2 us = 6 us; 8.4 + 28 x 6 + 2 x 14 = 204.4, plateau x 1.4
    group = Group(16, 2, 8, **A100)
    assert ALGORITHMS["ring"].steps("all_reduce", "simple", group, Path()) == pytest.approx(1.4 * 204.4e-6)


def test_nvlstree_climbs_log2_of_the_nodes() -> None:
    # 25 us inside + 2 x log2(4) x 20.9 us; a path 1 us longer adds 4 us
    nvlstree = ALGORITHMS["nvlstree"]
    assert nvlstree.steps("all_reduce", "simple", h100(32, 4), Path()) == pytest.approx(108.6e-6)
    longer = nvlstree.steps("all_reduce", "simple", h100(32, 4), Path(0.5e-6, 1e-6))
    assert longer == pytest.approx(112.6e-6)


def test_nvls_carries_510_gigabytes_of_busbw_on_eight_h100() -> None:
    # 16 channels x 20 GB/s x 0.85 x 15/16 x 2 = 510 GB/s (NCCL's graph value)
    assert ALGORITHMS["nvls"].inside("all_reduce", "simple", h100(8, 1)) == pytest.approx(510e9, rel=1e-3)


def test_a_ring_receives_once_more_than_it_sends_and_the_tuner_knows_nothing_of_it() -> None:
    # two GPUs: all-reduce sends twice, all-gather once, and each receives once more, 0.43 of a send
    ring, pair = ALGORITHMS["ring"], Group(2, 1, 8, **A100)
    for op, sends in (("all_reduce", 2), ("all_gather", 1)):
        told, paid = (f(op, "simple", pair) for f in (ring.inside, ring.limit))
        assert told == pair.usable_lane
        assert paid == pytest.approx(told * sends / (sends + 0.43))
        assert nominal_seconds_per_byte(op, pair, ring, "simple") == bus_factor(op, 2) / told
    assert ring.limit("broadcast", "simple", pair) == ring.inside("broadcast", "simple", pair)


def test_a_ring_over_meshes_leaves_each_once() -> None:
    # of eight hops of a node seven are over its lanes; one node's rings have all eight there
    two = Group(16, 2, 8, **A100, links=7)
    assert ALGORITHMS["ring"].limit("all_reduce", "simple", two) == pytest.approx(two.usable_lane * 8 / 7)


@pytest.mark.parametrize(("ranks", "share"), [(2, 1 / 7), (3, 1 / 7), (4, 3 / 7), (6, 1 / 7), (8, 1.0)])
def test_a_group_on_a_mesh_has_the_links_among_its_members(ranks: int, share: float) -> None:
    switched = Group(ranks, 1, 8, **A100)
    mesh = replace(switched, links=7)
    assert mesh.usable_lane == pytest.approx(switched.usable_lane * share)
    assert mesh.usable_pair == pytest.approx(switched.usable_lane / 7)
    assert (switched.reach, switched.usable_pair) == (1.0, switched.usable_lane)
    # nothing is lost to the last receive there
    assert ALGORITHMS["ring"].limit("all_gather", "simple", mesh) == pytest.approx(mesh.usable_lane)


def test_a_ring_in_a_node_fills_one_step_whatever_its_gpus_and_across_nodes_all() -> None:
    for ranks in (2, 4, 8):
        cost = on_healthy_fabric("all_reduce", 2.0**26, Group(ranks, 1, 8, **A100), NcclSettings())
        terms = {t.name: t.seconds for t in cost.terms}
        assert (cost.protocol, cost.filling) == ("simple", 3.4e-6)
        assert terms["ramp"] == pytest.approx(cost.family.ramp * (3.4e-6 * terms["bandwidth"]) ** 0.5)
    forced = NcclSettings(algorithm="ring", protocol="simple")
    across = on_healthy_fabric("all_reduce", 2.0**10, Group(16, 2, 8, **A100), forced)
    assert across.filling == pytest.approx(
        next(t.seconds for t in across.terms if t.name == "steps"), rel=0.02
    )


@pytest.mark.parametrize("size", [2.0**n for n in range(12, 32, 2)])
def test_rings_across_nodes_hide_the_latency_of_a_step_behind_the_slice_before(size: float) -> None:
    # 2 steps over NICs and 28 over lanes, each of a chunk in two slices: the slowest bind, or all latencies
    # and the first slice of every step
    forced, group = NcclSettings(algorithm="ring", protocol="simple"), Group(16, 2, 8, **A100)
    cost = on_healthy_fabric("all_reduce", size, group, forced)
    terms = {t.name: t.seconds for t in cost.terms}
    wire, latency = terms["bandwidth"], cost.filling
    sent = 2 * 15 / 16 * size
    nics, lanes = sent / group.usable_nic / 8, sent / ALGORITHMS["ring"].limit("all_reduce", "simple", group)
    slices = (2 * nics + 28 * lanes) / 30 / 2
    assert wire == pytest.approx(nics)
    assert wire + terms["steps"] == pytest.approx(max(wire, slices + latency))


def test_a_broadcast_is_one_slice_a_chunk_and_hides_nothing() -> None:
    forced = NcclSettings(algorithm="ring", protocol="simple")
    found = [
        on_healthy_fabric("broadcast", s, Group(16, 2, 8, **A100), forced).terms for s in (2.0**12, 2.0**30)
    ]
    first, last = ({t.name: t.seconds for t in terms}["steps"] for terms in found)
    assert first == last > 0.0


def test_ring_traffic_is_two_thirty_oneths_short_of_twice_the_buffer() -> None:
    # 32 ranks, 8 NICs a node: each NIC sends 2 x 31/32 S / 8
    assert ALGORITHMS["ring"].per_nic("all_reduce", h100(32, 4)) == pytest.approx(2 * 31 / 32 / 8)
    assert ALGORITHMS["ring"].per_nic("all_gather", h100(32, 4)) == pytest.approx(31 / 32 / 8)


def test_two_nodes_cross_the_tree_edge_once() -> None:
    # four nodes: 2 S per node and direction; two nodes: S
    assert ALGORITHMS["nvlstree"].per_nic("all_reduce", h100(32, 4)) == 2 / 8
    assert ALGORITHMS["nvlstree"].per_nic("all_reduce", h100(16, 2)) == 1 / 8


@pytest.mark.parametrize("servers", [2, 3, 4, 8, 30])
@pytest.mark.parametrize("algorithm", ["ring", "nvlstree"])
def test_a_healthy_rail_fabric_gives_the_closed_form(servers: int, algorithm: str) -> None:
    # the solver's makespan of one byte equals bytes per NIC / NIC rate: no collisions, no thin tier
    on = machine(servers, nccl=NcclSettings(algorithm=algorithm, protocol="simple"))
    group = group_of(on, world(on)[0])
    size = 2.0**34
    here = {t.name: t.seconds for t in predict(on, "all_reduce", size, world(on)).terms}
    ideal = {t.name: t.seconds for t in on_healthy_fabric("all_reduce", size, group, on.nccl).terms}
    # trees of an odd number of nodes may leave the busiest NIC a little less than two full edges
    assert here["bandwidth"] == pytest.approx(ideal["bandwidth"], rel=0.01 if algorithm == "ring" else 0.3)
    assert here["bandwidth"] <= ideal["bandwidth"] * 1.001


@pytest.mark.parametrize("pxn", [True, False])
@pytest.mark.parametrize("servers", [2, 4, 8])
def test_all_to_all_on_a_healthy_rail_fabric_gives_the_closed_form(servers: int, pxn: bool) -> None:
    on = machine(servers, nccl=NcclSettings(pxn=pxn))
    group = group_of(on, world(on)[0])
    terms = {t.name: t.seconds for t in predict(on, "all_to_all", 2.0**34, world(on)).terms}
    ideal = 2.0**34 * p2p.nominal_seconds_per_byte("all_to_all", group, pxn)
    assert terms["bandwidth"] == pytest.approx(ideal, rel=1e-6)


def test_posts_of_an_all_to_all_over_thirty_nodes() -> None:
    # 232 remote ranks at 1 us each; with PXN 29 multi-sends of 8: each 1 us + 7 x 7/15 us
    group = h100(240, 30)
    assert p2p.posting_seconds("all_to_all", 240e3, group, pxn=False) == pytest.approx(232e-6)
    assert p2p.posting_seconds("all_to_all", 240e3, group, pxn=True) == pytest.approx(
        29 * (1 + 7 * 7 / 15) * 1e-6, rel=1e-3
    )


def test_chunks_shrink_with_the_message() -> None:
    # 128 KiB; half below 1 MiB, a quarter below 128 KiB
    assert [p2p.chunk_size(m) for m in (2.0**16, 2.0**17, 2.0**19, 2.0**20)] == [32768, 65536, 65536, 131072]


def test_network_messages_never_use_ll() -> None:
    assert p2p.protocol_of(1024, h100(16, 2)) == "simple"
    assert p2p.protocol_of(16384, h100(8, 1)) == "ll"
    assert p2p.protocol_of(16385, h100(8, 1)) == "simple"


def test_sixteen_channels_of_eight_peers_need_two_rounds_for_240_ranks() -> None:
    assert p2p.rounds("all_to_all", h100(240, 30)) == 2
    assert p2p.rounds("all_to_all", h100(64, 8)) == 1


def test_pat_sends_every_other_part_once() -> None:
    # log2 rounds of 1, 2, 4, ... parts: each rank sends n-1 parts of S/n in all
    fabric = machine(30).network.fabric
    comm = Communicator(np.arange(0, 240, 8, dtype=np.int32))
    sent = np.bincount(pat_traffic(fabric, [comm], "all_gather", True).src, weights=None, minlength=240)
    demands = pat_traffic(fabric, [comm], "all_gather", True)
    bytes_sent = np.bincount(demands.src, weights=demands.size, minlength=240)[comm.gpus]
    assert sent[comm.gpus].tolist() == [5] * 30
    assert bytes_sent == pytest.approx(np.full(30, 29 / 30))


def test_nccl_chooses_nvls_above_four_gpus_and_nvlstree_across_nodes() -> None:
    auto = NcclSettings()
    assert choose("all_reduce", 2.0**30, h100(8, 1), auto)[0].name == "nvls"
    assert choose("all_reduce", 2.0**30, h100(4, 1), auto)[0].name == "ring"
    assert choose("all_reduce", 2.0**30, h100(256, 32), auto)[0].name == "nvlstree"
    assert choose("all_reduce", 1024, h100(256, 32), auto)[0].name == "tree"
    assert choose("all_gather", 2.0**30, h100(256, 32), auto)[0].name == "ring"
    assert choose("all_gather", 1024, h100(30, 30, 1), auto)[0].name in ("pat", "ring")
    assert choose("all_reduce", 2.0**30, h100(256, 32), NcclSettings(sharp=True))[0].name == "collnet"


def test_terms_add_up_to_the_time() -> None:
    on = machine(4)
    for op in ("all_reduce", "all_gather", "all_to_all", "broadcast", "sendrecv"):
        answer = predict(on, op, 2.0**20, world(on))
        assert sum(t.seconds for t in answer.terms) == pytest.approx(answer.time)
        assert answer.algbw == pytest.approx(2.0**20 / answer.time)
        assert answer.busbw == pytest.approx(answer.algbw * bus_factor(op, 32))


def test_one_rank_sends_nothing() -> None:
    answer = predict(machine(2), "all_reduce", 1e6, [Communicator(np.array([3], np.int32))])
    assert answer.time == 0.0
    assert answer.algorithm == "none"


@pytest.mark.parametrize(
    ("bandwidth", "counted"), [(2e9, 1.5), (7.88e9, 6), (15.75e9, 12), (31e9, 24), (63e9, 48), (121e9, 96)]
)
def test_nccl_counts_a_pcie_link_at_12_gb_per_second_for_16_lanes_of_8_gt(bandwidth, counted) -> None:
    # NCCL topo.cc: width x 60 (8 GT/s), 120, 240, 480 (64 GT/s) / 80; the catalogue's slots
    assert pcie_link(bandwidth) == pytest.approx(counted * 1e9)


def test_the_tuner_counts_a_nic_no_faster_than_its_slot() -> None:
    # 800 Gb/s behind PCIe 5.0 x16: the path's least is the slot, 48 GB/s; 400 Gb/s are 48 anyway
    group = Group(16, 2, 8, 100e9, 450e9, "hopper", "intel", nic_slot=63e9)
    assert group.searched_nic == pytest.approx(48e9)
    assert group.usable_nic == pytest.approx(96e9)
    assert replace(group, nic_rate=50e9).searched_nic == pytest.approx(48e9)
    assert replace(group, nic_slot=None).searched_nic == pytest.approx(96e9)


def test_the_tuner_takes_bus_for_algorithm_bandwidth_of_pat() -> None:
    # tuning.cc converts all-gathers of rings alone: 8 + 14/3.5 + 2 x 2.8 us, 16 MB at 0.75 x 48 GB/s
    pair = Group(2, 2, 1, **H100)
    told = tuner_time("all_gather", 16e6, pair, ALGORITHMS["pat"], "simple")
    assert told == pytest.approx(17.6e-6 + 16e6 / 36e9)
    ring = tuner_time("all_gather", 16e6, pair, ALGORITHMS["ring"], "simple")
    assert ring == pytest.approx(22.4e-6 + 16e6 / 2 / 48e9)


def test_a_tree_is_not_corrected_from_512_mib_on() -> None:
    # ncclTopoGetAlgoTime: logSize < 23, logSize = log2(S / 64)
    group, tree = Group(32, 4, 8, **A100), ALGORITHMS["tree"]
    below, above = (tuner_time("all_reduce", 2.0**e, group, tree, "simple") for e in (28, 29))
    fixed = tree.steps("all_reduce", "simple", group, Path())
    assert (above - fixed) / (below - fixed) == pytest.approx(2 * 0.9)
