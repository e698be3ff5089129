"""What waiting for the slowest GPU costs a synchronous step.

No two GPUs compute the same step in the same time: silicon and cooling set their clocks under one power
limit.  A synchronous step ends with the slowest.  Relative times of the GPUs of one step are taken as normal
with standard deviation `gpu_spread`: the slowest of n takes 1 + gpu_spread * m(n) times the mean, with m(n)
the mean of the largest of n standard normals (1.4 for 8, 2.3 for 64, 3.0 for 512, 3.8 for 8,192).

The spread is measured within steps, between the healthy GPUs of a traced job: what all of them share (input,
network) is no wait and is taken out there.  So is what a microbatch takes on every stage alike: that is the
work in it, as it seems attention over documents of different lengths, and no GPU's doing.  How a job's step
times spread is no measure of it: differences that last do not show there, and what all GPUs share does.  In
MLPerf's logs the 95 % quantile of steps is 0.1 to 0.3 % over their median on 512 and 768 H100 with steps of
11 to 12 s, 1.1 % on 8,192 with steps of 1.6 s: 12 to 35 ms in both.  Kernel times measured on one GPU are
those of a usual one.

Ranks that meet within a step also wait for what changes from pass to pass (`pass_wait`): a normal part, and
rare detours of milliseconds on one GPU alone, which decide once many GPUs meet.
"""

from __future__ import annotations

from functools import cache
from math import erfc, exp, expm1, log, log1p, sqrt

import numpy as np
from scipy.special import erfcx, exp1

from railwright.training.software.constants import constant


@cache
def wait_factor(gpus: int) -> float:
    """Mean time of the slowest of `gpus` over the mean of one: 1 + gpu_spread m(gpus).

    Exact for one synchronisation a step; GPUs that also wait for each other within it, tensor ranks or
    pipeline stages, count once all the same.  Differences that stay with one GPU over the step are meant:
    those that change from microbatch to microbatch average out.
    """
    return 1.0 + gpu_spread() * largest_normal(gpus)[0]


@cache
def gpu_spread() -> float:
    """Standard deviation of one GPU's time over the mean, within a step.

    The trace has times of tensor-parallel groups, each that of its slowest GPU: their spread is that of the
    largest of so many normals.
    """
    return constant("compute_spread") / largest_normal(int(constant("compute_spread_group")))[1]


def pass_wait(groups: int, gpus: int, seconds: float, deviation: float) -> float:
    """Time by which the slowest of some groups ends a pass behind the mean of all. [s]

    groups     tensor-parallel groups that end the pass together; one waits for none
    gpus       of each group
    seconds    that the pass computes [s]
    deviation  standard deviation of the normal part of that, between groups [s]

    A group's pass takes a normal part and detours: a Poisson process of every GPU with exponential lengths
    of mean d.  The slowest takes a = deviation m(groups) without them.  A detour lets a group end behind a
    with a probability p (a normal and an exponential added), and by its memory's lack an exponential of mean
    d behind it; the largest of a Poisson number of mean M of exponentials is d Ein(M) in the mean.  So it is
    a + d Ein(p x detours of all), less that of one group alone.  Of two detours in one group the
    longer counts: up to an eighth too short where every second group has one (two groups: a third, of 0.1 %
    of a pass).
    """
    if groups == 1:
        return 0.0
    lost = constant("detour_seconds")
    each = gpus * constant("detour_rate") * seconds
    normal = deviation * largest_normal(groups)[0]
    return normal + lost * (_ein(groups * each * _beyond(normal, deviation, lost)) - _ein(each))


def _beyond(bound: float, deviation: float, mean: float) -> float:
    """Probability that a normal of mean 0 and an exponential together pass a bound, by the exponential."""
    if deviation <= 0.0:
        return exp(-bound / mean)
    far = bound / deviation
    return exp(-far * far / 2.0) * 0.5 * float(erfcx((deviation / mean - far) / sqrt(2.0)))


def _ein(x: float) -> float:
    """The entire exponential integral: of (1 - exp(-t)) / t from 0 to x.

    The mean of 1 + 1/2 + ... + 1/K where K is Poisson with mean x, and so of the largest of K exponentials of
    mean 1.
    """
    return float(np.euler_gamma + log(x) + exp1(x)) if x > 0.0 else 0.0


STEP = 0.01
"""Of the sums below, in standard deviations; their error is under 1e-5."""


@cache
def largest_normal(n: int) -> tuple[float, float]:
    """Mean and standard deviation of the largest of `n` standard normals.

    From its distribution F = Phi^n, by the trapezoidal rule over x > 0: the mean is the integral of
    (1 - F(x)) - F(-x), the mean square that of 2 x ((1 - F(x)) + F(-x)).
    """
    mean = square = 0.0
    for i in range(int(9.0 / STEP) + 1):
        x, half = i * STEP, STEP if i else STEP / 2
        tail = 0.5 * erfc(x / sqrt(2.0))
        above, below = -expm1(n * log1p(-tail)), tail**n
        mean += half * (above - below)
        square += 2.0 * half * x * (above + below)
    return mean, sqrt(square - mean * mean)
