"""Railwright: one file describes a GPU cluster and its jobs; out come its wiring, its speed and the reasons.

>>> import railwright as rw
>>> result = rw.run(rw.load_study("examples/mixtral-240-h100.yaml"))
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "load_study": "railwright.spec",
    "override": "railwright.spec",
    "load_catalog": "railwright.catalog",
    "load_model": "railwright.model",
    "build_fabric": "railwright.study",
    "run": "railwright.study",
    "perf": "railwright.study",
    "write": "railwright.report",
    "summary": "railwright.report",
    "validate": "railwright.measure",
}

__all__ = ["__version__", *_HOMES]

if TYPE_CHECKING:
    from railwright.catalog import load_catalog as load_catalog
    from railwright.measure import validate as validate
    from railwright.model import load_model as load_model
    from railwright.report import summary as summary
    from railwright.report import write as write
    from railwright.spec import load_study as load_study
    from railwright.spec import override as override
    from railwright.study import build_fabric as build_fabric
    from railwright.study import perf as perf
    from railwright.study import run as run


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that `import railwright` stays instant."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'railwright' has no attribute '{name}'")
