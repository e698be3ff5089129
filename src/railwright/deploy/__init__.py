"""Day one: how people share the machines, and the files that make it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {"Advice": "advice", "Bundle": "bundling", "advise": "advice", "bundle": "bundling"}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.deploy.advice import Advice as Advice
    from railwright.deploy.advice import advise as advise
    from railwright.deploy.bundling import Bundle as Bundle
    from railwright.deploy.bundling import bundle as bundle


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: `--help` needs none."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.deploy.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.deploy' has no attribute '{name}'")
