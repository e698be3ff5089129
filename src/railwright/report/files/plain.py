"""Values as JSON can say them."""

from __future__ import annotations

import math
from typing import Any


def finite(value: Any) -> Any:
    """The same value with NumPy scalars as Python numbers and null for NaN and infinities."""
    if isinstance(value, dict):
        return {str(key): finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if hasattr(value, "item"):  # a NumPy scalar, without importing NumPy
        return finite(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
