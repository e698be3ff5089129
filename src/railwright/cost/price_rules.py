"""What a price item may be called, and what figures, in what unit, it may have."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from railwright.errors import among, nearest

FORMS = {
    "server": "server/NAME", "gpu": "gpu/NAME", "switch": "switch/NAME", "cloud": "cloud/PROVIDER/GPU",
    "spot": "spot/PROVIDER/GPU", "egress": "egress/PROVIDER", "electricity": "electricity/REGION",
}  # fmt: skip
"""Kinds of items that a price file may add, and their form; every other item is the shipped book's."""

BOUNDS: Mapping[str, tuple[float, float, str]] = {
    "server-share": (0.05, 1.0, "a share of a server's price, from 0.05 to 1"),
    "installation": (0.0, 2.0, "a share of the hardware, from 0 to 2"),
    "support": (0.0, 1.0, "a share of the hardware a year, from 0 to 1"),
    "residual": (0.0, 1.0, "a share of the hardware, from 0 to 1"),
    "facility-life": (1.0, 100.0, "years, from 1 to 100"),
    "servers-per-person": (0.1, 1e6, "servers, from 0.1 to a million"),
    "least-staff": (0.0, 1e4, "people, from 0 to 10,000"),
    "pue": (1.0, 3.0, "site power over the machines', from 1 to 3"),
    "power-at-work": (0.0, 1.0, "a share of the maximum power, from 0 to 1"),
    "power-idle": (0.0, 1.0, "a share of the maximum power, from 0 to 1"),
    "reserved": (0.0, 2.0, "a share of the price on demand, from 0 to 2"),
    "spot-loss": (0.0, 0.9, "a share of the hours, from 0 to 0.9"),
}
"""Items that are no amounts of money: least, most, in words."""


def wrong_name(item: str, shipped: Collection[str]) -> str:
    """What is wrong with an item's name; '' where nothing is."""
    if item in shipped:
        return ""
    kind, *rest = item.split("/")
    if kind not in FORMS:
        fixed = [name for name in shipped if "/" not in name]
        return f"no such item{nearest(item, shipped) or among(item, [*FORMS.values(), *fixed])}"
    if not all(rest) or len(rest) != FORMS[kind].count("/"):
        return f"an item of this kind is written {FORMS[kind]}"
    return ""


def wrong_figures(item: str, figures: Mapping[str, float]) -> Iterator[str]:
    """What is wrong with an item's low, middle or high."""
    if item not in BOUNDS:
        return
    least, most, words = BOUNDS[item]
    for key, value in figures.items():
        if not least <= value <= most:
            yield f"{key}: {value:g} is not {words}"


def wrong_unit(unit: str, expected: str) -> str:
    """What is wrong with a unit that a file gives; '' where nothing is.  expected: that of such items"""
    if expected.startswith("USD") and not unit.upper().startswith(("USD", "$")):
        return f"unit: '{unit}' is not {expected}; the book reckons in US dollars, so convert the price"
    return ""
