"""One pipeline stage through a step: its passes, its data-parallel lane, and what happens after the last one.

Passes are placed once per shape and reused; only those beside data-parallel communication are placed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from types import MappingProxyType
from typing import Literal

from railwright.model.shape.pattern import Layer, is_routed
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Begun, Pass, Span, Task, drain, is_ahead, run
from railwright.training.layers.communication import WEIGHT_BYTES, Prices, gradient_bytes, weight_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.layers.unhidden import gathers_late, hides_parameters
from railwright.training.layers.weight_casts import making
from railwright.training.layout.route import Chunk, Unit
from railwright.training.layout.schedule import SPLIT, schedule_name
from railwright.training.optimizer.buckets import Bucket, arriving, gate_of, gather_tasks, reduce_tasks
from railwright.training.passes.lockstep import MAXIMA, WAIT
from railwright.training.passes.weights import AGAIN, LAST_WEIGHTS
from railwright.training.passes.work import Gradients, Work
from railwright.training.software.constants import constant
from railwright.training.software.eras import era_of
from railwright.training.software.host import launched_ahead, relieved
from railwright.training.software.hosted import weights_on_host
from railwright.training.step.shards import (
    Units,
    all_gathers,
    backward_with,
    behind,
    forward_with,
    last_gathers,
)

Passed = tuple[Chunk, ...]
"""The chunks of one pass: one, or forward and backward of a pass of two directions."""

Begins = Literal["gathers", "shards", "shards added", "shards kept", "buckets", "parameters", "weights"]
"""Data-parallel tasks that a pass begins, or what else it does that others of its kind do not.

gathers       parameters of its units (zero 3)
shards        the same again where they were dropped, and the reductions of their gradients
shards added  likewise, and the host adds them to those of earlier microbatches
shards kept   parameters alone: gradients stay where they are until the step's last pass
buckets       reductions of a chunk's gradients
parameters    gathers of a chunk's parameters (zero 1 and 2), and what `weights` does
weights       of the chunk's layers, made narrow for the whole step
"""

NOTHING_NARROW: Mapping[Layer, float] = MappingProxyType({})

_GRADIENTS: dict[str, Gradients] = {"B": "both", "I": "input", "W": "weight"}
_MOST_KEPT = 4_096


class PassBook:
    """Tasks and passes of every shape of chunk, made once."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.slowdown = constant("compute_slowdown_in_overlap")
        self._tasks: dict[tuple[Passed, str], list[Task]] = {}
        self._passes: dict[object, Pass] = {}
        self._early: dict[Passed, tuple[float, float]] = {}
        self._launched: dict[tuple[Passed, str], float] = {}

    def tasks(self, chunks: Passed, kind: str) -> list[Task]:
        """Tasks of a pass, by the kind of its unit."""
        key = (chunks, kind)
        if key not in self._tasks:
            if kind == "F":
                self._tasks[key] = self.work.forward(chunks[0])
            elif kind == "FB":
                self._tasks[key] = self.work.both(*chunks)
            else:
                self._tasks[key] = self.work.backward(chunks[0], _GRADIENTS[kind])
        return self._tasks[key]

    def launched(self, chunks: Passed, kind: str) -> float:
        """What of a pass waits for a host that could have been ahead. [s]"""
        key = (chunks, kind)
        if key not in self._launched:
            self._launched[key] = launched_ahead(self.tasks(chunks, kind))
        return self._launched[key]

    def passed(self, chunks: Passed, kind: str) -> Pass:
        """The pass with no data-parallel communication beside it."""
        return self.run((chunks, kind), (), {}, lambda: self.tasks(chunks, kind))

    def early(self, chunks: Passed) -> tuple[float, float]:
        """How long before the end of two passes at once the results of forward and backward are there. [s]

        Under `paired` the forward pass has its result when its last all-to-all ends, which brings it together
        on a stream of its own while the backward pass computes its last attention; and that pass computes
        the weight gradients of that attention behind its result.  DualPipe's results leave at the end.
        Source: Megatron-LM, model_chunk_schedule_plan.py, TransformerModelChunkSchedulePlan
        .run (post_forward, post_backward, backward_dw).
        """
        if not self.work.paired:
            return 0.0, 0.0
        if chunks not in self._early:
            self._early[chunks] = self._results(*chunks)
        return self._early[chunks]

    def _results(self, ahead: Chunk, back: Chunk) -> tuple[float, float]:
        placed = self.passed((ahead, back), "FB")
        behind = (AGAIN, LAST_WEIGHTS, WAIT, MAXIMA)
        spans = [span for span in placed.spans if span.task.name not in behind]
        forward = [span for span in spans if is_ahead(span.task.layer)]
        if ahead.layers and is_routed(ahead.layers[-1]):
            forward = [span for span in forward if span.task.lane == "ep"] or forward
        backward = [span for span in spans if not is_ahead(span.task.layer) and span.task.lane != "host"]
        ends = [max((span.end for span in half), default=placed.duration) for half in (forward, backward)]
        return placed.duration - ends[0], placed.duration - ends[1]

    def run(
        self,
        key: object,
        begun: tuple[Begun, ...],
        gates: Mapping[int, int],
        tasks: Callable[[], list[Task]],
    ) -> Pass:
        """A pass beside dp work that has begun; `key` names its tasks and gates, which are made once."""
        known = (key, begun)
        if known not in self._passes:
            if len(self._passes) >= _MOST_KEPT:
                self._passes.clear()
            self._passes[known] = run(tasks(), self.slowdown, begun, gates)
        return self._passes[known]


