"""Software eras for users: the list, one of them, and the page, all of one file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.spec import study_schema
from railwright.training.software.eras import eras
from railwright.training.software.words import DEFAULT, behind, differing, known

ROOT = Path(__file__).parents[2]


def printed(*arguments: str) -> str:
    """What `railwright catalog` prints, in one line."""
    result = CliRunner().invoke(app, ["catalog", *arguments], env={"COLUMNS": "400"})
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_the_page_has_the_tables_of_the_file() -> None:
    spec = importlib.util.spec_from_file_location("readme", ROOT / "tools" / "readme.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    path, wanted = tool.eras_page()
    assert path.read_text(encoding="utf-8") == wanted, "run: python tools/readme.py write"


def test_every_era_is_in_every_table() -> None:
    for heads, rows in (known(), differing(), behind()):
        assert [row[0] for row in rows] == list(eras())
        assert {len(row) for row in rows} == {len(heads)}
        assert all(cell for row in rows for cell in row)


def test_the_list_says_which_software_an_era_is_and_when_to_choose_it() -> None:
    text = printed("list", "software")
    for name, what, when in known()[1]:
        assert f"{name} {what} {when}" in text
    assert f"A job that names none gets {DEFAULT}." in text
    assert "nemo-2024" in printed("list")


def test_one_era_is_shown_with_its_kernels_and_factors() -> None:
    text = printed("show", "FSDP-2025")
    assert "attention FlashAttention-2 cross-entropy compiled into a few kernels" in text
    pace = eras()["fsdp-2025"].pace["h100 16-bit"]
    assert f"H100 16-bit {pace.gemm:.2f} {pace.attention:.2f} {pace.memory:.2f} {pace.host:.2f}" in text
    assert pace.source in text


def test_an_era_misspelt_is_offered_the_nearest() -> None:
    result = CliRunner().invoke(app, ["catalog", "show", "fsdp2025"])
    assert result.exit_code == 2
    assert "did you mean 'fsdp-2025'" in " ".join(result.output.split())


def test_editors_know_the_names() -> None:
    field = study_schema()["$defs"]["TrainingJob"]["properties"]["software"]
    assert field["enum"] == list(eras())
    assert field["default"] == DEFAULT
    assert "railwright catalog list software" in field["description"]
