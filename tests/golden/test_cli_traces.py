"""`railwright trace`: what its commands print and write, and every lane of a step in Perfetto's file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import get_args

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.report.files.trace import LANE_NAMES, LANES
from railwright.training.lanes.timeline import Lane

STUDY = """\
railwright: 1
name: Two servers
cluster:
  servers: 2
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700}
jobs:
  - name: small
    model: llama-2-7b
    sequence: 2048
    global_batch: 16
    tokens: 1.0e+9
    layout: {tensor: 8, sequence_parallel: true}
"""
PROFILE = Path(__file__).parent.parent / "data" / "traces" / "gpu_rank0.json"


@pytest.fixture
def study(tmp_path: Path) -> str:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    return str(file)


def run(*words: object) -> str:
    result = CliRunner().invoke(app, ["trace", *map(str, words)])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_step_goes_out_and_comes_back(study: str, tmp_path: Path) -> None:
    said = run("export", study, "-o", tmp_path / "et")
    assert "as chakra" in said
    assert "and 16 more files" in said
    step = float(said.split("a step of ")[1].split(" ms")[0])
    back = json.loads(run("replay", tmp_path / "et", "-c", study, "--json"))
    assert back["ranks"] == 16
    assert back["step_time"] == pytest.approx(step * 1e-3, abs=1e-6)
    assert sum(back["shares"].values()) == pytest.approx(back["step_time"])
    assert back["exposed_communication"] < back["step_time"]
    assert "critical path" in run("replay", tmp_path / "et", "-c", study)


def test_perfetto_has_every_lane_of_the_step(study: str, tmp_path: Path) -> None:
    said = run("export", study, "-f", "perfetto", "-o", tmp_path / "out")
    assert re.search(r"trace\.json, \d+(\.\d+)? [KM]iB\n", said), "its size is told, and nothing is left out"
    events = json.loads((tmp_path / "out" / "trace.json").read_text())["traceEvents"]
    lanes = {e["cat"].split(",")[0] for e in events if e["ph"] == "X"}
    assert {"compute", "tp", "dp"} <= lanes
    # A lane that training has and the drawing does not would vanish without a word.
    assert set(LANES) == set(get_args(Lane)) == set(LANE_NAMES)


@pytest.mark.parametrize("format", ["chakra", "goal", "simai", "perfetto"])
def test_a_folder_with_something_in_it_is_left_alone(study: str, tmp_path: Path, format: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    result = CliRunner().invoke(app, ["trace", "export", study, "-f", format, "-o", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "exists already and is not overwritten; remove it or name another folder" in result.output
    assert [file.name for file in (tmp_path / "out").iterdir()] == ["notes.txt"]


def test_a_profile_beside_the_prediction(study: str) -> None:
    said = run("compare", study, PROFILE)
    for words in (
        "matrix products",
        "tp communication",
        "The measured step takes 1.00 ms",
        "3 steps by ProfilerStep",
    ):
        assert words in said
    result = json.loads(run("compare", study, PROFILE, "--json"))
    assert sum(row["measured"] for row in result["rows"]) == pytest.approx(result["measured"])


def test_a_mistake_is_one_sentence(study: str, tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").write_text("x")
    for words, says in (
        (["export", study, "-o", tmp_path / "used"], "not overwritten"),
        (["export", study, "-f", "goals", "-o", tmp_path / "new"], "did you mean 'goal'"),
        (["export", study, "--job", "smal"], "did you mean 'small'"),
        (["replay", tmp_path / "absent", "-c", study], "no such file or folder"),
        (["compare", study, tmp_path / "absent.json"], "cannot be read"),
    ):
        result = CliRunner().invoke(app, ["trace", *map(str, words)])
        assert result.exit_code == 2, words
        assert says in result.output
