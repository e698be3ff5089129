"""Laws of dispatch and combine: bytes are conserved, more work takes longer, no link is beaten."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives_machines import machine, world
from railwright.collectives import predict_dispatch
from railwright.collectives.moe_routing import copies, distinct_groups

KERNELS = ("nccl", "deepep", "deepep-low-latency", "deepep-low-latency-rdma")
kernels = st.sampled_from(KERNELS)
servers = st.sampled_from((1, 2, 4))


def ask(count, kernel, tokens=512, hidden=4096, topk=4, **changes):
    on = machine(count)
    return predict_dispatch(on, world(on), tokens, hidden, topk, 64, kernel=kernel, **changes)


@settings(max_examples=60)
@given(servers, kernels, st.integers(1, 20_000), st.integers(1, 16), st.integers(16, 20_000))
def test_no_stage_beats_nic_or_nvlink_and_terms_add_up(count, kernel, tokens, topk, hidden):
    on = machine(count)
    answer = ask(count, kernel, tokens, hidden, topk)
    for stage in (answer.dispatch, answer.combine):
        assert stage.time == pytest.approx(sum(term.seconds for term in stage.terms))
        assert stage.time > stage.network_bytes / on.nic.rate
        assert stage.time > stage.scale_up_bytes / on.gpu.scale_up_bandwidth
        assert all(term.seconds >= 0 for term in stage.terms)
        assert 0 < stage.error_low <= 1.0 <= stage.error_high


@settings(max_examples=40)
@given(servers, st.sampled_from(KERNELS[1:]), st.integers(1, 8000), st.integers(2, 16))
def test_more_tokens_or_experts_never_take_less(count, kernel, tokens, topk):
    small, large = ask(count, kernel, tokens, topk=topk), ask(count, kernel, 2 * tokens, topk=topk)
    fewer = ask(count, kernel, tokens, topk=topk - 1)
    for name in ("dispatch", "combine"):
        assert getattr(small, name).time <= getattr(large, name).time * (1 + 1e-9)
        assert getattr(fewer, name).network_bytes <= getattr(small, name).network_bytes * (1 + 1e-9)
        assert getattr(fewer, name).scale_up_bytes <= getattr(small, name).scale_up_bytes * (1 + 1e-9)


@settings(max_examples=40)
@given(servers, st.integers(1, 16), st.integers(1, 4))
def test_a_tighter_node_limit_never_sends_more(count, topk, limit):
    free, limited = copies(64, topk, count, 8, None), copies(64, topk, count, 8, limit)
    assert limited.remote_nodes <= free.remote_nodes * (1 + 1e-9)
    assert limited.nodes <= min(limit, topk) + 1e-9


@pytest.mark.parametrize("groups", [1, 2, 3, 4, 6, 12])
@pytest.mark.parametrize("topk", [1, 2, 5, 8, 11, 12])
def test_expected_groups_are_the_mean_over_all_choices(groups, topk):
    # every choice of k of 12 experts, counted one by one
    each = 12 // groups
    counts = [len({expert // each for expert in chosen}) for chosen in combinations(range(12), topk)]
    assert distinct_groups(12, groups, topk) == pytest.approx(np.mean(counts), rel=1e-12)


@pytest.mark.parametrize("kernel", KERNELS[2:])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_every_copy_is_sent_once_or_stays(kernel, count):
    # T k copies per rank: those for other GPUs leave it by NIC or NVLink, 1/n stays at home
    stage = ask(count, kernel).combine
    assert stage.network_bytes + stage.scale_up_bytes == pytest.approx(
        stage.logical_bytes * (1 - 1 / (8 * count))
    )


@pytest.mark.parametrize("count", [2, 4])
def test_normal_kernels_conserve_copies(count):
    # a copy at a GPU came over NVLink or its GPU forwarded it; a node's copy came by RDMA or is home
    answer = ask(count, "deepep")
    token = 512 * 4096 * 2
    assert answer.combine.scale_up_bytes == pytest.approx(token * answer.copies.ranks * 7 / 8)
    assert answer.combine.network_bytes == pytest.approx(token * answer.copies.nodes * (1 - 1 / count))
    assert answer.combine.logical_bytes == pytest.approx(token * answer.copies.nodes)


def test_all_kernels_carry_the_same_copies_when_each_token_has_one_expert():
    # topk = 1: nothing to aggregate, so the NIC carries the same bytes (but for the dispatch header)
    sent = [ask(4, kernel, topk=1).combine.network_bytes for kernel in KERNELS[:3]]
    assert sent == pytest.approx([512 * 4096 * 2 * 3 / 4] * 3)
