"""Dispatch and combine by hand: copies, bytes, the longer hop, and what cannot be asked."""

from math import comb

import numpy as np
import pytest

from collectives_machines import machine, world
from railwright.collectives import NcclSettings, predict, predict_dispatch
from railwright.collectives.moe import rail_messages
from railwright.collectives.moe_kernels import blocked
from railwright.collectives.moe_routing import copies, distinct_groups
from railwright.errors import PlanError
from railwright.traffic.demand import Communicator
from railwright.traffic.placement import rail_of_gpu

V3 = {"tokens": 4096, "hidden": 7168, "topk": 8, "experts": 256}


def layer(servers: int, server: str = "dgx-h100", **changes):
    on = machine(servers, server)
    return predict_dispatch(on, world(on), **{**V3, "kernel": "deepep", "dispatch_bytes": 1, **changes})


def terms(stage) -> dict[str, float]:
    return {term.name: term.seconds for term in stage.terms}


def test_distinct_nodes_are_the_hypergeometric_ones() -> None:
    # 8 of 256 experts, 8 nodes of 32: one is missed with chance C(224, 8) / C(256, 8) = 0.338: 5.29 nodes
    expected = 8 * (1 - comb(224, 8) / comb(256, 8))
    assert distinct_groups(256, 8, 8) == pytest.approx(expected, rel=1e-12)
    assert expected == pytest.approx(5.29, abs=0.005)
    assert distinct_groups(4, 4, 4) == 4  # every expert is taken: every node is hit
    assert distinct_groups(4, 2, 3) == 2  # three of two times two leave no node out


def test_one_expert_is_on_one_node_and_one_gpu() -> None:
    one = copies(256, 1, 8, 8, None)
    assert (one.nodes, one.ranks) == (pytest.approx(1), pytest.approx(1))
    assert one.remote_nodes == pytest.approx(7 / 8)
    assert one.lane == pytest.approx(7 / 8)


def test_node_limited_routing_caps_the_copies() -> None:
    # 4 of 8 nodes hold 128 experts: 4 (1 - C(96, 8) / C(128, 8)) = 3.63 copies, 7/8 of them to other nodes
    limited = copies(256, 8, 8, 8, 4)
    assert limited.nodes == pytest.approx(4 * (1 - comb(96, 8) / comb(128, 8)))
    assert limited.remote_nodes == pytest.approx(limited.nodes * 7 / 8)
    assert copies(256, 8, 8, 8, 8) == copies(256, 8, 8, 8, None)


def test_two_equal_hops_with_eight_chunks_between_stand_still_a_ninth() -> None:
    assert blocked(1.0, 8) == pytest.approx(1 / 9)
    assert blocked(0.5, 1) == pytest.approx(0.5 / 1.5)  # one place: r / (1 + r)
    assert blocked(1e-9, 8) == pytest.approx(0)


def test_inside_one_node_no_nic_is_used() -> None:
    # 5.29 GPUs per token, 7/8 of them over NVLink: 4096 x 7392 B x 4.63 / (0.65 x 450 GB/s) = 480 us
    answer = layer(1)
    assert answer.dispatch.network_bytes == answer.dispatch.messages == 0
    assert answer.dispatch.bottleneck is None
    lane = 4096 * 7392 * 8 * (1 - comb(224, 8) / comb(256, 8)) * 7 / 8
    assert answer.dispatch.scale_up_bytes == pytest.approx(lane)
    assert terms(answer.dispatch)["bandwidth"] == pytest.approx(lane / 292.5e9)


def test_four_nodes_wait_for_the_nic() -> None:
    # 3.61 nodes per token, 3/4 of them remote: 4096 x 7392 B x 2.71 / (0.9 x 50 GB/s) = 1824 us, and
    # 694 chunks of 16 tokens at 3 ns = 2 us
    answer = layer(4)
    remote = 4096 * 7392 * 4 * (1 - comb(192, 8) / comb(256, 8)) * 3 / 4
    assert answer.dispatch.network_bytes == pytest.approx(remote)
    assert terms(answer.dispatch)["bandwidth"] == pytest.approx(
        remote / 45e9 + remote / 7392 / 16 * 3e-9, rel=1e-6
    )
    assert answer.combine.network_bytes == pytest.approx(remote * 14336 / 7392)


def test_two_nodes_of_h800_wait_for_nvlink() -> None:
    # 200 GB/s of NVLink carry 5.7 copies while the NIC carries one: the printed 43 GB/s are not the NIC's 50
    stage = layer(2, "hgx-h800").dispatch
    assert stage.terms[2].why == "NVLink fan-out"
    assert stage.network_bytes / stage.time < 25e9


def test_rdma_stays_on_its_rail() -> None:
    on = machine(4)
    messages = rail_messages(on, world(on)[0])
    rail = rail_of_gpu(on.network.fabric)
    assert len(messages) == 32 * 3
    assert np.array_equal(rail[messages.src], rail[messages.dst])


def test_low_latency_sends_every_copy_by_itself() -> None:
    # 128 tokens x 8 experts, half of them in the other of two nodes: 512 messages of 7168 + 224 + 16 bytes
    stage = layer(2, tokens=128, kernel="deepep-low-latency").dispatch
    assert stage.messages == pytest.approx(512)
    assert stage.network_bytes == pytest.approx(512 * 7408)
    assert terms(stage)["bandwidth"] == pytest.approx(512 * (7408 / 48.5e9 + 3e-9), rel=1e-3)
    assert stage.scale_up_bytes == pytest.approx(1024 * 7 / 16 * 7408)


