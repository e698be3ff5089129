"""A load generator's result beside the prediction of its load: whose figures, which load, which verdict."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError, RailwrightError
from railwright.measure.compare.serving import compare_serving, load_of, workload_of
from railwright.measure.loadgen import read_results
from railwright.measure.loadgen.result import BenchResult, Summary
from railwright.measure.study_machine import study_machine
from railwright.model.configs.hf_config import load_model
from railwright.serving.predict import serve
from railwright.spec.serving import Client, ServingJob
from railwright.spec.study import Study

DATA = Path(__file__).parents[1] / "data" / "loadgen"
CLIENT = Client(kind="closed-loop", concurrency=8, requests=32, input=512, output=32)
JOB = ServingJob(name="chat", model="llama-3.1-8b", weights="fp8", client=CLIENT)
STUDY = Study.model_validate(
    {
        "railwright": 1,
        "name": "one server",
        "cluster": {
            "servers": 1,
            "server": "dgx-h100",
            "compute": {"family": "single-switch", "switch": "qm9700"},
        },
        "serving": (JOB,),
    }
)
TEXT = """\
railwright: 1
name: one server
cluster:
  servers: 1
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
serving:
  - name: chat
    model: llama-3.1-8b
    weights: fp8
    client: {kind: closed-loop, concurrency: 8, requests: 32, input: 512, output: 32}
"""


def _result(scale: float = 1.0, **changes: object) -> BenchResult:
    """What a load generator would say if the machine were `scale` times as slow as we predict."""
    found = serve(JOB, load_model(JOB.model), study_machine(STUDY))
    ours = {"ttft": found.ttft, "tpot": found.tpot, "end_to_end": found.end_to_end}
    said = {k: Summary(scale * v.mean, {50.0: scale * v.p50, 99.0: scale * v.p99}) for k, v in ours.items()}
    values: dict[str, object] = {
        "file": "run.json", "tool": "vllm bench serve", "label": "", "model": "", "requests": 32, "failed": 0,
        "duration": 1.0, "concurrency": 8, "rate": None, "prompt": 512.0, "output": 32.0, **said,
        "tokens_rate": found.tokens_per_second / scale,
    }  # fmt: skip
    return BenchResult(**{**values, **changes})  # type: ignore[arg-type]


def test_our_own_prediction_is_as_expected() -> None:
    (found,) = compare_serving([_result()], STUDY)
    assert [p.ratio for p in found.points] == pytest.approx([1.0] * 9)
    assert {p.verdict for p in found.points} == {"as expected"}
    assert found.tokens is not None
    assert found.tokens[0] == pytest.approx(found.tokens[1])
    assert found.assumed == ()


def test_ten_times_as_slow_is_said_with_a_next_test() -> None:
    (found,) = compare_serving([_result(10.0, failed=3)], STUDY)
    assert {p.verdict for p in found.points} == {"slower"}
    assert "Both are slower" in found.words[0]
    assert any("3 requests failed" in sentence for sentence in found.words)


def test_only_one_of_the_two_slower_points_to_steps_or_to_waiting() -> None:
    slow, right = _result(10.0), _result()
    (steps,) = compare_serving([_result(tpot=slow.tpot)], STUDY)
    (waits,) = compare_serving([_result(ttft=slow.ttft)], STUDY)
    assert right.tpot.mean
    assert steps.words[0].startswith("Only TPOT is slower")
    assert waits.words[0].startswith("Only TTFT is slower")


def test_the_load_is_the_files_and_what_it_lacks_the_studys() -> None:
    job, load, assumed = load_of(_result(concurrency=64, prompt=None), JOB)
    assert (job.client.kind, job.client.concurrency, job.client.input) == ("closed-loop", 64, 512)
    assert assumed == ("tokens of prompts",)
    job, load, assumed = load_of(_result(concurrency=None, rate=4.0), JOB)
    assert (job.client.kind, job.client.rate, job.client.concurrency) == ("poisson", 4.0, None)
    assert "4 requests/s" in load
    job, load, assumed = load_of(_result(concurrency=None), JOB)
    assert job.client.concurrency == 8
    assert assumed == ("how many requests are in flight",)


def test_saved_requests_are_replayed_whole_or_not_at_all() -> None:
    (vllm,) = read_results(DATA / "vllm_detailed.json")
    work = workload_of(vllm)
    assert work is not None
    assert (work.concurrency, list(work.prompt), list(work.output)) == (2, [100] * 4, [11] * 4)
    sampled, _ = read_results(DATA / "guidellm.json")
    # two requests of three hundred were saved: their lengths say nothing of the load
    assert sampled.each is not None
    assert workload_of(sampled) is None


def test_a_study_without_the_job_says_so() -> None:
    with pytest.raises(RailwrightError, match="there is no serving job 'chatt'; did you mean 'chat'"):
        compare_serving([_result()], STUDY, "chatt")
    empty = STUDY.model_copy(update={"serving": ()})
    with pytest.raises(RailwrightError, match="no serving job; write one"):
        compare_serving([_result()], empty)


def test_a_result_without_latencies_cannot_be_compared() -> None:
    nothing = Summary()
    with pytest.raises(PlanError, match="no TTFT, TPOT or latency"):
        compare_serving([_result(ttft=nothing, tpot=nothing, end_to_end=nothing)], STUDY)


def test_compare_on_the_command_line(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(TEXT, encoding="utf-8")
    log = str(DATA / "vllm_detailed.json")
    shown = CliRunner().invoke(app, ["compare", log, str(study)])
    assert shown.exit_code == 0, shown.output
    assert "vllm bench serve: 2 in flight, 100 in, 11 out, beside serving job 'chat'" in shown.output
    plain = CliRunner().invoke(app, ["compare", log, str(study), "--json"])
    (one,) = json.loads(plain.output)
    assert {p["what"] for p in one["latencies_seconds"]} == {"TTFT", "TPOT", "end to end"}
    assert one["latencies_seconds"][0]["measured"] == pytest.approx(0.25)


def test_calibrate_on_the_command_line_writes_an_engine(tmp_path: Path) -> None:
    study, out = tmp_path / "study.yaml", tmp_path / "engine.yaml"
    study.write_text(TEXT, encoding="utf-8")
    shown = CliRunner().invoke(
        app, ["calibrate", str(DATA / "vllm_detailed.json"), str(study), "-o", str(out)]
    )
    assert shown.exit_code == 0, shown.output
    assert "mean absolute error of TTFT and TPOT" in shown.output
    assert out.read_text(encoding="utf-8").splitlines()[2] == "base: vllm-2025"
