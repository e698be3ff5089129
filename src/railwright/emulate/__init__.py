"""A fabric emulated on one Linux machine: real processes, network namespaces, and the engines beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Emulation": "result",
    "Faults": "faults",
    "PATTERNS": "patterns",
    "emulate": "emulating",
    "find_tools": "requirements",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.emulate.emulating import emulate as emulate
    from railwright.emulate.faults import Faults as Faults
    from railwright.emulate.patterns import PATTERNS as PATTERNS
    from railwright.emulate.requirements import find_tools as find_tools
    from railwright.emulate.result import Emulation as Emulation


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the process inside the namespaces needs none of them."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.emulate.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.emulate' has no attribute '{name}'")
