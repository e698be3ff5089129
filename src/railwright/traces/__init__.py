"""Steps in others' formats: execution traces, simulators' workloads, schedules, profiles of real steps.

Names are loaded on first use, so that `railwright --help` pays for none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from railwright.traces.comparison import Comparison, compare
    from railwright.traces.files import FORMATS, export, load
    from railwright.traces.graph import Group, Node, StepTrace
    from railwright.traces.kineto import Profile
    from railwright.traces.kineto import read as read_profile
    from railwright.traces.measured import Step, step_of
    from railwright.traces.outcome import busiest, critical_path, shares
    from railwright.traces.replaying import Replayed, replay
    from railwright.traces.step import step_trace

__all__ = [
    "FORMATS",
    "Comparison",
    "Group",
    "Node",
    "Profile",
    "Replayed",
    "Step",
    "StepTrace",
    "busiest",
    "compare",
    "critical_path",
    "export",
    "load",
    "read_profile",
    "replay",
    "shares",
    "step_of",
    "step_trace",
]

_HOMES = {
    "comparison": ("Comparison", "compare"),
    "files": ("FORMATS", "export", "load"),
    "graph": ("Group", "Node", "StepTrace"),
    "kineto": ("Profile", "read_profile"),
    "measured": ("Step", "step_of"),
    "outcome": ("busiest", "critical_path", "shares"),
    "replaying": ("Replayed", "replay"),
    "step": ("step_trace",),
}


def __getattr__(name: str) -> Any:
    home = next((home for home, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{home}"), "read" if name == "read_profile" else name)
    globals()[name] = found
    return found
