"""Money, energy and carbon of a cluster and its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "Case": "options", "Comparison": "comparing", "compare": "comparing", "levels": "quantities",
    "price_book": "prices",
}  # fmt: skip

__all__ = ["Case", "Comparison", "compare", "levels", "price_book"]

if TYPE_CHECKING:
    from railwright.cost.comparing import Comparison as Comparison
    from railwright.cost.comparing import compare as compare
    from railwright.cost.options import Case as Case
    from railwright.cost.prices import price_book as price_book
    from railwright.cost.quantities import levels as levels


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.cost.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.cost' has no attribute '{name}'")
