"""A machine whose every rate is twice as high takes half the time, to the last digit: nothing in a step is a
constant of ours but what the host launches and the detours of a pass (`stragglers`).  All kinds of layers,
shardings, schedules and recomputation."""

from __future__ import annotations

from unittest.mock import patch

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright.errors import PlanError
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.software.eras import Pace
from railwright.training.software.stragglers import largest_normal
from training_cases import (
    BLOCKS,
    DELTA,
    DENSE,
    KIMI,
    LATENTS,
    LIGHTNING,
    MIXED,
    MOE,
    changed,
    job,
    machine,
    priced,
    roofline,
)

ARCHITECTURES = (DENSE, MOE, LATENTS, BLOCKS, DELTA, KIMI, LIGHTNING, MIXED)
overlaps = st.builds(
    Overlap,
    **{name: st.booleans() for name in ("dp", "tp", "ep", "shared", "pp", "cp")},
    prefetch=st.integers(0, 2),
)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[TrainingJob, Transformer]:
    """A job on 32 GPUs, of any kind that a layout can have; not all of them can run."""
    tensor, pipeline, context = (draw(st.sampled_from(sizes)) for sizes in ([1, 2, 4], [1, 2, 4], [1, 2]))
    arch = draw(st.sampled_from(ARCHITECTURES))
    data = 32 // tensor // pipeline // context
    schedule = draw(st.sampled_from(["auto", "auto", "gpipe", "zb-h1", "zb-v", "dualpipe", "dualpipe-v"]))
    one = job(
        overlap=draw(overlaps),
        gpus=32,
        batch=data * pipeline * draw(st.sampled_from([1, 2, 4])),
        dtype=draw(st.sampled_from(["bf16", "fp8"])),
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        schedule=schedule if pipeline > 1 else "auto",
        virtual_pipeline=draw(st.sampled_from([1, 2])) if pipeline > 1 and schedule == "auto" else 1,
        expert=draw(st.sampled_from([1, 2, 4, 8])) if arch.is_moe else 1,
        sequence_parallel=draw(st.booleans()),
        zero=draw(st.sampled_from([0, 1, 2, 3])),
        reshard=draw(st.booleans()),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
        context_kind=draw(st.sampled_from(["ring", "all-to-all", "all-gather"])),
    )
    return changed(one, cuda_graphs=("step",)), arch


def stepped(one: TrainingJob, arch: Transformer, rate: float) -> StepResult:
    """On a machine `rate` times as fast, without detours."""

    def kernel(operator: Operator) -> float:
        return roofline(operator) / rate

    def wait(groups: int, gpus: int, seconds: float, deviation: float) -> float:
        return deviation * largest_normal(groups)[0]

    predict = priced(50e9 * rate, 20e-6 / rate)
    with patch("railwright.training.passes.lockstep.pass_wait", wait):
        return simulate(one, arch, machine(4), predict=predict, kernel=kernel, pace=Pace())


@settings(max_examples=120)
@given(jobs())
def test_twice_the_rates_halve_a_step_and_every_share_of_it(drawn: tuple[TrainingJob, Transformer]) -> None:
    one, arch = drawn
    try:
        slow = stepped(one, arch, 1.0)
    except PlanError:
        assume(False)
    fast = stepped(one, arch, 2.0)
    assert fast.step_time == pytest.approx(slow.step_time / 2, rel=1e-9)
    tiny = 1e-9 * slow.step_time
    for a, b in zip(slow.shares, fast.shares, strict=True):
        assert (b.kind, b.exposed) == (a.kind, pytest.approx(a.exposed / 2, rel=1e-6, abs=tiny))
    assert sum(share.exposed for share in slow.shares) == pytest.approx(slow.step_time)
    assert fast.memory == slow.memory
    assert [(c.purpose, c.count, c.prediction.size) for c in fast.collectives] == [
        (c.purpose, c.count, c.prediction.size) for c in slow.collectives
    ]
