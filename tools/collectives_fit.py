"""Launch and ramp of every family of collectives, fitted to the curves, and the errors of curves left out.

A family needs three points, and a quality-A curve or two others.  Curves of quality A weigh 1, B 1/2, C 1/4,
whatever their number of points; the error is of log(predicted / measured).  Single quoted numbers (C) are
plateaus: they test a fit and do not make it.  A family without sizes at which a launch is felt has none
longer than another algorithm of the same GPUs and transport.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np
from collectives_curves import Sample, curves, samples
from scipy.optimize import least_squares

from railwright.collectives.family import BANDS

WEIGHTS = {"A": 1.0, "B": 0.5, "C": 0.25}
"""Weight of a whole curve by the quality of its record."""
PRIOR = np.array([2e-4, 2e-2])
"""Pull of (launch [us], ramp) towards zero, so that curves without small sizes cannot invent a launch."""
HIGHEST = (1000.0, 4.0)
"""Upper bounds of the same two."""
Fit = tuple[float, float]
"""launch [s], ramp."""


def fit(parts: list[np.ndarray], shares: list[float], longest: float = inf) -> Fit:
    """Least squared log error; each curve's points share that curve's weight.

    longest  upper bound of the launch [s]
    """

    every = np.concatenate(parts)
    root = every[:, 2]
    weights = np.repeat(
        [sqrt(share / len(p)) for p, share in zip(parts, shares, strict=True)], list(map(len, parts))
    )

    def residuals(x: np.ndarray) -> np.ndarray:
        return np.concatenate([errors(every, (x[0] * 1e-6, x[1])) * weights, PRIOR * x])

    def slopes(x: np.ndarray) -> np.ndarray:
        each = weights / (every[:, 1] + x[0] * 1e-6 + x[1] * root)
        return np.concatenate([np.column_stack([each * 1e-6, each * root]), np.diag(PRIOR)])

    top = min(HIGHEST[0], max(1e6 * longest, 0.01))
    bounds = ([0.0, 0.0], [top, HIGHEST[1]])
    start = [min(5.0, top / 2), 0.5]
    answer = least_squares(residuals, start, slopes, bounds=bounds, loss="soft_l1", f_scale=0.3)
    return round(float(answer.x[0]), 2) * 1e-6, round(float(answer.x[1]), 3)


def errors(part: np.ndarray, how: Fit) -> np.ndarray:
    """log(predicted / measured) of one curve."""
    _, fixed, root, measured = part.T
    found: np.ndarray = np.log((fixed + how[0] + how[1] * root) / measured)
    return found


@dataclass(frozen=True)
class Fitted:
    """One family: its curves, its fit, and log(measured / predicted) per curve with that curve left out.

    beside    the family whose launch bounds this one's, where none of its own sizes tells
    fits      fits already made, by the curves they have not seen
    """

    quality: dict[str, str]
    parts: dict[str, np.ndarray]
    beside: Fitted | None
    fits: dict[frozenset[str], Fit]

    @property
    def how(self) -> Fit:
        return self.without(frozenset())

    @property
    def small(self) -> bool:
        """Whether some size is one at which a launch is felt."""
        return any(bool(np.any(part[:, 0] <= BANDS[0])) for part in self.parts.values())

    @property
    def inside(self) -> dict[str, np.ndarray]:
        return {n: -errors(p, self.how) for n, p in self.parts.items()}

    def outside(self, unseen: str = "") -> dict[str, np.ndarray]:
        """Of each curve but `unseen`, errors of a fit that has seen neither; empty where none is left."""
        found = {}
        for name, part in self.parts.items():
            hidden = frozenset({name, unseen})
            if name != unseen and not set(self.parts) <= hidden:
                found[name] = -errors(part, self.without(hidden))
        return found

    def without(self, hidden: frozenset[str]) -> Fit:
        """The fit to the curves that are not hidden; what else is hidden makes no other fit."""
        beside = set(self.beside.parts) if self.beside is not None else set[str]()
        hidden &= beside | set(self.parts)
        if hidden not in self.fits:
            kept = [n for n in self.parts if n not in hidden]
            kept = [n for n in kept if self.quality[n] != "C"] or kept
            longest = inf
            if self.beside is not None and not set(self.beside.parts) <= hidden:
                longest = self.beside.without(hidden)[0]
            shares = [WEIGHTS[self.quality[n]] for n in kept]
            self.fits[hidden] = fit([self.parts[n] for n in kept], shares, longest)
        return self.fits[hidden]

    def median(self, which: dict[str, np.ndarray]) -> float | None:
        """Median absolute relative error, every curve weighing as in the fit."""
        return (
            _median([-which[n] for n in which], [WEIGHTS[self.quality[n]] for n in which]) if which else None
        )


def fitted() -> dict[str, Fitted]:
    """Every family that the curves allow, by name."""
    by_family: dict[str, dict[str, list[Sample]]] = {}
    quality: dict[str, str] = {}
    for curve in curves():
        for family, sample in samples(curve):
            by_family.setdefault(family, {}).setdefault(curve.name, []).append(sample)
            quality[curve.name] = curve.quality
    table: dict[str, Fitted] = {}
    for family in sorted(by_family):
        parts = {n: np.array(p) for n, p in by_family[family].items()}
        if sum(len(p) for p in parts.values()) < 3 or (len(parts) == 1 and quality[next(iter(parts))] != "A"):
            continue
        table[family] = Fitted({n: quality[n] for n in parts}, parts, None, {})
    told = {family: of for family, of in table.items() if of.small and not family.endswith("p2p")}
    for family, of in table.items():
        near = [name for name in told if name.split()[:-1] == family.split()[:-1]]
        if not of.small and near:
            table[family] = replace(of, beside=told[near[0]])
    return table


def quantile(values: np.ndarray, weights: np.ndarray, q: float) -> float:
    """The least value that a share q of the weight does not exceed."""
    order = np.argsort(values)
    cumulative = np.cumsum(weights[order]) / weights.sum()
    return float(values[order][np.searchsorted(cumulative, q)])


def _median(parts: list[np.ndarray], shares: list[float]) -> float:
    """Median absolute relative error, every curve weighing as in the fit."""
    return quantile(np.abs(np.expm1(np.concatenate(parts))), _weights(parts, shares), 0.5)


def _weights(parts: list[np.ndarray], shares: list[float]) -> np.ndarray:
    return np.concatenate([np.full(len(e), share / len(e)) for e, share in zip(parts, shares, strict=True)])