@dataclass(frozen=True)
class DataParallel:
    """How gradients and parameters of this job are exchanged.

    overlapped  buckets run beside compute: gradients in backward passes, parameters in the first forward
                passes of the next step
    zero        0: all-reduce; 1: reduce-scatter and all-gather (distributed optimizer); 2: reduce-scatter in
                every microbatch; 3: parameters gathered in every pass too
    each        bytes of one gradient on the wire
    weight      zero 1 and 2: bytes of one weight of a layer on the wire
    reduce_each zero 2 and 3: after every microbatch, else after the last
    reshard     zero 3: parameters are dropped after the forward pass
    once        zero 3: parameters are gathered once, from the start of the step on
    prefetch    zero 3: units gathered ahead
    adds        zero 3: gradients are summed up on the host, microbatch by microbatch
    scatters    zero 1 and 2: ranks get their part of the gradients, not all of them
    hides_gathers, late  zero 1 and 2: parameters may arrive beside the next step's passes, and those of a
                chunk are then gathered only as its first forward pass gets to them
    """

    overlapped: bool
    zero: int
    each: float
    weight: float = WEIGHT_BYTES
    reduce_each: bool = True
    reshard: bool = True
    once: bool = False
    prefetch: int = 1
    adds: bool = False
    scatters: bool = True
    hides_gathers: bool = True
    late: bool = False

    @classmethod
    def of(cls, job: TrainingJob) -> DataParallel:
        """What a job asks for."""
        layout, overlap = job.layout, job.overlap
        return cls(
            overlapped=overlap.dp,
            zero=layout.zero,
            each=gradient_bytes(job),
            weight=weight_bytes(job),
            reduce_each=layout.reduce_each,
            reshard=layout.reshard,
            once=layout.gathers_once,
            prefetch=overlap.prefetch if overlap.dp else 0,
            adds=weights_on_host(job) and layout.reduce_each,
            scatters=not era_of(job).zero_engine,
            hides_gathers=hides_parameters(job),
            late=gathers_late(job),
        )


