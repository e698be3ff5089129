"""A queue in front of a cluster: first come, first served, gaps filled, hosts that fail.

Events are submissions, ends of jobs, failures and repairs of hosts.  The first job in line gets a
reservation: the earliest time at which it can be placed if running jobs end when they say; others may go
before it if that time stays (EASY backfilling: Lifka, "The ANL/IBM SP scheduling system", 1995).
Durations are taken as known to the scheduler.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from railwright.errors import PlanError
from railwright.queueing.jobs import Job
from railwright.queueing.place import Allocation, Policy, Site, check_size, fits, place
from railwright.units import DAY, HOUR

DEPTH = 50
"""Jobs behind the first that are looked at for a gap (Slurm's bf_max_job_test does the same; its default is
500, slurm.conf(5))."""

SUBMIT, END, FAIL, REPAIR = range(4)


@dataclass(frozen=True)
class Failures:
    """Hosts that fail, each on its own.

    rate        per host and second
    repair      mean time until a host is back, exponential [s]
    checkpoint  a killed job repeats what it did since its last multiple of this [s]; 0: all of it
    """

    rate: float = 0.0
    repair: float = DAY
    checkpoint: float = HOUR


@dataclass(frozen=True)
class Stay:
    """One time on GPUs of a job: its number, its GPUs, from when to when [s]; whether a failure ended it."""

    job: int
    where: Allocation
    start: float
    end: float
    killed: bool


@dataclass(frozen=True)
class Run:
    """What happened.

    waits    (J,) from submission to first start [s]
    done     (J,) end of each job [s]
    stays    in order of start
    refused  (number of the job, reason): jobs that can never run here
    idle_while_waiting  GPU-seconds idle while the first in line asked for no more than were idle
    span     from the first submission to the last [s]
    used     GPU-seconds at work within the span, repeated work too
    lost     GPU-seconds of work that failures took
    kills    jobs that failures ended, each time
    """

    waits: np.ndarray
    done: np.ndarray
    stays: tuple[Stay, ...]
    refused: tuple[tuple[int, str], ...]
    idle_while_waiting: float
    span: float
    used: float
    lost: float
    kills: int


@dataclass
class _Queue:
    """The state between events."""

    site: Site
    policy: Policy
    jobs: Sequence[Job]
    free: list[int]
    left: list[float]  # work of each job still to do [s]
    idle: int  # free GPUs
    line: list[int] = field(default_factory=list)
    running: dict[int, tuple[Allocation, float, float]] = field(default_factory=dict)
    down: set[int] = field(default_factory=set)

    def take(self, where: Allocation) -> None:
        """Put a job on GPUs, which must be free."""
        for host, bits in where:
            assert self.free[host] & bits == bits
            self.free[host] ^= bits
            self.idle -= bits.bit_count()

    def give(self, where: Allocation) -> None:
        """Free the GPUs of a job; those of hosts that are down stay out."""
        for host, bits in where:
            assert not self.free[host] & bits
            if host not in self.down:
                self.free[host] |= bits
                self.idle += bits.bit_count()


def simulate(
    site: Site, jobs: Sequence[Job], policy: Policy, failures: Failures | None = None, seed: int = 0
) -> Run:
    """Run the jobs through the cluster until all have ended. Raises PlanError where none can run here.

    The same seed gives the same failures under every policy.
    """
    refused = tuple((i, why) for i, job in enumerate(jobs) if (why := check_size(site, job.gpus, policy)))
    never = {i for i, _ in refused}
    if len(never) == len(jobs):
        raise PlanError(f"no job fits this cluster: {refused[0][1]}" if refused else "there are no jobs")
    free, left = [site.whole] * len(site.hosts), [job.duration for job in jobs]
    queue = _Queue(site, policy, jobs, free, left, site.capacity)
    course = _Course(queue, [i for i in range(len(jobs)) if i not in never], failures or Failures(), seed)
    while course.todo:
        if course.next_event() and not course.more_now():
            course.start_jobs()
    return course.run(refused)


class _Course:
    """What has happened up to an event, and the events that are known to come.

    events  (time, kind, job or host, version of the job's stay that ends)
    todo    jobs that have not ended
    last    the last submission [s]
    """

    def __init__(self, queue: _Queue, runnable: Sequence[int], failures: Failures, seed: int) -> None:
        self.queue, self.jobs, self.failures = queue, queue.jobs, failures
        self.rng = np.random.default_rng(seed)
        self.events = [(self.jobs[i].submit, SUBMIT, i, 0) for i in runnable]
        if failures.rate > 0:
            hosts = range(len(queue.site.hosts))
            self.events += [(self._drawn(1 / failures.rate), FAIL, host, 0) for host in hosts]
        heapq.heapify(self.events)
        self.todo, self.last = len(runnable), max(self.jobs[i].submit for i in runnable)
        self.waits, self.done = np.full(len(self.jobs), np.nan), np.full(len(self.jobs), np.nan)
        self.version = [0] * len(self.jobs)
        self.stays: list[Stay] = []
        self.now = self.idle_while_waiting = self.used = self.lost = 0.0
        self.kills = 0

    def next_event(self) -> bool:
        """What happens next; False for the end of a stay that a failure ended before."""
        now, kind, what, stamp = heapq.heappop(self.events)
        self._pass_to(now)
        if kind == SUBMIT:
            self.queue.line.append(what)
        elif kind == FAIL:
            self._fail(what)
        elif kind == REPAIR:
            self._repair(what)
        elif stamp != self.version[what]:
            return False
        else:
            self._leave(what, killed=False)
            self.done[what] = now
            self.todo -= 1
        return True

    def more_now(self) -> bool:
        """Whether more happens at this moment: all of it is seen together."""
        return bool(self.events) and self.events[0][0] == self.now

    def start_jobs(self) -> None:
        """Start the jobs that the policy starts now."""
        queue, now = self.queue, self.now
        for i, where in _starts(queue, now):
            queue.line.remove(i)
            end = now + queue.left[i]
            queue.running[i] = (where, now, end)
            if np.isnan(self.waits[i]):
                self.waits[i] = now - self.jobs[i].submit
            heapq.heappush(self.events, (end, END, i, self.version[i]))

    def run(self, refused: tuple[tuple[int, str], ...]) -> Run:
        """All of it."""
        stays = tuple(sorted(self.stays, key=lambda s: (s.start, s.job)))
        return Run(
            self.waits, self.done, stays, refused, self.idle_while_waiting, self.last, self.used, self.lost,
            self.kills,
        )  # fmt: skip

    def _pass_to(self, now: float) -> None:
        """Count what was idle until now."""
        # beyond the last submission the cluster only drains, which no policy could fill
        inside = max(min(now, self.last) - min(self.now, self.last), 0.0)
        idle = self.queue.idle
        if self.queue.line and self.jobs[self.queue.line[0]].gpus <= idle:
            self.idle_while_waiting += idle * inside
        self.now = now

    def _fail(self, host: int) -> None:
        """A host goes down with the jobs on it, which stand in line again where they stood."""
        queue, every = self.queue, self.failures.checkpoint
        queue.down.add(host)
        for i in [i for i, (where, _, _) in queue.running.items() if any(h == host for h, _ in where)]:
            ran = self._leave(i, killed=True)
            kept = ran - ran % every if every else 0.0
            queue.left[i] -= kept
            self.version[i] += 1
            self.lost += (ran - kept) * self.jobs[i].gpus
            self.kills += 1
            queue.line.append(i)
            queue.line.sort(key=lambda j: (self.jobs[j].submit, j))
        queue.idle -= queue.free[host].bit_count()
        queue.free[host] = 0
        heapq.heappush(self.events, (self.now + self._drawn(self.failures.repair), REPAIR, host, 0))

    def _repair(self, host: int) -> None:
        self.queue.down.discard(host)
        self.queue.free[host] = self.queue.site.whole
        self.queue.idle += self.queue.site.gpus
        heapq.heappush(self.events, (self.now + self._drawn(1 / self.failures.rate), FAIL, host, 0))

    def _leave(self, i: int, killed: bool) -> float:
        """A job leaves its GPUs; how long it was on them [s]."""
        where, start, _ = self.queue.running.pop(i)
        self.queue.give(where)
        self.stays.append(Stay(i, where, start, self.now, killed))
        self.used += self.jobs[i].gpus * max(min(self.now, self.last) - min(start, self.last), 0.0)
        return self.now - start

    def _drawn(self, mean: float) -> float:
        return float(self.rng.exponential(mean))


def _starts(queue: _Queue, now: float) -> list[tuple[int, Allocation]]:
    """Jobs that start now, with their GPUs, which are taken."""
    started: list[tuple[int, Allocation]] = []
    line = list(queue.line)
    while line:
        where = _placed(queue, line[0])
        if where is None:
            break
        queue.take(where)
        started.append((line.pop(0), where))
    if len(line) < 2 or not queue.idle:
        return started
    head = line[0]
    just = {i: (where, now, now + queue.left[i]) for i, where in started}
    reserved = _earliest(queue, head, queue.running | just)
    for i in line[1 : 1 + DEPTH]:
        where = _placed(queue, i)
        if where is None:
            continue
        queue.take(where)
        if now + queue.left[i] > reserved and not _still(queue, head, reserved, queue.running | just):
            queue.give(where)
            continue
        just[i] = (where, now, now + queue.left[i])
        started.append((i, where))
        if not queue.idle:
            break
    return started


def _placed(queue: _Queue, i: int) -> Allocation | None:
    """Where a job would go now."""
    gpus = queue.jobs[i].gpus
    return place(queue.site, queue.free, gpus, queue.policy) if gpus <= queue.idle else None


def _fits(queue: _Queue, freed: tuple[list[int], int], i: int) -> bool:
    """Whether a job could be placed on what `_freed` says is free."""
    (free, idle), gpus = freed, queue.jobs[i].gpus
    return gpus <= idle and fits(queue.site, free, gpus, queue.policy)


def _earliest(queue: _Queue, head: int, running: dict[int, tuple[Allocation, float, float]]) -> float:
    """When the first in line can be placed, if nothing else starts and nothing fails; inf if not even then.

    Ends are tried by halves: more free GPUs never make a placement impossible.
    """
    ends = sorted((end, i) for i, (_, _, end) in running.items())
    low, high = 0, len(ends) - 1
    freed = queue.free, queue.idle  # of the ends before `low`
    if not ends or not _fits(queue, _freed(queue, freed, running, [i for _, i in ends]), head):
        return float("inf")  # hosts that are down are missing
    while low < high:
        middle = (low + high) // 2
        tried = _freed(queue, freed, running, [i for _, i in ends[low : middle + 1]])
        if _fits(queue, tried, head):
            high = middle
        else:
            low, freed = middle + 1, tried
    return ends[low][0]


def _still(
    queue: _Queue, head: int, reserved: float, running: dict[int, tuple[Allocation, float, float]]
) -> bool:
    """Whether the first in line can be placed at its time although another job has just been put in."""
    if reserved == float("inf"):
        return True
    ended = [i for i, (_, _, end) in running.items() if end <= reserved]
    return _fits(queue, _freed(queue, (queue.free, queue.idle), running, ended), head)


def _freed(
    queue: _Queue,
    before: tuple[list[int], int],
    running: dict[int, tuple[Allocation, float, float]],
    ended: Sequence[int],
) -> tuple[list[int], int]:
    """What is free when some more jobs have ended, and how many GPUs that is."""
    free, idle, down = list(before[0]), before[1], queue.down
    for i in ended:
        where = running[i][0]
        idle += queue.jobs[i].gpus
        for host, bits in where:
            free[host] |= bits
        if down:
            for host, bits in where:
                if host in down:
                    free[host] = 0
                    idle -= bits.bit_count()
    return free, idle
