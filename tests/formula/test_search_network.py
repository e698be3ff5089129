"""Bytes that a layout sends in groups that span servers, against closed forms."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.model import count_parameters
from railwright.model.architecture import Transformer
from railwright.search.network import bytes_sent
from railwright.training import simulate
from training_cases import DENSE, MOE, job, machine, priced, roofline

TOTAL = float(count_parameters(DENSE).total)


def sent(arch: Transformer = DENSE, **layout: Any) -> float:
    step = simulate(job(**layout), arch, machine(4), predict=priced(50e9), kernel=roofline)
    return bytes_sent(step)


def test_gradients_are_scattered_and_parameters_gathered_over_all_ranks() -> None:
    # 32 ranks, gradients of 4 bytes and weights of 2
    assert sent(batch=32) == pytest.approx((4 + 2) * TOTAL * 31 / 32)
    assert sent(batch=32, zero=0) == pytest.approx(4 * TOTAL * 2 * 31 / 32)


def test_groups_inside_servers_send_their_share_alone() -> None:
    """Scattered and gathered over the 8 ranks of a server; an eighth is all-reduced over 4 servers."""
    assert sent(batch=32, shard=8) == pytest.approx(4 * TOTAL / 8 * 2 * 3 / 4)
    wider = (4 + 2) * TOTAL * 15 / 16 + 4 * TOTAL / 16 * 2 * 1 / 2
    assert sent(batch=32, shard=16) == pytest.approx(wider)


def test_tensors_cut_inside_a_server_send_nothing() -> None:
    assert sent(batch=32, tensor=4) == pytest.approx((4 + 2) * TOTAL / 4 * 7 / 8, rel=1e-3)


def test_experts_of_one_server_send_their_gradients_alone() -> None:
    """All-to-alls of 8 ranks stay inside; the experts, an eighth on each rank, are shared by 4."""
    experts = float(MOE.layers * MOE.experts * 3 * MOE.hidden * MOE.expert_ffn)
    rest = count_parameters(MOE).total - experts
    found = sent(MOE, batch=32, expert=8)
    assert found == pytest.approx(6 * rest * 31 / 32 + 6 * experts / 8 * 3 / 4)
