"""80 % bands of measured over predicted, measurements in groups that hang together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LEVEL = 0.8
"""Share of measurements that a band shall contain."""


def band(
    ratios: Sequence[float], groups: Sequence[str], growth: float = 0.0, level: float = LEVEL
) -> tuple[float, float]:
    """(low, high): quantiles of the ratios, each group with its weight in all.

    ratios  measured over predicted, at least one
    groups  of each ratio: those of one group share its weight
    growth  a group of n measurements weighs n**growth: 0 where they say the same n times, 1 where each speaks
            for itself
    level   share that it shall contain

    The tails are those of n groups, not of infinitely many: (1 - level) / 2 times 1 - 1 / n, so that a band
    from few groups is wider.
    """
    sizes = Counter(groups)
    weight_of = {group: float(size) ** (growth - 1.0) for group, size in sizes.items()}
    ordered = sorted((ratio, weight_of[group]) for ratio, group in zip(ratios, groups, strict=True))
    total = sum(weight for _, weight in ordered)
    tail = (1.0 - level) / 2.0 * (1.0 - 1.0 / len(sizes))
    below, low, high = 0.0, ordered[0][0], ordered[-1][0]
    for ratio, weight in ordered:
        if below / total <= tail:
            low = ratio
        below += weight
        if below / total >= 1.0 - tail:
            high = ratio
            break
    return low, high
