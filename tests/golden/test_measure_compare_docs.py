"""docs/measure.md: every command in it runs (bench up to the point where it asks for torch)."""

import re
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "measure.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]


def test_the_page_has_commands():
    assert len(COMMANDS) >= 10
    assert all(line.startswith("railwright ") for line in COMMANDS)


@pytest.mark.parametrize("line", COMMANDS)
def test_command(line, tmp_path, monkeypatch):
    if " bench " in line:  # for scipy, which looks there too, a missing torch is no entry at all
        monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    done = CliRunner().invoke(app, shlex.split(line)[1:])
    if " bench " in line:
        assert done.exit_code == 2
        assert "pip install torch" in done.output
    else:
        assert done.exit_code == 0, done.output
        assert "all_reduce" in done.output or "sendrecv" in done.output
