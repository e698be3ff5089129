"""Error bands of every family by size: quantiles of errors of curves left out, and what they hold, nested.

Each curve left out in turn gives the errors.  Nothing widens a band by hand, and its coverage is nested: for
each curve every fit and every error behind its band are made again as if that curve had never been published.
"""

from __future__ import annotations

import numpy as np
from collectives_fit import WEIGHTS, Fitted, quantile

from railwright.collectives.family import BANDS

POOLED = 1.0
"""Weight, in curves of quality A, that others have in a family's band: those of the same scope (inside a
node, or across) count as one more curve together, and those of the other scope as another."""
LEVEL, RARE = 0.8, 0.98
"""Shares of measured / predicted that the two bands of a family hold."""


def band(
    table: dict[str, Fitted], family: str, b: int, level: float, unseen: str = ""
) -> tuple[float, float]:
    """(low, high) of measured / predicted in size band b: quantiles of left-out errors.

    The family's own curves count by quality, those of each scope beside them as POOLED curves together.
    unseen  a curve that neither the errors nor any fit behind them has seen
    """
    mine = _residuals(table, [family], b, unseen)
    for inside in (True, False):
        rest = [f for f in table if ("one-node" in f) == inside and f != family]
        others = _residuals(table, rest, b, unseen)
        share = min(1.0, POOLED / max(sum(w for _, w in others), 1e-9))
        mine += [(v, share * w) for v, w in others]
    values = np.concatenate([v for v, _ in mine])
    weights = np.concatenate([np.full(len(v), w / len(v)) for v, w in mine])
    low, high = (quantile(values, weights, q) for q in ((1 - level) / 2, (1 + level) / 2))
    return float(np.exp(min(low, -0.01))), float(np.exp(max(high, 0.01)))


def coverage(table: dict[str, Fitted], b: int, level: float) -> tuple[float, float, int, int]:
    """(share of left-out points inside bands made without their curve, share above, curves, points)."""
    inside = above = total = 0.0
    num_curves = num_points = 0
    for family, of in table.items():
        for name, ratios in of.outside().items():
            here = ratios[_in_band(of.parts[name][:, 0], b)]
            if not len(here):
                continue
            low, high = np.log(band(table, family, b, level, unseen=name))
            weight = WEIGHTS[of.quality[name]]
            inside += weight * float(np.mean((here >= low) & (here <= high)))
            above += weight * float(np.mean(here > high))
            total += weight
            num_curves, num_points = num_curves + 1, num_points + len(here)
    return inside / total, above / total, num_curves, num_points


def _residuals(
    table: dict[str, Fitted], names: list[str], b: int, unseen: str
) -> list[tuple[np.ndarray, float]]:
    """Left-out log(measured / predicted) in one size band, and the weight, of every curve but one."""
    found = []
    for of in (table[name] for name in names):
        for curve, ratios in of.outside(unseen).items():
            here = ratios[_in_band(of.parts[curve][:, 0], b)]
            if len(here):
                found.append((here, WEIGHTS[of.quality[curve]]))
    return found


def _in_band(sizes: np.ndarray, b: int) -> np.ndarray:
    return (sizes <= BANDS[b]) & (sizes > (BANDS[b - 1] if b else 0.0))
