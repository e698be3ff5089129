"""Goodput against a simulation of single events in plain Python, which shares nothing with the room.

Every checkpoint is an object that becomes whole at an instant; a failure picks one that is whole, sound and
still there.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from railwright.reliability import closed, montecarlo
from railwright.reliability.protection import Checkpoints

HOUR = 3600.0
Kind = tuple[float, float, float, float]
"""Weight, recovery [s], training until corruption is noticed [s], probability that memory outlives it."""


def share_trained(
    mtti: float, kinds: list[Kind], block: float, interval: float, lag: float, failures: int,
    every: int = 0, stored_lag: float = 0.0, reload: float = 0.0,
) -> float:  # fmt: skip
    """Useful over wall time. every: intervals between two that reach storage; 0: there is one level."""
    rng = random.Random(5)
    clock = work = 0.0
    newest = [(0.0, 0.0)]  # (work, whole at)
    storage = [(0.0, 0.0)]
    end = rng.expovariate(1 / mtti)
    for _ in range(failures):
        while clock + interval + block < end:
            clock, work = clock + interval + block, work + interval
            newest.append((work, clock + lag))
            if every and work - storage[-1][0] > (every - 0.5) * interval:
                storage.append((work, clock + stored_lag))
        reached = work + min(max(end - clock, 0.0), interval)
        clock, memory_gone = end, False
        while True:
            _, recovery, unnoticed, survives = rng.choices(kinds, [k[0] for k in kinds])[0]
            memory_gone |= bool(every) and rng.random() >= survives
            there = storage if memory_gone else newest
            sound = max(reached - unnoticed, 0.0)
            work = reached = max((at for at, whole in there if whole <= clock and at <= sound), default=sound)
            newest = [c for c in newest if c[0] <= work][-400:]
            storage = [c for c in storage if c[0] <= work][-9:] or [(work, clock)]
            if not newest or memory_gone:
                newest.append((work, clock))
            end = clock + rng.expovariate(1 / mtti)
            back = clock + recovery + (reload if memory_gone else 0.0)
            # Nothing is written to storage while the job recovers.
            held = min(end, back) - clock
            storage = [(at, whole + held if whole > clock else whole) for at, whole in storage]
            if end >= back:
                clock = back
                break
            clock = end
    return work / clock


CASES = {
    "a day between two that reach storage": (
        8 * HOUR, [(0.7, 600.0, 0.0, 1.0), (0.3, 900.0, 0.0, 0.0)], 0.5, 300.0, 2.0, 288, 60.0, 60.0,
    ),
    "each reaches storage, late": (
        HOUR, [(0.6, 300.0, 0.0, 1.0), (0.4, 500.0, 0.0, 0.0)], 1.0, 600.0, 1.0, 1, 600.0, 30.0,
    ),
    "corruption in memory": (
        2 * HOUR, [(0.97, 400.0, 0.0, 1.0), (0.03, 400.0, 3600.0, 0.0)], 0.5, 60.0, 1.0, 100, 30.0, 30.0,
    ),
    "corruption, one level": (
        2 * HOUR, [(0.8, 400.0, 0.0, 1.0), (0.2, 400.0, 3600.0, 1.0)], 10.0, 120.0, 60.0, 0, 0.0, 0.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_closed_form_and_monte_carlo_train_as_single_events_do(name: str) -> None:
    """Beyond the first order too: storage a day ago, work found spoiled late."""
    mtti, kinds, block, interval, lag, every, stored_lag, reload = CASES[name]
    events = share_trained(mtti, kinds, block, interval, lag, 20_000, every, stored_lag, reload)
    beyond = stored_lag if every else lag
    lost = [max(k[2] - beyond, 0.0) for k in kinds]
    saving = Checkpoints(block, interval, lag, every * interval, stored_lag, reload)
    figures = closed.Figures(
        mtti, sum(k[0] * k[1] for k in kinds), saving,
        spoiled=sum(k[0] * spoiled for k, spoiled in zip(kinds, lost, strict=True)),
        severe=sum(k[0] * (1 - k[3]) for k in kinds),
    )  # fmt: skip
    faults = tuple(montecarlo.Fault(k[0], k[1], s, k[3]) for k, s in zip(kinds, lost, strict=True))
    process = montecarlo.Process(mtti, faults, saving)
    drawn = montecarlo.simulate(process, 1500 * mtti, samples=200, seed=7).ettr.mean()
    assert closed.ettr(figures) == pytest.approx(events, abs=0.012)
    assert drawn == pytest.approx(events, abs=0.012)
    wanted = 0.9 * closed.ettr(figures)
    longest = closed.longest_recovery(figures, wanted)
    assert closed.ettr(replace(figures, recovery=longest)) == pytest.approx(wanted)
