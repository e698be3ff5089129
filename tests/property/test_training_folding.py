"""Experts cut less or more than the rest (Megatron's parallel folding): laws of what is shared and sent."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.model import Cut, layer_operators
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.layers.stages import stage_shapes
from railwright.training.layout.placement import place
from railwright.training.layout.sizes import Sizes
from training_cases import MOE, job, machine

SIZES = st.sampled_from((1, 2, 4, 8))


@cache
def step(tensor: int, expert: int, inside: int | None, pipeline: int = 1) -> StepResult:
    one = job(
        tensor=tensor,
        sequence_parallel=tensor > 1,
        expert=expert,
        expert_tensor=inside,
        pipeline=pipeline,
    )
    return simulate(one, MOE, machine(4), must_fit=False, most_events=0)


@settings(max_examples=60)
@given(tensor=SIZES, expert=SIZES, inside=SIZES, pipeline=st.sampled_from((1, 2)))
def test_every_expert_lies_on_as_many_gpus_as_it_has_replicas(
    tensor: int, expert: int, inside: int, pipeline: int
) -> None:
    stage = 32 // pipeline
    assume(stage % (expert * inside) == 0)
    layout = job(tensor=tensor, expert=expert, expert_tensor=inside, pipeline=pipeline).layout
    sizes = Sizes.under(layout, stage // tensor)
    held = sum(shape.expert_total for shape in stage_shapes(MOE, layout)) * stage
    whole = MOE.layers * MOE.experts * 3 * MOE.hidden * MOE.expert_ffn
    assert held == pytest.approx(whole * sizes.expert_replicas)
    assert sizes.expert_replicas * expert * inside == stage


@settings(max_examples=40)
@given(tensor=SIZES, expert=SIZES, inside=SIZES)
def test_experts_of_all_gpus_do_the_same_work_however_they_are_cut(
    tensor: int, expert: int, inside: int
) -> None:
    def flops(ep: int, cut: int) -> float:
        found = layer_operators(MOE, "moe", 8192, 1024, Cut(tp=tensor, ep=ep, expert_tp=cut)).forward
        return sum(op.flops for op in found if op.name.startswith("experts"))

    assert flops(expert, inside) == pytest.approx(flops(1, 1))


@settings(max_examples=30)
@given(tensor=SIZES, expert=SIZES, inside=SIZES)
def test_ranks_of_an_expert_are_neighbours_and_all_gpus_have_one_place(
    tensor: int, expert: int, inside: int
) -> None:
    assume(32 % (expert * inside) == 0)
    groups = place(job(tensor=tensor, expert=expert, expert_tensor=inside), machine(4).network.fabric)
    for kind, size in (("etp", inside), ("ep", expert), ("expert_dp", 32 // (expert * inside))):
        found = groups.of(kind)  # type: ignore[arg-type]
        gpus = sorted(int(gpu) for one in found for gpu in one.gpus)
        assert gpus == list(range(32)), kind
        assert {len(one) for one in found} == {size}
    assert all(max(one.gpus) - min(one.gpus) == inside - 1 for one in groups.of("etp"))


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_the_same_cut_by_name_is_the_default(tensor: int) -> None:
    assert step(tensor, 4, tensor) == step(tensor, 4, None)


def test_routed_copies_of_all_ranks_of_an_expert_come_together() -> None:
    """F ranks bring b s k h / t c elements each, whatever F is beside T."""
    for tensor, inside in ((1, 2), (1, 4), (2, 4), (2, 8), (4, 8), (4, 2)):
        gathered = {
            u.prediction.size
            for u in step(tensor, 2, inside).collectives
            if u.purpose == "expert tp all-gather"
        }
        assert gathered == {1024 / tensor * 2 * MOE.hidden * 2.0 * inside}


def test_more_cuts_send_more_and_hold_less() -> None:
    tp = [step(2, 2, inside).exposed("tp") for inside in (1, 2, 4, 8)]
    assert tp == sorted(tp)
    weights = [step(2, 2, inside).memory.parts["weights"] for inside in (1, 2, 4, 8)]
    assert weights == sorted(weights, reverse=True)
