"""Samples packed into a sequence: attention is that of so many short sequences, all else of the long one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from railwright.model import layer_operators
from railwright.model.operators.recompute import CORE
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layers.packing import attended, samples_of
from training_cases import DENSE, MOE, job, machine

PACKED = job(sequence=4096, batch=32).model_copy(update={"cuda_graphs": ("step",)})


def packed(length: int, base: TrainingJob = PACKED) -> TrainingJob:
    return base.model_copy(update={"sample_length": length})


def test_a_sequence_of_one_sample_is_the_sequence() -> None:
    whole = simulate(PACKED, DENSE, machine(1))
    assert replace(simulate(packed(4096), DENSE, machine(1)), warnings=()) == replace(whole, warnings=())


@pytest.mark.parametrize("arch", [DENSE, MOE], ids=["dense", "experts"])
@pytest.mark.parametrize("length", [256, 1024])
def test_packed_samples_take_as_long_as_a_microbatch_of_them(arch: object, length: int) -> None:
    # the same rows, the same samples: one sequence of 4096 tokens, or 4096 / length of their own
    count = 4096 // length
    alone = PACKED.model_copy(update={"sequence": length, "global_batch": 32 * count, "micro_batch": count})
    ours, theirs = (simulate(j, arch, machine(1)) for j in (packed(length), alone))  # type: ignore[arg-type]
    assert ours.step_time == pytest.approx(theirs.step_time, rel=1e-9)
    assert ours.model_flops == pytest.approx(theirs.model_flops)


@given(st.integers(16, 4096))
def test_attention_flops_go_with_the_mean_length(length: int) -> None:
    def core(tokens: int) -> float:
        found = layer_operators(DENSE, "dense", 4096, tokens)
        return sum(op.flops for op in (*found.forward, *found.backward_input) if op.name.startswith(CORE))

    assert core(length) == pytest.approx(core(4096) * length / 4096)
    assert samples_of(packed(length)) * length <= 4096


def test_shorter_samples_never_take_longer() -> None:
    times = [simulate(packed(n), DENSE, machine(1)).step_time for n in (4096, 2048, 1024, 512, 256)]
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1]


def test_attention_that_is_not_fused_computes_all_scores() -> None:
    old = PACKED.model_copy(update={"software": "megatron-2022"})
    assert attended(packed(256, old)) == 4096
    assert attended(packed(256)) == 256
    assert simulate(packed(256, old), DENSE, machine(1)).step_time == pytest.approx(
        simulate(old, DENSE, machine(1)).step_time
    )
