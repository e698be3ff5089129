"""Closed forms: intervals between checkpoints, and what share of the time trains, by each published name.

Arguments, the same everywhere [s]:
mtti      M, mean time to an interruption of the job
recovery  R, from an interruption to the next useful step, lost work not included
block     C, what one checkpoint keeps the job from training
interval  tau, useful time between two checkpoints
"""

from __future__ import annotations

import math

from scipy.special import lambertw

from railwright.units import DAY


def job_mtti(nodes: float, per_1000_node_days: float) -> float:
    """Mean time to interruption of a job on so many nodes. [s]  Series system of independent nodes."""
    return DAY * 1000.0 / (nodes * per_1000_node_days)


def young(mtti: float, block: float) -> float:
    """First-order best interval, sqrt(2 C M). [s]  Source: Young, CACM 17(9), 1974."""
    return math.sqrt(2 * block * mtti)


def daly(mtti: float, block: float) -> float:
    """Higher-order best interval. [s]  Source: Daly, FGCS 22(3), 2006, equation 37; M from C >= 2M on."""
    if block >= 2 * mtti:
        return mtti
    x = block / (2 * mtti)
    return math.sqrt(2 * block * mtti) * (1 + math.sqrt(x) / 3 + x / 9) - block


def ettr_renewal(mtti: float, recovery: float, block: float, interval: float, lag: float = 0.0) -> float:
    """Share of the time that trains, exactly, for exponential interruptions that strike recoveries too.

    lag  from a checkpoint's end to when it is whole (asynchronous writing), at most tau + C: a failure before
         that costs its interval too.  An uptime U saves the whole part of (U - lag)/(tau + C) intervals, on
         average e^{-lag/M} times as many as without it.
    Source: Daly, FGCS 22(3), 2006, equation 20: tau / (M e^{R/M} (e^{(tau+C)/M} - 1)).
    """
    # Failures that come thousands of times as often as checkpoints leave less than a float holds.
    each = (interval + block) / mtti
    whole = interval / mtti * math.exp(-each) / -math.expm1(-each) if each > 0 else 1.0
    return whole * math.exp(-(recovery + lag) / mtti)


def ettr_meta(
    nodes: float, per_1000_node_days: float, recovery: float, block: float, interval: float
) -> float:
    """Expected effective training time ratio as Meta's RSC paper writes it, for small losses.

    (1 - N r (u0 + dt/2)) / (1 + w/dt) with r per node and time.
    Source: Kokolis et al., HPCA 2025 (arXiv 2410.21680), section on ETTR.
    """
    rate = nodes * per_1000_node_days / 1000.0 / DAY
    return (1 - rate * (recovery + interval / 2)) / (1 + block / interval)


def ratio_up(mtti: float, recovery: float) -> float:
    """M / (M + R): availability, recoveries never struck."""
    return mtti / (mtti + recovery)


def ratio_of_mtbf(mtti: float, recovery: float) -> float:
    """(M - R) / M, as FT-HSDP (arXiv 2602.00277) reports it: M includes the recovery."""
    return (mtti - recovery) / mtti


def ratio_survival(mtti: float, recovery: float) -> float:
    """exp(-R/M): renewal with recoveries that are struck too and checkpoints that cost nothing."""
    return math.exp(-recovery / mtti)


def best_interval(mtti: float, block: float, least: float = 0.0) -> float:
    """The interval with the highest `ettr_renewal`, whatever the recovery. [s]

    least  shortest interval possible, such as the time a checkpoint takes to become whole
    The optimum of tau/(e^{(tau+C)/M} - 1): e^{(tau+C)/M} (1 - tau/M) = 1, which Lambert's W inverts.  Daly's
    series is closer where C is a millionth of M or less, whose square root such floats lose.
    """
    cost = block / mtti
    if cost < 1e-6:
        return max(daly(mtti, block), least)
    return max(mtti * (1 + float(lambertw(-math.exp(-1 - cost)).real)), least)
