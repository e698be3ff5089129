"""Training logs that cannot be held against a study: one sentence that names the file and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.training_cases import DENSE, job, machine
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError, RailwrightError
from railwright.measure.compare.steps import compare_steps
from railwright.measure.steplog import LoggedStep, StepLog, is_step_log, read_step_log
from railwright.spec import template

MEGATRON = " iteration 1/ 500 | elapsed time per iteration (ms): 4567.8 | global batch size: 128 |\n"
NANOTRON = "iteration: 7 / 1000 | time_per_iteration_ms: 2.05K | global_batch_size: 1.05M | lm_loss: 9.8\n"


def test_no_step(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("starting\n iteration       1/     500 | elapsed time per itera")
    assert not is_step_log(file)
    with pytest.raises(
        RailwrightError,
        match=r"job\.log: has no training step; expected a training log with .* as Megatron-LM, NeMo",
    ):
        read_step_log(file)


def test_a_comma_is_no_point(tmp_path: Path) -> None:
    """What another locale wrote is not taken for ten or a thousand times as much."""
    file = tmp_path / "job.log"
    file.write_text(MEGATRON.replace("4567.8", "4567,8"))
    assert not is_step_log(file)
    file.write_text(MEGATRON.replace("4567.8", "4,567.8"))
    assert read_step_log(file).steps[0].seconds == pytest.approx(4.5678)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (
            "starting\n" + "step: 1 loss: nan memory: 40.50GiB(51.20%)  tps: 0  tflops: 0.0  mfu: 0%\n" * 4,
            "job.log:2: the first of 4 lines in which torchtitan tells of a step; none has a time",
        ),
        (
            MEGATRON.replace("4567.8", "-5.0") + MEGATRON.replace("4567.8", "nan"),
            "job.log:1: the first of 2 lines in which Megatron-LM tells of a step",
        ),
        ("step: 1 loss: 2.0 memory: 1GiB tps: nan\n", "job.log:1: the first of 1 line in which torchtitan"),
        (NANOTRON.replace("2.05K", "nan"), "job.log:1: the first of 1 line in which nanotron"),
    ],
)
def test_steps_whose_times_are_none_are_said_to_stand_there(tmp_path: Path, lines: str, told: str) -> None:
    file, study = tmp_path / "job.log", tmp_path / "study.yaml"
    file.write_text(lines)
    assert not is_step_log(file)
    with pytest.raises(RailwrightError) as error:
        read_step_log(file)
    assert told in str(error.value)
    study.write_text(template("rail-240"))
    done = CliRunner().invoke(app, ["compare", str(file), str(study)])
    assert done.exit_code == 2
    assert "give the log of a job whose steps ran" in " ".join(done.output.split())


def test_losses_of_trainer_without_times(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text("{'loss': 1.2, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" * 3)
    assert not is_step_log(file)
    with pytest.raises(RailwrightError, match="nothing that times its steps; give it with the progress bar"):
        read_step_log(file)


@pytest.mark.parametrize(
    "line",
    [
        "(TaskRunner pid=16292) step:2 - actor/lr:0.0 - timing_s/gen:74.02 - timing_s/step:96.551",
        "{'loss': 0.0, 'grad_norm': 0.1, 'completions/mean_length': 256.0, 'reward': 0.5, 'epoch': 0.01}",
    ],
)
def test_steps_of_reinforcement_learning(tmp_path: Path, line: str) -> None:
    file = tmp_path / "job.log"
    file.write_text(f"  2%|#  | 2/100 [01:36<10:00, 96.55s/it]\n{line}\n")
    assert is_step_log(file)
    with pytest.raises(
        RailwrightError, match=r"job\.log:2: a step of reinforcement learning, which generates"
    ):
        read_step_log(file)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "Epoch 0:  20%|##  | 20/100 [00:10<00:40,  2.00it/s, v_num=0, train_loss=2.3]",
            "Lightning's progress bar, which counts batches",
        ),
        (
            "Epoch 0/4 ━━━━━━━━━ 20/100 0:00:10 • 0:00:40 2.00it/s v_num: 0.000",
            "Lightning's progress bar, which counts batches",
        ),
        (
            "Epoch 1 | iter 8 step 2 | loss train: 2.3, val: n/a | iter time: 310.22 ms (step) "
            "remaining time: 0:10:00",
            "LitGPT's time of an iteration, which is one microbatch",
        ),
        (
            "Step 1 | loss:2.08 lr:2e-05 tokens_per_second_per_gpu:57.8 ",
            "torchtune's tokens a second, which count those with a label alone",
        ),
        ("{'loss': 1.2, 'grad_norm': 0.5, 'epoch': 0.1}", "nothing that times its steps; give it with the"),
    ],
)
def test_logs_that_time_no_steps_are_told_what_to_give_instead(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "job.log"
    file.write_text(f"starting\n{text}\n{text}\n", encoding="utf-8")
    assert not is_step_log(file)
    with pytest.raises(RailwrightError, match=said) as caught:
        read_step_log(file)
    shown = CliRunner().invoke(app, ["compare", str(file), "rail-240"])
    assert shown.exit_code == 2
    assert str(caught.value).split(": ", 1)[1] in " ".join(shown.output.split())


def test_no_file(tmp_path: Path) -> None:
    assert not is_step_log(tmp_path / "none.log")
    with pytest.raises(RailwrightError, match=r"cannot read '.*none\.log'"):
        read_step_log(tmp_path / "none.log")


def test_logs_of_two_jobs(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_text(MEGATRON + NANOTRON)
    with pytest.raises(RailwrightError, match="has steps of Megatron-LM and of nanotron; give"):
        read_step_log(file)


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    file = tmp_path / "job.log"
    file.write_bytes(bytes(range(256)) * 64 + b"\n" + MEGATRON.encode())
    assert len(read_step_log(file).steps) == 1


def test_another_batch() -> None:
    log = StepLog("job.log", "Megatron-LM", (LoggedStep(7, 1, seconds=1.0, samples=128),))
    with pytest.raises(
        PlanError, match=r"job\.log:7: a step of 128 sequences, while 'case' has global_batch"
    ):
        compare_steps(log, job(batch=64), DENSE, machine())


def test_another_layout() -> None:
    said = (("gpus", 32), ("layout.tensor", 4), ("layout.pipeline", 1))
    log = StepLog("job.log", "Megatron-LM", (LoggedStep(7, 1, seconds=1.0),), said)
    with pytest.raises(PlanError, match=r"job than the study's: layout\.tensor 4 \('case': 2\); change"):
        compare_steps(log, job(tensor=2), DENSE, machine())


def test_a_text_that_is_no_log_that_is_read_is_told_which_logs_are(tmp_path: Path) -> None:
    """It may have been meant as any of them."""
    file = tmp_path / "job.log"
    file.write_text("epoch 1/500 | loss: 2.1\nepoch 2/500 | loss: 2.0\n")
    said = CliRunner().invoke(app, ["compare", str(file), "rail-240"])
    told = " ".join((said.output + str(said.exception or "")).split())
    assert "no table of a benchmark here; expected the output of nccl-tests" in told
    assert "or a training log with lines that number steps and time them, as Megatron-LM, NeMo" in told


def test_a_step_behind_half_a_million_lines_is_found(tmp_path: Path) -> None:
    """NCCL's words of many ranks alone fill 400,000 lines before it."""
    file = tmp_path / "job.log"
    file.write_text("NCCL INFO Channel 00/0 : 0[0] -> 1[1]\n" * 500_000 + MEGATRON)
    assert is_step_log(file)
