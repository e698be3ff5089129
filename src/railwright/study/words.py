"""How figures are said in sentences."""

from __future__ import annotations


def percent(change: float, digits: int = 0) -> str:
    """A signed change, '+14 %'; one that rounds to nothing has no sign, '0 %'."""
    text = f"{change * 100:+.{digits}f}"
    return ("0" if float(text) == 0 else text) + " %"


def share(part: float) -> str:
    """A part of a whole, '28 %'."""
    return f"{part * 100:.0f} %"


def number(count: int, noun: str, plural: str = "") -> str:
    """A count with its noun, '1 switch', '12,000 cables'."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
