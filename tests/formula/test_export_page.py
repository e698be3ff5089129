"""The page of exports says every format and its files, and its example runs."""

from __future__ import annotations

import re
from pathlib import Path

from railwright import export

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "exports.md").read_text(encoding="utf-8")


def test_the_table_has_a_row_per_format_with_its_files():
    rows = re.findall(r"^\| `([a-z-]+)` \| ([^|]+) \|.*\|$", PAGE, re.MULTILINE)
    assert [name for name, _ in rows] == list(export.EXPORTS)
    for name, cell in rows:
        files = tuple(re.findall(r"`([^`]+)`", cell))
        assert files == export.EXPORTS[name].files or cell == "the same four"


def test_every_format_says_how_it_was_checked():
    checks = PAGE[PAGE.index("## How each was checked") : PAGE.index("Of the last row's")]
    assert set(export.EXPORTS) <= set(re.findall(r"`([a-z-]+)`", checks))


def test_the_example_runs(tmp_path, monkeypatch):
    (example,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(example.replace("examples/", f"{ROOT}/examples/").replace('"out/', f'"{tmp_path}/'), {})
    assert (tmp_path / "cables" / "cables.csv").exists()
