"""Amounts of money in words."""

from __future__ import annotations


def dollars(value: float) -> str:
    """'$1.2 M', '$310,000', '$2.95'; '–' for what does not exist."""
    if value == float("inf"):
        return "–"
    if abs(value) >= 1e6:
        return f"${value / 1e6:,.3g} M" if abs(value) < 1e9 else f"${value / 1e9:,.3g} bn"
    return f"${value:,.0f}" if abs(value) >= 100 else f"${value:,.2f}"
