"""Goodput in closed form: figures in, the share of the time that trains and where the rest goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.special import pdtr

from railwright.reliability.formulas import ettr_renewal


@dataclass(frozen=True)
class Figures:
    """What the closed form needs. Times in seconds.

    mtti      mean time to an interruption
    recovery  mean, to the next useful step, lost work not included
    block, lag, interval  of checkpoints
    spoiled   mean work lost beyond what was not saved
    severe    share of the interruptions that leave only the checkpoint in storage
    stored    training between two that reach storage
    stored_lag  from their end until storage has them
    reload    what reading the one in storage takes longer
    elastic   share of the speed a failure takes while its replica is out; None: all stop
    out       how long a replica is out
    degraded  share of the time a degraded fabric takes
    stalled   share of the time that link flaps take
    waiting   share of the time that more servers are out than there are spares
    """

    mtti: float
    recovery: float
    block: float
    lag: float
    interval: float
    spoiled: float = 0.0
    severe: float = 0.0
    stored: float = 0.0
    stored_lag: float = 0.0
    reload: float = 0.0
    elastic: float | None = None
    out: float = 0.0
    degraded: float = 0.0
    stalled: float = 0.0
    waiting: float = 0.0


def ettr(f: Figures) -> float:
    """Effective training time ratio: useful over wall time, exponential interruptions, spares at hand."""
    return max(_kept(f, _pace(f)) - f.spoiled / f.mtti, 0.0)


def longest_recovery(f: Figures, wanted: float) -> float:
    """Longest recovery at which `ettr` reaches a wanted share, all else as it is; below 0: none does. [s]"""
    # Here, not above: loading it takes longer than what is solved.
    from scipy.optimize import brentq

    most = _pace(replace(f, recovery=0.0))
    if most <= 0 or f.mtti == math.inf:
        return math.copysign(math.inf, most - wanted)
    needed = wanted + f.spoiled / f.mtti
    if f.elastic is not None:
        # A replica is out for what is left of `out` once the others train: both hang on the recovery.
        def above(recovery: float) -> float:
            return _pace(replace(f, recovery=recovery)) - needed

        ends = -50 * f.mtti, 50 * f.mtti
        return float(brentq(above, *ends)) if above(ends[0]) >= 0 else -math.inf
    # What a rollback to storage leaves depends on the pace, and only the pace on the recovery.
    low, high = needed, max(needed, 1.0)
    if _kept(f, high) < needed:
        return -math.inf
    pace = low if _kept(f, low) >= needed else brentq(lambda pace: _kept(f, pace) - needed, low, high)
    return f.mtti * math.log(most / pace)


def _pace(f: Figures) -> float:
    """Training over wall time, work that is rolled back beyond the newest checkpoint not yet taken off."""
    if f.elastic is not None:
        # The other replicas hold the state: nothing is rolled back, the job is short of a replica.
        up = math.exp(-f.recovery / f.mtti) * f.interval / (f.interval + f.block)
        # While the job trains, so many are out as failed since `out` ago, but not within the recovery: a
        # Poisson number k of mean n, and E[max(1 - e k, 0)] = P(k <= K) - e n P(k <= K - 1), K = 1/e.
        most, mean = math.floor(1 / f.elastic + 1e-9), max(f.out - f.recovery, 0.0) / f.mtti
        return float(up * (pdtr(most, mean) - f.elastic * mean * pdtr(most - 1, mean)))
    return ettr_renewal(f.mtti, f.recovery, f.block, f.interval, f.lag)


def _kept(f: Figures, pace: float) -> float:
    """What rollbacks to storage leave of a pace.

    Renewal on the second level: severe interruptions strike at lambda = severe/(M pace) of useful work, and
    of W = `stored` between two that reach storage all or nothing is kept: lambda W/(e^{lambda W} - 1), as
    in Daly's equation 20.  What was lost back to the newest checkpoint is in the pace already, so the same
    with W = tau, and its lag, are divided out.
    """
    if not f.severe or f.elastic is not None or pace <= 0:
        return pace
    often = f.severe / (f.mtti * pace)
    working = f.interval / (f.interval + f.block)
    later = often * working * (f.stored_lag - f.lag) + f.severe * f.reload / f.mtti
    both = f.stored / f.interval * math.expm1(-often * f.interval) / math.expm1(-often * f.stored)
    return pace * both * math.exp(-often * (f.stored - f.interval) - later)


def goodput(f: Figures) -> float:
    """`ettr` less what a degraded fabric, link flaps and missing servers take."""
    return ettr(f) * (1 - f.degraded) * (1 - f.stalled) * (1 - f.waiting)


def losses(f: Figures) -> tuple[tuple[str, float], ...]:
    """Where the rest of the wall time goes; adds up to 1 - goodput."""
    useful, good = ettr(f), goodput(f)
    saving = useful * f.block / f.interval
    rest = max(1 - useful - saving, 0.0)
    if f.elastic is not None:
        parts = {"recovery": f.recovery, "replicas left out": f.elastic * max(f.out - f.recovery, 0.0)}
    else:
        parts = {
            "recovery": f.recovery,
            "work since the last checkpoint": (f.interval + f.block) / 2 + f.lag,
            "work spoiled before it was noticed": f.spoiled,
            "work back to the checkpoint in storage": f.severe * _back(f),
        }
    total = sum(parts.values()) or 1.0
    found = [(name, rest * part / total) for name, part in parts.items() if part]
    found.append(("writing checkpoints", saving))
    slowed = useful * f.degraded
    found.append(("degraded fabric", slowed))
    stalled = (useful - slowed) * f.stalled
    found.append(("link flaps", stalled))
    found.append(("waiting for a server", useful - slowed - stalled - good))
    return tuple((name, share) for name, share in found if share > 0)


def _back(f: Figures) -> float:
    """Mean work and reading time of falling back from the newest checkpoint to the one in storage. [s]"""
    working = f.interval / (f.interval + f.block)
    return max((f.stored - f.interval) / 2 + working * (f.stored_lag - f.lag) + f.reload, 0.0)
