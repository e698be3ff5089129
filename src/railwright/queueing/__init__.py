"""Jobs of many people on one cluster: who waits, what is fragmented, and what spreading costs the network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Failures": "simulate", "Job": "jobs", "Outcome": "result", "POLICIES": "place", "drawn": "jobs",
    "outcome": "result", "read_jobs": "jobs", "site_of": "place",
}  # fmt: skip

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.queueing.jobs import Job as Job
    from railwright.queueing.jobs import drawn as drawn
    from railwright.queueing.jobs import read_jobs as read_jobs
    from railwright.queueing.place import POLICIES as POLICIES
    from railwright.queueing.place import site_of as site_of
    from railwright.queueing.result import Outcome as Outcome
    from railwright.queueing.result import outcome as outcome
    from railwright.queueing.simulate import Failures as Failures


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line's help needs none of them."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.queueing.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.queueing' has no attribute '{name}'")
