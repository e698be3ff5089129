"""Goodput with one assumption at a time at either end of its published range."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from railwright.reliability.basis import Basis
from railwright.reliability.checkpointing import PUBLISHED, spoiled
from railwright.reliability.closed import Figures, goodput
from railwright.reliability.constants import YEAR, constant
from railwright.reliability.formulas import best_interval
from railwright.reliability.published import superlinear
from railwright.reliability.result import CheckpointTimes, Component, Swing
from railwright.units import show_rate, show_time


def tornado(basis: Basis, figures: Figures) -> tuple[Swing, ...]:
    """The widest swing first.  What the study states itself is no assumption and is left out."""
    asked, parts, saved = basis.asked, basis.parts, basis.saved

    def at(**changes: float) -> float:
        changed = replace(figures, **changes)
        if asked.checkpoint.interval is None:
            best = best_interval(changed.mtti, changed.block, changed.lag)
            changed = replace(changed, interval=max(best, 1.0), stored=max(changed.stored, best, 1.0))
        return goodput(changed)

    found: list[Swing] = []
    if asked.interruptions is None:
        for part in parts:
            if part.stops and part.share and part.low < part.high:
                found.append(_rate_swing(part, figures.mtti, at))
        found.append(
            Swing(
                "all failure rates together", "every low end", "every high end",
                at(mtti=YEAR / sum(p.low * p.units for p in parts if p.stops)),
                at(mtti=YEAR / sum(p.high * p.units for p in parts if p.stops)),
                "ranges of the components",
            )
        )  # fmt: skip
        if asked.correlated == 1:
            found.append(
                Swing(
                    "correlated failures", "x 1", f"x {superlinear():.1f}", goodput(figures),
                    at(mtti=figures.mtti / superlinear()), "FT-HSDP at 100,000 GPUs",
                )
            )  # fmt: skip
    hardware = 1 - sum(p.share for p in parts if p.name == "software")
    for name, weight in (("detect", 1.0), ("diagnose", hardware), ("reschedule", hardware), ("warmup", 1.0)):
        if getattr(asked.recovery, name) is not None or figures.elastic is not None:
            continue
        known = constant(name)
        low, high = (
            at(recovery=figures.recovery + weight * (end - known.value)) for end in (known.low, known.high)
        )
        found.append(Swing(name, show_time(known.low), show_time(known.high), low, high, known.source))
    known = constant("sdc_found_after")
    least, most = (sum(p.share * spoiled(p, saved, end) for p in parts) for end in (known.low, known.high))
    if most:
        found.append(
            Swing(
                "silent corruption found after", show_time(known.low), show_time(known.high),
                at(spoiled=least), at(spoiled=most), known.source,
            )
        )  # fmt: skip
    if asked.checkpoint.bandwidth is None and saved.bandwidth and figures.elastic is None:
        found.append(_storage_swing(saved, figures, at))
    return tuple(sorted(found, key=lambda s: -abs(s.at_high - s.at_low)))


def _rate_swing(part: Component, mtti: float, at: Callable[..., float]) -> Swing:
    """The other components at their own rate, this one at its ends."""
    others = YEAR / mtti - part.rate * part.units

    def ends(rate: float) -> float:
        return at(mtti=YEAR / (others + rate * part.units))

    return Swing(
        f"rate of {part.name}", f"{100 * part.low:.2g} %/year", f"{100 * part.high:.2g} %/year",
        ends(part.low), ends(part.high), part.source,
    )  # fmt: skip


def _storage_swing(saved: CheckpointTimes, figures: Figures, at: Callable[..., float]) -> Swing:
    known = constant("written_bandwidth")
    slow = min(known.low, saved.bandwidth)
    fast = known.high if saved.limit == PUBLISHED else saved.bandwidth

    def ends(rate: float) -> float:
        write = saved.size / rate
        more = write - saved.storage_load
        changes = {
            "blocking": {"block": write, "recovery": figures.recovery + more},
            "async": {"lag": write, "recovery": figures.recovery + more},
        }.get(saved.kind)
        if changes is None:
            stored = max(figures.stored, math.ceil(write / figures.interval) * figures.interval)
            reload = max(write - saved.load, 0.0)
            changes = {"stored": stored, "stored_lag": write, "reload": reload}
        return at(**changes)

    return Swing(
        "storage bandwidth", show_rate(slow), show_rate(fast), ends(slow),
        goodput(figures) if fast == saved.bandwidth else ends(fast), known.source,
    )  # fmt: skip
