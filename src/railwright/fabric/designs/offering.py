"""Designs side by side, as text for a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from railwright.fabric.designs.designing import Option
from railwright.units import show_bit_rate, show_count

_HEAD = ("family", "switch", "tiers", "switches", "cables", "optics", "hops", "bisection", "lost")
_ROW = "{:<14} {:<13} {:>5} {:>8} {:>7} {:>7} {:>4} {:>9} {:>5}"
_LOST = (
    "lost: GPUs whose way into the network the worst single switch takes with it; * off the network at all"
)
_RAIL_ONLY = "rail-only joins no two rails: traffic between them has only the scale-up links inside servers"


def lines(options: Sequence[Option], width: int = 80) -> list[str]:
    """The options as lines of at most `width` columns: a table of those that work, then why others do not.

    Under each row stands what growth takes, where the requirement grows.  Empty for no options.
    """
    works = [o for o in options if o.feasible]
    out = [_ROW.format(*_HEAD)] if works else []
    for option in works:
        out += [_row(option), *_growth(option, width)]
    if works:
        out += ["", *textwrap.wrap(_LOST, width)]
        if any(o.family == "rail-only" for o in works):
            out += textwrap.wrap(_RAIL_ONLY, width)
    fails = [o for o in options if not o.feasible]
    if fails:
        out += ["", "not possible:"] if works else ["not possible:"]
    for option in fails:
        ready = ", prepared for growth" if option.prepared else ""
        text = (
            f"{option.family} on {option.switch}{ready}: {option.reason.removeprefix(f'{option.family}: ')}"
        )
        out += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    return out


def _row(option: Option) -> str:
    plan, counts, fault = option.plan, option.counts, option.fault
    assert plan is not None
    assert counts is not None
    assert fault is not None
    return _ROW.format(
        _short(option.family, 14),
        _short(option.switch, 13),
        plan.tiers,
        _number(counts.switches, 8),
        _number(counts.cables, 7),
        _number(counts.optics, 7),
        counts.hops_max,
        show_bit_rate(counts.bisection),
        _number(fault.gpus, 4) + ("*" if fault.cut_off else ""),
    )


def _growth(option: Option, width: int) -> list[str]:
    grown = option.growth
    if grown is None:
        return []
    ready = "prepared; " if option.prepared else ""
    moved = f"{show_count(grown.moved)} cables pulled again" if grown.moved else "none pulled again"
    text = (
        f"{ready}to {show_count(grown.gpus)} GPUs: +{show_count(grown.switches)} switches, "
        f"+{show_count(grown.cables)} cables, {moved}"
    )
    return textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")


def _short(name: str, width: int) -> str:
    return name if len(name) <= width else name[: width - 1] + "…"


def _number(count: int, width: int) -> str:
    """Exact, with separators where there is room for them."""
    return f"{count:,}" if len(f"{count:,}") <= width else str(count)
