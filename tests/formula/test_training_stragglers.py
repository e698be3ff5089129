"""The wait for the slowest of many GPUs: the largest of normal times."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest

from railwright.training.constants import constant
from railwright.training.eras import Pace, waiting
from railwright.training.stragglers import gpu_spread, largest_normal, wait_factor


def test_one_gpu_waits_for_none() -> None:
    assert wait_factor(1) == pytest.approx(1.0)


def test_the_largest_of_few_normals_has_a_closed_form() -> None:
    # order statistics of the normal distribution: n = 1, 2, 3
    assert largest_normal(1) == pytest.approx((0.0, 1.0), abs=1e-4)
    assert largest_normal(2) == pytest.approx((1 / sqrt(pi), sqrt(1 - 1 / pi)), abs=1e-4)
    assert largest_normal(3)[0] == pytest.approx(1.5 / sqrt(pi), abs=1e-4)


@pytest.mark.parametrize("gpus", [8, 512])
def test_sampled_steps_end_with_the_slowest(gpus: int) -> None:
    draw = np.random.default_rng(7)
    slowest = (1.0 + gpu_spread() * draw.normal(size=(4000, gpus))).max(axis=1)
    assert slowest.mean() == pytest.approx(wait_factor(gpus), abs=4e-4)
    assert slowest.std() == pytest.approx(gpu_spread() * largest_normal(gpus)[1], rel=0.05)


def test_groups_of_the_trace_spread_and_wait_as_measured() -> None:
    # the spread of groups gives the spread of GPUs, and that the slowest of the 15 healthy groups; in the
    # trace it takes 1.0088 times their mean, which is not what the constant was taken from
    size, draw = int(constant("compute_spread_group")), np.random.default_rng(3)
    groups = (gpu_spread() * draw.normal(size=(4000, 15, size))).max(axis=2)
    assert groups.std() == pytest.approx(constant("compute_spread"), rel=0.02)
    slowest = groups.max(axis=1) - groups.mean(axis=1)
    assert slowest.mean() == pytest.approx(0.0088, rel=0.2)


def test_launches_and_gaps_do_not_wait() -> None:
    one = Pace(1.1, 1.2, 1.3, 2e-6, 4.0, 0.01)
    many = waiting(one, 1024)
    assert (many.gap, many.host, many.step) == (one.gap, one.host, one.step)
    assert many.gemm / one.gemm == pytest.approx(wait_factor(1024))
    assert many.attention / one.attention == many.memory / one.memory == pytest.approx(wait_factor(1024))
