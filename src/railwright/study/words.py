"""How figures are said in sentences."""

from __future__ import annotations


def percent(change: float, digits: int = 0) -> str:
    """A signed change, '+14 %'; one that rounds to nothing has no sign, '0 %'."""
    text = f"{change * 100:+.{digits}f}"
    return ("0" if float(text) == 0 else text) + " %"


def share(part: float) -> str:
    """A part of a whole, '28 %'."""
    return f"{part * 100:.0f} %"
