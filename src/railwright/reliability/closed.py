"""Goodput in closed form: figures in, the share of the time that trains and where the rest goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from scipy.special import pdtr

from railwright.reliability.formulas import ettr_renewal
from railwright.reliability.protection import Checkpoints, Elastic


@dataclass(frozen=True)
class Figures:
    """What the closed form needs. Times in seconds.

    mtti      mean time to an interruption
    recovery  mean, to the next useful step, lost work not included
    saving    its checkpoints
    spoiled   mean work lost beyond what was not saved
    severe    share of the interruptions that leave only the checkpoint in storage
    elastic   what lost replicas take; None: all stop
    degraded  share of the time a degraded fabric takes
    stalled   share of the time that link flaps take
    waiting   share of the time that more servers are out than there are spares
    """

    mtti: float
    recovery: float
    saving: Checkpoints
    spoiled: float = 0.0
    severe: float = 0.0
    elastic: Elastic | None = None
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
        # A replica is out for what is left of `elastic.out` once the others train: both hang on the recovery.
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
    saving, elastic = f.saving, f.elastic
    if elastic is not None:
        # The other replicas hold the state: nothing is rolled back, the job is short of some.
        up = math.exp(-f.recovery / f.mtti) * saving.interval / (saving.interval + saving.block)
        # While the job trains, so many are out as failed since `out` ago, but not within the recovery: a
        # Poisson number k of mean n, and E[max(1 - e k, 0)] = P(k <= K) - e n P(k <= K - 1), K = 1/e.
        most, mean = math.floor(1 / elastic.share + 1e-9), max(elastic.out - f.recovery, 0.0) / f.mtti
        return float(up * (pdtr(most, mean) - elastic.share * mean * pdtr(most - 1, mean)))
    return ettr_renewal(f.mtti, f.recovery, saving.block, saving.interval, saving.lag)


def _kept(f: Figures, pace: float) -> float:
    """What rollbacks to storage leave of a pace.

    Renewal on the second level: severe interruptions strike at lambda = severe/(M pace) of useful work, and
    of W = `stored` between two that reach storage all or nothing is kept: lambda W/(e^{lambda W} - 1), as
    in Daly's equation 20.  What was lost back to the newest checkpoint is in the pace already, so the same
    with W = tau, and its lag, are divided out.
    """
    if not f.severe or f.elastic is not None or pace <= 0:
        return pace
    s = f.saving
    often = f.severe / (f.mtti * pace)
    working = s.interval / (s.interval + s.block)
    later = often * working * (s.stored_lag - s.lag) + f.severe * s.reload / f.mtti
    both = s.stored / s.interval * math.expm1(-often * s.interval) / math.expm1(-often * s.stored)
    return pace * both * math.exp(-often * (s.stored - s.interval) - later)


def goodput(f: Figures) -> float:
    """`ettr` less what a degraded fabric, link flaps and missing servers take."""
    return ettr(f) * (1 - f.degraded) * (1 - f.stalled) * (1 - f.waiting)


def losses(f: Figures) -> tuple[tuple[str, float], ...]:
    """Where the rest of the wall time goes; adds up to 1 - goodput."""
    useful, good, saving, elastic = ettr(f), goodput(f), f.saving, f.elastic
    writing = useful * saving.block / saving.interval
    rest = max(1 - useful - writing, 0.0)
    if elastic is not None:
        left_out = elastic.share * max(elastic.out - f.recovery, 0.0)
        parts = {"recovery": f.recovery, "replicas left out": left_out}
    else:
        parts = {
            "recovery": f.recovery,
            "work since the last checkpoint": (saving.interval + saving.block) / 2 + saving.lag,
            "work spoiled before it was noticed": f.spoiled,
            "work back to the checkpoint in storage": f.severe * _back(saving),
        }
    total = sum(parts.values()) or 1.0
    found = [(name, rest * part / total) for name, part in parts.items() if part]
    found.append(("writing checkpoints", writing))
    slowed = useful * f.degraded
    found.append(("degraded fabric", slowed))
    stalled = (useful - slowed) * f.stalled
    found.append(("link flaps", stalled))
    found.append(("waiting for a server", useful - slowed - stalled - good))
    return tuple((name, share) for name, share in found if share > 0)


def _back(s: Checkpoints) -> float:
    """Mean work and reading time of falling back from the newest checkpoint to the one in storage. [s]"""
    working = s.interval / (s.interval + s.block)
    return max((s.stored - s.interval) / 2 + working * (s.stored_lag - s.lag) + s.reload, 0.0)
