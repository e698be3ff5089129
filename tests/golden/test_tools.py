"""The project's own tools: each can be started against the code as it is."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools"
NAMES = sorted(path.stem for path in TOOLS.glob("*.py"))


@pytest.mark.skipif(not NAMES, reason="tools/ is not in this distribution")
@pytest.mark.parametrize("name", NAMES)
def test_what_a_tool_imports_is_there(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fit_mfu.py` had imported a function that had moved, and nothing said so."""
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location(f"tool_{name}", TOOLS / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