class Stage:
    """State of one stage while its passes are placed in time order.

    shape      what it holds
    order      its passes; finishing  units after which a chunk's gradients are complete
    units      per chunk, its parts whose parameters are sharded (zero 3)
    narrow     how long one layer of a kind takes to make its weights narrow, once a step (`weight_casts`) [s]
    """

    def __init__(
        self,
        shape: StageShape,
        buckets: Sequence[tuple[Bucket, ...]],
        book: PassBook,
        prices: Prices,
        data: DataParallel,
        order: tuple[Unit, ...],
        finishing: frozenset[Unit],
        units: Mapping[int, Units] | None = None,
        narrow: Mapping[Layer, float] = NOTHING_NARROW,
    ) -> None:
        self.shape, self.chunks, self.buckets = shape, shape.chunks, tuple(buckets)
        self.book, self.prices, self.data = book, prices, data
        self.order, self.finishing, self.units = order, finishing, units or {}
        self.narrow = narrow
        first = _first_passes(order, len(self.chunks)) if narrow or data.late else frozenset()
        self.making, self.fetching = (first if once else frozenset() for once in (narrow, data.late))
        self.passes: list[tuple[float, Unit, Pass]] = []
        self.dp_spans: list[Span] = []
        self.gathers: list[Task] = []
        self.needed: list[dict[int, int]] = []
        for c, held in enumerate(self.buckets):
            gates = gate_of(held, len(self.gathers))
            if data.zero in (1, 2):
                self.gathers += gather_tasks(held, prices, data.weight)
            elif data.once:
                gates = {unit: len(self.gathers) + i for unit, i in last_gathers(self.units[c]).items()}
                self.gathers += all_gathers(self.units[c])
            self.needed.append(gates)
        self._pending: tuple[Begun, ...] = ()
        self._quiet: dict[tuple[int, int, str], Pass] = {}
        self._now = self._ahead = 0.0
        if data.hides_gathers and not data.late:
            self._pending = tuple(Begun.new(task, i) for i, task in enumerate(self.gathers))

    def run(self, unit: Unit, start: float) -> float:
        """Place one pass at `start`; returns its duration [s]."""
        placed = self._place(unit, start)
        self.passes.append((start, unit, placed))
        return placed.duration

    def resume(self, now: float, left: float) -> None:
        """As after passes of which the last ended at `now`, with `left` seconds of dp work to do then."""
        self._now = now
        self._pending = (Begun(Task("dp", "left", "left", left), None, left, 0.0),) if left else ()

    def after_passes(self, finish: float) -> float:
        """Place what reductions are left after the last pass; returns when all gradients are there [s]."""
        if self.data.overlapped or self.data.zero >= 2:
            self._let_run(inf)
            return max([finish] + [span.end for span in self.dp_spans])
        tasks = [
            t
            for held in reversed(self.buckets)
            for t in reduce_tasks(
                held, self.prices, self.data.each, self.data.zero, scatters=self.data.scatters
            )
        ]
        return self.exchange(tasks, finish)

    def gather(self, start: float) -> float:
        """Gather parameters after the optimizer where that is not overlapped; returns the end [s]."""
        return start if self.data.hides_gathers else self.exchange(self.gathers, start)

    def exchange(self, tasks: Sequence[Task], start: float) -> float:
        """Run dp tasks one after the other with nothing beside them; returns the end [s]."""
        for task in tasks:
            self.dp_spans.append(Span(task, start, start + task.duration))
            start += task.duration
        return start

    def _place(self, unit: Unit, start: float) -> Pass:
        chunks = self.chunks_of(unit)
        self._let_run(start)
        begins = self.begins(unit)
        ahead = min(self._ahead, self.book.launched(chunks, unit.kind)) if self._ahead else 0.0
        if not self._pending and begins is None and not ahead:
            key = unit.chunk, unit.back, unit.kind
            known = self._quiet.get(key)
            if known is None:
                known = self._quiet[key] = self.book.passed(chunks, unit.kind)
            placed = known
        else:
            needed = self.needed[unit.chunk] if unit.kind == "F" and self._pending else {}
            place = {one.tag: i for i, one in enumerate(self._pending)} if needed else {}
            # Stages, or jobs, with the same chunk may pack its gradients, and make its weights, otherwise.
            held: tuple[object, ...] = self.sent(unit, begins) if begins in ("buckets", "parameters") else ()
            if unit in self.making and begins in ("parameters", "weights"):
                held = (*held, *self._made(chunks[0]))
            placed = self.book.run(
                (chunks, unit.kind, begins, held, tuple(needed.items()), ahead),
                self._pending,
                {layer: place[bucket] for layer, bucket in needed.items() if bucket in place},
                lambda: relieved(self.with_dp(unit, chunks, begins), ahead),
            )
            if self.waits_for_launches:
                beyond = placed.duration - self.book.passed(chunks, unit.kind).duration
                self._ahead = max(0.0, self._ahead + beyond)
            self._keep(placed.spans, start)
            self._pending = tuple(
                one._replace(start=None if one.start is None else one.start - placed.duration)
                for one in placed.left
            )
        self._now = start + placed.duration
        return placed

    @cached_property
    def waits_for_launches(self) -> bool:
        """Whether any pass waits for a host that runs ahead: further where passes take longer than alone, as
        they do while parameters or gradients are exchanged, than in the passes as the book has them."""
        kinds = ("F", "I", "W") if schedule_name(self.book.work.job.layout) in SPLIT else ("F", "B")
        return any(self.book.launched((chunk,), kind) for chunk in self.chunks for kind in kinds)

    def chunks_of(self, unit: Unit) -> Passed:
        """The chunks of one pass."""
        if unit.kind == "FB":
            return self.chunks[unit.chunk], self.chunks[unit.back]
        return (self.chunks[unit.chunk],)

    def early(self, unit: Unit) -> tuple[float, float]:
        """How long before its end the results of a pass are there. [s]"""
        return self.book.early(self.chunks_of(unit)) if unit.kind == "FB" else (0.0, 0.0)

    def begins(self, unit: Unit) -> Begins | None:
        """What dp tasks a pass begins, or what it does beside, if any."""
        once: Begins | None = "weights" if unit in self.making else None
        return self._exchanged(unit) or ("parameters" if unit in self.fetching else once)

    def _exchanged(self, unit: Unit) -> Begins | None:
        """What dp tasks a pass begins, if any."""
        data = self.data
        if data.zero == 3:
            if unit.kind == "F":
                return None if data.once else "gathers"
            if data.adds and unit.microbatch > 0:
                return "shards added"
            return "shards" if data.reduce_each or unit in self.finishing else "shards kept"
        each = data.zero == 2 and data.reduce_each and unit.kind in ("B", "W", "FB")
        if (each or unit in self.finishing) and (data.overlapped or data.zero == 2):
            return "buckets"
        return None

    def sent(self, unit: Unit, begins: Begins | None) -> tuple[Bucket, ...]:
        """Buckets whose parameters, or gradients, a pass exchanges."""
        return self.buckets[unit.chunk if begins == "parameters" else unit.backward_chunk]

    def with_dp(self, unit: Unit, chunks: Passed, begins: Begins | None) -> list[Task]:
        """A pass's tasks with the dp tasks it begins."""
        tasks, data = self.book.tasks(chunks, unit.kind), self.data
        if begins is None:
            return tasks
        held = self.sent(unit, begins) if data.zero < 3 else ()
        if begins in ("parameters", "weights"):
            if unit in self.making:
                tasks = making(tasks, self._made(chunks[0]), beside=unit.kind == "FB")
            gathers = gather_tasks(held, self.prices, data.weight) if begins == "parameters" else []
            return arriving(tasks, gathers, gate_of(held, 0), unit.kind) if gathers else tasks
        if begins == "buckets":
            sent = reduce_tasks(held, self.prices, data.each, data.zero, tasks, data.scatters)
            return [*tasks, *sent] if data.overlapped else behind(tasks, sent)
        units = self.units[unit.chunk]
        if begins == "gathers":
            return forward_with(tasks, units, data.prefetch)
        return backward_with(
            tasks,
            units,
            data.prefetch,
            gather=data.reshard,
            reduce=begins != "shards kept",
            blocking=not data.overlapped,
            adding=begins == "shards added",
        )

    def _made(self, chunk: Chunk) -> tuple[float, ...]:
        """How long each layer of a chunk makes its weights narrow. [s]"""
        return tuple([self.narrow[kind] for kind in chunk.layers])

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


def _first_passes(order: Sequence[Unit], chunks: int) -> frozenset[Unit]:
    """The first forward pass of each chunk, also beside a backward pass of another microbatch."""
    first: dict[int, Unit] = {}
    for unit in order:
        if unit.kind in ("F", "FB"):
            first.setdefault(unit.chunk, unit)
        if len(first) == chunks:
            break
    return frozenset(first.values())
