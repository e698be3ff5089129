"""How probable a measured rate is when its path should carry a given part of the expected one.

Legend: M rates, S grid points of ln(rate left).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from railwright.diagnose.constants import noise

Floats = NDArray[np.float64]

DEAD = float(np.log(0.01))
"""ln of a test that passed nothing: 1 % of the expected rate stands for none."""
GRID: tuple[float, ...] = (0.0, *np.linspace(-0.1, -2.3, 45).tolist(), DEAD)
"""ln(rate left) of a fault: no effect, 90 % to 10 % of the rate, dead."""
SPAN = 5.0
"""Width of the even distribution of outliers [ln]."""


@cache
def grid_prior() -> Floats:
    """(3, S) ln prior of (way, rate left): both ways, out alone, in alone.

    The first column, no effect, and the others add up to 1 each: a class says how its faults divide.
    """
    n = noise()
    slow = (1 - n.dead) / (len(GRID) - 2)
    left = np.array([1.0, *[slow] * (len(GRID) - 2), n.dead])
    ways = np.array([1 - n.one_way, n.one_way / 2, n.one_way / 2])
    prior: Floats = np.log(ways[:, None] * left[None, :])
    return prior


def log_rate(y: Floats, sigma: Floats, mean: Floats) -> Floats:
    """ln density of measured ln rates around ln expectations; broader below 0, where something is at fault.

    Student's t with a few even outliers, so that one strange measurement cannot decide alone.
    """
    n = noise()
    scale = np.where(mean < -1e-9, np.sqrt(sigma**2 + n.faulty**2), sigma)
    nu = n.tails
    constant = float(gammaln((nu + 1) / 2) - gammaln(nu / 2)) - 0.5 * float(np.log(nu * np.pi))
    # Below its scatter a t of unit scale is narrower than the normal of the same deviation.
    width = scale * np.sqrt((nu - 2) / nu)
    core = constant - np.log(width) - (nu + 1) / 2 * np.log1p(((y - mean) / width) ** 2 / nu)
    mixed: Floats = np.logaddexp(np.log1p(-n.outlier) + core, np.log(n.outlier / SPAN))
    return mixed


def table(y: Floats, sigma: Floats, mean: Floats, weight: float, spread: bool) -> Floats:
    """(M, S) ln likelihood ratio of each rate if a fault of each size came on its path.

    mean    (M,) what the path should carry without it [ln]
    weight  part of the bytes (spread) or probability (not spread) that crosses the fault
    """
    grid = np.array(GRID)
    before = log_rate(y, sigma, mean)[:, None]
    left = np.log1p(weight * np.expm1(grid)) if spread and weight < 1 else grid
    new = np.minimum(mean[:, None], left[None, :])
    ratio = log_rate(y[:, None], sigma[:, None], new) - before
    if not spread and weight < 1:
        ratio = np.logaddexp(np.log(weight) + ratio, np.log1p(-weight))
    return np.asarray(ratio, np.float64)
