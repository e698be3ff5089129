"""docs/training/logs.md: its command prints what the page shows."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "training" / "logs.md").read_text(encoding="utf-8")


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.chdir(ROOT)
    (line,) = re.findall(r"```sh\n(.*?)\n```", PAGE, re.S)
    return shlex.split(line)[1:]


def test_the_command_prints_what_the_page_shows(command: list[str]) -> None:
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    (shown,) = re.findall(r"```text\n(.*?)\n```", PAGE, re.S)
    assert [line.rstrip() for line in done.output.strip().splitlines()] == shown.splitlines()


def test_json_is_the_same(command: list[str]) -> None:
    done = CliRunner().invoke(app, [*command, "--json"])
    told = json.loads(done.output)
    assert told["verdict"] == "slower"
    assert told["explanations"][0]["change"] == "Network ÷2"
    assert told["spread"]["slow_every"] == 25
    assert told["step_seconds"]["low"] < told["step_seconds"]["predicted"] < told["step_seconds"]["high"]


def test_curves_are_for_collectives(command: list[str], tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*command, "--html", str(tmp_path / "page.html")])
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())
