"""Dumps of real machines as values: fabrics as a Wiring, servers as a HostTopology, routing as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "read": "reading",
    "read_host": "reading",
    "read_names": "names",
    "read_tables": "reading",
    "recognised": "reading",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.asbuilt.read.names import read_names as read_names
    from railwright.asbuilt.read.reading import read as read
    from railwright.asbuilt.read.reading import read_host as read_host
    from railwright.asbuilt.read.reading import read_tables as read_tables
    from railwright.asbuilt.read.reading import recognised as recognised


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the parsers are no business of the command line's help."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.asbuilt.read.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.asbuilt.read' has no attribute '{name}'")
