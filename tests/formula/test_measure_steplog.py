"""Training logs: one step line of every framework that is known, and what is made of many."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from railwright.errors import PlanError
from railwright.measure.compare.step_words import words
from railwright.measure.compare.steps import compare_steps
from railwright.measure.steplog import LoggedStep, StepLog, is_step_log, read_step_log
from railwright.model import flops_per_token
from railwright.training.whatif.changes import FREE_LAUNCHES, what_ifs
from steplog_cases import JOB, LINES, compared, logged, predicted, written
from training_cases import DENSE, job, machine


@pytest.mark.parametrize("framework", LINES)
def test_a_line_of_every_framework(tmp_path: Path, framework: str) -> None:
    text, step = LINES[framework]
    file = written(tmp_path, text + "\n")
    assert is_step_log(file)
    log = read_step_log(file)
    assert log.framework == framework
    (found,) = log.steps
    for name, value in vars(step).items():
        if name == "between":
            continue  # below: test_rounded_figures_are_of_the_jobs_batch
        assert getattr(found, name) == (pytest.approx(value) if value else value), name


def test_nemo_of_2024_draws_a_bar(tmp_path: Path) -> None:
    bar = "Epoch 0: : 9%| 9/100 [00:07<00:00, loss=7.31, global_step={}.00, train_step_timing in s=3.59]"
    log = read_step_log(written(tmp_path, "\r".join(map(bar.format, (1, 2, 3))) + "\n"))
    assert [(step.line, step.number, step.seconds) for step in log.steps] == [(1, n, 3.59) for n in (1, 2, 3)]


def test_composer_tells_a_batch_over_many_lines(tmp_path: Path) -> None:
    text = (
        "[batch=20/4800]:\n\t Train time/batch: 19\n\t Train throughput/device/tokens_per_sec: 10234.5000\n"
    )
    log = read_step_log(written(tmp_path, text))
    assert (log.framework, log.steps[0].number, log.steps[0].rate) == ("llm-foundry", 20, 10234.5)


def test_megatron_says_what_ran_and_what_it_holds(tmp_path: Path) -> None:
    text = (
        "using world size: 16, data-parallel size: 2, context-parallel size: 1, hierarchical "
        "context-parallel sizes: None, tensor-model-parallel size: 4, pipeline-model-parallel size: 2\n"
        "[Rank 0] (after 2 iterations) memory (MB) | allocated: 9.0 | max allocated: 1024.0 | "
        "reserved: 1500.0 | max reserved: 2048.00\n" + LINES["Megatron-LM"][0]
    )
    log = read_step_log(written(tmp_path, text))
    assert dict(log.said) == {"gpus": 16, "layout.tensor": 4, "layout.pipeline": 2, "layout.context": 1}
    assert log.reserved == 2 * 2**30


def test_a_job_started_again_counts_its_steps_once(tmp_path: Path) -> None:
    line = " iteration {:8d}/ 500 | elapsed time per iteration (ms): {:.1f} | global batch size:   128 |\n"
    steps = ((1, 9000.0), (2, 1000.0), (3, 1000.0), (2, 1100.0), (3, 1200.0))
    text = "".join(line.format(n, t) for n, t in steps)
    assert [(s.number, s.seconds) for s in read_step_log(written(tmp_path, text)).steps] == [
        (1, 9.0),
        (2, pytest.approx(1.1)),
        (3, pytest.approx(1.2)),
    ]


def test_logs_of_collectives_are_none() -> None:
    for file in (Path(__file__).parents[1] / "data" / "logs").iterdir():
        assert is_step_log(file) is file.name.startswith("steps_"), file


def test_the_predicted_step_is_as_expected() -> None:
    found = compared([9.0] + 99 * [predicted()])
    assert (found.ratio, found.verdict, found.count) == (pytest.approx(1.0), "as expected", 90)
    assert found.explanations == ()
    assert words(found)[0].endswith("s, as predicted.")


@pytest.mark.parametrize(
    ("times", "says"), [(1.0004, "as predicted"), (0.9996, "as predicted"), (1.001, "0.1 % longer than")]
)
def test_a_difference_that_rounds_to_nothing_is_none(times: float, says: str) -> None:
    """It was 0.0 % shorter; of a single line, which gets no verdict, too."""
    for steps in (20, 1):
        assert says in words(compared(steps * [times * predicted()]))[0]


def test_the_slip_that_ran_is_named() -> None:
    """Everything computed again takes a third more; that is what the log is told to be."""
    again = job(batch=64, tensor=2, recompute="full")
    found = compared(20 * [predicted(again)])
    assert found.verdict == "slower"
    assert found.explanations[0].name == "Everything computed again"
    assert found.explanations[0].fits
    assert "'Everything computed again'" in words(found)[1]


def test_faster_launches_are_an_explanation() -> None:
    """The study's warning said that launches decide; nothing explained a log without them."""
    plan = job(batch=64, tensor=2, sequence=256)
    launched = {one.name: one.step for one in what_ifs(plan, DENSE, machine())}[FREE_LAUNCHES]
    assert launched is not None
    found = compared(20 * [launched.step_time], plan)
    assert found.verdict == "faster"
    assert (found.explanations[0].name, found.explanations[0].fits) == (FREE_LAUNCHES, True)


