"""Refusals of a plan point at the job's line of the study."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.cli.places import job_lines, job_mistake, steps
from railwright.errors import PlanError, SpecError
from railwright.spec import load_study_text

STUDY = """\
railwright: 1
name: small
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - {name: fits, model: llama-3.1-8b, sequence: 4096, global_batch: 64, tokens: 1e9}
  - name: big
    model: llama-3.1-405b
    sequence: 4096
    global_batch: 64
    tokens: 1e9
serving:
  - {name: served, model: llama-3.1-405b, client: {concurrency: 4}}
  - {name: fits, model: llama-3.1-8b, client: {concurrency: 4}}
"""


@pytest.mark.parametrize(
    ("command", "place"),
    [
        (["run"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["check"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["check"], "15:5: serving.served: llama-3.1-405b in bf16 needs"),
        (["search", "-q", "--job", "big"], "9:5: jobs.big: memory stops all"),
        (["trace", "export", "--job", "big"], "9:5: jobs.big: llama-3.1-405b needs"),
        (["serve"], "15:5: serving.served: llama-3.1-405b in bf16 needs"),
    ],
)
def test_the_line_of_a_job_that_cannot_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(STUDY)
    said = CliRunner().invoke(app, [*command, "s.yaml"])
    assert said.exit_code == 2
    assert f"s.yaml:{place}" in said.output


def test_what_names_no_single_job_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(STUDY)
    for refusal in ("fits: is in two sections", "rail-optimised: needs two tiers"):
        assert job_mistake(str(file), refusal) is None
        with pytest.raises(PlanError, match=refusal), job_lines(str(file)):
            raise PlanError(refusal)
    assert job_mistake(str(tmp_path / "gone.yaml"), "big: no") is None
    with pytest.raises(SpecError, match=r"rail-240:\d+:5: jobs\.finetune: no"), job_lines("rail-240"):
        raise PlanError("finetune: no")


def test_steps_follow_names_of_jobs() -> None:
    study = load_study_text(STUDY)
    assert steps(study, "jobs.big.model") == ("jobs", 1, "model")
    assert steps(study, "cluster.compute.switch") == ("cluster", "compute", "switch")
