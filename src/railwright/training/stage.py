"""One pipeline stage through a step: its passes, its data-parallel lane, and what happens after the last one.

Passes are placed once per shape and reused; only those beside data-parallel communication are placed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from railwright.training.buckets import Bucket, gate_of, gather_tasks, reduce_tasks
from railwright.training.communication import Prices
from railwright.training.constants import constant
from railwright.training.lanes import Begun, Pass, Span, Task, drain, run
from railwright.training.schedule import Unit
from railwright.training.work import Chunk, Work


class PassBook:
    """Tasks and undisturbed passes of every shape of chunk, made once."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.slowdown = constant("compute_slowdown_in_overlap")
        self._tasks: dict[tuple[Chunk, str], list[Task]] = {}
        self._passes: dict[tuple[Chunk, str], Pass] = {}

    def tasks(self, chunk: Chunk, kind: str) -> list[Task]:
        """Tasks of a forward ('F') or backward ('B') pass."""
        key = (chunk, kind)
        if key not in self._tasks:
            self._tasks[key] = self.work.forward(chunk) if kind == "F" else self.work.backward(chunk)
        return self._tasks[key]

    def passed(self, chunk: Chunk, kind: str) -> Pass:
        """The pass with no data-parallel communication beside it."""
        key = (chunk, kind)
        if key not in self._passes:
            self._passes[key] = run(self.tasks(chunk, kind), self.slowdown)
        return self._passes[key]


@dataclass(frozen=True)
class DataParallel:
    """How gradients and parameters of this job are exchanged.

    overlapped  buckets run beside compute: gradients in the last backward passes, parameters in the
                first forward passes of the next step
    zero        1: reduce-scatter and all-gather (distributed optimizer), 0: all-reduce
    """

    overlapped: bool
    zero: int
    dtype: str


class Stage:
    """State of one stage while its passes are placed in time order."""

    def __init__(
        self,
        chunks: Sequence[Chunk],
        buckets: Sequence[tuple[Bucket, ...]],
        book: PassBook,
        prices: Prices,
        data: DataParallel,
        microbatches: int,
    ) -> None:
        self.chunks, self.buckets = tuple(chunks), tuple(buckets)
        self.book, self.prices, self.data = book, prices, data
        self.last = microbatches - 1
        self.passes: list[tuple[float, Unit, Pass]] = []
        self.dp_spans: list[Span] = []
        self._gathers = [t for held in self.buckets for t in gather_tasks(held, prices)] if data.zero else []
        self._pending: tuple[Begun, ...] = ()
        self._now = 0.0
        self._needed: list[dict[int, int]] = []
        offset = 0
        for held in self.buckets:
            self._needed.append(gate_of(held, offset))
            offset += len(held)
        if data.overlapped:
            self._pending = tuple(Begun.new(task, i) for i, task in enumerate(self._gathers))

    def run(self, unit: Unit, start: float) -> float:
        """Place one pass at `start`; returns its duration [s]."""
        placed = self._place(unit, start)
        self.passes.append((start, unit, placed))
        return placed.duration

    def after_passes(self, finish: float) -> float:
        """Place what reductions are left after the last pass; returns when all gradients are there [s]."""
        if self.data.overlapped:
            self._let_run(inf)
            return max([finish] + [span.end for span in self.dp_spans])
        tasks = [
            t
            for held in reversed(self.buckets)
            for t in reduce_tasks(held, self.prices, self.data.dtype, self.data.zero)
        ]
        return self.exchange(tasks, finish)

    def gather(self, start: float) -> float:
        """Gather parameters after the optimizer where that is not overlapped; returns the end [s]."""
        return start if self.data.overlapped else self.exchange(self._gathers, start)

    def exchange(self, tasks: Sequence[Task], start: float) -> float:
        """Run dp tasks one after the other with nothing beside them; returns the end [s]."""
        for task in tasks:
            self.dp_spans.append(Span(task, start, start + task.duration))
            start += task.duration
        return start

    def _place(self, unit: Unit, start: float) -> Pass:
        chunk = self.chunks[unit.chunk]
        tasks = self.book.tasks(chunk, unit.kind)
        self._let_run(start)
        reduces: list[Task] = []
        if self.data.overlapped and unit.kind == "B" and unit.microbatch == self.last:
            reduces = reduce_tasks(
                self.buckets[unit.chunk], self.prices, self.data.dtype, self.data.zero, tasks
            )
        if not reduces and not self._pending:
            placed = self.book.passed(chunk, unit.kind)
        else:
            placed = run(self._beside(unit, [*tasks, *reduces]), self.book.slowdown, self._pending)
            self._keep(placed.spans, start)
            self._pending = tuple(
                replace(one, start=None if one.start is None else one.start - placed.duration)
                for one in placed.left
            )
        self._now = start + placed.duration
        return placed

    def _beside(self, unit: Unit, tasks: Sequence[Task]) -> list[Task]:
        """A pass's tasks behind the dp work still pending; a forward layer waits for its parameters."""
        shift = len(self._pending)
        place = {one.tag: i for i, one in enumerate(self._pending) if one.tag >= 0}
        needed = self._needed[unit.chunk] if unit.kind == "F" else {}
        found = [one.task for one in self._pending]
        for task in tasks:
            after = tuple(d + shift for d in task.after)
            bucket = needed.get(task.layer, -1)
            if bucket in place and task.lane == "compute":
                after = (*after, place[bucket])
            found.append(replace(task, after=after))
        return found

    def _let_run(self, until: float) -> None:
        """Run pending dp work alone up to an instant."""
        if self._pending and until > self._now:
            spans, self._pending = drain(self._pending, until - self._now)
            self._keep(spans, self._now)
        self._now = max(self._now, until)

    def _keep(self, spans: Sequence[Span], start: float) -> None:
        self.dp_spans += [
            Span(span.task, start + span.start, start + span.end) for span in spans if span.task.lane == "dp"
        ]
