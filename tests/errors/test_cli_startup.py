"""`railwright --help` answers at once, because nothing heavy is imported before a command needs it."""

import os
import resource
import subprocess
import sys

import pytest

HEAVY = {
    "numba", "scipy", "numpy", "ruamel.yaml", "pydantic", "pydantic_core",
    "railwright.spec.study", "railwright.study.run",
}  # fmt: skip
MAIN = "from railwright.cli.main import main; main()"
# A shared machine may be slow at times: the best of three runs counts.
# Measured 0.19 s with 30 commands on a quiet machine; the same one has taken 0.28 s.
PROMISE = 0.4
ASKED = [
    ["--help"], ["--version"], ["run", "--help"], ["perf", "--help"], ["fabric", "--help"],
    ["fabric", "audit", "--help"], ["catalog", "show", "--help"], ["bench", "run", "--help"],
]  # fmt: skip


def helped(*arguments):
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-c", MAIN, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )


@pytest.mark.parametrize("arguments", ASKED, ids=" ".join)
def test_help_imports_nothing_heavy(arguments):
    imported = {line.rsplit("|", 1)[-1].strip() for line in helped(*arguments).stderr.splitlines()}
    assert "railwright.cli.main" in imported
    assert not imported & HEAVY


@pytest.mark.parametrize("arguments", [["--help"], ["fabric", "audit", "--help"]], ids=" ".join)
def test_help_takes_little_processor_time(arguments):
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", MAIN, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(spent) < PROMISE


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
