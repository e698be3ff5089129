"""Which element is at fault: evidence read, the posterior over elements, the next test, acceptance plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Diagnosis": "result",
    "Elements": "elements",
    "Evidence": "evidence",
    "Event": "evidence",
    "Rates": "evidence",
    "Routing": "paths",
    "Suspect": "result",
    "burnin": "plans.burnin",
    "diagnose": "verdict",
    "elements_of": "elements",
    "rounds": "plans.schedule",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.diagnose.elements import Elements as Elements
    from railwright.diagnose.elements import elements_of as elements_of
    from railwright.diagnose.evidence import Event as Event
    from railwright.diagnose.evidence import Evidence as Evidence
    from railwright.diagnose.evidence import Rates as Rates
    from railwright.diagnose.paths import Routing as Routing
    from railwright.diagnose.plans.burnin import burnin as burnin
    from railwright.diagnose.plans.schedule import rounds as rounds
    from railwright.diagnose.result import Diagnosis as Diagnosis
    from railwright.diagnose.result import Suspect as Suspect
    from railwright.diagnose.verdict import diagnose as diagnose


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the inference needs scipy, the command line's help not."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.diagnose.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.diagnose' has no attribute '{name}'")
