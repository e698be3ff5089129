"""`railwright --help` answers at once, because nothing heavy is imported before a command needs it."""

import inspect
import os
import pkgutil
import resource
import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.main import get_group

import railwright.cli
from railwright.cli.commands import COMMANDS, load

HEAVY = {
    "numba", "scipy", "numpy", "ruamel.yaml", "pydantic", "pydantic_core",
    "railwright.spec.study", "railwright.study.run",
}  # fmt: skip
MAIN = "from railwright.cli.main import main; main()"
# A shared machine may be slow at times: the best of three runs counts.
PROMISE = 0.25
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


@pytest.mark.alone
@pytest.mark.parametrize("arguments", [["--help"], ["fabric", "audit", "--help"]], ids=" ".join)
def test_help_takes_little_processor_time(arguments):
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", MAIN, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(spent) < PROMISE


def test_help_imports_no_command_that_was_not_asked_for():
    imported = {line.rsplit("|", 1)[-1].strip() for line in helped("--help").stderr.splitlines()}
    assert not imported & {f"railwright.cli.{entry.module}" for entry in COMMANDS.values()}


def test_the_table_of_commands_tells_what_the_commands_say_of_themselves():
    for name, entry in COMMANDS.items():
        command = load(name)
        assert (command.name, command.get_short_help_str(limit=80)) == (name, entry.help)
        assert not command.hidden


def test_the_table_of_commands_is_complete():
    modules = [
        import_module(f"railwright.cli.{found.name}")
        for found in pkgutil.iter_modules(railwright.cli.__path__)
    ]
    brought = []
    for module in modules:
        if hasattr(module, "add_to") and "app" in inspect.signature(module.add_to).parameters:
            app = typer.Typer()
            app.callback()(lambda: None)
            module.add_to(app)
            brought += [(name, module.__name__) for name in get_group(app).commands]
    assert sorted(brought) == sorted(
        (name, f"railwright.cli.{entry.module}") for name, entry in COMMANDS.items()
    )


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


def test_the_package_itself_runs() -> None:
    """Where a virtual environment's scripts are not on the path; a user's mistake ends as in the command."""
    told = subprocess.run([sys.executable, "-m", "railwright", "--version"], capture_output=True, text=True)
    assert (told.returncode, told.stdout.split()[0]) == (0, "railwright")
    wrong = subprocess.run(
        [sys.executable, "-m", "railwright", "check", "absent.yaml"], capture_output=True, text=True
    )
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("Error: ")
    assert "Traceback" not in wrong.stderr