def test_what_explains_nothing_is_not_said_to() -> None:
    found = compared(20 * [9 * predicted()])
    assert not any(one.fits for one in found.explanations)
    assert "No single change" in words(found)[1]
    assert words(found)[1].endswith("which part is longer than predicted.")
    assert words(compared(20 * [predicted() / 1.3]))[1].endswith("which part is shorter than predicted.")


@pytest.mark.parametrize(("over", "impossible"), [(0.99, False), (1.01, True)])
def test_steps_beyond_the_peak_of_their_gpus_are_of_another_job(over: float, impossible: bool) -> None:
    """At that pace 32 GPUs do 64 sequences' FLOPs, with half of the attention scores, at 989.4 TFLOP/s."""
    flops = 64 * 1024 * flops_per_token(DENSE, 1024, "causal").total
    found = compared(20 * [flops / (32 * 989.4e12) / over])
    assert found.impossible is impossible
    assert ("no step of this job can be so short" in words(found)[1]) is impossible
    assert (found.explanations == ()) or not impossible


def test_a_log_of_another_framework_is_told_what_to_predict_with() -> None:
    """A torchtitan log beside the default, Megatron's: 18.2 s of Llama 3.1 70B on 512 H100 were 19 % too long
    without a cause, and are 2 % short of what fsdp-2025 is predicted to take."""
    titan = replace(logged(20 * [1.2 * predicted()]), framework="torchtitan")
    told = words(compare_steps(titan, JOB, DENSE, machine()))
    assert "predicted as megatron-2025 runs it" in told[-1]
    assert "such as fsdp-2026" in told[-1]
    own = JOB.model_copy(update={"software": "fsdp-2024"})
    assert compare_steps(titan, own, DENSE, machine()).notes == ()
    assert compared(20 * [predicted()]).notes == ()


def test_slow_steps_that_come_regularly_are_told() -> None:
    one = predicted()
    found = compared([3 * one if i % 10 == 0 else one for i in range(1, 101)])
    assert (found.spread.slow, found.spread.every) == (9, 10)
    assert found.spread.lost == pytest.approx(9 * 2 / (81 + 9 * 3))
    assert any("every 10 steps" in said for said in words(found))


def test_a_job_that_slows_down_is_told() -> None:
    one = predicted()
    found = compared([one * (1 + 0.001 * i) for i in range(100)])
    assert found.spread.drift > 0.05
    assert any("is not steady" in said for said in words(found))


def test_rates_become_steps_by_the_jobs_own_tokens() -> None:
    rate = JOB.global_batch * JOB.sequence / predicted() / 32
    steps = tuple(LoggedStep(i, i, rate=rate) for i in range(1, 11))
    found = compare_steps(StepLog("job.log", "torchtitan", steps), JOB, DENSE, machine())
    assert found.ratio == pytest.approx(1.0)


def test_one_line_of_warm_up_gets_no_verdict() -> None:
    """A first step compiles: it says nothing of the job's pace."""
    found = compared([9 * predicted()])
    assert (found.verdict, found.count, found.explanations) == ("not judged", 1, ())
    (said, *_) = words(found)
    assert "no verdict is given: give a log with more lines" in said
    assert not any("explain" in sentence for sentence in words(found))


