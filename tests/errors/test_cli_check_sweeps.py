"""`railwright check` tells a sweep that cannot run."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from railwright.cli.main import app

TEXT = """
railwright: 1
name: sweeps
cluster: {servers: 4, server: dgx-h100, compute: {family: single-switch, switch: qm9700}}
sweeps: [{op: all_reduce}, {op: all_gather}]
nccl: {algorithm: tree}
"""


def test_a_sweep_that_no_algorithm_asked_for_can_run_is_warned_of(tmp_path: Path) -> None:
    """`check` says what the report of `run` would."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT, encoding="utf-8")
    done = CliRunner().invoke(app, ["check", str(file)])
    assert done.exit_code == 0
    (warning,) = (line for line in done.output.splitlines() if line.startswith("!"))
    assert warning.startswith("! As written: all_gather: NCCL cannot run all_gather")
