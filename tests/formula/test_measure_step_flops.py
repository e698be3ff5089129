"""FLOPs that a log's own TFLOP/s stand for, beside those that we count for the study's job."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from railwright.cli.studies import open_study
from railwright.measure.compare.step_flops import AGAIN, LoggedFlops, logged_flops
from railwright.measure.compare.step_words import flop_words
from railwright.measure.steplog import LoggedStep, StepLog, read_step_log
from railwright.model import flops_per_token, load_model
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import Lora, TrainingJob
from training_cases import DENSE, changed, job

LOGS = Path(__file__).parents[1] / "data" / "logs"
JOB = job(batch=64)
GPUS = 32


def of_log(name: str) -> LoggedFlops:
    """A sample log beside Mixtral 8x7B on 240 GPUs."""
    (plan,) = open_study("rail-240").jobs
    log = read_step_log(LOGS / name)
    tokens = plan.global_batch * plan.sequence
    times = [s.seconds or tokens / ((s.rate or 1.0) * 240) for s in log.steps]
    found = logged_flops(log, log.steps, times, plan, load_model(plan.model), 240)
    assert found is not None
    return found


def flops(
    per_token: float, plan: TrainingJob = JOB, arch: Transformer = DENSE, **step: float
) -> LoggedFlops | None:
    """Ten steps of a log that counts so many FLOPs per token."""
    each = plan.global_batch * plan.sequence / GPUS
    steps = [LoggedStep(i, i, seconds=2.0, flop_rate=per_token * each / 2.0, **step) for i in range(10)]
    return logged_flops(StepLog("job.log", "Megatron-LM", tuple(steps)), steps, [2.0] * 10, plan, arch, GPUS)


@pytest.mark.parametrize(
    ("name", "fits", "again", "says"),
    [
        ("steps_megatron.log", ("full",), (), "with full attention scores (causal 3.7 % above): as far"),
        ("steps_megatron_causal.log", ("causal",), (), "0.4 % above our model FLOPs with causal"),
        ("steps_hardware_flops.log", (), ("full",), "again (4/3); the study says recompute: none."),
        ("steps_other_model.log", (), (), "30.2 % below with full and 27.3 % below with causal"),
    ],
)
def test_sample_logs(name: str, fits: tuple[str, ...], again: tuple[str, ...], says: str) -> None:
    found = of_log(name)
    assert (found.fitting(), found.fitting(AGAIN)) == (fits, again)
    assert says in flop_words(found)


def test_a_rate_in_tokens_tells_neither_batch_nor_gpus() -> None:
    assert of_log("steps_other_model.log").another == ("model", "sequence")
    assert of_log("steps_megatron.log").another == ("model", "sequence")  # it says both
    assert of_log("steps_megatron_causal.log").another == ("model", "sequence", "number of GPUs")


def test_a_count_far_from_ours_is_another_job() -> None:
    found = flops(2 * flops_per_token(DENSE, JOB.sequence).total)
    assert found is not None
    assert found.off("full") == pytest.approx(1.0)
    says = flop_words(found)
    assert "100.0 % above with full" in says
    assert "another model, sequence, batch or number of GPUs than the study's, or its framework" in says


def test_counts_that_nothing_tells_apart_are_both_named() -> None:
    """With 64 tokens attention is some tenth of a per cent."""
    short = changed(JOB, sequence=64)
    found = flops(flops_per_token(DENSE, 64).total, short)
    assert found is not None
    assert found.fitting() == ("full", "causal")
    assert "with full or causal attention scores: as far" in flop_words(found)


def test_packed_samples_are_counted_both_ways() -> None:
    packed = changed(JOB, sample_length=JOB.sequence // 8)
    for length, name in ((JOB.sequence, "full"), (JOB.sequence // 8, "full (within samples)")):
        found = flops(flops_per_token(DENSE, length).total, packed)
        assert found is not None
        assert found.fitting()[0] == name


def test_layers_for_further_tokens_are_named() -> None:
    arch = replace(DENSE, mtp_layers=1)
    found = flops(1.15 * flops_per_token(arch, JOB.sequence).total, arch=arch)
    assert found is not None
    assert "counts layers that predict further tokens" in flop_words(found)


def test_what_a_log_does_not_say() -> None:
    assert flops(0.0) is None
    assert flops(6e9, changed(JOB, lora=Lora(rank=8))) is None


def test_full_recomputation_of_the_study_is_no_surprise() -> None:
    found = flops(AGAIN * flops_per_token(DENSE, JOB.sequence).total, job(batch=64, recompute="full"))
    assert found is not None
    assert flop_words(found).endswith("computes everything again (4/3).")