def test_a_line_behind_the_warm_up_is_judged() -> None:
    assert compared([9.0, predicted()]).verdict == "as expected"


@pytest.mark.parametrize(
    ("times", "says"),
    [(2.0, "100.0 % longer than"), (9.9, "890.0 % longer than"), (160.0, "160 times as long as")],
)
def test_many_times_as_long_is_no_share(times: float, says: str) -> None:
    assert says in words(compared(5 * [times * predicted()]))[0]


def test_hugging_faces_fifth_version_prints_strings(tmp_path: Path) -> None:
    """Strings where numbers were: it is a training log all the same."""
    said = (
        "{'train_runtime': '7767', 'train_samples_per_second': '4.12', 'train_steps_per_second': '0.257', "
        "'train_loss': '0.1762', 'epoch': '142.9'}"
    )
    (step,) = read_step_log(written(tmp_path, said + "\n")).steps
    assert (step.seconds, step.samples) == (pytest.approx(1 / 0.257), pytest.approx(16.03, abs=0.01))


@pytest.mark.parametrize("batch", [64, 480, 2048])
@pytest.mark.parametrize("seconds", [0.3137, 1.4321, 14.049, 70.3])
def test_rounded_figures_are_of_the_jobs_batch(tmp_path: Path, batch: int, seconds: float) -> None:
    """Three decimals of a step make 2,046 sequences of 2,048: no other job, and no ramp."""
    each = f"iter time (s): {seconds:0.3f} samples/sec: {batch / seconds:0.3f}"
    run = {
        "train_runtime": round(1000 * seconds, 4),
        "train_samples_per_second": round(batch / seconds, 3),
        "train_steps_per_second": round(1 / seconds, 3),
    }
    for text in (f"steps: 10 loss: 2.3456 {each}", str(run)):
        found = compare_steps(
            read_step_log(written(tmp_path, text + "\n")), job(batch=batch), DENSE, machine()
        )
        assert found.measured == pytest.approx(seconds, rel=5e-4)


def _bar(step: int, steps: int, rate: str) -> str:
    return f"\r {100 * step // steps:2d}%|##        | {step}/{steps} [00:09<00:10, {rate}]"


def test_trainers_bar_tells_its_steps(tmp_path: Path) -> None:
    """40 steps of 2 s, the first of 9; after the 20th an evaluation of 30 s.  tqdm's average is, after n
    steps, sum(0.3 * 0.7^(n - i) * x_i) / (1 - 0.7^n); losses of training stand behind its bar."""
    seconds = {step: {1: 9.0, 21: 32.0}.get(step, 2.0) for step in range(1, 41)}
    text, held = _bar(0, 40, "?it/s"), 0.0
    for step, took in seconds.items():
        held = 0.3 * took + 0.7 * held
        text += _bar(step, 40, f"{held / (1 - 0.7**step):.2f}s/it")
        if step % 10 == 0:
            text += "\r      \r{'loss': '1.2', 'grad_norm': '0.5', 'epoch': '0.1'}\n"
            text += _bar(step, 40, f"{held / (1 - 0.7**step):.2f}s/it")
        if step == 20:
            text += "".join(_bar(k, 90, "3.00it/s") for k in range(1, 91)) + "\r{'eval_loss': '1.1'}\n"
    text += _bar(40, 40, "2.93s/it") + "\n"  # the mean of all, as it is closed
    log = read_step_log(written(tmp_path, text))
    assert (log.framework, log.blurred, len(log.steps)) == ("Hugging Face's Trainer", True, 40)
    for found in log.steps:
        assert found.seconds == pytest.approx(seconds[found.number], abs=0.03)
    job_ = job(batch=64)
    assert compare_steps(log, job_, DENSE, machine()).measured == pytest.approx(2.0, abs=0.01)
    told = words(compare_steps(log, job_, DENSE, machine()))
    assert not any("one and a half" in one for one in told)
    assert any("moving averages" in one for one in told)
    assert any("None of our software is fitted to steps of Hugging Face's Trainer" in one for one in told)


