"""The same problem given to other simulators, and their answers beside ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "PATTERNS": "problem", "Problem": "problem", "make_problem": "problem",
    "SIMULATORS": "table", "crosscheck": "table",
    "CrossCheck": "outcome", "Row": "outcome",
}  # fmt: skip

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.crosscheck.outcome import CrossCheck as CrossCheck
    from railwright.crosscheck.outcome import Row as Row
    from railwright.crosscheck.problem import PATTERNS as PATTERNS
    from railwright.crosscheck.problem import Problem as Problem
    from railwright.crosscheck.problem import make_problem as make_problem
    from railwright.crosscheck.table import SIMULATORS as SIMULATORS
    from railwright.crosscheck.table import crosscheck as crosscheck


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's help needs none of them."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.crosscheck.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.crosscheck' has no attribute '{name}'")
