"""A file that is there is never written over: commands say so before they work, and leave it as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app

LOG = str(Path(__file__).parents[1] / "data" / "logs" / "nccl_all_reduce_16.log")
STUDY = """
railwright: 1
name: One server
cluster:
  servers: 1
  server: dgx-h100
  compute: {family: single-switch, switch: qm9700}
serving:
  - name: chat
    model: llama-3.1-8b
    client: {concurrency: 4, requests: 12, input: 256, output: 32}
"""
MINE = "a user's own notes\n"

COMMANDS = [
    ("serve", "study.yaml", "--json"),
    ("serve", "study.yaml", "--timeline"),
    ("compare", LOG, "superpod-h100", "--html"),
    ("bench", "run", "all_reduce", "--json"),
    ("bench", "pairs", "--csv"),
    ("bench", "pairs", "--json"),
    ("bench", "rails", "--json"),
    ("diagnose", "study.yaml", "--steps", "steps.csv", "--html"),
    ("validate", "training", "--html"),
    ("init",),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    steps = [f"{rank},{1.0 + 0.5 * (rank == 3)}" for rank in range(8)]
    (tmp_path / "steps.csv").write_text("\n".join(["rank,seconds", *steps]) + "\n", encoding="utf-8")
    (tmp_path / "mine").write_text(MINE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_users_file_is_left_as_it_is(folder: Path, command: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*command, "mine"])
    assert done.exit_code == 2, done.output
    assert "'mine' exists" in done.output
    assert "overwritten" in done.output
    assert (folder / "mine").read_text(encoding="utf-8") == MINE


@pytest.mark.parametrize("option", ["--json", "--timeline"])
def test_serve_makes_the_folder_of_a_file_and_writes_it_once(folder: Path, option: str) -> None:
    command = ["serve", "study.yaml", option, "new/answer.json"]
    first = CliRunner().invoke(app, command)
    assert first.exit_code == 0, first.output
    written = (folder / "new" / "answer.json").read_bytes()
    again = CliRunner().invoke(app, command)
    assert (again.exit_code, "is not overwritten" in again.output) == (2, True)
    assert "time to first token" not in again.output, "refused before the work, not after it"
    assert (folder / "new" / "answer.json").read_bytes() == written


BESIDE = [
    (("site", "plan", "study.yaml"), "site.json"),
    (("bill", "study.yaml"), "priced.csv"),
    (("cost", "study.yaml"), "prices.csv"),
    (("fabric", "export", "study.yaml", "bom"), "bom.csv"),
]


@pytest.mark.parametrize(("command", "name"), BESIDE, ids=[" ".join(command) for command, _ in BESIDE])
def test_tables_lie_beside_what_a_folder_holds_or_are_not_written_at_all(
    folder: Path, command: tuple[str, ...], name: str
) -> None:
    """Tables and drawings are one file each: they may share a folder, and never take a file's place."""
    for out in ("free", "taken"):
        (folder / out).mkdir()
        (folder / out / "notes.txt").write_text(MINE, encoding="utf-8")
    done = CliRunner().invoke(app, [*command, "--out", "free"])
    assert done.exit_code == 0, done.output
    assert (folder / "free" / name).exists()
    (folder / "taken" / name).write_text(MINE, encoding="utf-8")
    done = CliRunner().invoke(app, [*command, "--out", "taken"])
    assert done.exit_code == 2, done.output
    assert "exists already and is not overwritten" in done.output
    assert sorted(path.name for path in (folder / "taken").iterdir()) == sorted({name, "notes.txt"})
    for path in (*(folder / "taken").iterdir(), folder / "free" / "notes.txt"):
        assert path.read_text(encoding="utf-8") == MINE


WHOLE = [("run", "-q", "study.yaml"), ("burnin", "study.yaml")]


@pytest.mark.parametrize("command", WHOLE, ids=" ".join)
def test_what_is_read_again_as_a_whole_wants_a_folder_of_its_own(
    folder: Path, command: tuple[str, ...]
) -> None:
    (folder / "taken").mkdir()
    (folder / "taken" / "notes.txt").write_text(MINE, encoding="utf-8")
    done = CliRunner().invoke(app, [*command, "--out", "taken"])
    assert done.exit_code == 2, done.output
    assert "overwritten" in done.output
    assert [path.name for path in (folder / "taken").iterdir()] == ["notes.txt"]
