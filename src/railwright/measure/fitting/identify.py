"""What measured curves can tell of a family's constants, and what they cannot, with the test that could.

Launch shows where waiting is most of the time, usable bandwidth where the wire is, ramp between the two.
A constant that is not told keeps its shipped value, and the sentence says what to measure next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.measure.fitting.fit import LIMITS, PARAMETERS, Fit, Part, Values, fit, times
from railwright.units import show_size, show_time

PLATEAU = 0.70
"""Share of the wire in a predicted time from which a size is on the plateau."""
RISES = 0.80
"""Doubling a size on the plateau must take 2^this longer; less, and the bus bandwidth still rises."""
WAITING = 0.60
"""Share of latencies in a predicted time from which a size is all waiting."""
FLAT = 0.50
"""Doubling a size that is all waiting may take 2^this longer; more, and it is not waiting."""
MIXED = 10.0
"""Condition number from which constants are not told apart: dependencies begin to show at 5 to 10 and are
strong at 30 (Belsley, Kuh and Welsch, Regression Diagnostics, 1980, ch. 3)."""
TOLERANCE = {"launch": 0.25, "ramp": 0.5, "usable": 0.10}
"""Largest standard error of a measurement: launch over the whole latency, ramp, usable over itself."""
SPARE = 2
"""Points beyond the constants, below which no scatter can be told."""
SICK = 0.85
"""Usable bandwidth below which a machine is more likely broken than slow."""
WIRE_OF_TWO = 0.30
"""Share of the wire above which a point of two nodes is left out beside curves of more."""

FORCED = {
    "ring": "NCCL_ALGO=Ring ", "tree": "NCCL_ALGO=Tree ", "nvls": "NCCL_ALGO=NVLS ",
    "nvlstree": "NCCL_ALGO=NVLSTree ", "collnet": "NCCL_ALGO=CollnetDirect ", "pat": "NCCL_ALGO=PAT ",
}  # fmt: skip
TESTS = {"all_to_all": "alltoall_perf"}


@dataclass(frozen=True)
class Held:
    """A constant that keeps its shipped value.

    reason  'sizes', 'two nodes', 'few points', 'correlated' or 'uncertain'
    why     the sentence: what is missing and what to measure next
    """

    constant: str
    reason: str
    why: str


@dataclass(frozen=True)
class Identified:
    """A family's fit as far as its curves carry it.

    parts  the points used
    fit    with what was told; `usable` of two nodes may be fitted on the way and not kept
    kept   the constants that are told
    held   the others
    """

    parts: tuple[Part, ...]
    fit: Fit
    kept: tuple[str, ...]
    held: tuple[Held, ...]


def identify(family: str, parts: Sequence[Part], shipped: Values) -> Identified:
    """Fit what the curves can tell of one family, and say why not the rest."""
    test = _test(family, parts)
    across = " one-node " not in family
    fabric = [p for p in parts if p.nodes > 2]
    if across and fabric and len(fabric) < len(parts):
        parts = [p if p.nodes > 2 else p.only(_wire(p, shipped) <= WIRE_OF_TWO) for p in parts]
        parts = [p for p in parts if len(p.size)]
    count = sum(len(p.size) for p in parts)
    if count <= SPARE:
        why = f"{family}: nothing is calibrated: {_few(count, 1, test)}."
        return Identified(tuple(parts), fit(parts, shipped, ()), (), (Held("", "few points", why),))
    held: dict[str, Held] = {}

    def hold(constant: str, reason: str, why: str) -> None:
        kept_at = "" if constant == "ramp" else " " + _shown(constant, shipped[constant])
        held[constant] = Held(
            constant, reason, f"{family}: {constant} is held at the shipped value{kept_at}: {why}."
        )

    if not _tells_launch(parts, shipped):
        hold("launch", "sizes", _no_small(parts, shipped, test))
    if not _tells_plateau(parts, shipped):
        hold("usable", "sizes", _no_plateau(parts, shipped, test))
    while count < len(PARAMETERS) - len(held) + SPARE and len(held) < len(PARAMETERS):
        constant = next(n for n in ("ramp", "launch", "usable") if n not in held)
        hold(constant, "few points", _few(count, len(PARAMETERS) - len(held), test))
    while True:
        free = [n for n in PARAMETERS if n not in held]
        found = fit(parts, shipped, free)
        if not free:
            break
        flaw = _correlated(found, test) or _uncertain(found, parts, test)
        if flaw is None:
            break
        hold(*flaw)
    kept = list(found.free)
    if across and not fabric and "usable" in kept:
        kept.remove("usable")
        hold("usable", "two nodes", _two_nodes(found, test))
    ordered = tuple(held[n] for n in PARAMETERS if n in held)
    return Identified(tuple(parts), found, tuple(kept), ordered)


def _wire(part: Part, values: Values) -> NDArray[np.float64]:
    """Share of the wire in the predicted times."""
    share: NDArray[np.float64] = part.bandwidth / values["usable"] / times(part, values)
    return share


def _waits(part: Part, values: Values) -> NDArray[np.float64]:
    """Share of latencies in the predicted times."""
    share: NDArray[np.float64] = (values["launch"] + part.steps) / times(part, values)
    return share


def _growth(part: Part, keep: NDArray[np.bool_]) -> float:
    """d ln(measured time) / d ln(size) over the sizes kept; NaN below two of them."""
    if len(np.unique(part.size[keep])) < 2:
        return float("nan")
    return float(np.polyfit(np.log(part.size[keep]), np.log(part.measured[keep]), 1)[0])


def _tells_launch(parts: Sequence[Part], shipped: Values) -> bool:
    return any(_growth(p, _waits(p, shipped) >= WAITING) <= FLAT for p in parts)


def _tells_plateau(parts: Sequence[Part], shipped: Values) -> bool:
    return any(_growth(p, _wire(p, shipped) >= PLATEAU) >= RISES for p in parts)


def _no_small(parts: Sequence[Part], shipped: Values, test: str) -> str:
    part = min(parts, key=lambda p: p.size.min())
    at, waiting = int(np.argmin(part.size)), _waits(part, shipped)
    small = waiting >= WAITING
    if len(np.unique(part.size[small])) >= 2:
        grown = 2 ** _growth(part, small) - 1
        seen = f"its small sizes take {grown:.0%} longer at each doubling, where waiting would not grow"
    else:
        many = "only one size" if small.any() else "no size"
        seen = (
            f"{many} measured of it is mostly waiting (the smallest, {show_size(part.size[at])}, is "
            f"{waiting[at]:.0%}; two sizes of {WAITING:.0%} are needed)"
        )
    return f"{seen}; measure small sizes, {test} -b 8 -e 16G -f 2"


def _no_plateau(parts: Sequence[Part], shipped: Values, test: str) -> str:
    part = max(parts, key=lambda p: p.size.max())
    at, wire = int(np.argmax(part.size)), _wire(part, shipped)
    large = wire >= PLATEAU
    top = show_size(part.size[at])
    if len(np.unique(part.size[large])) >= 2:
        rise = 2 ** (1 - _growth(part, large)) - 1
        seen = f"the bus bandwidth still rises by {rise:.0%} at each doubling up to {top}"
    else:
        many = "only one size" if large.any() else "no size"
        seen = (
            f"{many} measured of it is on the plateau (of the largest, {top}, the wire is "
            f"{wire[at]:.0%}; two sizes of {PLATEAU:.0%} are needed)"
        )
    return f"{seen}; measure larger sizes, {test} -b 8 -e 16G -f 2"


def _few(count: int, wanted: int, test: str) -> str:
    points = "1 point" if count == 1 else f"{count} points"
    constants = "a constant and its" if wanted == 1 else f"{wanted} constants and their"
    return (
        f"{points} cannot tell {constants} scatter ({wanted + SPARE} are the least); "
        f"measure every power of two, {test} -b 8 -e 16G -f 2"
    )


def _correlated(found: Fit, test: str) -> tuple[str, str, str] | None:
    if found.condition <= MIXED:
        return None
    constant = next((n for n in ("ramp", "launch", "usable") if n in found.alike), found.free[-1])
    other = next((n for n in found.alike if n != constant), "the others")
    why = (
        f"these sizes cannot tell it from {other} (condition number {found.condition:.0f}, {MIXED:.0f} is "
        f"the most); measure the whole range, {test} -b 8 -e 16G -f 2"
    )
    return constant, "correlated", why


def _uncertain(found: Fit, parts: Sequence[Part], test: str) -> tuple[str, str, str] | None:
    latency = float(np.median(np.concatenate([p.steps for p in parts]))) + found.values["launch"]
    over = {"launch": latency, "ramp": 1.0, "usable": found.values["usable"]}
    worst = max(found.free, key=lambda n: found.errors[n] / over[n] / TOLERANCE[n])
    error = found.errors[worst]
    if error / over[worst] <= TOLERANCE[worst]:
        return None
    most = TOLERANCE[worst] * over[worst]
    why = (
        f"its standard error would be {_shown(worst, error)} ({_shown(worst, most)} is the most) because "
        f"the points scatter by {found.sigma:.0%}; measure on an idle machine with more calls, {test} "
        "-n 100 -w 20 -b 8 -e 16G -f 2"
    )
    return worst, "uncertain", why


def _two_nodes(found: Fit, test: str) -> str:
    theirs = f"{found.values['usable']:.3f} ± {found.errors['usable']:.3f}"
    sick = ", after `railwright compare` has found them sound" if found.values["usable"] < SICK else ""
    return (
        "two nodes say nothing of a fabric of three or more (each NIC has one peer, trees have one edge, no "
        f"spine is shared); theirs would be {theirs} of NCCL's usable bandwidth; measure on 3 nodes or "
        f"more{sick}, best on as many as a job has: {test} -b 8 -e 16G -f 2"
    )


def _test(family: str, parts: Sequence[Part]) -> str:
    op = parts[0].op
    return FORCED.get(family.split()[-1], "") + TESTS.get(op, f"{op}_perf")


def _shown(constant: str, value: float) -> str:
    return show_time(value) if constant == "launch" else f"{value:.3g}"


def at_limit(constant: str, value: float) -> bool:
    """Whether a fitted constant stands at the end of what is allowed."""
    low, high = LIMITS[constant]
    return value <= low + 1e-12 or value >= high * (1 - 1e-6)
