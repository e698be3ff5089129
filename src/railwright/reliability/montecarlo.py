"""Runs drawn at random: failures, recoveries and checkpoints of many samples side by side.

Legend: S samples, B interruptions drawn at once, R replicas out at once.  The loop goes over interruptions,
each step works on all samples at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from railwright.reliability.protection import Checkpoints, Elastic

Floats = NDArray[np.float64]
BLOCK = 64
"""Interruptions whose random numbers are drawn at once."""
BAND = 50
"""Values that stand for the range of a predicted step."""


@dataclass(frozen=True)
class Fault:
    """One way a run is interrupted.

    weight    its share of the interruptions
    recovery  mean time to the next useful step, lost work not included [s]
    spoiled   work lost beyond what was not saved [s]
    survives  whether copies in other servers' memory outlive it, as a probability
    """

    weight: float
    recovery: float
    spoiled: float = 0.0
    survives: float = 1.0


@dataclass(frozen=True)
class Process:
    """A run that fails, recovers and saves its work.

    mtti      mean time between interruptions [s]
    faults    what interrupts it; weights add up to 1
    saving    its checkpoints; one level of them where copies in memory outlive every fault
    shape     Weibull shape of the time between interruptions; 1: exponential
    spread    sigma of the logarithm of the part of a recovery that varies
    varies    share of a recovery that varies
    elastic   what lost replicas take; None: all stop
    """

    mtti: float
    faults: tuple[Fault, ...]
    saving: Checkpoints
    shape: float = 1.0
    spread: float = 0.0
    varies: float = 0.0
    elastic: Elastic | None = None


@dataclass(frozen=True, eq=False)
class Runs:
    """What became of the samples.

    time      (S,) wall time that was followed: until the first interruption after the horizon, or the end [s]
    useful    (S,) training that counts in it [s]
    finished  (S,) when the work was done, nan where it was not [s]
    interruptions  (S,) their number
    """

    time: Floats
    useful: Floats
    finished: Floats
    interruptions: NDArray[np.int64]

    @property
    def ettr(self) -> Floats:
        """(S,) useful over wall time."""
        ratio: Floats = self.useful / self.time
        return ratio


def simulate(
    process: Process, horizon: float, work: float = math.inf, samples: int = 1000, seed: int = 0
) -> Runs:
    """Follow `samples` runs until their work is done or the horizon has passed.

    horizon  [s]
    work     useful time the run needs [s]

    Interruptions strike recoveries too, and then the recovery begins anew.  A spare server is always at hand:
    how often it is not, replay.py reads off a real trace.
    """
    rng = np.random.default_rng(seed)
    followed = _Samples(process, work, samples)
    while followed.active.any():
        for gap, kind, varied, luck in zip(*_drawn(process, rng, samples), strict=True):
            followed.interrupt(gap, kind, varied, luck)
            followed.active &= followed.now < horizon
            if not followed.active.any():
                break
    return Runs(followed.now, followed.saved, followed.finished, followed.count)


def within_band(times: Floats, low: float, high: float) -> Floats:
    """Times, each multiplied by what measured over predicted ones may be, of which 80 % lie in a range.

    That is lognormal on either side of 1, or of the range's geometric middle where it does not hold 1; every
    time meets as many equally likely values of it.
    """
    middle = 1.0 if low <= 1.0 <= high else math.sqrt(low * high)
    z = ndtri((np.arange(BAND) + 0.5) / BAND) / float(ndtri(0.9))
    ratio = middle * np.where(z < 0, (middle / low) ** z, (high / middle) ** z)
    drawn: Floats = np.multiply.outer(times, ratio).ravel()
    return drawn


class _Samples:
    """Samples on their way, each between two of its interruptions.

    now       (S,) last interruption, or the end [s]
    saved     (S,) work that would be there again [s]
    stored    (S,) work that storage holds [s]
    finished  (S,) when the work was done [s]
    count     (S,) interruptions
    before    (S,) recovery that the coming gap begins with [s]
    outs      (S, R) when replicas that were lost are back [s]; None: all stop
    active    (S,) whether it is followed further
    """

    def __init__(self, process: Process, work: float, samples: int) -> None:
        """All samples at the start of a run that needs so much work [s]."""
        self.process, self.work = process, work
        self.recovery = np.array([f.recovery for f in process.faults])
        self.spoiled = np.array([f.spoiled for f in process.faults])
        self.survives = np.array([f.survives for f in process.faults])
        self.two_levels = bool((self.survives < 1).any())
        self.now, self.saved, self.stored, self.before = (np.zeros(samples) for _ in range(4))
        self.finished = np.full(samples, math.nan)
        self.count = np.zeros(samples, np.int64)
        self.active = np.ones(samples, bool)
        self.outs: Floats | None = None
        if process.elastic is not None:
            # Room for the replicas that are out at once, far beyond their mean number.
            self.outs = np.zeros((samples, 8 + math.ceil(4 * process.elastic.out / process.mtti)))

    def interrupt(self, gap: Floats, kind: NDArray[np.int64], varied: Floats, luck: Floats) -> None:
        """Every sample to its next interruption; arguments as `_drawn` gives them, (S,) each."""
        p = self.process
        up = np.maximum(gap - self.before, 0.0)
        start = self.now + self.before
        trained, need = self._trained(up, start)
        reached = self.saved + _worked(p.saving, up) if self.two_levels else self.saved
        done = self.active & (up >= need)
        self.finished[done] = (start + need)[done]
        self.saved[done], self.now[done] = self.work, self.finished[done]
        self.active &= ~done
        self.saved = np.where(self.active, self.saved + trained, self.saved)
        self.now = np.where(self.active, self.now + gap, self.now)
        self.count += self.active
        lost = self.active & (luck >= self.survives[kind])
        self._roll_back(self.spoiled[kind], reached, lost)
        self.before = self.recovery[kind] * varied + np.where(lost, p.saving.reload, 0.0)
        if self.outs is not None and p.elastic is not None:
            slot = np.argmin(self.outs, axis=1)
            self.outs[np.arange(len(slot)), slot] = self.now + p.elastic.out

    def _trained(self, up: Floats, start: Floats) -> tuple[Floats, Floats]:
        """Work saved in an uptime, and the uptime that what is left would need. [s]"""
        saving, left = self.process.saving, self.work - self.saved
        if self.outs is not None and self.process.elastic is not None:
            # Nothing is lost but speed: the other replicas hold the state.
            out = np.clip(self.outs - start[:, None], 0.0, up[:, None])
            slow = self.process.elastic.share * out.sum(axis=1)
            pace = saving.interval / (saving.interval + saving.block)
            worked = np.maximum(up - slow, 0.0) * pace
            with np.errstate(divide="ignore", invalid="ignore"):
                need = np.where(worked >= left, up * left / np.maximum(worked, 1e-300), math.inf)
            return worked, need
        whole = np.floor(up / (saving.interval + saving.block))
        if saving.lag:
            late = up - whole * (saving.interval + saving.block) < saving.lag
            whole = np.where(late, np.maximum(whole - 1, 0), whole)
        need = left
        if saving.block:
            need = left + saving.block * np.maximum(np.ceil(left / saving.interval) - 1, 0)
        return whole * saving.interval, need

    def _roll_back(self, spoiled: Floats, reached: Floats, lost: NDArray[np.bool_]) -> None:
        """Take off what an interruption costs of the work that was saved.

        spoiled  (S,) work that is gone: a checkpoint from before it is taken [s]
        reached  (S,) work done, saved or not [s]
        lost     (S,) whether only the checkpoint in storage is left
        """
        back = self.saved - spoiled
        if self.two_levels:
            there = self._in_storage(reached, np.where(lost, spoiled, 0.0))
            back = np.where(lost, np.minimum(there, self.saved), back)
        self.saved = np.where(self.active, np.maximum(back, 0.0), self.saved)
        if self.two_levels:
            kept = np.minimum(np.maximum(self.stored, there), self.saved)
            self.stored = np.where(lost, self.saved, kept)

    def _in_storage(self, reached: Floats, gone: Floats) -> Floats:
        """(S,) work that storage holds: what was begun its lag ago; spoiled work asks for a checkpoint before
        it. [s]

        reached  work done, saved or not
        gone     of it, what is spoiled
        """
        saving = self.process.saving
        late = saving.stored_lag * saving.interval / (saving.interval + saving.block)  # in work
        since = reached - late - gone - self.stored
        there = self.stored + np.floor(since / saving.stored + 1e-9) * saving.stored
        return np.where(gone > 0, there, np.maximum(there, self.stored))


def _drawn(
    p: Process, rng: np.random.Generator, samples: int
) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """(B, S) times between interruptions [s], which fault each is, the factor of its recovery, and the luck
    that copies in memory need to outlive it."""
    shape = (BLOCK, samples)
    if p.shape == 1:
        gaps = p.mtti * rng.standard_exponential(shape)
    else:
        gaps = p.mtti / math.gamma(1 + 1 / p.shape) * rng.weibull(p.shape, shape)
    weights = np.cumsum([float(f.weight) for f in p.faults])
    kinds = np.searchsorted(weights / weights[-1], rng.random(shape), side="right")
    varied = _varied(p, rng, samples)
    return gaps, np.minimum(kinds, len(p.faults) - 1), varied, rng.random(shape)


def _worked(saving: Checkpoints, up: Floats) -> Floats:
    """Work done in an uptime, whether it was saved or not. [s]"""
    each = saving.interval + saving.block
    rounds = np.floor(up / each)
    done: Floats = rounds * saving.interval + np.minimum(up - rounds * each, saving.interval)
    return done


def _varied(p: Process, rng: np.random.Generator, samples: int) -> Floats:
    """(B, S) factor of a recovery, mean 1."""
    if not p.spread or not p.varies:
        return np.ones((BLOCK, samples))
    drawn = np.exp(p.spread * rng.standard_normal((BLOCK, samples)) - p.spread**2 / 2)
    return 1 - p.varies + p.varies * drawn
