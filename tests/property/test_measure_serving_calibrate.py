"""Calibration gives back what was put in: runs made by a changed engine, within the stated errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.measure.calibrate.serving import calibrate_engine
from railwright.measure.loadgen.result import BenchResult, Summary
from railwright.measure.study_machine import study_machine
from railwright.model.configs.hf_config import load_model
from railwright.serving.engine.profiles import engine_of
from railwright.serving.predict import serve
from railwright.spec.serving import Client, ServingJob
from railwright.spec.study import Study

JOB = ServingJob(
    name="chat",
    model="llama-3.1-8b",
    engine="vllm-2025",
    weights="fp8",
    client=Client(kind="closed-loop", concurrency=4, input=512, output=64),
)
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
LOADS = ((1, 128, 64), (16, 512, 64), (64, 512, 64), (4, 4096, 16))


def _run(engine: str, load: tuple[int, int, int]) -> BenchResult:
    """What a load generator would say of an engine under a load."""
    concurrency, prompt, output = load
    client = Client(
        kind="closed-loop", concurrency=concurrency, requests=4 * concurrency, input=prompt, output=output
    )
    job = JOB.model_copy(update={"client": client, "engine": engine})
    found = serve(job, load_model(JOB.model), study_machine(STUDY))
    return BenchResult(
        file=f"c{concurrency}.json",
        tool="vllm bench serve",
        label="",
        model=JOB.model,
        requests=4 * concurrency,
        failed=0,
        duration=found.throughput.seconds,
        concurrency=concurrency,
        rate=None,
        prompt=prompt,
        output=output,
        ttft=Summary(found.ttft.mean),
        tpot=Summary(found.tpot.mean),
        end_to_end=Summary(found.end_to_end.mean),
        tokens_rate=found.tokens_per_second,
    )


@pytest.fixture
def changed(tmp_path: Path) -> Path:
    """An engine whose decode steps take 1.15 x the kernels', prompts 0.9 x, and 2.5 ms of host a step."""
    path = tmp_path / "truth.yaml"
    path.write_text(
        "base: vllm-2025\ndecode_time: 1.15\nprefill_time: 0.9\nhost_step: 2.5e-3\n", encoding="utf-8"
    )
    return path


def test_the_change_is_found_within_its_error(changed: Path) -> None:
    found = calibrate_engine([_run(str(changed), load) for load in LOADS], STUDY)
    fields = {f.field: f for f in found.fields}
    for name, truth in (("decode_time", 1.15), ("prefill_time", 0.9), ("host_step", 2.5e-3)):
        field = fields[name]
        assert field.told, name
        assert abs(field.value / truth - 1.0) < 2.0 * field.sigma, name
    assert found.before > 0.1
    assert found.after < 0.02


def test_runs_of_the_base_leave_it_as_it_is() -> None:
    found = calibrate_engine([_run("vllm-2025", load) for load in LOADS], STUDY)
    assert found.before == pytest.approx(0.0, abs=1e-9)
    assert all(f.value == pytest.approx(f.base, rel=1e-6) for f in found.fields)


def test_one_run_tells_less_than_four() -> None:
    runs = [_run("vllm-2025", load) for load in LOADS]
    few = {f.field: f.sigma for f in calibrate_engine(runs[:1], STUDY).fields}
    many = {f.field: f.sigma for f in calibrate_engine(runs, STUDY).fields}
    assert all(many[name] <= few[name] + 1e-12 for name in few)


def test_what_is_written_is_an_engine(changed: Path, tmp_path: Path) -> None:
    found = calibrate_engine([_run(str(changed), load) for load in LOADS], STUDY)
    path = tmp_path / "fitted.yaml"
    path.write_text(found.yaml(), encoding="utf-8")
    engine = engine_of(JOB.model_copy(update={"engine": str(path)}))
    for field in found.fields:
        if field.told:
            assert getattr(engine, field.field) == pytest.approx(field.value, rel=1e-5)
            assert "calibrated" in engine.sources[field.field]
