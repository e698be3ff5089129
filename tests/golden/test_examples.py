"""Every study under examples/ runs from the command line as the README runs one, and writes its files."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
SLOW = {"mixtral-240-h100", "goodput-16k-h100"}
"""More than 5 s here; the README's own test and test_study_example.py run this one in full as well."""
FILES = {"report.html", "result.json", "trace.json", "cables.csv", "sweeps.csv"}


@pytest.mark.parametrize(
    "example",
    [pytest.param(e, id=e.stem, marks=[pytest.mark.slow] if e.stem in SLOW else []) for e in EXAMPLES],
)
def test_an_example_runs_from_the_command_line(example, tmp_path, monkeypatch):
    """In this process: one of its own, which starts with nothing known, is README's main job in .ci/run."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(app, ["run", f"examples/{example.name}"])
    assert ran.exit_code == 0, ran.output
    assert not ran.stderr
    assert "cannot work" not in ran.stdout
    folder = tmp_path / "results" / example.stem
    assert {file.name for file in folder.iterdir()} == FILES
    written = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert written["answer"]
    assert all(variant["fabric"] for variant in written["variants"])


def test_there_are_examples():
    assert len(EXAMPLES) >= 5
