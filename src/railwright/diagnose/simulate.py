"""Made-up measurements of a fabric with known faults: what plans and probabilities are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.evidence import ANY, Rates
from railwright.diagnose.paths import Crossed, Routing, rates_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Planted:
    """A fault that was put in: element, part of the rate left, way ('both', 'out', 'in')."""

    element: int
    left: float
    way: str = "both"


def measured(
    crossing: Crossed,
    routing: Routing,
    faults: Sequence[Planted],
    rng: np.random.Generator,
    sigma: float = 0.03,
    taken: Crossed | None = None,
) -> Rates:
    """What transfers would measure: the slowest fault on each path, with normal noise of `sigma` [ln].

    taken  paths that were really taken, where `crossing` only knows them by chance (ECMP); default `crossing`
    """
    truth = crossing if taken is None else taken
    count = int(crossing.obs.max(initial=-1)) + 1
    y = np.zeros(count)
    for fault in faults:
        way = {"both": (0, 1), "out": (0,), "in": (1,)}[fault.way]
        hit = (truth.element == fault.element) & ((truth.way == ANY) | np.isin(truth.way, way))
        np.minimum.at(y, truth.obs[hit], np.log1p(truth.weight[hit] * (fault.left - 1)))
    y = y + rng.normal(0.0, sigma, count)
    labels = [f"transfer {i}" for i in range(count)]
    return rates_of(crossing, routing, y, np.full(count, sigma), labels, "simulated")
