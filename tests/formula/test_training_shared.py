"""Shared experts beside the all-to-alls of routed ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.lanes.result import StepResult
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.memory.activations import layer_kept_parts
from railwright.training.software.eras import Pace
from training_cases import DENSE, MOE, job, machine, priced

SHARED = replace(MOE, shared_experts=1, shared_ffn=4096)
BESIDE = Overlap(shared=True, dp=False)
KERNEL = 1e-3
"""Seconds of every kernel here: the host hides behind them."""


def step(cut: TrainingJob, seconds: float) -> StepResult:
    """A step whose every collective takes `seconds`."""
    return simulate(
        cut,
        SHARED,
        machine(1),
        predict=priced(1e18, seconds),
        kernel=lambda operator: KERNEL if operator.kind in ("gemm", "grouped_gemm") else 0.0,
        pace=Pace(host=0.0),
    )


def cut(**more: object) -> TrainingJob:
    return job(batch=8, expert=8, overlap=Overlap(dp=False)).model_copy(update=more)


def test_short_all_to_alls_hide_wholly_behind_shared_experts() -> None:
    # forward the first product runs beside dispatch and the second beside combine; backward two kernels each;
    # nothing runs beside the gather of counts
    waits, hides = (step(cut(overlap=o), 0.2 * KERNEL) for o in (Overlap(dp=False), BESIDE))
    assert waits.exposed("ep") == pytest.approx(8 * 5 * 0.2 * KERNEL)
    assert hides.exposed("ep") == pytest.approx(8 * 0.2 * KERNEL)
    assert hides.step_time < waits.step_time


def test_long_ones_show_what_is_longer_than_shared_experts() -> None:
    seconds = 10 * KERNEL
    waits, hides = (step(cut(overlap=o), seconds) for o in (Overlap(dp=False), BESIDE))
    saved = waits.exposed("ep") - hides.exposed("ep")
    # of 8 layers 2 kernels forward and 4 backward, stretched while communication runs
    assert 8 * 6 * KERNEL <= saved <= 8 * 6 * KERNEL * 1.25
    assert hides.step_time >= waits.step_time - saved


@pytest.mark.parametrize(
    "change",
    [
        {"overlap": Overlap(shared=True, ep=True)},
        {"expert_nodes": 2},
        {"launch_blocking": True, "overlap": Overlap(shared=True, dp=False, pp=False)},
        {"overlap": Overlap()},
    ],
)
def test_nothing_hides_where_megatron_cannot(change: dict[str, object]) -> None:
    assert hides_behind_shared(cut(overlap=BESIDE), SHARED)
    one = cut(overlap=BESIDE).model_copy(update=change)
    assert not hides_behind_shared(one, SHARED)
    told = any("overlap.shared does nothing" in sentence for sentence in doubts(one, SHARED, 4))
    assert told == one.overlap.shared


def test_models_without_shared_experts_are_told() -> None:
    for arch in (DENSE, MOE):
        assert any("overlap.shared does nothing" in one for one in doubts(cut(overlap=BESIDE), arch, 4))


@pytest.mark.parametrize(("schedule", "pipeline", "zero"), [("gpipe", 2, 1), ("auto", 2, 1), ("auto", 1, 3)])
def test_passes_that_take_no_turns_leave_shared_experts_beside_all_to_alls(
    schedule: str, pipeline: int, zero: int
) -> None:
    """`overlap.ep` hides nothing there, and both together were up to 6 % slower than `shared` alone."""
    wanted = job(batch=64, expert=4, schedule=schedule, pipeline=pipeline, zero=zero, overlap=BESIDE)
    both = wanted.model_copy(update={"overlap": BESIDE.model_copy(update={"ep": True})})
    assert hides_behind_shared(both, SHARED)
    assert step(both, 0.2 * KERNEL).step_time == step(wanted, 0.2 * KERNEL).step_time


@pytest.mark.parametrize(("dtype", "before", "beside"), [("bf16", 0.0, 2.0), ("fp8", 0.5, 1.0)])
def test_shared_experts_keep_the_rows_that_they_gathered(dtype: str, before: float, beside: float) -> None:
    """1,024 tokens over 2 tensor ranks; the router keeps half of them anyhow, and products in fp8 a copy of
    those that they read.  Without sequence parallelism nothing is gathered."""
    one = cut(dtype=dtype).model_copy(update={"sequence": 1024})
    hidden = 1024.0 * SHARED.hidden

    def kept(overlap: Overlap, sequence_parallel: bool = True) -> float:
        layout = one.layout.model_copy(update={"tensor": 2, "sequence_parallel": sequence_parallel})
        wanted = one.model_copy(update={"layout": layout, "overlap": overlap})
        return layer_kept_parts(wanted, SHARED, "moe", "none").get("shared input", 0.0) / hidden

    assert kept(Overlap()) == pytest.approx(before)
    assert kept(BESIDE) == pytest.approx(beside)
    assert kept(BESIDE, sequence_parallel=False) == kept(Overlap(), sequence_parallel=False)
