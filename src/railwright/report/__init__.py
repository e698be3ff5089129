"""The result for people and programs: an HTML page, JSON, a Perfetto trace, CSV files, a terminal summary.

No physics lives here: deleting this room changes no number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from railwright.report.folder import refuse_existing, write
    from railwright.report.html import page
    from railwright.report.terminal import summary

__all__ = ["page", "refuse_existing", "summary", "write"]

_HOMES = {"page": "html", "refuse_existing": "folder", "summary": "terminal", "write": "folder"}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that `railwright --help` pays for none of them."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"railwright.report.{_HOMES[name]}"), name)
