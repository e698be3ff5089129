"""80 % bands of measured over predicted, measurements in groups that hang together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

LEVEL = 0.8
"""Share of measurements that a band shall contain."""

ROUNDED = 1e-12
"""What sums of weights may be off: a share that is reached exactly is reached."""


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
    weights = [weight_of[group] for group in groups]
    inside = 1.0 - (1.0 - level) / 2.0 * (1.0 - 1.0 / len(sizes))
    return -weighted([-ratio for ratio in ratios], weights, inside), weighted(ratios, weights, inside)


def weighted(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The least value below or at which a share of the weight lies.  Raises ValueError without values."""
    reached, wanted = 0.0, share * sum(weights) * (1.0 - ROUNDED)
    for value, weight in sorted(zip(values, weights, strict=True)):
        reached += weight
        if reached >= wanted:
            return value
    raise ValueError("a quantile of nothing")
