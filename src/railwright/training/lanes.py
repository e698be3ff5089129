"""One pass through one chunk as tasks on lanes, run in order per lane.

A lane is a CUDA stream: its tasks run one at a time in the order given; each also waits for the tasks it
names ('host' is the time in which the GPU waits for launches).  Compute goes slower while communication
runs; communications that run at the same time share links (`contention`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from railwright.training.contention import NICS, Uses, stretches
from railwright.training.timeline import Lane

LANES: tuple[Lane, ...] = ("compute", "tp", "cp", "ep", "emb", "pp", "host", "copy", "dp")
"""In the order in which an idle instant is charged when several communications run at once: the inner
ones block the compute lane, data-parallel buckets only run beside it."""

_PLACE = {lane: i for i, lane in enumerate(LANES)}

PASSED_ON = ", inside servers"
"""End of the name of an exchange's second part, which the kernel of its first one does as well."""

QUIET = ("compute", "host", "copy")
"""Lanes beside which compute keeps its pace: no network, no kernels of NCCL."""


def ahead_of(layer: int) -> int:
    """The number of a layer in a forward pass that runs together with a backward one, and back again."""
    return -3 - layer


def is_ahead(layer: int) -> bool:
    """Whether a layer's number is of the forward pass of two at once; the backward one has its own."""
    return layer < -1


class Task(NamedTuple):
    """Work for one lane.

    name      what it is; for communication its purpose ('ep dispatch')
    duration  alone, without interference [s]
    after     indices of earlier tasks that must have finished
    layer     place in its chunk: 0 is the first layer, -1 the embedding; the head follows the last layer; of
              the forward one of two passes at once `ahead_of` that
    size      nccl-tests' size of a communication; 0 for the later parts of one that is sent in parts [byte]
    wire      part of `duration` bound by the bandwidth of links that others may use; it comes last [s]
    uses      which links those are
    """

    lane: Lane
    name: str
    kind: str
    duration: float
    after: tuple[int, ...] = ()
    layer: int = -1
    size: float = 0.0
    wire: float = 0.0
    uses: Uses = NICS

    def behind(self, after: tuple[int, ...]) -> Task:
        """The same behind other tasks; in half of `_replace`'s time, since searches ask by the million."""
        lane, name, kind, duration, _, layer, size, wire, uses = self
        return Task(lane, name, kind, duration, after, layer, size, wire, uses)

    def in_layer(self, layer: int) -> Task:
        """The same in another layer."""
        lane, name, kind, duration, after, _, size, wire, uses = self
        return Task(lane, name, kind, duration, after, layer, size, wire, uses)


class Span(NamedTuple):
    """A task placed in time, from the start of its pass [s]."""

    task: Task
    start: float
    end: float


class Begun(NamedTuple):
    """A task on the dp lane that is waiting or half done when a pass starts or ends.

    start   when it started, from the start of the pass (negative: before); None when it has not [s]
    fixed, wire  what is left of it: the part at its own pace, the part that shares links [s]
    tag     the caller's mark, handed through
    """

    task: Task
    start: float | None
    fixed: float
    wire: float
    tag: int = -1

    @classmethod
    def new(cls, task: Task, tag: int = -1) -> Begun:
        """A task that has not started."""
        return cls(task, None, task.duration - task.wire, task.wire, tag)


@dataclass(frozen=True)
class Pass:
    """A run of tasks.

    duration  until the last task that is not on the dp lane has finished [s]
    left      what is left on the dp lane then
    """

    spans: tuple[Span, ...]
    duration: float
    left: tuple[Begun, ...]

    @cached_property
    def exposed(self) -> dict[str, float]:
        """Seconds of `duration` by lane: 'compute' while it computes, else the one lane waited for."""
        return exposure(self.spans, self.duration)


