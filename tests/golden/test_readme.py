"""The README's Python session runs as it stands, from a copy elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import yaml

from railwright.model.configs.families import FAMILIES
from railwright.units import number

ROOT = Path(__file__).parents[2]


def test_the_python_session_of_ten_lines_runs(tmp_path):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    session = re.search(r"```python\n(.+?)```", text, re.S)
    assert session is not None
    lines = [line for line in session[1].splitlines() if line.strip()]
    assert len(lines) <= 10
    (tmp_path / "examples").mkdir()
    example = "examples/mixtral-240-h100.yaml"
    (tmp_path / example).write_text((ROOT / example).read_text(encoding="utf-8"), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-c", session[1]],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert "Rail-only" in ran.stdout
    assert (tmp_path / "results" / "from-python" / "report.html").is_file()


def test_the_first_screen_has_a_command_and_an_answer_with_its_range():
    first = (ROOT / "README.md").read_text(encoding="utf-8").split("\n## ")[0]
    assert len(first.splitlines()) <= 30
    assert "<!-- command: run -->" in first
    headline = re.search(r"<!-- headline -->\n(.+?)<!-- /headline -->", first, re.S)
    assert headline is not None
    assert re.search(r"s a step \(80 % of measurements: [\d.]+ s to [\d.]+ s\)", headline[1])


def test_the_two_commands_are_one_line_each():
    for name in ("run", "test"):
        ran = subprocess.run(
            [sys.executable, str(ROOT / "tools" / "readme.py"), "command", name],
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert ran.stdout.count("\n") == 1


def test_the_page_of_searches_has_the_pairs_that_a_search_tells():
    """It told 339 pairs of a fit before last, half of them within 4 points, where a search told 346."""
    gains = yaml.safe_load((ROOT / "src/railwright/training/data/choices.yaml").read_text(encoding="utf-8"))
    page = (ROOT / "docs" / "training" / "search.md").read_text(encoding="utf-8")
    table = page.split("<!-- choices -->")[1].split("<!-- /choices -->")[0]
    told = [row for row in table.splitlines() if re.match(r"\| (?:less|\d)", row)]
    for row, gain in zip(told, gains["gains"], strict=True):
        cells = [f"{gain['pairs']:,}", f"{100 * gain['right']:.0f} %"]
        cells += [number(round(100 * gain[key]), "point") for key in ("half", "most")]
        assert row.endswith(f" | {' | '.join(cells)} |")


def test_every_family_of_the_validation_page_has_a_heading():
    """Eleven hundred lines in one block cannot be searched by a table of contents."""
    page = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", page, re.M)
    assert "Training dense A100 16-bit" in headings
    assert "Memory resident" in headings
    first = page[: page.index("## ")]
    families = re.findall(r"^(.{27}|.{28,}?) *\d+ +\d+(?: |$)", first, re.M)
    assert len(headings) == len(set(headings)) == len([f for f in families if f.strip() != "family"])


def test_the_readme_counts_the_model_types_that_are_read():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"any of {len(FAMILIES)} Hugging Face model types" in text


def test_the_page_of_models_names_every_model_type_that_is_read():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    named = set(re.findall(r"[\w.-]+", page[page.index("## Families") : page.index("## Layers that differ")]))
    assert set(FAMILIES) - named == set()
