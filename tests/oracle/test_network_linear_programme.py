"""Max-min fair rates by an independent method: lexicographic linear programmes (scipy's HiGHS)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import linprog

from railwright.network.maxmin import FluidSystem, max_min_rates


def lexicographic(matrix: NDArray[np.float64], capacity: NDArray[np.float64]) -> NDArray[np.float64]:
    """Raise the smallest rate as far as it goes, fix the flows that cannot exceed it, and go on."""
    links, flows = matrix.shape
    fixed = np.full(flows, np.nan)
    while np.isnan(fixed).any():
        free = np.isnan(fixed)
        rest = capacity - matrix[:, ~free] @ fixed[~free]
        bounds = [(0, None)] * (int(free.sum()) + 1)
        below = np.hstack([-np.eye(int(free.sum())), np.ones((int(free.sum()), 1))])
        over = np.hstack([matrix[:, free], np.zeros((links, 1))])
        table, limit = np.vstack([over, below]), np.concatenate([rest, np.zeros(int(free.sum()))])
        best = linprog([0.0] * int(free.sum()) + [-1.0], table, limit, bounds=bounds)
        assert best.status == 0
        level = best.x[-1]
        for k, flow in enumerate(np.flatnonzero(free)):
            goal = np.zeros(int(free.sum()))
            goal[k] = -1.0
            most = linprog(goal, matrix[:, free], rest, bounds=[(level * (1 - 1e-9), None)] * int(free.sum()))
            if most.status == 0 and -most.fun <= level * (1 + 1e-7):
                fixed[flow] = level
    return fixed


@settings(max_examples=25)
@given(st.data())
def test_filling_equals_the_lexicographic_optimum(data: st.DataObject) -> None:
    flows, links = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    weight = st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0])
    matrix = np.array(data.draw(st.lists(weight, min_size=flows * links, max_size=flows * links)))
    matrix = matrix.reshape(links, flows)
    matrix[0, matrix.sum(axis=0) == 0] = 1.0  # every flow needs a limit
    capacity = np.array(data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=links, max_size=links)))
    flow, link = np.nonzero(matrix.T)
    ptr = np.concatenate([[0], np.cumsum(np.count_nonzero(matrix, axis=0))])
    system = FluidSystem(
        ptr.astype(np.int64),
        link.astype(np.int32),
        matrix[link, flow],
        capacity,
        np.ones(flows),
        np.ones(flows),
    )
    rate = max_min_rates(system, np.arange(flows), capacity)
    assert rate == pytest.approx(lexicographic(matrix, capacity), rel=1e-6)
