"""`railwright fabric route`: what it prints, its exit status, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.measure import opensm

DATA = Path(__file__).parent.parent / "data" / "asbuilt"
MACHINE = ("--machine", str(DATA / "small.topology"))

DESIGN = """railwright: 1
name: small rails
cluster:
  servers: 8
  server: dgx-h100
  compute: {family: rail-optimised, switch: qm9700, servers_per_group: 4}
"""


def railwright(*arguments: str) -> tuple[int, str]:
    ran = CliRunner().invoke(app, ["fabric", "route", *arguments])
    assert ran.exception is None or isinstance(ran.exception, SystemExit), ran.exception
    return ran.exit_code, ran.output


def refused(*arguments: str) -> str:
    """The one line that a refusal is."""
    status, text = railwright(*arguments)
    assert status == 2, text
    assert text.startswith("Error: ")
    assert text.count("\n") == 1
    return text


@pytest.fixture
def study(tmp_path: Path) -> str:
    path = tmp_path / "small.yaml"
    path.write_text(DESIGN, encoding="utf-8")
    return str(path)


def test_our_own_tables_of_a_study_are_shown(study: str) -> None:
    """64 NIC ports, 16 leaves of 4: each leaf reaches 4 itself and 60 over a spine."""
    status, text = railwright(study)
    assert status == 0
    assert (
        "1,024 of 1,024 ways from a leaf to a NIC port arrive; 64 over 1 switch, 960 over 3 switches" in text
    )
    assert "no credit loop is possible" in text
    assert "Every leaf sends every destination the way of our own static tables." in text


def test_json_says_the_same(study: str) -> None:
    status, text = railwright(study, "--json")
    told = json.loads(text)
    assert status == 0
    assert told["check"]["reached"] == told["check"]["pairs"] == 1024
    assert {case["traffic"] for case in told["cases"]} == {
        "all-to-all, PXN",
        "all-to-all, no PXN",
        "all-reduce, ring",
    }
    for case in told["cases"]:
        assert case["busbw"]["tables"] == case["busbw"]["static"] <= case["busbw"]["adaptive"] * (1 + 1e-9)


def test_a_real_dump_is_priced_on_the_machine_as_built() -> None:
    status, text = railwright(*MACHINE, "--tables", str(DATA / "small.lfts"))
    assert status == 0
    assert "12 of 12 ways" in text
    assert "note: assumed servers" in text


def test_a_dump_with_a_hole_ends_with_status_1_and_names_it(tmp_path: Path) -> None:
    """The spine's way to one adapter removed: one leaf's way to it fails, nothing is priced."""
    lines = (DATA / "small.lfts").read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if "'spine-01')" in line)
    hole = next(i for i in range(at + 1, len(lines)) if "server-01 mlx5_0" in lines[i])
    cut = tmp_path / "cut.lfts"
    cut.write_text("".join(lines[:hole] + lines[hole + 1 :]))
    status, text = railwright(*MACHINE, "--tables", str(cut))
    assert status == 1
    assert "11 of 12 ways" in text
    assert "no route: 1 way\n" in text
    assert "spine-01 has no route to server-01/nic-0 (asked from leaf-02)" in text
    assert "Bus bandwidth" not in text


def test_tables_of_another_machine_are_refused(study: str) -> None:
    text = refused(study, "--tables", str(DATA / "small.lfts"))
    assert "none of its 3 switches is of this fabric, by GUID" in text
    assert "ibnetdiscover" in text


def test_what_to_route_and_how_must_be_clear(study: str) -> None:
    assert "name a study, or the dump of a machine by --machine" in refused()
    assert "and not both" in refused(study, *MACHINE)
    assert "no routing engine 'opensn'; did you mean 'opensm'?" in refused(study, "--engine", "opensn")
    assert "leave --engine away" in refused(study, "--engine", "opensm", "--tables", str(DATA / "small.lfts"))
    assert "a study names its own" in refused(study, "--server", "dgx-h100")


def test_an_engine_that_opensm_has_not_is_refused_before_anything_runs(study: str) -> None:
    assert "'ftre' is not one of ftree, updn, minhop, dor" in refused(study, "--engine", "opensm:ftre")


def test_without_opensm_one_sentence_says_what_to_install(
    study: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(opensm, "_ADMIN", str(tmp_path))
    monkeypatch.setattr(opensm, "_LIBRARIES", ())
    text = refused(study, "--engine", "opensm")
    assert "needs ibsim, opensm, libumad2sim, not found on this machine" in text
    assert "apt install opensm ibsim-utils" in text
