"""Fabrics written in others' formats: cable schedules, simulators, schedulers, inventories, graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {"EXPORTS": "table", "Export": "table", "render": "table", "write": "table"}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.export.table import EXPORTS as EXPORTS
    from railwright.export.table import Export as Export
    from railwright.export.table import render as render
    from railwright.export.table import write as write


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: formats need numpy, the command line's help does not."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.export.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.export' has no attribute '{name}'")
