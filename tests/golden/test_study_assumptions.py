"""What a training job's answer rests on stands in the result, each with its source, in a few rows."""

from __future__ import annotations

from typing import Any

import pytest

from railwright.model import load_model
from railwright.spec import Study, load_study_text, override, template
from railwright.study.assumptions import assumptions
from railwright.study.evaluate import Workshop
from railwright.study.result import Assumption
from railwright.training import simulate
from railwright.training.software.eras import eras, pace_alone
from railwright.training.software.stragglers import wait_factor

STUDY = """
railwright: 1
name: two servers
cluster: {servers: 2, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}
jobs:
  - {name: a, model: llama-3-8b, sequence: 4096, global_batch: 64, tokens: 1e9, layout: {zero: 3}}
"""


def study(**changes: Any) -> Study:
    return override(load_study_text(STUDY), {f"jobs.0.{key}": value for key, value in changes.items()})


def rows(asked: Study) -> dict[str, Assumption]:
    return {row.name: row for row in assumptions(asked, Workshop.of(asked))}


def seconds(asked: Study, **changes: Any) -> float:
    machine = Workshop.of(asked).machine(asked)
    job = asked.jobs[0]
    return simulate(job, load_model(job.model), machine, **changes).step_time


def test_the_era_is_told_and_whether_it_is_the_default() -> None:
    plain = rows(study())["software era"]
    assert plain.value == "megatron-2025, the default"
    assert plain.source.startswith(eras()["megatron-2025"].what)
    assert "railwright catalog list software" in plain.source
    assert rows(study(software="fsdp-2025"))["software era"].value == "fsdp-2025, as the study says"


def test_what_other_eras_would_take_is_told() -> None:
    """Of those with published steps on the GPU and width: fsdp-2025 has none on H100 of 700 W."""
    told = rows(study())["software era"].source
    change = seconds(study(software="fsdp-2023")) / seconds(study()) - 1
    assert change > 0.05
    assert f"fsdp-2023 {100 * change:+.0f} %" in told
    assert "fsdp-2025" not in told
    assert "megatron-2026" not in told
    assert "megatron-2025 " not in told.split("those with")[1]


def test_an_era_that_cannot_run_the_job_is_called_so() -> None:
    """Attention of 2022 keeps the scores of 32 heads in all 32 layers: more than an A100 has."""
    a100 = override(study(), {"cluster.server": "dgx-a100", "cluster.compute.switch": "qm8700"})
    assert "megatron-2022 cannot run it, fsdp-2023 +" in rows(a100)["software era"].source


def test_the_pace_is_that_of_the_gpu_and_width() -> None:
    asked = study(dtype="fp8")
    row = rows(asked)["pace of h100-sxm in fp8 under megatron-2025"]
    pace = eras()["megatron-2025"].pace["h100 fp8"]
    assert f"products {pace.gemm:.3g}, attention {pace.attention:.3g}" in row.value
    assert row.source == pace.source


def test_a_gpu_without_published_steps_is_called_so() -> None:
    told = rows(override(study(), {"cluster.server": "server-8x-l40s"}))
    row = told["pace of l40s in 16-bit under megatron-2025"]
    pace = eras()["megatron-2025"].pace["any 16-bit"]
    assert f"products {pace.gemm:.3g}, attention {pace.attention:.3g}" in row.value
    assert row.source.startswith("no record: what other eras, GPUs and widths of the fit say")
    assert told["software era"].source.endswith("on l40s in 16-bit: none")


def test_the_wait_for_the_slowest_is_told_as_a_share_of_the_step() -> None:
    """16 GPUs wait 1.8 standard deviations of 0.5 %: 0.8 % of the kernels, and at most so much of a step."""
    asked = study()
    machine = Workshop.of(asked).machine(asked)
    part = 1 - seconds(asked, pace=pace_alone(asked.jobs[0], machine.gpu)) / seconds(asked)
    row = rows(asked)["wait for the slowest of 16 GPUs"]
    assert row.value == f"{100 * part:.1f} % of the step"
    assert 0 < part < wait_factor(16) - 1
    assert "StragglerAnalysis" in row.source


def test_interference_and_the_host_are_told() -> None:
    told = rows(study())
    assert told["compute while communication runs"].value == "1.189 times as long"
    host = told["host's time to launch under megatron-2025"]
    # 36 and 13.5 us of the sources, times what the era takes of them
    factor = eras()["megatron-2025"].pace["h100 16-bit"].host
    assert host.value.startswith(f"{36 * factor:.0f} µs a product or attention and {13.5 * factor:.0f} µs")
    assert f"times {factor:g} (fitted with the pace)" in host.source
    graphed = rows(study(cuda_graphs=["step"]))["host's time to launch under megatron-2025"]
    assert graphed.value == "none: the whole step is a CUDA graph"


@pytest.mark.parametrize(
    ("software", "calls"),
    [("xla-2025", "1.3 µs a kernel"), ("fsdp-2025", "9 µs a kernel and 24 µs a forward pass of a layer")],
)
def test_compiled_layers_tell_their_own_price_of_a_launch(software, calls) -> None:
    host = rows(study(software=software))[f"host's time to launch under {software}"]
    assert host.value == calls
    assert "tritonbench" in host.source
    assert "fitted" not in host.source


def test_grace_is_told_apart_from_the_era() -> None:
    grace = override(study(), {"cluster.server": "gh200-1", "cluster.servers": 16})
    host = rows(grace)["host's time to launch under megatron-2025"]
    assert "2.75 (Grace: " in host.source


def test_jobs_share_rows_and_say_whose_they_are_where_they_do_not() -> None:
    one = study()
    second = one.jobs[0].model_copy(update={"name": "b", "gpus": 8})
    two = one.model_copy(update={"jobs": (*one.jobs, second)})
    names = list(rows(two))
    assert "pace of h100-sxm in 16-bit under megatron-2025" in names
    assert {"wait for the slowest of 16 GPUs, a", "wait for the slowest of 8 GPUs, b"} < set(names)
    assert names.count("compute while communication runs") == 1


@pytest.mark.parametrize("name", ["rail-240", "server"])
def test_a_study_without_jobs_has_none_of_them(name: str) -> None:
    bare = load_study_text(template(name)).model_copy(update={"jobs": ()})
    assert not any("software" in row or "slowest" in row for row in rows(bare))


def test_an_optimizer_on_the_host_says_how_far_apart_published_ones_are() -> None:
    told = rows(study(**{"layout.offload": ["optimizer"]}))["Adam on the host"]
    assert told.value.startswith("0.26 ns a parameter")
    assert "ten times as long" in told.source
    assert "Adam on the host" not in rows(study())
