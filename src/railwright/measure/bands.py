"""80 % bands of measured over predicted, each group of measurements with the same weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LEVEL = 0.8
"""Share of measurements that a band shall contain."""


def band(ratios: Sequence[float], groups: Sequence[str]) -> tuple[float, float]:
    """(low, high): quantiles of the ratios, each group with the same weight in all.

    ratios  measured over predicted, at least one
    groups  of each ratio: those of one group share its weight

    The tails are those of n groups, not of infinitely many: (1 - LEVEL) / 2 times 1 - 1 / n, so that a band
    from few groups is wider.
    """
    sizes = Counter(groups)
    ordered = sorted((ratio, 1.0 / sizes[group]) for ratio, group in zip(ratios, groups, strict=True))
    total = float(len(sizes))
    tail = (1.0 - LEVEL) / 2.0 * (1.0 - 1.0 / total)
    below, low, high = 0.0, ordered[0][0], ordered[-1][0]
    for ratio, weight in ordered:
        if below / total <= tail:
            low = ratio
        below += weight
        if below / total >= 1.0 - tail:
            high = ratio
            break
    return low, high