def test_torchtunes_bar_tells_its_steps(tmp_path: Path) -> None:
    """Two epochs of 30 steps of 2 s, the first of 9, and the averages begin anew; the bar moves, and is drawn
    again with the step's own loss."""
    text = f"  0%|          | 0/30 [00:00<?, ?it/s]\r1|0:   0%|{' ' * 10}| 0/30 [00:00<?, ?it/s]"
    for epoch in (1, 2):
        held = 0.0
        for step in range(1, 31):
            held = 0.3 * (9.0 if step == 1 else 2.0) + 0.7 * held
            rate, number = f"{held / (1 - 0.7**step):.2f}s/it", 30 * (epoch - 1) + step
            for named in (number - 1, number):
                if number > 1 or named:
                    text += f"\r{epoch}|{named}|Loss: {3 / number}: {_bar(step, 30, rate)[2:]}"
        text += f"\r{epoch}|{30 * epoch}|Loss: 0.5: {_bar(30, 30, '2.23s/it')[2:]}\n"  # closed: the mean
    text += "Step 60 | loss:0.5 lr:2e-05 tokens_per_second_per_gpu:511.5 \n"
    log = read_step_log(written(tmp_path, text))
    assert (log.framework, log.blurred) == ("torchtune", True)
    assert [step.number for step in log.steps] == list(range(1, 61))
    for found in log.steps:
        assert found.seconds == pytest.approx(9.0 if found.number in (1, 31) else 2.0, abs=0.03)
    told = words(compare_steps(log, job(batch=64), DENSE, machine()))
    assert any("fsdp-2026-eager" in one for one in told)


def test_olmo_tells_a_step_over_many_lines(tmp_path: Path) -> None:
    """Of lines that number steps alone nothing is told; what is reserved at most stands beside rates."""
    lines = ["[step=1/100,epoch=0]\n    train/CE loss=11.2", "[step=2/100,epoch=0]"]
    for step in (3, 4):
        rates = f"    throughput/device/TPS={1000 * step:,}\n    throughput/device/TPS (actual avg)=1,100"
        lines.append(f"[step={step}/???,epoch=0]\n{rates}\n    gpu_memory/GPU reserved mem (GiB)=6{step}.5")
    log = read_step_log(written(tmp_path, "\n".join(lines) + "\n"))
    assert [(step.number, step.rate) for step in log.steps] == [(3, 3000.0), (4, 4000.0)]
    assert (log.framework, log.reserved, log.blurred) == ("OLMo-core", 64.5 * 2**30, False)


def test_trainers_announced_steps_and_batch_count(tmp_path: Path) -> None:
    """Of a stream without losses the bar's length is known from the announcement, and so is the batch."""
    head = (
        "[INFO|trainer.py] >>   Total train batch size (w. parallel, distributed & accumulation) = 1,024\n"
        "[INFO|trainer.py] >>   Total optimization steps = 3,000\n"
    )
    bars = "".join(f"Map: {_bar(k, 50, '9.00it/s')[1:]}\n" for k in range(1, 9))
    bars += "".join(_bar(k, 3000, "2.00it/s") for k in range(1, 9))
    log = read_step_log(written(tmp_path, head + bars))
    assert [step.seconds for step in log.steps] == pytest.approx([0.5] * 8, abs=1e-6)
    with pytest.raises(
        PlanError, match=r"ran another job than the study's: global_batch 1024 \('case': 64\)"
    ):
        compare_steps(log, job(batch=64), DENSE, machine())


def test_a_restarted_bar_says_nothing_of_the_steps_before_it(tmp_path: Path) -> None:
    """Its first station holds the 500 steps that ran before, at once: tqdm's averages over their number and
    their time go on with that, and are still off by two fifths after 15 steps."""
    text, times, numbers = _bar(0, 1000, "?it/s"), 0.0, 0.0
    for step in range(501, 601):
        held = 501 if step == 501 else 1
        times, numbers = 0.3 * 2.0 + 0.7 * times, 0.3 * held + 0.7 * numbers
        rate = f"{numbers / times:.2f}it/s" if numbers > times else f"{times / numbers:.2f}s/it"
        text += _bar(step, 1000, rate)
    log = read_step_log(written(tmp_path, text + "\r{'loss': '1.2'}\n"))
    assert [step.number for step in log.steps] == list(range(535, 601))  # 0.3 * 501 * 0.7^34 < 0.001
    assert [step.seconds for step in log.steps] == pytest.approx(len(log.steps) * [2.0], abs=0.02)


