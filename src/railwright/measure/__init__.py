"""Published measurements beside our predictions: `railwright validate`."""

from __future__ import annotations

from railwright.measure.validate import FAMILIES, validate

__all__ = ["FAMILIES", "validate"]
