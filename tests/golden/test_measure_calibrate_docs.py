"""docs/calibrate.md: its commands run one after the other, in a folder of their own."""

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from railwright.cli.main import app

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "calibrate.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```bash\n(.*?)```", PAGE, re.S) for line in block.splitlines()]


def test_the_commands_of_the_page_run_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    assert len(COMMANDS) >= 6
    for line in COMMANDS:
        words = shlex.split(line)
        if words[0] == "echo":  # the page appends one line to the study
            with (tmp_path / words[-1]).open("a", encoding="utf-8") as study:
                study.write(words[1] + "\n")
            continue
        assert words[0] == "railwright"
        done = CliRunner().invoke(app, words[1:])
        assert done.exit_code == 0, f"{line}\n{done.output}"
    assert "calibrated by my-cluster.yaml" in done.output