def test_a_bar_and_its_losses_may_share_a_line(tmp_path: Path) -> None:
    """Where the two streams of a job meet without carriage returns."""
    told = "{'loss': '1.2', 'epoch': '0.1'}\n"
    text = "".join(_bar(step, 200, "20.20s/it")[1:] + told for step in range(1, 5))
    log = read_step_log(written(tmp_path, text))
    assert [step.seconds for step in log.steps] == pytest.approx([20.2] * 4)


def test_maxtexts_tokens_are_of_the_jobs_batch(tmp_path: Path) -> None:
    """64 sequences of 1,024 tokens on 32 GPUs are 2,048 each; steps of a growing batch do not count."""
    line = "completed step: {}, seconds: {:.3f}, TFLOP/s/device: 100.000, Tokens/s/device: {:.3f}, loss: 1\n"
    ramp = "[Rampup Batch Size Phase], completed step: 0, seconds: 9.000, total_weights: 9, loss: 1.0\n"
    one = job(batch=64)
    tokens = 2048
    text = ramp + "".join(line.format(n, 1.5, tokens / 1.5) for n in range(1, 12))
    log = read_step_log(written(tmp_path, text))
    found = compare_steps(log, one, DENSE, machine())
    assert (found.first, found.last, found.measured) == (2, 11, 1.5)  # the first is the warm-up
    with pytest.raises(PlanError, match=f"a step of {tokens} tokens on each GPU, while 'case' has"):
        compare_steps(log, job(batch=32), DENSE, machine())


def test_a_last_batch_that_is_not_full_is_no_other_job(tmp_path: Path) -> None:
    """10,000 samples by 128 are 79 steps of 126.6 on average."""
    run = {
        "train_runtime": 158.0,
        "train_samples_per_second": round(10_000 / 158, 3),
        "train_steps_per_second": 0.5,
        "epoch": 1.0,
    }
    log = read_step_log(written(tmp_path, str(run)))
    found = compare_steps(log, job(batch=128), DENSE, machine())
    assert found.measured == pytest.approx(128 * 158 / 10_000, rel=1e-4)
    assert "mean of a whole run" in words(found)[0]
    with pytest.raises(PlanError, match="a step of 127 sequences, while 'case' has global_batch: 256"):
        compare_steps(log, job(batch=256), DENSE, machine())


def test_a_job_started_again_on_other_gpus_is_another(tmp_path: Path) -> None:
    """What the last start says of itself says nothing of the steps of the first."""
    start = "using world size: {}, tensor-model-parallel size: 2, pipeline-model-parallel size: 1\n"
    line = " iteration {:8d}/ 500 | elapsed time per iteration (ms): {:.1f} | global batch size:   64 |\n"
    one = 1e3 * predicted()
    text = start.format(16) + "".join(line.format(n, 2 * one) for n in range(1, 31))
    text += start.format(32) + "".join(line.format(n, one) for n in range(21, 41))
    found = compare_steps(read_step_log(written(tmp_path, text)), JOB, DENSE, machine())
    assert (found.verdict, found.first, found.count) == ("as expected", 23, 18)
    assert words(found)[-1].startswith("30 steps left out that ran on other GPUs")


def test_means_of_many_steps_are_not_told_as_steps() -> None:
    one = predicted()
    steps = tuple(
        LoggedStep(i, 10 * i, seconds=3 * one if i % 10 == 0 else one, samples=64) for i in range(1, 101)
    )
    found = compare_steps(StepLog("job.log", "Megatron-LM", steps), JOB, DENSE, machine())
    assert any(
        said.startswith("9 means of 10 steps take over") and "every 100" in said for said in words(found)
    )


def test_steps_that_were_not_run_again_count_to_the_last() -> None:
    one = predicted()
    steps = tuple(LoggedStep(1, n, seconds=one, samples=64) for n in (*range(1, 61), *range(71, 101), 61, 62))
    found = compare_steps(StepLog("job.log", "Megatron-LM", steps), JOB, DENSE, machine())
    assert (found.first, found.last) == (10, 100)
