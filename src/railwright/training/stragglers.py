"""What waiting for the slowest GPU costs a synchronous step.

Every GPU's work of a step takes its usual time and a delay of its own, exponential with mean `scale`: clocks
under power limits, the operating system, memory errors corrected.  A synchronous step ends with the slowest.
The maximum of n exponential delays has mean scale * H_n, H_n = 1 + 1/2 + ... + 1/n, and for many GPUs it is
Gumbel distributed about ln n: its spread does not depend on n, so that the published spread of one job's
steps gives the scale.  Kernel times measured on one GPU have one delay in them already.
"""

from __future__ import annotations

from functools import cache
from math import log

from railwright.training.constants import constant


@cache
def wait_factor(gpus: int) -> float:
    """Mean time of the slowest of `gpus` over the mean of one: 1 + scale (H_n - 1).

    Exact for one synchronisation a step; GPUs that also wait for each other within it, tensor ranks or
    pipeline stages, count once all the same.  Delays that stay with one GPU over the step are meant: those
    that change from microbatch to microbatch average out.
    """
    return 1.0 + delay_scale() * (sum(1.0 / k for k in range(1, gpus + 1)) - 1.0)


@cache
def delay_scale() -> float:
    """Mean delay of one GPU over its mean time, from the spread of a large job's steps.

    The quantile q of the maximum is 1 + scale (ln n - ln(-ln q) - 1); the scale is solved from the published
    ratio of the 95 % quantile to the median.
    """
    ratio, gpus = constant("step_p95_over_median"), constant("step_spread_gpus")
    high, middle = (log(gpus) - log(-log(q)) - 1.0 for q in (0.95, 0.5))
    return (ratio - 1.0) / (high - ratio * middle)
