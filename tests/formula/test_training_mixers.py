"""Linear mixers in a step: what tensor and context ranks exchange around them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.model.shape.mixers import projected
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.lanes.result import StepResult
from railwright.training.layers.communication import mixer_sizes
from training_cases import BLOCKS, DELTA, DENSE, job, machine


def messages(step: StepResult, purpose: str) -> list[float]:
    """Sizes of the events inside passes that have this purpose: 'layer 1 tp all-gather, microbatch 1'."""
    found = [e for e in step.timeline.events if e.unit is not None]
    return [e.size for e in found if e.name.split(",")[0].endswith(f" {purpose}")]


def test_a_mixer_is_gathered_and_reduced_like_attention() -> None:
    """Two collectives a block, forward and backward: as many in 8 layers of one block as in 4 of two."""
    one = job(tensor=2, sequence_parallel=True, batch=8, gpus=8)
    step = simulate(one, BLOCKS, machine(1), must_fit=False)
    plain = simulate(one, replace(DENSE, layers=4), machine(1), must_fit=False)
    for purpose in ("tp all-gather", "tp reduce-scatter", "tp all-gather again"):
        assert len(messages(step, purpose)) == len(messages(plain, purpose)) > 0


def test_context_ranks_swap_tokens_for_heads_around_a_mixer() -> None:
    """Projected rows there and outputs back, of this rank's tokens, in 16 bits; backward the other way."""
    assert BLOCKS.linear is not None
    one = job(context=2, context_kind="all-to-all", batch=8, gpus=8, sequence=2048)
    rows = one.micro_batch * 2048 / 2 * 2
    into, out = mixer_sizes(one, BLOCKS)
    assert into == rows * projected(BLOCKS.linear)
    assert out == rows * 32 * 64
    step = simulate(one, BLOCKS, machine(1), must_fit=False)
    sent = messages(step, "cp all-to-all in")
    # four mixers and one attention in every pass, two all-to-alls each
    assert len(sent) >= 5
    assert sent.count(pytest.approx(into)) == 4 * len(sent) // 5


def test_groups_that_are_fewer_than_ranks_go_to_several() -> None:
    """Eight groups on tensor 2 are four a GPU; eight context ranks get a copy of one each (Megatron-LM,
    mamba_context_parallel.py, group_repeat_count)."""
    assert BLOCKS.linear is not None
    few, many = (job(tensor=2, context=c, batch=32, sequence=4096) for c in (4, 8))
    more = mixer_sizes(many, BLOCKS)[0] / mixer_sizes(few, BLOCKS)[0]
    width, keys = projected(BLOCKS.linear), 2 * BLOCKS.linear.keys
    assert more == pytest.approx((width + keys) / width / 2)


def test_the_range_is_that_of_published_steps_with_mamba() -> None:
    one = job(batch=8, gpus=8)
    step = simulate(one, BLOCKS, machine(1), must_fit=False)
    assert "all linear models" in step.error_source
    assert not doubts(one, BLOCKS, 4)
    assert not doubts(one, DENSE, 4)
    (told,) = [text for text in doubts(job(batch=8, gpus=8), DELTA, 4) if "range" in text]
    assert "(gated_deltanet)" in told
