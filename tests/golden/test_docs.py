"""The Python in the documentation runs as it stands, from the root of a clone, and its lists are lists."""

import re
import runpy
from pathlib import Path

import pytest

from railwright.measure.validate import FAMILIES

ROOT = Path(__file__).parents[2]
LAYERS = ROOT / "tools" / "check_layers.py"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
ITEM = re.compile(r"\s*(?:[-*+]|\d+\.)\s+\S")
BLOCKS = [
    pytest.param(page, code, id=f"{page.stem}-{nth}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for nth, code in enumerate(
        re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    )
]


@pytest.mark.parametrize(("page", "code"), BLOCKS)
def test_the_python_of_a_page_runs(page, code, monkeypatch, tmp_path):
    # a folder of its own with the examples in it, so that nothing a page writes stays in the clone
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    exec(compile(code, str(page), "exec"), {"__name__": "page"})


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: page.name)
def test_validate_takes_the_families_that_a_page_names(page):
    named = re.findall(
        r"railwright validate ([^\s`'\",;:.)-][^\s`'\",;:.)]*)", page.read_text(encoding="utf-8")
    )
    assert set(named) <= {*FAMILIES, "FAMILY"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT / "docs").as_posix())
def test_lists_begin_behind_a_blank_line(page):
    """MkDocs (Python-Markdown) runs a list on the line after a sentence into that sentence."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    run_on, inside, before = [], False, ""
    for line in text.splitlines():
        item = ITEM.match(line) is not None
        if item and not inside and before.strip() and not before.startswith("#"):
            run_on.append(line)
        inside = item or (inside and bool(line.strip()))
        before = line
    assert not run_on


def test_the_page_of_training_says_once_what_each_of_its_modules_does():
    text = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    listed = re.search(r"\n## From the job to the step\n(.*?)\n## ", text, re.DOTALL)
    folders = re.findall(r"^### (\w+)\n(.*?)(?=^### |\Z)", listed[1], re.MULTILINE | re.DOTALL)
    named = [
        f"{folder}/{name}"
        for folder, rows in folders
        for row in re.findall(r"^\| (`.*?) \|", rows, re.MULTILINE)
        for name in re.findall(r"`(\w+\.py)`", row)
    ]
    room = ROOT / "src" / "railwright" / "training"
    there = (path.relative_to(room).as_posix() for path in room.rglob("*.py") if path.stem != "__init__")
    assert sorted(named) == sorted(there)
    assert [folder for folder, _ in folders] == list(runpy.run_path(str(LAYERS))["SUB_ROOMS"]["training"])


def test_every_noun_of_the_architecture_is_at_home_where_its_page_says():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    nouns = re.search(r"\n## The nouns\n(.*?)\n## ", text, re.DOTALL)
    rows = re.findall(r"^\| (`.*?) \| (`.*?) \|$", nouns[1], re.MULTILINE)
    assert rows
    for names, homes in rows:
        places = [ROOT / "src" / "railwright" / home for home in re.findall(r"`([\w/.]+)`", homes)]
        files = [file for place in places for file in (place.glob("*.py") if place.is_dir() else [place])]
        source = "\n".join(file.read_text(encoding="utf-8") for file in files)
        for name in re.findall(r"`(\w+)`", names):
            assert re.search(rf"^class {name}\b", source, re.MULTILINE), f"{name} is not in {homes}"


def test_a_folder_that_imports_what_stands_above_it_is_named(tmp_path):
    room = tmp_path / "training"
    (room / "layout").mkdir(parents=True)
    breach = room / "layout" / "sizes.py"
    breach.write_text("from railwright.training.step import simulating\nfrom railwright.spec import Layout\n")
    breaches = runpy.run_path(str(LAYERS))["breaches"]
    assert breaches(tmp_path) == [f"{breach}:1: training/layout imports training/step, which stands above it"]
    breach.write_text("import railwright.training\n")
    assert breaches(tmp_path) == [
        f"{breach}:1: training/layout imports training itself, which is for other rooms"
    ]


def test_the_page_of_architecture_lists_folders_as_the_check_has_them():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    table = re.search(r"\n## Folders of large rooms\n(.*?)\n## ", text, re.DOTALL)
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table[1], re.MULTILINE))
    listed = {room: tuple(re.findall(r"`(\w+)`", said)) for room, said in rows.items()}
    assert listed == runpy.run_path(str(LAYERS))["SUB_ROOMS"]
