"""One pass through one chunk as tasks on lanes, run in order per lane, with communication slowing compute.

A lane is a CUDA stream: its tasks run one at a time in the order given; each also waits for the tasks it
names.  Communication keeps its predicted time; compute under running communication goes slower.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from railwright.training.timeline import Lane

LANES: tuple[Lane, ...] = ("compute", "tp", "ep", "pp", "dp")
"""In the order in which an idle instant is charged when several communications run at once: the inner
ones block the compute lane, data-parallel buckets only run beside it."""


@dataclass(frozen=True)
class Task:
    """Work for one lane.

    name      what it is; for communication its purpose ('ep dispatch')
    duration  alone, without interference [s]
    after     indices of earlier tasks that must have finished
    gate      index of a parameter bucket that must have arrived, -1 for none
    layer     place in its chunk: 0 is the first layer, -1 the embedding; the head follows the last layer
    size      nccl-tests' size of a communication; 0 for the later parts of one that is sent in parts [byte]
    """

    lane: Lane
    name: str
    kind: str
    duration: float
    after: tuple[int, ...] = ()
    gate: int = -1
    layer: int = -1
    size: float = 0.0


@dataclass(frozen=True)
class Span:
    """A task placed in time, from the start of its pass [s]."""

    task: Task
    start: float
    end: float


@dataclass(frozen=True)
class Pass:
    """A run of tasks.

    duration  until the last task that is not on the dp lane has finished [s]
    dp_end    when the dp lane falls free; may be later than `duration` [s]
    exposed   seconds of `duration` by lane: 'compute' while it computes, else the one lane waited for
    """

    spans: tuple[Span, ...]
    duration: float
    dp_end: float
    exposed: dict[str, float] = field(hash=False)


def run(
    tasks: Sequence[Task], slowdown: float = 1.0, gates: Sequence[float] = (), dp_until: float = 0.0
) -> Pass:
    """Place tasks in time.

    slowdown  time of compute under running communication over its time alone (>= 1)
    gates     when each parameter bucket arrives, from the start of this pass [s]; () = all are there
    dp_until  until when earlier work keeps the dp lane busy [s]
    """
    queues: dict[Lane, list[int]] = {lane: [] for lane in LANES}
    for index, task in enumerate(tasks):
        queues[task.lane].append(index)
    lanes = [lane for lane in LANES if queues[lane]]
    head = dict.fromkeys(lanes, 0)
    active: dict[Lane, tuple[int, float, float]] = {}  # lane -> (task, start, work left)
    end: list[float | None] = [None] * len(tasks)
    spans: list[Span] = []
    now, left = 0.0, len(tasks)
    while left:
        for lane in lanes:
            if lane in active or head[lane] == len(queues[lane]) or (lane == "dp" and dp_until > now):
                continue
            index = queues[lane][head[lane]]
            task = tasks[index]
            gated = 0 <= task.gate < len(gates) and gates[task.gate] > now
            if not gated and all(end[d] is not None for d in task.after):
                active[lane] = (index, now, task.duration)
                head[lane] += 1
        busy = dp_until > now or any(lane != "compute" for lane in active)
        rate = 1.0 / slowdown if busy else 1.0
        later = [
            left_over / (rate if lane == "compute" else 1.0) for lane, (_, _, left_over) in active.items()
        ]
        later += [g - now for g in gates if g > now]
        if dp_until > now:
            later.append(dp_until - now)
        assert later, "tasks wait for each other"
        wait = min(later)
        limit = wait * (1 + 1e-12)
        for lane in list(active):
            index, start, left_over = active[lane]
            speed = rate if lane == "compute" else 1.0
            if left_over / speed <= limit:
                end[index] = now + wait
                spans.append(Span(tasks[index], start, now + wait))
                del active[lane]
                left -= 1
            else:
                active[lane] = (index, start, left_over - wait * speed)
        now = _advance(now, wait, gates, dp_until)
    duration = max((s.end for s in spans if s.task.lane != "dp"), default=0.0)
    dp_end = max([dp_until] + [s.end for s in spans if s.task.lane == "dp"])
    spans.sort(key=lambda s: (s.start, s.end, LANES.index(s.task.lane)))
    return Pass(tuple(spans), duration, dp_end, exposure(spans, duration))


def _advance(now: float, wait: float, gates: Sequence[float], dp_until: float) -> float:
    """`now + wait`, put exactly on a gate or `dp_until` where rounding would fall just short of it."""
    after = now + wait
    for mark in (*gates, dp_until):
        if mark > after and mark - after <= 1e-12 * mark:
            return mark
    return after


def exposure(spans: Sequence[Span], duration: float) -> dict[str, float]:
    """Seconds of [0, duration] by lane: computing, or the first lane of LANES that runs while not computing.

    An instant in which nothing runs inside a pass waits for parameters and belongs to 'dp'.
    """
    marks = sorted({0.0, duration, *(t for s in spans for t in (s.start, s.end) if t < duration)})
    rank = {lane: i for i, lane in enumerate(LANES)}
    starts = sorted((s for s in spans if s.end > s.start), key=lambda s: s.start)
    running: list[Span] = []
    total = dict.fromkeys(LANES, 0.0)
    upcoming = 0
    for begin, finish in pairwise(marks):
        while upcoming < len(starts) and starts[upcoming].start <= begin:
            running.append(starts[upcoming])
            upcoming += 1
        running = [s for s in running if s.end > begin]
        lane: Lane = min((s.task.lane for s in running), key=rank.__getitem__, default="dp")
        total[lane] += finish - begin
    return {str(lane): seconds for lane, seconds in total.items() if seconds}
