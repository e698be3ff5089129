"""The Python in the documentation runs as it stands, from the root of a clone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
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