def run(
    tasks: Sequence[Task],
    slowdown: float = 1.0,
    begun: Sequence[Begun] = (),
    gates: Mapping[int, int] | None = None,
) -> Pass:
    """Place tasks in time, until all that are not on the dp lane have finished.

    slowdown  time of compute under running communication over its time alone (>= 1)
    begun     dp work carried over from before this pass, ahead of its own
    gates     layer -> which of `begun` its compute waits for
    """
    earlier = len(begun)
    # Work that has begun counts from -earlier up, so that `done[index]` holds for it too.
    queues: dict[Lane, list[int]] = {lane: [] for lane in LANES}
    queues["dp"] += range(-earlier, 0)
    for index, task in enumerate(tasks):
        queues[task.lane].append(index)
    # Lanes by number, in the order of LANES, so that ties end in the same order.  Each runs one task at once:
    # its index, when it started, and what is left of it at its own pace and on shared links, and which.
    lanes = [lane for lane in LANES if queues[lane]]
    none = -earlier - 1
    queue = [queues[lane] for lane in lanes]
    head, busy = [0] * len(lanes), [none] * len(lanes)
    started, fixed, wire = ([0.0] * len(lanes) for _ in range(3))
    uses, stretch = [NICS] * len(lanes), [1.0] * len(lanes)
    loud = [lane not in QUIET for lane in lanes]
    compute, dp = (lanes.index(lane) if lane in lanes else -1 for lane in ("compute", "dp"))
    idle, active = [*range(len(lanes))], []
    done = [False] * (len(tasks) + earlier)
    spans: list[Span] = []
    now, left = 0.0, len(tasks) + earlier - len(queues["dp"])
    while left:
        for n in idle:
            if head[n] == len(queue[n]):
                continue
            index = queue[n][head[n]]
            if index < 0:
                one = begun[index]
                started[n] = now if one.start is None else one.start
                fixed[n], wire[n], uses[n] = one.fixed, one.wire, one.task.uses
            else:
                task = tasks[index]
                if gates and n == compute and task.layer in gates and not done[gates[task.layer] - earlier]:
                    continue
                if not all(map(done.__getitem__, task.after)):
                    continue
                started[n], fixed[n], wire[n] = now, task.duration - task.wire, task.wire
                uses[n] = task.uses
            head[n] += 1
            busy[n] = index
            active.append(n)
        assert active, "tasks wait for each other"
        rate, sharing = 1.0, 0
        for n in active:
            if loud[n]:
                rate = 1.0 / slowdown
            if fixed[n] <= 0 < wire[n]:
                sharing += 1
                stretch[n] = 1.0
        if sharing > 1:
            together = [n for n in active if fixed[n] <= 0 < wire[n]]
            for n, times in zip(together, stretches([uses[n] for n in together]), strict=True):
                stretch[n] = times
        # Until a task finishes or changes from its own pace to the shared one.
        needs = [
            (fixed[n] / rate if n == compute else fixed[n]) if fixed[n] > 0 else wire[n] * stretch[n]
            for n in active
        ]
        wait = min(needs)
        now += wait
        over = wait * (1 + 1e-12)
        running = []
        for n, need in zip(active, needs, strict=True):
            if need > over:
                if fixed[n] > 0:
                    fixed[n] -= wait * rate if n == compute else wait
                else:
                    wire[n] -= wait / stretch[n]
            elif fixed[n] > 0 and wire[n] > 0:
                fixed[n] = 0.0
            else:
                index = busy[n]
                done[index] = True
                spans.append(Span(tasks[index] if index >= 0 else begun[index].task, started[n], now))
                busy[n] = none
                left -= n != dp
                continue
            running.append(n)
        active = running
        idle = [n for n in range(len(lanes)) if busy[n] == none]
    spans.sort(key=lambda s: (s.start, s.end, _PLACE[s.task.lane]))
    ahead = queues["dp"][head[dp] :] if dp >= 0 else ()
    rest = [begun[i] if i < 0 else Begun.new(_freed(tasks[i])) for i in ahead]
    if dp >= 0 and busy[dp] != none:
        index = busy[dp]
        half = begun[index] if index < 0 else Begun.new(_freed(tasks[index]))
        rest.insert(0, half._replace(start=started[dp], fixed=fixed[dp], wire=wire[dp]))
    return Pass(tuple(spans), now, tuple(rest))


def drain(begun: Sequence[Begun], seconds: float) -> tuple[list[Span], tuple[Begun, ...]]:
    """Run dp work alone for some seconds: what finished, and what is left, counted from their end."""
    now = 0.0
    spans: list[Span] = []
    for i, one in enumerate(begun):
        start = now if one.start is None else one.start
        end = now + one.fixed + one.wire
        if end > seconds:
            if one.start is None and now >= seconds:
                return spans, tuple(begun[i:])
            fixed = max(0.0, one.fixed - (seconds - now))
            wire = one.wire - max(0.0, seconds - now - one.fixed)
            return spans, (Begun(one.task, start - seconds, fixed, wire, one.tag), *begun[i + 1 :])
        spans.append(Span(one.task, start, end))
        now = end
    return spans, ()


def _freed(task: Task) -> Task:
    """A dp task without what it waited for: at the end of a pass all of that has run."""
    return task.behind(()) if task.after else task


def exposure(spans: Sequence[Span], duration: float) -> dict[str, float]:
    """Seconds of [0, duration] by lane: computing, or the first lane of LANES that runs while not computing.

    An instant in which nothing runs inside a pass waits for parameters and belongs to 'dp'.
    """
    marks = sorted({0.0, duration, *(t for s in spans for t in (s.start, s.end) if 0 < t < duration)})
    starts = sorted((s for s in spans if s.end > s.start), key=lambda s: s.start)
    running: list[Span] = []
    total = dict.fromkeys(LANES, 0.0)
    upcoming = 0
    for begin, finish in pairwise(marks):
        while upcoming < len(starts) and starts[upcoming].start <= begin:
            running.append(starts[upcoming])
            upcoming += 1
        running = [s for s in running if s.end > begin]
        lane: Lane = min((s.task.lane for s in running), key=_PLACE.__getitem__, default="dp")
        total[lane] += finish - begin
    return {str(lane): seconds for lane, seconds in total.items() if seconds}
