"""Runs drawn at random: failures, recoveries and checkpoints of many samples side by side.

Legend: S samples; every array is (S,) unless said.  The loop goes over interruptions, each
step works on all samples at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCK = 64
"""Interruptions whose random numbers are drawn at once."""


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
    shape     Weibull shape of that time; 1: exponential
    faults    what interrupts it; weights add up to 1
    spread    sigma of the logarithm of the part of a recovery that varies
    varies    share of a recovery that varies
    block, interval, lag  of checkpoints, as in `formulas` [s]
    storage_every  intervals between two checkpoints that reach storage; 1: every one does
    stored_lag     from their end until storage has them [s]
    reload    extra recovery when only the one in storage is left [s]
    elastic   share of the speed that one failure takes away while its replica is out; None: all stop
    out       how long a replica is out [s]
    """

    mtti: float
    faults: tuple[Fault, ...]
    block: float
    interval: float
    lag: float = 0.0
    shape: float = 1.0
    spread: float = 0.0
    varies: float = 0.0
    storage_every: int = 1
    stored_lag: float = 0.0
    reload: float = 0.0
    elastic: float | None = None
    out: float = 0.0


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
    p = process
    rng = np.random.default_rng(seed)
    weights = np.cumsum([float(f.weight) for f in p.faults])
    weights /= weights[-1]
    recovery = np.array([f.recovery for f in p.faults])
    spoiled = np.array([f.spoiled for f in p.faults])
    survives = np.array([f.survives for f in p.faults])
    now, saved, stored = (np.zeros(samples) for _ in range(3))
    finished = np.full(samples, math.nan)
    count = np.zeros(samples, np.int64)
    before = np.zeros(samples)  # recovery that the coming gap begins with
    # Room for the replicas that are out at once, far beyond their mean number.
    slots = 8 + math.ceil(4 * p.out / p.mtti)
    outs = np.zeros((samples, slots)) if p.elastic is not None else None
    active = np.ones(samples, bool)
    two_levels = bool((survives < 1).any())
    while active.any():
        gaps, kinds, varied, luck = _drawn(p, weights, rng, samples)
        for i in range(BLOCK):
            gap, kind = gaps[i], kinds[i]
            up = np.maximum(gap - before, 0.0)
            start = now + before
            trained, need = _trained(p, up, work - saved, start, outs)
            reached = saved + _worked(p, up) if two_levels else saved
            done = active & (up >= need)
            finished[done] = (start + need)[done]
            saved[done], now[done] = work, finished[done]
            active &= ~done
            saved = np.where(active, saved + trained, saved)
            now = np.where(active, now + gap, now)
            count += active
            lost = active & (luck[i] >= survives[kind])
            # Spoiled work is gone from what was saved; a checkpoint from before it is taken.
            back = saved - spoiled[kind]
            there = stored
            if two_levels:
                there = _in_storage(p, stored, reached, np.where(lost, spoiled[kind], 0.0))
                back = np.where(lost, np.minimum(there, saved), back)
            saved = np.where(active, np.maximum(back, 0.0), saved)
            if two_levels:
                stored = np.where(lost, saved, np.minimum(np.maximum(stored, there), saved))
            before = recovery[kind] * varied[i] + np.where(lost, p.reload, 0.0)
            if outs is not None:
                slot = np.argmin(outs, axis=1)
                outs[np.arange(samples), slot] = now + p.out
            active &= now < horizon
            if not active.any():
                break
    return Runs(now, saved, finished, count)


def _drawn(
    p: Process, weights: Floats, rng: np.random.Generator, samples: int
) -> tuple[Floats, NDArray[np.int64], Floats, Floats]:
    """(B, S) times between interruptions [s], which fault each is, the factor of its recovery, and the luck
    that copies in memory need to outlive it.

    weights  of the faults, cumulative
    """
    shape = (BLOCK, samples)
    if p.shape == 1:
        gaps = p.mtti * rng.standard_exponential(shape)
    else:
        gaps = p.mtti / math.gamma(1 + 1 / p.shape) * rng.weibull(p.shape, shape)
    kinds = np.searchsorted(weights, rng.random(shape), side="right")
    varied = _varied(p, rng, samples)
    return gaps, np.minimum(kinds, len(p.faults) - 1), varied, rng.random(shape)


def _in_storage(p: Process, stored: Floats, reached: Floats, gone: Floats) -> Floats:
    """(S,) work that storage holds: what was begun its lag ago; spoiled work asks for a checkpoint before it.

    stored   held last
    reached  work done, saved or not
    gone     of it, what is spoiled
    """
    whole = p.storage_every * p.interval
    late = p.stored_lag * p.interval / (p.interval + p.block)  # in work
    there = stored + np.floor((reached - late - gone - stored) / whole + 1e-9) * whole
    return np.where(gone > 0, there, np.maximum(there, stored))


def _trained(
    p: Process, up: Floats, left: Floats, start: Floats, outs: Floats | None
) -> tuple[Floats, Floats]:
    """Work saved in an uptime, and the uptime that what is left would need."""
    if outs is not None:
        assert p.elastic is not None
        # Nothing is lost but speed: the other replicas hold the state.
        slow = p.elastic * np.clip(outs - start[:, None], 0.0, up[:, None]).sum(axis=1)
        pace = p.interval / (p.interval + p.block)
        worked = np.maximum(up - slow, 0.0) * pace
        with np.errstate(divide="ignore", invalid="ignore"):
            need = np.where(worked >= left, up * left / np.maximum(worked, 1e-300), math.inf)
        return worked, need
    whole = np.floor(up / (p.interval + p.block))
    if p.lag:
        late = up - whole * (p.interval + p.block) < p.lag
        whole = np.where(late, np.maximum(whole - 1, 0), whole)
    need = left
    if p.block:
        need = left + p.block * np.maximum(np.ceil(left / p.interval) - 1, 0)
    return whole * p.interval, need


def _worked(p: Process, up: Floats) -> Floats:
    """Work done in an uptime, whether it was saved or not. [s]"""
    each = p.interval + p.block
    rounds = np.floor(up / each)
    done: Floats = rounds * p.interval + np.minimum(up - rounds * each, p.interval)
    return done


def _varied(p: Process, rng: np.random.Generator, samples: int) -> Floats:
    """(B, S) factor of a recovery, mean 1."""
    if not p.spread or not p.varies:
        return np.ones((BLOCK, samples))
    drawn = np.exp(p.spread * rng.standard_normal((BLOCK, samples)) - p.spread**2 / 2)
    return 1 - p.varies + p.varies * drawn
