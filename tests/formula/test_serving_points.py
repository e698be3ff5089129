"""Points around a fit: a measurement is met, between them logarithms are interpolated, far away it stands."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.serving.kernels.points import Points

NAN = float("nan")


def points(seconds: list[list[list[float]]], scale: float = 1.0) -> Points:
    """Configurations 64 and 4096, sizes 1, 4, 16 by 1, 16; everything is fitted as one second."""
    grid = np.array(seconds, float)
    second = np.array([1.0, 16.0])[: grid.shape[2]]
    configs = np.array([[64.0], [4096.0]])[: len(grid)]
    return Points(
        configs, np.array([1.0, 4.0, 16.0]), second, grid, scale, lambda c, a, b: np.ones((len(a), b.size))
    )


ONE = [[[2.0], [4.0], [8.0]]]


def ratio(source: Points, config: float, first: float, second: float = 1.0) -> float:
    return float(np.exp(source.log_ratio((config,), first, second)))


def test_a_measured_shape_takes_what_was_measured() -> None:
    two = points([[[2.0, 3.0], [4.0, 5.0], [8.0, 0.5]], [[1.5, 1.0], [1.0, 1.0], [0.25, 1.0]]])
    for config, first, second, wanted in ((64, 4, 1, 4.0), (64, 16, 16, 0.5), (4096, 16, 1, 0.25)):
        assert ratio(two, config, first, second) == pytest.approx(wanted, rel=1e-6)


def test_between_two_sizes_of_a_shape_logarithms_are_interpolated() -> None:
    # half way in octaves from 4 to 16: the geometric mean of 4 and 8
    assert ratio(points(ONE), 64, 8) == pytest.approx(np.sqrt(4.0 * 8.0), rel=1e-6)


def test_a_shape_half_way_takes_the_mean_of_both_and_the_prior() -> None:
    both = points([[[2.0], [2.0], [2.0]], [[8.0], [8.0], [8.0]]], scale=3.0)
    # 512 is 3 octaves, one scale, from either: each weighs exp(-1/2) beside a prior of 1
    weight = np.exp(-0.5)
    wanted = weight * (np.log(2) + np.log(8)) / (1 + 2 * weight)
    assert float(both.log_ratio((512.0,), 4.0)) == pytest.approx(wanted, rel=1e-6)


def test_beyond_what_was_measured_the_fit_comes_back() -> None:
    source = points(ONE)
    beyond = [ratio(source, 64, 16 * 2**octaves) for octaves in (0, 1, 2, 3, 6)]
    assert beyond == sorted(beyond, reverse=True)
    assert beyond[-1] == pytest.approx(1.0, abs=1e-4)
    assert ratio(source, 64 * 2**5, 4) == pytest.approx(1.0, abs=1e-4)


def test_what_was_not_measured_in_a_grid_says_nothing() -> None:
    holes = points([[[2.0, NAN], [2.0, NAN], [NAN, NAN]]])
    assert ratio(holes, 64, 4, 1) == pytest.approx(2.0, rel=1e-6)
    assert ratio(holes, 64, 16, 16) == 1.0
    # towards the hole the ratio falls, without a jump
    line = [ratio(holes, 64, 4, 2.0**octaves) for octaves in np.linspace(0, 4, 200)]
    assert np.diff(line).max() <= 1e-9
    assert np.abs(np.diff(line)).max() < 0.02
