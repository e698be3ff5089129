"""What runs when: traffic in phases that wait for one another, and what became of it.

Legend: F flows (demands), N phases, A waits, E moments, W watched links.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.network.routing.solution import Bottleneck
from railwright.traffic import Traffic, join

Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Schedule:
    """Flows in phases.  A phase opens `delay` after the last phase it waits for has ended (or at `delay`,
    where it waits for none); its flows start `start` later; it ends with its last flow, or, without flows,
    when it opens (a computation is such a phase).

    traffic        F flows
    phase          (F,) phase of each flow, 0..N-1
    start          (F,) wait after the phase has opened [s]
    delay          (N,) [s]
    before, after  (A,) phase after[k] waits for phase before[k]
    weight         (F,) share of a full link relative to other flows; 1 is plain max-min
    names          N names, for people; may be empty
    """

    traffic: Traffic
    phase: Longs
    start: Floats
    delay: Floats
    before: Longs
    after: Longs
    weight: Floats
    names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.traffic)

    @property
    def num_phases(self) -> int:
        return len(self.delay)

    def named(self, phase: int) -> str:
        return self.names[phase] if self.names else f"phase {phase}"


@dataclass(frozen=True, eq=False)
class Simulation:
    """A schedule as it went.

    time           when the last phase has ended [s]
    start, finish  (F,) of each flow [s]
    opened, ended  (N,) of each phase [s]
    critical       the chain of phases that made it last so long, first to last: each waited for the one
                   before it
    load           (L,) bytes carried by each directed link
    latency, hops  (F,) as in `Solution`; latency is not part of the times
    bottleneck     the busiest link over the whole run
    engine         which engine answered, and its batch where it has one
    exact          False where finishes were taken in batches
    solutions      how often rates were solved
    """

    time: float
    start: Floats
    finish: Floats
    opened: Floats
    ended: Floats
    critical: tuple[int, ...]
    load: Floats
    latency: Floats
    hops: NDArray[np.int32]
    bottleneck: Bottleneck | None
    engine: str
    exact: bool
    solutions: int


def together(traffic: Traffic, delay: float = 0.0, name: str = "") -> Schedule:
    """All flows in one phase that opens at `delay` [s]."""
    none = np.zeros(0, np.int64)
    flows = len(traffic)
    return Schedule(
        traffic, np.zeros(flows, np.int64), np.zeros(flows), np.array([delay]), none, none, np.ones(flows),
        (name,) if name else (),
    )  # fmt: skip


def sequence(steps: Sequence[Schedule]) -> Schedule:
    """One after the other: the first phases of each step wait for the last phases of the step before.

    A phase of a later step that waits for none opens its own delay after that.
    """
    whole = side_by_side(steps)
    offsets = np.cumsum([0] + [step.num_phases for step in steps])
    before, after = [whole.before], [whole.after]
    for k in range(1, len(steps)):
        last = offsets[k - 1] + np.setdiff1d(np.arange(steps[k - 1].num_phases), steps[k - 1].before)
        first = offsets[k] + np.setdiff1d(np.arange(steps[k].num_phases), steps[k].after)
        before.append(np.repeat(last, len(first)))
        after.append(np.tile(first, len(last)))
    return replace(whole, before=np.concatenate(before), after=np.concatenate(after))


def side_by_side(jobs: Sequence[Schedule]) -> Schedule:
    """All at once on the same links: concurrent jobs or collectives. Phases are numbered job by job."""
    if not jobs:
        return replace(together(join([])), delay=np.zeros(0))
    offsets = np.cumsum([0] + [job.num_phases for job in jobs])[:-1]
    names = tuple(job.named(n) for job in jobs for n in range(job.num_phases))
    return Schedule(
        join([job.traffic for job in jobs]),
        np.concatenate([job.phase + o for job, o in zip(jobs, offsets, strict=True)]),
        np.concatenate([job.start for job in jobs]),
        np.concatenate([job.delay for job in jobs]),
        np.concatenate([job.before + o for job, o in zip(jobs, offsets, strict=True)]),
        np.concatenate([job.after + o for job, o in zip(jobs, offsets, strict=True)]),
        np.concatenate([job.weight for job in jobs]),
        names if any(job.names for job in jobs) else (),
    )


def check(schedule: Schedule) -> None:
    """Raises PlanError for lengths that differ, times that run backwards, unknown phases and circles."""
    flows, phases = len(schedule), schedule.num_phases
    for name in ("phase", "start", "weight"):
        if len(getattr(schedule, name)) != flows:
            raise PlanError(
                f"The schedule has {flows:,} flows but {len(getattr(schedule, name)):,} entries of '{name}'; "
                "give one per flow."
            )
    if len(schedule.before) != len(schedule.after):
        raise PlanError("'before' and 'after' of a schedule differ in length; give one pair per wait.")
    if schedule.names and len(schedule.names) != phases:
        raise PlanError(f"The schedule has {phases:,} phases but {len(schedule.names):,} names.")
    for name, known in (("phase", schedule.phase), ("before", schedule.before), ("after", schedule.after)):
        wrong = np.flatnonzero((known < 0) | (known >= phases))
        if len(wrong):
            raise PlanError(
                f"'{name}' of the schedule names phase {known[wrong[0]]}; phases run from 0 to {phases - 1}."
            )
    for name, times in (("start", schedule.start), ("delay", schedule.delay)):
        if not np.all(np.isfinite(times) & (times >= 0)):
            raise PlanError(f"'{name}' of the schedule has a negative or infinite time; give seconds from 0.")
    sizes = schedule.traffic.size
    if not np.all(np.isfinite(sizes) & (sizes >= 0)):
        raise PlanError("A flow of the schedule has a negative or infinite size; give bytes from 0.")
    if not np.all(np.isfinite(schedule.weight) & (schedule.weight > 0)):
        raise PlanError("A flow of the schedule has no positive finite weight; 1 shares links evenly.")
    order = _topological(schedule)
    if len(order) < phases:
        stuck = int(np.setdiff1d(np.arange(phases), order)[0])
        raise PlanError(
            f"{phases - len(order):,} phases of the schedule wait for one another in a circle or behind one, "
            f"'{schedule.named(stuck)}' among them; drop a wait."
        )


def critical_chain(schedule: Schedule, ended: Floats) -> tuple[int, ...]:
    """From the phase that ended last back to one that waited for none, by the latest of those waited for.

    Among equals, the lowest number.
    """
    if not len(ended):
        return ()
    chain = [int(np.argmax(ended))]
    while len(earlier := schedule.before[schedule.after == chain[-1]]):
        earlier = np.sort(earlier)
        chain.append(int(earlier[np.argmax(ended[earlier])]))
    return tuple(chain[::-1])


def successors(schedule: Schedule) -> tuple[Longs, Longs]:
    """CSR (N+1,), (A,) of the phases that wait for each."""
    order = np.argsort(schedule.before, kind="stable")
    ptr = np.searchsorted(schedule.before[order], np.arange(schedule.num_phases + 1))
    return ptr.astype(np.int64), schedule.after[order].astype(np.int64)


def _topological(schedule: Schedule) -> Longs:
    """Phases that can open, each after those it waits for."""
    waits = np.bincount(schedule.after, minlength=schedule.num_phases)
    ptr, after = successors(schedule)
    ready = np.flatnonzero(waits == 0).tolist()
    for phase in ready:
        for follower in after[ptr[phase] : ptr[phase + 1]].tolist():
            waits[follower] -= 1
            if waits[follower] == 0:
                ready.append(follower)
    return np.array(ready, np.int64)
