"""`railwright --help` answers at once, because nothing heavy is imported before a command needs it."""

import os
import subprocess
import sys
import time

import pytest

HEAVY = {"numba", "scipy", "numpy", "ruamel.yaml", "railwright.spec.study", "railwright.study.run"}
# typer itself checks the parameters of a command with pydantic; the list of commands needs none.
LIGHT = HEAVY | {"pydantic", "pydantic_core"}
MAIN = "from railwright.cli.main import main; main()"
# A shared machine may be slow at times: the best of three runs counts, and the promise is half a second.
PROMISE = 0.5


def helped(*arguments):
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize(
    ("arguments", "unwanted"),
    [(["--help"], LIGHT), (["--version"], LIGHT), (["run", "--help"], HEAVY), (["perf", "--help"], HEAVY)],
)
def test_help_imports_nothing_heavy(arguments, unwanted):
    imported = {line.rsplit("|", 1)[-1].strip() for line in helped(*arguments).stderr.splitlines()}
    assert "railwright.cli.main" in imported
    assert not imported & unwanted


def test_help_takes_well_under_half_a_second():
    walls = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", MAIN, "--help"], capture_output=True, check=True)
        walls.append(time.perf_counter() - started)
    assert min(walls) < PROMISE


def test_help_reads_well_in_eighty_columns_without_colour():
    environment = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1"}
    for arguments in ([], ["run"], ["perf"], ["catalog"], ["catalog", "show"], ["fabric"], ["model"]):
        shown = subprocess.run(
            [sys.executable, "-c", MAIN, *arguments, "--help"],
            capture_output=True, text=True, check=True, env=environment,
        ).stdout  # fmt: skip
        assert max(len(line) for line in shown.splitlines()) <= 80
        assert "\x1b" not in shown
        assert "..." not in shown.partition("Commands:")[2], "a command's first sentence must fit its line"
