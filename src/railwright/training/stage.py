"""One pipeline stage through a step: its passes, its data-parallel lane, and what happens after the last one.

Passes are placed once per shape and reused; only those beside data-parallel communication are placed anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from railwright.training.buckets import Bucket, gate_of, gather_tasks, reduce_tasks
from railwright.training.communication import Prices
from railwright.training.constants import constant
from railwright.training.lanes import Pass, Span, Task, run
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
        self._gates: list[float] = []
        self._gated: list[dict[int, int]] = []
        self.dp_free = 0.0
        if data.overlapped:
            self._start_gathers()

    def run(self, unit: Unit, start: float) -> float:
        """Place one pass at `start`; returns its duration [s]."""
        placed = self._place(unit, start)
        self.passes.append((start, unit, placed))
        return placed.duration

    def after_passes(self, finish: float) -> float:
        """Place what reductions are left after the last pass; returns when all gradients are there [s]."""
        if self.data.overlapped:
            return max(finish, self.dp_free)
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

    def _start_gathers(self) -> None:
        now = self.exchange(self._gathers, 0.0)
        self.dp_free = now
        self._gates = [span.end for span in self.dp_spans]
        offset = 0
        for held in self.buckets:
            self._gated.append(gate_of(held, offset) if self._gates else {})
            offset += len(held)

    def _place(self, unit: Unit, start: float) -> Pass:
        chunk = self.chunks[unit.chunk]
        tasks = self.book.tasks(chunk, unit.kind)
        reduces: list[Task] = []
        if self.data.overlapped and unit.kind == "B" and unit.microbatch == self.last:
            reduces = reduce_tasks(
                self.buckets[unit.chunk], self.prices, self.data.dtype, self.data.zero, tasks
            )
        if not reduces and self.dp_free <= start:
            return self.book.passed(chunk, unit.kind)
        gates: list[float] = []
        if unit.kind == "F" and self._gates and self._gates[-1] > start:
            gates = [gate - start for gate in self._gates]
            needed = self._gated[unit.chunk]
            tasks = [replace(t, gate=needed.get(t.layer, -1)) for t in tasks]
        placed = run([*tasks, *reduces], self.book.slowdown, gates, self.dp_free - start)
        for span in placed.spans:
            if span.task.lane == "dp":
                self.dp_spans.append(Span(span.task, start + span.start, start + span.end))
        self.dp_free = max(self.dp_free, start + placed.dp_end)
        return placed
