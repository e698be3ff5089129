"""The wait for the slowest of many GPUs: the maximum of exponential delays."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.training.constants import constant
from railwright.training.eras import Pace, waiting
from railwright.training.stragglers import delay_scale, wait_factor


def test_one_gpu_waits_for_none() -> None:
    assert wait_factor(1) == 1.0


def test_the_wait_is_the_harmonic_number() -> None:
    # mean of the maximum of n exponential delays over the mean of one: scale (1/2 + 1/3 + ... + 1/n)
    assert wait_factor(4) - 1.0 == pytest.approx(delay_scale() * (1 / 2 + 1 / 3 + 1 / 4))
    # for many GPUs a doubling adds scale ln 2
    assert wait_factor(8192) - wait_factor(4096) == pytest.approx(delay_scale() * np.log(2), rel=1e-3)


def test_sampled_steps_spread_as_published() -> None:
    # a step is the slowest of n GPUs, each 1 and a delay: its 95 % quantile over its median is the constant
    gpus, draw = int(constant("step_spread_gpus")), np.random.default_rng(7)
    scale = delay_scale()
    slowest = (1.0 - scale + scale * draw.exponential(size=(400, gpus))).max(axis=1)
    ratio = np.quantile(slowest, 0.95) / np.median(slowest)
    assert ratio - 1.0 == pytest.approx(constant("step_p95_over_median") - 1.0, rel=0.25)
    assert slowest.mean() == pytest.approx(wait_factor(gpus), rel=0.01)


def test_launches_and_gaps_do_not_wait() -> None:
    one = Pace(1.1, 1.2, 1.3, 2e-6, 4.0, 0.01)
    many = waiting(one, 1024)
    assert (many.gap, many.host, many.step) == (one.gap, one.host, one.step)
    assert many.gemm / one.gemm == pytest.approx(wait_factor(1024))
    assert many.attention / one.attention == many.memory / one.memory == pytest.approx(wait_factor(1024))
