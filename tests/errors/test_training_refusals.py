"""Everything that is wrong with a layout is told in one go, but for what rests on something refused."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.errors import PlanError
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import CHECKS, check, refusals
from training_cases import DENSE, changed, job, machine

FABRIC = machine(4).network.fabric


def told(wanted: TrainingJob) -> list[str]:
    return [text.removeprefix("case: ") for text in refusals(wanted, DENSE, FABRIC)]


def test_independent_mistakes_are_told_together() -> None:
    """8 layers are not cut into 3 x 8 pieces; one rank's 5 microbatches are no multiple of 3 stages; and bf16
    has no head in 8 bits."""
    wanted = changed(job(gpus=24, batch=5, tensor=8, pipeline=3, virtual_pipeline=8), dtype_also=("head",))
    texts = told(wanted)
    assert [text.split(" ")[0] for text in texts] == ["the", "interleaved", "dtype_also"]
    assert "8 layers of dense-8 cannot be cut into 24 pieces" in texts[0]
    assert "needs a multiple of 3 microbatches" in texts[1]


def test_the_first_is_what_check_refuses_with() -> None:
    wanted = job(batch=7, pipeline=2, virtual_pipeline=16)
    with pytest.raises(PlanError) as caught:
        check(wanted, DENSE, FABRIC)
    assert str(caught.value) == refusals(wanted, DENSE, FABRIC)[0]
    assert len(refusals(wanted, DENSE, FABRIC)) == 2


def test_what_rests_on_the_gpus_is_not_asked_without_them() -> None:
    """64 GPUs of 32: how many data-parallel ranks there are is not known, so no batch is wrong."""
    (text,) = told(job(gpus=64, batch=7))
    assert text.startswith("gpus is 64, but the cluster has 32")


def test_a_layout_that_works_has_none() -> None:
    assert not told(job(tensor=2, pipeline=2))


def test_what_rests_on_what_exists_and_comes_behind() -> None:
    for at, one in enumerate(CHECKS):
        assert one.rests_on <= {before.name for before in CHECKS[:at]}


STUDY = """\
railwright: 1
name: two wrong jobs
cluster:
  servers: 16
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - name: first
    model: llama-3.1-8b
    sequence: 8192
    global_batch: 30
    tokens: 1e12
    dtype: mxfp8
    layout: {tensor: 2, pipeline: 64}
  - name: second
    model: llama-3.1-8b
    sequence: 8192
    global_batch: 64
    tokens: 1e12
    servers: [3, 16]
    layout: {tensor: 3}
"""


def test_check_lists_all_of_every_job(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    result = CliRunner().invoke(app, ["check", str(file)])
    assert result.exit_code == 2
    rows = [line.split(": ", 2) for line in result.stderr.splitlines() if line.startswith(str(file))]
    assert [field for _, field, _ in rows] == ["jobs.first"] * 2 + ["jobs.second"] * 2
    said = [text for _, _, text in rows]
    assert said[0].startswith("the 32 layers of llama-3.1-8b cannot be cut into 64 pieces")
    assert said[1].startswith("h100-sxm has no mxfp8 tensor cores")
    assert "the numbers 0 to 15 (server-01 to server-16)" in said[2]
    assert "32 attention heads of llama-3.1-8b cannot be cut into layout.tensor = 3" in said[3]


@pytest.mark.parametrize("command", [["check"], ["run"], ["search"], ["demand"]])
def test_a_refused_number_format_offers_those_that_a_job_can_have(tmp_path, monkeypatch, command) -> None:  # type: ignore[no-untyped-def]
    """fp32 and tf32 were offered, and refused in turn."""
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "study.yaml"
    file.write_text(
        "railwright: 1\nname: s\n"
        "cluster: {servers: 1, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}\n"
        "jobs: [{name: j, model: llama-3.1-8b, sequence: 512, global_batch: 8, tokens: 1e9, dtype: nvfp4}]\n"
    )
    said = " ".join(CliRunner().invoke(app, [*command, str(file)]).output.split())
    offered = "dtypes of a job that it has: bf16, fp16, fp8, fp8_rowwise, fp8_block."
    assert f"h100-sxm has no nvfp4 tensor cores; {offered}" in said


def test_a_recommendation_job_is_offered_its_own_number_formats(tmp_path) -> None:  # type: ignore[no-untyped-def]
    file = tmp_path / "study.yaml"
    file.write_text(
        "railwright: 1\nname: s\n"
        "cluster: {servers: 1, server: dgx-1-v100, compute: {family: single-switch, switch: qm8700}}\n"
        "recommendations: [{name: r, model: dlrm-dcnv2, global_batch: 65536, samples: 4.2e9, dtype: bf16}]\n"
    )
    said = " ".join(CliRunner().invoke(app, ["check", str(file)]).output.split())
    assert "v100-sxm2-32 has no bf16 tensor cores; dtypes of a job that it has: fp16." in said
