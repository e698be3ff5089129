"""Made-up measurements of a fabric with known faults: what plans and probabilities are judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import ANY, Rates
from railwright.diagnose.paths import Crossed, Routing, crossed, need_fabric, rates_of, traffic_of
from railwright.network.routing.paths import find_routes
from railwright.network.routing.solution import Network

Ints = NDArray[np.int64]
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


def hashed(elements: Elements, src: Ints, dst: Ints, seed: int) -> Crossed:
    """The elements that ECMP really takes transfers over, for one seed of its hash."""
    fabric = need_fabric(elements)
    known = crossed(elements, Routing("ecmp"), src, dst)
    ptr, link, _ = find_routes(Network(fabric, "ecmp", seed), traffic_of(src, dst)).flat()
    obs = np.repeat(np.arange(len(src)), np.diff(ptr))
    head = np.where(link % 2, fabric.a[link // 2], fabric.b[link // 2])
    size = len(elements)
    on = np.concatenate([obs * size + elements.of_cable[link // 2], obs * size + elements.of_device[head]])
    keep = (known.weight > 1 - 1e-9) | np.isin(known.obs * size + known.element, on)
    count = int(keep.sum())
    return Crossed(known.obs[keep], known.element[keep], known.way[keep], np.ones(count))
