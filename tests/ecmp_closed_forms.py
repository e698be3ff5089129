"""What hashing must give in expectation: closed forms beside the sampling, for simple fabrics.

Balls are flows (or queue pairs) of one size, bins are equal uplinks.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def busiest_bin(balls: int, bins: int) -> Floats:
    """(balls + 1,) chance that the fullest of `bins` equal bins holds 0, 1, ... of the `balls`.

    Balls fall independently and uniformly; the chances are those of the multinomial, exact up to rounding.
    """
    below = np.zeros(balls + 2)
    for k in range(balls + 1):
        below[k + 1] = _at_most(balls, bins, k)
    return np.diff(below)


def expected_busiest(balls: int, bins: int) -> float:
    """Mean number of balls in the fullest bin."""
    return float(np.dot(np.arange(balls + 1), busiest_bin(balls, bins)))


def shared_share(balls: int, bins: int) -> float:
    """Mean share of the balls that are not alone in their bin: 1 - (1 - 1/bins)^(balls - 1)."""
    return 1.0 - (1.0 - 1.0 / bins) ** (balls - 1)


def polarised_share(lower: int, upper: int) -> float:
    """Share of the upper tier's ports that any flow can take when two tiers take one hash modulo their ports.

    lower, upper  uplinks of a switch of each tier

    The switch reached by port i of the lower tier sees only hashes h with h mod lower = i, which modulo
    `upper` take upper / gcd(lower, upper) values: with equal port counts, one.
    """
    return 1.0 / math.gcd(lower, upper)


def _at_most(balls: int, bins: int, most: int) -> float:
    """Chance that no bin holds more than `most`.

    Bins of independent Poisson counts, given that they hold `balls` together, are balls thrown at random.
    """
    if most * bins < balls:
        return 0.0
    mean = balls / bins
    one = _poisson(mean, np.arange(min(most, balls) + 1))
    together, power, left = np.ones(1), one, bins
    while left:
        if left & 1:
            together = np.convolve(together, power)[: balls + 1]
        power, left = np.convolve(power, power)[: balls + 1], left >> 1
    return float(together[balls] / _poisson(float(balls), np.array([balls]))[0])


def _poisson(mean: float, count: NDArray[np.int64]) -> Floats:
    if mean <= 0:
        nothing: Floats = (count == 0).astype(np.float64)
        return nothing
    factorial = np.array([math.lgamma(c + 1.0) for c in count.tolist()])
    chance: Floats = np.exp(count * math.log(mean) - mean - factorial)
    return chance
