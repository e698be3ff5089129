"""From people and jobs to equipment: workstation, server, rack, cluster, and when to move on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Ask": "asking", "Growth": "result", "TASKS": "asking", "grow": "plan", "wait_share": "waiting",
}  # fmt: skip

__all__ = ["TASKS", "Ask", "Growth", "grow", "wait_share"]

if TYPE_CHECKING:
    from railwright.growth.asking import TASKS as TASKS
    from railwright.growth.asking import Ask as Ask
    from railwright.growth.plan import grow as grow
    from railwright.growth.result import Growth as Growth
    from railwright.growth.waiting import wait_share as wait_share


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's help needs no numpy."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.growth.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.growth' has no attribute '{name}'")
