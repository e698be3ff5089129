"""Goodput in closed form: figures in, the share of the time that trains and where the rest goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from railwright.reliability.formulas import ettr_renewal


@dataclass(frozen=True)
class Figures:
    """What the closed form needs. Times in seconds.

    mtti      mean time to an interruption
    recovery  mean, to the next useful step, lost work not included
    block, lag, interval  of checkpoints
    spoiled   mean work lost beyond what was not saved
    severe    share of the interruptions that leave only the checkpoint in storage
    fallback  mean work and reading time that costs
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
    fallback: float = 0.0
    elastic: float | None = None
    out: float = 0.0
    degraded: float = 0.0
    stalled: float = 0.0
    waiting: float = 0.0


def ettr(f: Figures) -> float:
    """Effective training time ratio: useful over wall time, exponential interruptions, spares at hand."""
    if f.elastic is not None:
        # The other replicas hold the state: nothing is rolled back, the job is short of a replica.
        up = math.exp(-f.recovery / f.mtti) * f.interval / (f.interval + f.block)
        return up * max(1 - f.elastic * f.out / f.mtti, 0.0)
    base = ettr_renewal(f.mtti, f.recovery, f.block, f.interval, f.lag)
    return base * max(1 - (f.spoiled + f.severe * f.fallback) / f.mtti, 0.0)


def longest_recovery(f: Figures, wanted: float) -> float:
    """Longest recovery at which `ettr` reaches a wanted share, all else as it is; below 0: none does. [s]"""
    most = ettr(replace(f, recovery=0.0))
    if most <= 0 or f.mtti == math.inf:
        return math.copysign(math.inf, most - wanted)
    return f.mtti * math.log(most / wanted)


def goodput(f: Figures) -> float:
    """`ettr` less what a degraded fabric, link flaps and missing servers take."""
    return ettr(f) * (1 - f.degraded) * (1 - f.stalled) * (1 - f.waiting)


def losses(f: Figures) -> tuple[tuple[str, float], ...]:
    """Where the rest of the wall time goes; adds up to 1 - goodput."""
    useful, good = ettr(f), goodput(f)
    saving = useful * f.block / f.interval
    rest = max(1 - useful - saving, 0.0)
    if f.elastic is not None:
        parts = {"recovery": f.recovery, "replicas left out": f.elastic * f.out}
    else:
        parts = {
            "recovery": f.recovery,
            "work since the last checkpoint": (f.interval + f.block) / 2 + f.lag,
            "work spoiled before it was noticed": f.spoiled,
            "work back to the checkpoint in storage": f.severe * f.fallback,
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
