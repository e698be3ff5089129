"""`railwright demand` on a terminal of 80 columns."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

MANY = ("h100-sxm", "b200-sxm", "a100-sxm-80", "mi300x")


def shown(*arguments: str) -> list[str]:
    result = CliRunner().invoke(app, ["demand", *arguments], env={"COLUMNS": "80"})
    assert result.exit_code == 0, result.output
    return result.output.split("\n")


def test_several_gpus_are_lines_of_one_table_and_then_one_table_each() -> None:
    """Side by side, cells would break into pieces of a few letters in 80 columns."""
    gpus = [word for gpu in MANY for word in ("--gpu", gpu)]
    lines = shown("-m", "llama-3.1-70b", "-t", "1e13", "--days", "30", *gpus)
    assert lines[0].split() == ["middle", "each", "sustains", "GPUs", "GPU-hours", "time", "power", "kWh"]
    assert [line.split()[0] for line in lines[2 : 2 + len(MANY)]] == list(MANY)
    assert [line.strip() for line in lines].count("h100-sxm") == 1
    table = lines[: next(i for i, line in enumerate(lines) if line.startswith("Pace of"))]
    assert all(len(line) <= 80 for line in table)
    assert all("30 d" in line for line in lines if line.startswith("time "))


def test_more_gpus_than_the_jobs_are_warned_of(tmp_path: Path) -> None:
    study = tmp_path / "small.yaml"
    study.write_text(
        "railwright: 1\nname: small\n"
        "cluster: {servers: 1, server: workstation-2x-l40s, "
        "compute: {family: single-switch, switch: ethernet-25g-48}}\n"
        "jobs: [{name: j, model: gpt2, sequence: 1024, global_batch: 8, tokens: 1e9}]\n"
    )
    warning = "! More GPUs than the 2 of the job are taken to be as fast each"
    assert warning in " ".join(shown(str(study), "--gpus", "4"))
    assert warning not in " ".join(shown(str(study)))


def test_one_gpu_has_its_table_alone() -> None:
    assert shown("-m", "llama-3.1-70b", "-t", "1e13")[0].strip() == "h100-sxm"


def test_a_run_of_centuries_is_told_in_years() -> None:
    (line,) = (line for line in shown("-m", "llama-3.1-70b", "-t", "1e13", "--gpus", "1") if "time " in line)
    assert line.split()[2] == "years"


@pytest.mark.parametrize(("gpus", "kind"), [("1", "1x-rtx-4090"), ("2", "2x-l40s")])
def test_a_study_names_its_gpus_in_the_right_number(gpus: str, kind: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    study = tmp_path / "small.yaml"
    study.write_text(
        "railwright: 1\nname: small\n"
        f"cluster:\n  servers: 1\n  server: workstation-{kind}\n"
        "  compute: {family: single-switch, switch: ethernet-25g-48}\n"
        "jobs: [{name: j, model: gpt2, sequence: 1024, global_batch: 8, tokens: 1e9}]\n"
    )
    said = " ".join(shown(str(study)))
    assert f" s on {gpus} GPU{'s' if gpus == '2' else ''}, and measured steps" in said


@pytest.mark.parametrize(
    "command",
    [
        ["demand", "-m", "llama-3.1-70b"],
        ["grow", "--users", "6", "--gpu-hours", "20", "-m", "llama-3.1-8b"],
    ],
    ids=["demand", "grow"],
)
def test_tokens_that_are_no_number_are_repeated_with_the_forms_that_are(command: list[str]) -> None:
    said = CliRunner().invoke(app, [*command, "--tokens", "2T"])
    assert said.exit_code == 2
    assert "'2T' is no number of tokens; write it out, as 2e12 or 2000000000000" in said.output + said.stderr
