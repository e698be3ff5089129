"""The machine as it was built: dumps read, the design behind them inferred, and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Blueprint": "compare_plan",
    "Planned": "compare_plan",
    "compare": "compare_design",
    "fabric_names": "fabric",
    "to_fabric": "fabric",
    "to_wiring": "fabric",
    "Inferred": "infer_machine",
    "infer": "infer_machine",
    "summary": "infer_machine",
    "as_text": "punch",
    "is_wrong": "punch",
    "punch_list": "punch",
    "tally": "punch",
    "Link": "wiring",
    "Node": "wiring",
    "Wiring": "wiring",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.asbuilt.compare_design import compare as compare
    from railwright.asbuilt.compare_plan import Blueprint as Blueprint
    from railwright.asbuilt.compare_plan import Planned as Planned
    from railwright.asbuilt.fabric import fabric_names as fabric_names
    from railwright.asbuilt.fabric import to_fabric as to_fabric
    from railwright.asbuilt.fabric import to_wiring as to_wiring
    from railwright.asbuilt.infer_machine import Inferred as Inferred
    from railwright.asbuilt.infer_machine import infer as infer
    from railwright.asbuilt.infer_machine import summary as summary
    from railwright.asbuilt.punch import as_text as as_text
    from railwright.asbuilt.punch import is_wrong as is_wrong
    from railwright.asbuilt.punch import punch_list as punch_list
    from railwright.asbuilt.punch import tally as tally
    from railwright.asbuilt.wiring import Link as Link
    from railwright.asbuilt.wiring import Node as Node
    from railwright.asbuilt.wiring import Wiring as Wiring


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: a fabric needs numpy, the command line's help does not."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.asbuilt.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.asbuilt' has no attribute '{name}'")