def test_without_nvlink_the_nic_carries_the_own_node_too() -> None:
    # 7 of 8 copies leave the GPU, all through its NIC: 896 x 7408 B
    stage = layer(1, tokens=128, kernel="deepep-low-latency-rdma").dispatch
    assert stage.network_bytes == pytest.approx(896 * 7408)
    assert stage.scale_up_bytes == 0


def test_nccl_sends_every_copy_as_an_all_to_all() -> None:
    # S = 4096 tokens x 8 copies x 7168 x 2 bytes = 470 MB per rank, its own share counted as nccl-tests does
    on = machine(2)
    answer = predict_dispatch(on, world(on), **V3)
    alone = predict(on, "all_to_all", 4096 * 8 * 7168 * 2.0, world(on))
    assert answer.dispatch.time == answer.combine.time == alone.time
    assert answer.dispatch.network_bytes == pytest.approx(4096 * 8 * 14336 / 2)


def test_deepep_beats_nccl_across_nodes_by_sending_fewer_copies() -> None:
    # 8 copies against 2.7 through the NIC of four nodes
    on = machine(4, nccl=NcclSettings(pxn=True))
    nccl = predict_dispatch(on, world(on), **V3)
    deepep = predict_dispatch(on, world(on), **V3, kernel="deepep")
    assert deepep.dispatch.network_bytes / nccl.dispatch.network_bytes == pytest.approx(
        copies(256, 8, 4, 8, None).nodes / 8
    )
    assert deepep.dispatch.time < nccl.dispatch.time


def test_imbalance_stretches_what_the_busiest_rank_moves() -> None:
    even, skewed = layer(4), layer(4, imbalance=1.3)
    assert skewed.dispatch.network_bytes == pytest.approx(1.3 * even.dispatch.network_bytes)
    assert terms(skewed.dispatch)["bandwidth"] == pytest.approx(1.3 * terms(even.dispatch)["bandwidth"])


def test_two_groups_on_other_rails_do_not_slow_each_other() -> None:
    on = machine(4)
    gpus = np.arange(32, dtype=np.int32)
    halves = [Communicator(gpus[gpus % 8 < 4], "low"), Communicator(gpus[gpus % 8 >= 4], "high")]
    both = predict_dispatch(on, halves, **V3, kernel="deepep")
    assert both.groups == 2
    alone = predict_dispatch(on, halves[:1], **V3, kernel="deepep")
    assert both.dispatch.time == pytest.approx(alone.dispatch.time)


@pytest.mark.parametrize("kernel", ["nccl", "deepep", "deepep-low-latency", "deepep-low-latency-rdma"])
def test_one_rank_has_nothing_to_send(kernel) -> None:
    on = machine(1)
    alone = predict_dispatch(on, [Communicator(np.array([3], np.int32))], **V3, kernel=kernel)
    assert alone.time == alone.dispatch.network_bytes == alone.dispatch.scale_up_bytes == 0
    assert alone.nodes == alone.ranks == 1


def test_hash_collisions_slow_rdma_that_leaves_its_leaf() -> None:
    # on a rail-optimised fabric of 16 nodes a rail is one leaf: nothing to hash; in a fat tree it is not
    answers = {}
    for family in ("rail-optimised", "fat-tree"):
        for routing in ("adaptive", "ecmp"):
            on = machine(16, family=family, routing=routing)
            answers[family, routing] = predict_dispatch(on, world(on), **V3, kernel="deepep").dispatch
    assert answers["rail-optimised", "ecmp"].time == answers["rail-optimised", "adaptive"].time
    assert answers["fat-tree", "ecmp"].time > 1.2 * answers["fat-tree", "adaptive"].time
    assert "hash collision" in answers["fat-tree", "ecmp"].bottleneck.why


def test_an_nvl72_rack_is_one_node() -> None:
    # 72 GPUs of one rack dispatch over NVLink alone
    on = machine(1, "gb200-nvl72", switch="q3400")
    answer = predict_dispatch(on, world(on), 4096, 7168, 8, 288, kernel="deepep")
    assert (answer.nodes, answer.ranks, answer.dispatch.network_bytes) == (1, 72, 0)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"experts": 250}, "250 experts cannot be spread evenly over the 16 ranks"),
        ({"topk": 300}, "lower topk"),
        ({"topk": 200, "nodes_limit": 1}, "raise nodes_limit to at least 2"),
        ({"nodes_limit": 0}, "nowhere to go"),
        ({"imbalance": 0.5}, "cannot be below 1"),
        ({"imbalance": 17}, "all that there is, 16 times the mean; give 1 to 16"),
        ({"imbalance": 40}, "every token once, 256 / 8 = 32 times the mean; give 1 to 32"),
        ({"dispatch_bytes": 3}, "1 (FP8)"),
        ({"tokens": 0}, "moves nothing"),
        ({"kernel": "flux"}, "not a dispatch kernel"),
    ],
)
def test_what_makes_no_sense_is_refused(changes, words) -> None:
    with pytest.raises(PlanError) as caught:
        layer(2, **changes)
    assert words in str(caught.value)


def test_uneven_groups_and_gpus_without_nvlink_are_refused() -> None:
    on = machine(2)
    uneven = [Communicator(np.array([0, 1, 2, 8], np.int32), "EP")]
    with pytest.raises(PlanError, match="1 ranks in one node and 3 in another"):
        predict_dispatch(on, uneven, **V3, kernel="deepep")
    shared = [Communicator(np.array(g, np.int32)) for g in ([0, 8], [8, 1])]
    with pytest.raises(PlanError, match="in two of the expert-parallel groups"):
        predict_dispatch(on, shared, **V3, kernel="deepep")
    with pytest.raises(PlanError, match="forward over NVLink"):
        layer(2, "server-8x-l40s")
