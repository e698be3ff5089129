"""A block of a page that begins with a command shows what the command prints."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parents[2]
LEFT_OUT = "…"
"""Stands, alone on its line, for what a page does not show."""

NOT_HERE = ("ibnetdiscover.txt",)
"""Evidence of docs/diagnose.md from a site; tests/formula/test_diagnose_evidence.py has such of its own."""

BLOCKS = [
    pytest.param(command, shown, id=f"{page.relative_to(ROOT / 'docs').as_posix()}: {command}")
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for command, shown in re.findall(
        r"```\w*\n\$ railwright ([^\n]+)\n(.*?)\n```", page.read_text(encoding="utf-8"), re.DOTALL
    )
    if not any(name in command for name in NOT_HERE)
]


def test_pages_have_such_blocks():
    assert len(BLOCKS) >= 4


@pytest.mark.parametrize(("command", "shown"), BLOCKS)
def test_a_command_prints_what_its_page_shows(command, shown, monkeypatch):
    """Part by part in their order; where a page breaks its lines elsewhere, the words are the same."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 0, done.output
    rest = " ".join(done.output.split())
    parts = (" ".join(part.split()) for part in re.split(rf"^{LEFT_OUT}$", shown, flags=re.MULTILINE))
    for words in filter(None, parts):
        assert words in rest
        rest = rest.partition(words)[2]
