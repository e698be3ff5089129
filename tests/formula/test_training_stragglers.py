"""The wait for the slowest of many GPUs: the largest of normal times."""

from __future__ import annotations

from math import pi, sqrt

import numpy as np
import pytest

from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace, waiting
from railwright.training.software.stragglers import gpu_spread, largest_normal, pass_wait, wait_factor


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


def test_groups_of_the_trace_spread_as_measured() -> None:
    # the spread of groups of four gives the spread of GPUs, and that the spread of such groups
    size, draw = int(constant("compute_spread_group")), np.random.default_rng(3)
    groups = (gpu_spread() * draw.normal(size=(4000, 15, size))).max(axis=2)
    assert groups.std() == pytest.approx(constant("compute_spread"), rel=0.02)


def test_launches_and_gaps_do_not_wait() -> None:
    one = Pace(1.1, 1.2, 1.3, 2e-6, 4.0, 0.01)
    many = waiting(one, 1024)
    assert (many.gap, many.host, many.step) == (one.gap, one.host, one.step)
    assert many.gemm / one.gemm == pytest.approx(wait_factor(1024))
    assert many.attention / one.attention == many.memory / one.memory == pytest.approx(wait_factor(1024))


def test_a_group_that_ends_a_pass_alone_waits_for_none() -> None:
    assert pass_wait(1, 8, 2.0, 1e-2) == 0.0


@pytest.mark.parametrize("deviation", [0.0, 1e-4, 1e-3, 1e-2, 1.0])
@pytest.mark.parametrize("seconds", [1e-3, 0.1, 1.0, 100.0])
def test_more_groups_never_wait_less(seconds: float, deviation: float) -> None:
    waits = [pass_wait(groups, 4, seconds, deviation) for groups in (1, 2, 3, 8, 64, 512, 4096, 32768)]
    assert waits == sorted(waits)
    assert waits[0] == 0.0 < waits[1]


@pytest.mark.parametrize("groups", [16, 128, 1024])
@pytest.mark.parametrize("gpus", [1, 4, 8])
@pytest.mark.parametrize("seconds", [0.01, 0.1, 0.3, 1.0])
def test_sampled_passes_end_with_the_slowest(groups: int, gpus: int, seconds: float) -> None:
    # detours one by one: any number of them in any group, each with a length of its own
    draw, deviation = np.random.default_rng(groups + gpus), constant("pass_spread") * seconds
    rounds = 400_000 // groups + 200
    hit = draw.poisson(constant("detour_rate") * gpus * seconds, size=(rounds, groups))
    lost = np.bincount(
        np.repeat(np.arange(hit.size), hit.ravel()),
        draw.exponential(constant("detour_seconds"), hit.sum()),
        hit.size,
    ).reshape(hit.shape)
    times = deviation * draw.normal(size=hit.shape) + lost
    ends = times.max(axis=1)
    wait = pass_wait(groups, gpus, seconds, deviation)
    sampled = ends.mean() - constant("detour_rate") * gpus * seconds * constant("detour_seconds")
    assert wait == pytest.approx(sampled, rel=0.1, abs=3 * ends.std() / np.sqrt(rounds) + 2e-5)


def test_where_detours_are_rare_each_of_them_counts_whole() -> None:
    # passes without a normal part: all ranks wait for every detour of any, but its own of each
    rate, lost = constant("detour_rate"), constant("detour_seconds")
    assert pass_wait(8, 4, 1e-3, 0.0) == pytest.approx((8 - 1) * 4 * rate * 1e-3 * lost, rel=1e-3)


def test_many_detours_lengthen_a_pass_by_the_logarithm_of_their_number() -> None:
    # the largest of n exponentials is their mean times 1 + 1/2 + ... + 1/n
    rate, lost = constant("detour_rate"), constant("detour_seconds")
    grown = pass_wait(80_000, 1, 0.1, 0.0) - pass_wait(40_000, 1, 0.1, 0.0)
    assert grown == pytest.approx(lost * np.log(2.0), rel=1e-6)
    assert pass_wait(40_000, 1, 0.1, 0.0) == pytest.approx(
        lost * sum(1 / k for k in range(1, round(40_000 * 0.1 * rate) + 1)), rel=0.01
    )


def test_the_wait_has_no_jump_where_its_formula_changes() -> None:
    # from deviations far below the length of a detour to far beyond
    deviations = np.geomspace(1e-5, 1.0, 4000)
    waits = np.array([pass_wait(64, 4, 0.2, one) for one in deviations])
    assert (np.diff(waits) > 0).all()
    assert np.diff(np.log(waits)).max() < 1.1 * np.log(deviations[1] / deviations[0])
