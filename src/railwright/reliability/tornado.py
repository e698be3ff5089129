"""Goodput with one assumption at a time at either end of its published range."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from railwright.reliability.basis import Basis
from railwright.reliability.checkpointing import PUBLISHED, spoiled
from railwright.reliability.closed import Figures, goodput
from railwright.reliability.constants import constant
from railwright.reliability.formulas import best_interval
from railwright.reliability.published import superlinear
from railwright.reliability.result import Component, Swing
from railwright.units import YEAR, show_rate, show_time

At = Callable[[Figures], float]
"""Goodput with some figures changed; the interval is the best one again, unless the study says it."""


def tornado(basis: Basis, figures: Figures) -> tuple[Swing, ...]:
    """The widest swing first.  What the study states itself is no assumption and is left out."""

    def at(changed: Figures) -> float:
        saving = changed.saving
        if basis.asked.checkpoint.interval is None:
            best = max(best_interval(changed.mtti, saving.block, saving.lag), 1.0)
            saving = replace(saving, interval=best, stored=max(saving.stored, best))
        return goodput(replace(changed, saving=saving))

    found = (
        *_rate_swings(basis, figures, at),
        *_recovery_swings(basis, figures, at),
        *_corruption_swing(basis, figures, at),
        *_storage_swing(basis, figures, at),
    )
    return tuple(sorted(found, key=lambda s: -abs(s.at_high - s.at_low)))


def _rate_swings(basis: Basis, figures: Figures, at: At) -> Iterator[Swing]:
    """Of each component's rate, of all at once, and of failures that come together."""
    if basis.asked.interruptions is not None:
        return
    stopping = [p for p in basis.parts if p.stops]

    def failing(mtti: float) -> float:
        return at(replace(figures, mtti=mtti))

    for part in stopping:
        if part.share and part.low < part.high:
            yield _rate_swing(part, figures, at)
    yield Swing(
        "all failure rates together", "every low end", "every high end",
        failing(YEAR / sum(p.low * p.units for p in stopping)),
        failing(YEAR / sum(p.high * p.units for p in stopping)),
        "ranges of the components",
    )  # fmt: skip
    if basis.asked.correlated == 1:
        yield Swing(
            "correlated failures", "x 1", f"x {superlinear():.1f}", goodput(figures),
            failing(figures.mtti / superlinear()), "FT-HSDP at 100,000 GPUs",
        )  # fmt: skip


def _rate_swing(part: Component, figures: Figures, at: At) -> Swing:
    """The other components at their own rate, this one at its ends."""
    others = YEAR / figures.mtti - part.rate * part.units

    def ends(rate: float) -> float:
        return at(replace(figures, mtti=YEAR / (others + rate * part.units)))

    return Swing(
        f"rate of {part.name}", f"{100 * part.low:.2g} %/year", f"{100 * part.high:.2g} %/year",
        ends(part.low), ends(part.high), part.source,
    )  # fmt: skip


def _recovery_swings(basis: Basis, figures: Figures, at: At) -> Iterator[Swing]:
    """Of the stages of a recovery; an elastic job's replicas do not wait for most of them."""
    if figures.elastic is not None:
        return
    hardware = 1 - sum(p.share for p in basis.parts if p.name == "software")
    for name, weight in (("detect", 1.0), ("diagnose", hardware), ("reschedule", hardware), ("warmup", 1.0)):
        if getattr(basis.asked.recovery, name) is not None:
            continue
        known = constant(name)
        low, high = (
            at(replace(figures, recovery=figures.recovery + weight * (end - known.value)))
            for end in (known.low, known.high)
        )
        yield Swing(name, show_time(known.low), show_time(known.high), low, high, known.source)


def _corruption_swing(basis: Basis, figures: Figures, at: At) -> Iterator[Swing]:
    """Of the time until silent corruption is found, where the job's checkpoints do not outlast it."""
    known = constant("sdc_found_after")
    least, most = (
        sum(p.share * spoiled(p, basis.saved, end) for p in basis.parts) for end in (known.low, known.high)
    )
    if most:
        yield Swing(
            "silent corruption found after", show_time(known.low), show_time(known.high),
            at(replace(figures, spoiled=least)), at(replace(figures, spoiled=most)), known.source,
        )  # fmt: skip


def _storage_swing(basis: Basis, figures: Figures, at: At) -> Iterator[Swing]:
    """Of what checkpoints are written at, unless the study says it."""
    saved, saving = basis.saved, figures.saving
    if basis.asked.checkpoint.bandwidth is not None or not saved.bandwidth or figures.elastic is not None:
        return
    known = constant("written_bandwidth")
    slow = min(known.low, saved.bandwidth)
    fast = known.high if saved.limit == PUBLISHED else saved.bandwidth

    def ends(rate: float) -> float:
        write = saved.size / rate
        longer = figures.recovery + (write - saved.storage_load)
        if saved.kind == "blocking":
            return at(replace(figures, saving=replace(saving, block=write), recovery=longer))
        if saved.kind == "async":
            return at(replace(figures, saving=replace(saving, lag=write), recovery=longer))
        stored = max(saving.stored, math.ceil(write / saving.interval) * saving.interval)
        reload = max(write - saved.load, 0.0)
        later = replace(saving, stored=stored, stored_lag=write, reload=reload)
        return at(replace(figures, saving=later))

    yield Swing(
        "storage bandwidth", show_rate(slow), show_rate(fast), ends(slow),
        goodput(figures) if fast == saved.bandwidth else ends(fast), known.source,
    )  # fmt: skip
