"""What `railwright crosscheck` refuses, and what it says of programs that fail, hang or are not there."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from network_fabrics import links_of, make, with_capacity
from railwright.catalog import load_catalog
from railwright.cli.main import app
from railwright.crosscheck import Problem, crosscheck, make_problem
from railwright.crosscheck.programs import Failed, run
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network import Network
from railwright.network.routing.solution import RoutingName


def problem(pattern: str = "all-to-all", routing: RoutingName = "adaptive", slow: bool = False) -> Problem:
    fabric = make(4, 1, "fat-tree", servers_per_group=2, nic=50e9, lane=450e9, uplink=50e9)
    if slow:
        fabric = with_capacity(fabric, {links_of(fabric, Role.LEAF_SPINE)[0]: 0.5})
    return make_problem("refused", Network(fabric, routing), load_catalog(), pattern, 4, 4e6)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HTSIM", "ASTRA", "SIMAI", "SIMGRID_PYTHON"):
        monkeypatch.setenv(f"RAILWRIGHT_{name}", str(tmp_path / "nowhere"))


def test_a_program_that_hangs_is_ended_with_all_it_started(tmp_path: Path) -> None:
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '30']); time.sleep(30)"
    before = time.monotonic()
    with pytest.raises(Failed, match=r"had not finished after 0\.3 s and was ended; give it more by --limit"):
        run([sys.executable, "-c", code], tmp_path, limit=0.3)
    assert time.monotonic() - before < 5


def test_a_program_that_fails_leaves_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="ended with status 3: no such topology"):
        run([sys.executable, "-c", "print('no such topology'); raise SystemExit(3)"], tmp_path, limit=20)
    with pytest.raises(Failed, match="was ended by SIGSEGV: it said nothing"):
        run([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], tmp_path, limit=20)
    with pytest.raises(Failed, match="cannot be started: No such file"):
        run([str(tmp_path / "absent")], tmp_path, limit=20)


def test_without_any_simulator_the_files_are_there_and_how_to_get_one(
    nothing_installed: None, tmp_path: Path
) -> None:
    result = crosscheck(problem(), tmp_path / "out")
    assert {row.simulator: row.status for row in result.rows} == dict.fromkeys(
        ("simgrid", "htsim", "astra-sim", "simai"), "not installed"
    )
    assert "apt install python3-simgrid" in result.rows[0].notes[0]
    for row in result.rows:
        assert row.files
        assert all((tmp_path / "out" / name).is_file() for name in row.files)


def test_a_simulator_that_breaks_is_one_line(
    nothing_installed: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "htsim_uec"
    program.write_text("#!/bin/sh\necho Topology Error\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("RAILWRIGHT_HTSIM", str(folder))
    (row,) = crosscheck(problem(), tmp_path / "out", ["htsim"]).rows
    assert row.status == "failed"
    assert row.notes == ("htsim_uec ended with status 1: Topology Error",)


@pytest.mark.parametrize(
    ("asked", "name", "why"),
    [
        (problem(slow=True), "htsim", "no failed or slow cables"),
        (problem(routing="static"), "htsim", "no forwarding tables"),
        (problem("pxn"), "astra-sim", "no relays"),
        (problem("ring"), "simai", "workloads are collectives"),
    ],
    ids=["faults", "tables", "relays", "ring"],
)
def test_what_a_format_cannot_say(asked: Problem, name: str, why: str, tmp_path: Path) -> None:
    (row,) = crosscheck(asked, tmp_path / "out", [name]).rows
    assert (row.status, row.files) == ("not expressible", ())
    assert why in row.notes[0]


def test_a_folder_that_holds_something_is_left_alone(nothing_installed: None, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(PlanError, match="is not empty and nothing in it is overwritten"):
        crosscheck(problem(), tmp_path, ["simgrid"])
    assert [p.name for p in tmp_path.iterdir()] == ["mine"]
    assert crosscheck(problem(), tmp_path, ["simgrid"], force=True).rows


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--pattern", "alltoall"], "no pattern 'alltoall'; did you mean 'all-to-all'"),
        (["--ranks", "1"], "1 ranks are asked for; it can be 2 to 32"),
        (["--ranks", "33"], "it can be 2 to 32"),
        (["--size", "16 potatoes"], "--size: '16 potatoes' is not a message size"),
        (["--size", "7"], "take at least 32 bytes"),
        (["--routing", "emcp"], "no routing 'emcp'; did you mean 'ecmp'"),
        (["--only", "simgird"], "no simulator 'simgird'; did you mean 'simgrid'"),
        (["--limit", "0"], "leaves no time"),
    ],
)
def test_mistakes_of_the_command_line(arguments: list[str], why: str, tmp_path: Path) -> None:
    out = ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["crosscheck", "single-rack", *out, *arguments])
    assert result.exit_code == 2
    assert why in " ".join(result.output.split())
    assert not (tmp_path / "out").exists()


def test_json(nothing_installed: None, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        app, ["crosscheck", "single-rack", "--out", str(tmp_path / "out"), "--only", "simgrid", "--json"]
    )
    assert result.exit_code == 0
    said = json.loads(result.output)
    assert said["ranks"] == 32
    assert said["time"] == pytest.approx(24 / 32 * 16 * 2**20 / 50e9)
    assert said["rows"][0]["status"] == "not installed"
