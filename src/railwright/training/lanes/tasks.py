"""One pass through one chunk as tasks on lanes, run in order per lane.

A lane is a CUDA stream: its tasks run one at a time in the order given; each also waits for the tasks it
names ('host' is the time in which the GPU waits for launches).  Compute goes slower while communication
runs; communications that run at the same time share links (`contention`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

from railwright.training.lanes.contention import NICS, Uses, stretches
from railwright.training.lanes.timeline import Lane

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
    playing = _Playing(tasks, slowdown, begun, gates or {})
    while playing.left:
        playing.start()
        playing.advance()
    return playing.over()


class _Lane:
    """A lane while tasks are placed: what waits on it, and what is left of the task that runs there.

    queue    tasks that have not started, by index
    index    the one that runs; None: none does
    started  when it did [s]
    fixed, wire  what is left of it: the part at the lane's own pace, the part that shares links [s]
    uses     which links those are
    pace     seconds of work that a second does of the first part
    stretch  seconds that a second of the second part takes
    loud     whether compute goes slower beside it
    """

    __slots__ = ("fixed", "index", "loud", "name", "pace", "queue", "started", "stretch", "uses", "wire")

    def __init__(self, name: Lane, queue: deque[int]) -> None:
        self.name, self.queue, self.loud = name, queue, name not in QUIET
        self.index: int | None = None
        self.started = self.fixed = self.wire = 0.0
        self.pace = self.stretch = 1.0
        self.uses = NICS


class _Playing:
    """All lanes at one instant of a pass; arguments as in `run`.

    left    tasks that are not on the dp lane and have not finished
    every   all lanes that have tasks, in the order of LANES, so that ties end in the same order
    active  lanes that run a task, in the order in which they began
    idle    lanes that could begin one
    loud    how many of the active ones compute goes slower beside
    """

    def __init__(
        self, tasks: Sequence[Task], slowdown: float, begun: Sequence[Begun], gates: Mapping[int, int]
    ) -> None:
        self.tasks, self.begun, self.gates, self.slowed = tasks, begun, gates, 1.0 / slowdown
        # Work that has begun counts from -len(begun) up, so that `done[index]` holds for it too.
        queues: dict[Lane, deque[int]] = {lane: deque() for lane in LANES}
        queues["dp"].extend(range(-len(begun), 0))
        for index, task in enumerate(tasks):
            queues[task.lane].append(index)
        self.left = len(tasks) + len(begun) - len(queues["dp"])
        self.done = [False] * (len(tasks) + len(begun))
        lanes = {name: _Lane(name, queue) for name, queue in queues.items() if queue}
        self.every, self.compute, self.dp = [*lanes.values()], lanes.get("compute"), lanes.get("dp")
        self.idle, self.active, self.loud = self.every, list[_Lane](), 0
        self.spans: list[Span] = []
        self.now = 0.0

    def start(self) -> None:
        """Start the next task of every idle lane, where all that it waits for has finished."""
        for lane in self.idle:
            index = lane.queue[0]
            if index < 0:
                one = self.begun[index]
                lane.started = self.now if one.start is None else one.start
                lane.fixed, lane.wire, lane.uses = one.fixed, one.wire, one.task.uses
            elif self._may_start(lane, task := self.tasks[index]):
                lane.started = self.now
                lane.fixed, lane.wire, lane.uses = task.duration - task.wire, task.wire, task.uses
            else:
                continue
            lane.index, lane.stretch = lane.queue.popleft(), 1.0
            self.active.append(lane)
            self.loud += lane.loud
        assert self.active, "tasks wait for each other"

    def _may_start(self, lane: _Lane, task: Task) -> bool:
        for other in task.after:
            if not self.done[other]:
                return False
        gate = self.gates.get(task.layer) if self.gates and lane is self.compute else None
        return gate is None or self.done[gate - len(self.begun)]

    def advance(self) -> None:
        """To the next instant at which a task finishes, or changes from its own pace to the shared one."""
        if len(self.active) == 1:
            (lane,) = self.active
            # In two steps, as beside others.
            self.now += max(0.0, lane.fixed)
            self.now += lane.wire
            self._finish(lane)
        else:
            self._together()
        self.active = [lane for lane in self.active if lane.index is not None]
        self.idle = [lane for lane in self.every if lane.index is None and lane.queue]

    def _together(self) -> None:
        """`advance` where several lanes run a task."""
        if self.compute is not None:
            self.compute.pace = self.slowed if self.loud else 1.0
        sharing = [lane for lane in self.active if lane.fixed <= 0 < lane.wire]
        if len(sharing) == 1:
            sharing[0].stretch = 1.0
        elif sharing:
            for lane, times in zip(sharing, stretches([one.uses for one in sharing]), strict=True):
                lane.stretch = times
        waits = [
            lane.fixed / lane.pace if lane.fixed > 0 else lane.wire * lane.stretch for lane in self.active
        ]
        wait = min(waits)
        self.now += wait
        almost = wait * (1 + 1e-12)
        for lane, own in zip(self.active, waits, strict=True):
            if own > almost:
                if lane.fixed > 0:
                    lane.fixed -= wait * lane.pace
                else:
                    lane.wire -= wait / lane.stretch
            elif lane.fixed > 0 and lane.wire > 0:
                lane.fixed = 0.0
            else:
                self._finish(lane)

    def _finish(self, lane: _Lane) -> None:
        index = lane.index
        assert index is not None
        self.done[index] = True
        task = self.begun[index].task if index < 0 else self.tasks[index]
        self.spans.append(Span(task, lane.started, self.now))
        lane.index = None
        self.loud -= lane.loud
        self.left -= lane.name != "dp"

    def over(self) -> Pass:
        """The pass, with what is left on the dp lane."""
        spans = sorted(self.spans, key=lambda s: (s.start, s.end, _PLACE[s.task.lane]))
        rest: list[Begun] = []
        if (dp := self.dp) is not None:
            if dp.index is not None:
                half = self._waiting(dp.index)
                rest.append(half._replace(start=dp.started, fixed=dp.fixed, wire=dp.wire))
            rest += map(self._waiting, dp.queue)
        return Pass(tuple(spans), self.now, tuple(rest))

    def _waiting(self, index: int) -> Begun:
        return self.begun[index] if index < 0 else Begun.new(_freed(self.tasks[index]))


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
