"""Measured kernels between their points: how far measurements lie from a fit, carried to shapes near them.

At a measured shape the corrected fit is the measurement; between sizes of one configuration the logarithm of
measured over fitted is interpolated; beside measured configurations it is averaged over those near; away from
all of them nothing is left of it, and the fit stands.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

Fit = Callable[[Floats, Floats, Floats], Floats]
"""Fitted seconds of one configuration (D,) at two sizes that broadcast."""

NEAREST = 12
"""Configurations that are averaged at most."""

REACH = 4.0
"""Distance, in scales, from which a configuration says nothing: it would weigh 0.00002 of the fit."""

EXACT = 1e-12
"""Square of the distance at which a configuration is taken for the very one."""

SMALLEST = 1e-3
"""What takes the place of sizes of zero, which have no logarithm."""


@dataclass(frozen=True, eq=False)
class Points:
    """Measured times of one kernel: of each configuration on a grid of two sizes that run.

    Legend: G configurations of D sizes each; grids of M by N points.

    configs  (G, D) sizes;  first (M,), second (N,)  sizes of the grid, rising; N is 1 where only one runs
    seconds  (G, M, N), NaN where not measured
    scale    octaves over which what one configuration shows fades for another
    fit      the fit that is corrected
    """

    configs: Floats
    first: Floats
    second: Floats
    seconds: Floats
    scale: float
    fit: Fit
    known: dict[int, Floats] = field(default_factory=dict, repr=False)

    def log_ratio(self, config: Sequence[float], first: ArrayLike, second: ArrayLike = 1.0) -> Floats:
        """Logarithm of corrected over fitted time of one configuration at sizes that broadcast.

        The mean of r, the logarithms of measured over fitted, over near configurations and a prior of 0:

            sum_g w_g r_g / (1 + sum_g w_g),   w_g = c_g exp(-d_g^2 / 2) / d_g^2

        d_g^2 adds, in squared scales, how far the configuration is, how far the sizes are beyond its grid,
        and 1 - c_g;  c_g is the share of the cell around the sizes that was measured.  So the answer lies
        between the smallest and the largest of 0 and the points' own.
        """
        x, y = np.broadcast_arrays(_octaves(first), _octaves(second))
        away = ((self._places - _octaves(np.asarray(config, float))) ** 2).sum(axis=1) / self.scale**2
        near = np.argsort(away, kind="stable")[:NEAREST]
        one, other = _cell(_octaves(self.first), x), _cell(_octaves(self.second), y)
        beyond = (one[2] ** 2 + other[2] ** 2) / self.scale**2
        near = near[away[near] < REACH**2]
        if not len(near):
            return np.zeros(x.shape)
        share, mean = _read(np.stack([self.ratios(int(number)) for number in near]), one, other)
        distance = away[near].reshape(-1, *(1,) * x.ndim) + beyond + (1.0 - share) ** 2
        weight = share * np.exp(-distance / 2.0) / (distance + EXACT)
        return np.asarray((weight * mean).sum(axis=0) / (1.0 + weight.sum(axis=0)))

    def ratios(self, number: int) -> Floats:
        """(M, N) logarithms of measured over fitted, of one configuration."""
        found = self.known.get(number)
        if found is None:
            fitted = self.fit(self.configs[number], self.first[:, None], self.second[None, :])
            found = np.log(self.seconds[number] / fitted)
            self.known[number] = found
        return found

    @property
    def _places(self) -> Floats:
        return _octaves(self.configs)


Cell = tuple[NDArray[np.intp], Floats, Floats]
"""Of each size: the grid point below, the way to the next (0 to 1), octaves beyond the grid."""


def _octaves(sizes: ArrayLike) -> Floats:
    return np.asarray(np.log2(np.maximum(np.asarray(sizes, float), SMALLEST)))


def _cell(grid: Floats, at: Floats) -> Cell:
    beyond = np.maximum(np.maximum(grid[0] - at, at - grid[-1]), 0.0)
    if len(grid) == 1:
        return np.zeros(at.shape, np.intp), np.zeros(at.shape), beyond
    below = np.clip(np.searchsorted(grid, at, side="right") - 1, 0, len(grid) - 2)
    way = np.clip((at - grid[below]) / (grid[below + 1] - grid[below]), 0.0, 1.0)
    return below, way, beyond


def _read(ratios: Floats, one: Cell, other: Cell) -> tuple[Floats, Floats]:
    """Of the cell around each place, by configuration: the share that was measured, and the mean of that.

    ratios  (K, M, N);  both answers (K, ...)
    """
    share: Floats = np.zeros((len(ratios), *one[1].shape))
    total = np.zeros_like(share)
    for up in (0, 1)[: ratios.shape[1]]:
        for right in (0, 1)[: ratios.shape[2]]:
            weight = (one[1] if up else 1.0 - one[1]) * (other[1] if right else 1.0 - other[1])
            value = ratios[:, one[0] + up, other[0] + right]
            there = np.isfinite(value)
            share += np.where(there, weight, 0.0)
            total += np.where(there, weight * np.where(there, value, 0.0), 0.0)
    return share, total / np.maximum(share, 1e-300)
