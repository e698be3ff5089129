"""Logs in which steps run twice, and what DeepSpeed's engine prints beside a framework's own lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from railwright.measure.compare.steps import compare_steps
from railwright.measure.steplog import LoggedStep, StepLog, read_step_log
from steplog_cases import JOB, LINES, compared, written
from training_cases import DENSE, machine


@pytest.mark.parametrize(
    ("numbers", "again"),
    [
        ([*range(1, 9), *range(1, 9)], 8),  # two runs in one file
        ([*range(1, 9), *range(5, 9)], 4),  # from a checkpoint
        ([1, 1, 2, 2, 3, 2, 3, 4, 3, 4], 0),  # ranks that all print
        (range(0, 80, 10), 0),
    ],
)
def test_steps_that_ran_again_are_counted(tmp_path: Path, numbers: Sequence[int], again: int) -> None:
    line = " iteration {:8d}/ 500 | elapsed time per iteration (ms): 1000.0 | global batch size:   128 |"
    log = read_step_log(written(tmp_path, "\n".join(map(line.format, numbers))))
    assert (len(log.steps), log.again) == (len(set(numbers)), again)


def test_a_log_of_two_runs_says_which_counts() -> None:
    """The first run's 50 steps went without a word."""
    assert any("50 steps ran again later" in note for note in compared([1.0] * 100, again=50).notes)
    assert not any("ran again" in note for note in compared([1.0] * 100).notes)


def test_deepspeeds_samples_become_steps_by_the_jobs_batch() -> None:
    """64 sequences at 32 a second: two seconds; what Trainer or Megatron-DeepSpeed tells goes before it."""
    steps = tuple(LoggedStep(i, 10 * i, sample_rate=32.0) for i in range(1, 9))
    found = compare_steps(StepLog("job.log", "DeepSpeed", steps), JOB, DENSE, machine())
    assert found.measured == pytest.approx(2.0)
    assert any("the study's global_batch (64)" in note for note in found.notes)
    assert any("software, such as deepspeed-2026" in note for note in found.notes)


@pytest.mark.parametrize("framework", ["Megatron-LM", "Hugging Face's Trainer"])
def test_deepspeeds_engine_counts_where_nothing_else_times_steps(tmp_path: Path, framework: str) -> None:
    engine = LINES["DeepSpeed"][0]
    log = read_step_log(written(tmp_path, f"{engine}\n{LINES[framework][0]}\n{engine}\n"))
    assert (log.framework, len(log.steps)) == (framework, 1)
    log = read_step_log(written(tmp_path, f"{{'loss': 2.1, 'epoch': 0.1}}\n{engine}\n"))
    assert (log.framework, len(log.steps)) == ("DeepSpeed", 1)
