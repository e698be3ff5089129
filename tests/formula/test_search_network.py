"""Bytes that a layout sends in groups that span servers, against closed forms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railwright.model import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.space.network import most_sent, sent_by_stages
from railwright.search.training.branch import Run
from railwright.search.training.front import Tried, rounded, unbeaten
from railwright.training import simulate
from railwright.training.layers.communication import Prices
from railwright.training.layout.placement import place
from railwright.training.passes.work import Work
from railwright.training.software.eras import Pace
from railwright.training.step.stage import PassBook
from training_cases import DENSE, MOE, job, machine, priced, roofline

TOTAL = float(count_parameters(DENSE).total)


LAYOUTS: list[dict[str, Any]] = [
    {"tensor": 2, "zero": 0},
    {"zero": 3, "recompute": "full"},
    {"zero": 2, "pipeline": 2, "shard": 8, "reduce_each": False},
    {"zero": 3, "reshard": False, "pipeline": 2, "virtual_pipeline": 2},
    {"context": 2, "pipeline": 4, "virtual_pipeline": 2, "sequence_parallel": True},
    {"pipeline": 4, "schedule": "zb-v", "recompute": "selective"},
    {"pipeline": 4, "schedule": "dualpipe"},
    {"pipeline": 2, "schedule": "dualpipe-v", "placement": "spread"},
    {"pipeline": 4, "schedule": "zb-h1", "offload": ("optimizer",)},
]


@pytest.mark.parametrize("arch", [DENSE, replace(MOE, tied_embeddings=True)], ids=["dense", "experts"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_what_is_counted_is_what_a_step_sends(layout: dict[str, Any], arch: Transformer) -> None:
    """Of every stage, without placing its passes."""
    wanted = job(batch=128, expert=4 if arch.is_moe else 1, **layout)
    prices = Prices(machine(4), place(wanted, machine(4).network.fabric), priced(50e9))
    book = PassBook(Work(wanted, arch, prices, roofline, Pace()))
    found = sent_by_stages(wanted, arch, prices, roofline, Pace(), book)
    assert len(found) == wanted.layout.pipeline
    for stage, size in enumerate(found):
        step = simulate(wanted, arch, machine(4), predict=priced(50e9), kernel=roofline, stage=stage)
        over = {"all_reduce": 2.0}
        assert size == pytest.approx(
            sum(
                one.count
                * one.prediction.size
                * (
                    1.0
                    if one.prediction.op == "sendrecv"
                    else over.get(one.prediction.op, 1.0) * (one.prediction.ranks - 1) / one.prediction.ranks
                )
                for one in step.collectives
                if one.crosses
            )
        )
    assert max(found) > 0


def test_nothing_beats_a_row_of_the_front_in_all_that_it_is_told_for() -> None:
    """`listed` was a row of the front: `third` beats it in all three, and `second` that in time and
    memory, which sends more."""
    second, third, listed, full = (
        Tried(0, at, (at,), 0.0, time, memory, 0)
        for at, (time, memory) in enumerate([(1.0, 5.0), (2.0, 6.0), (3.0, 7.0), (0.5, 1.0)])
    )
    network = {second.at: 9.0, third.at: 3.0, listed.at: 4.0, full.at: 1.0}
    found = unbeaten([listed, third, second, full], lambda one: network[one.at], lambda one: one is not full)
    assert found == [second, third]


def test_the_front_is_that_of_all_that_was_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    own = Run.own
    monkeypatch.setattr(Run, "own", lambda run: runs.append(run) or own(run))  # type: ignore[func-returns-value]
    space = Space(
        {"recompute": ("none", "full"), "schedule": ("auto",), "context": (1,), "micro_batch": (1, 2)}
    )
    found = search(job(batch=64, sequence=4096), DENSE, machine(4), space, top=3)
    (run,) = runs

    def figures(one: Tried) -> tuple[float, float, float]:
        return rounded(one.time), rounded(one.memory), rounded(run.sent(one))

    timed = [figures(one) for one in run.exact.values() if run.holds(one)]
    best = {
        one
        for one in timed
        if not any(other != one and all(a <= b for a, b in zip(other, one, strict=True)) for other in timed)
    }
    assert {tuple(map(rounded, (one.time, one.memory, one.network))) for one in found.front} == best
    assert len(found.front) == len(best) > 1


def sent(arch: Transformer = DENSE, **layout: Any) -> float:
    wanted = job(**layout)
    prices = Prices(machine(4), place(wanted, machine(4).network.fabric), priced(50e9))
    book = PassBook(Work(wanted, arch, prices, roofline, Pace()))
    return most_sent(wanted, arch, prices, roofline, Pace(), book)


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
