"""Random fluid systems for the tests that hold one way of solving them beside another."""

from __future__ import annotations

import numpy as np

from railwright.network.maxmin import FluidSystem


def random_system(seed: int, sizes: tuple[float, ...]) -> FluidSystem:
    """Up to 59 flows over up to 29 links; few kinds of capacities, so that ties are common.

    sizes  that flows have [byte]
    """
    rng = np.random.default_rng(seed)
    flows, links = int(rng.integers(1, 60)), int(rng.integers(1, 30))
    counts = rng.integers(1, min(links, 6) + 1, flows)
    link = np.concatenate([rng.choice(links, c, replace=False) for c in counts]).astype(np.int32)
    return FluidSystem(
        np.concatenate([[0], np.cumsum(counts)]),
        link,
        rng.choice([0.25, 1 / 3, 1.0], len(link)),
        rng.choice([1.0, 3.0, 50.0], links),
        rng.choice(sizes, flows),
        rng.choice([1.0, 4.0], flows),
    )
