"""The tasks of a recommendation model's step: lookups, exchanges of embeddings, MLPs, updates, on lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from railwright.collectives.machine import Machine
from railwright.collectives.prediction import Op
from railwright.compute import kernel_time
from railwright.model.operators.kernels import ELEMENT, Block
from railwright.model.recommendation.dlrm import Part, Recommender
from railwright.model.recommendation.operators import (
    INDEX_BYTES,
    ROW_STATE_BYTES,
    STATE_BYTES,
    dense_blocks,
    layout_blocks,
    lookup_operator,
    update_operators,
)
from railwright.model.shape.architecture import Operator
from railwright.spec.recommendation import RecommendationJob
from railwright.traffic.demand import Communicator
from railwright.training.lanes.contention import on_links
from railwright.training.lanes.result import UsedCollective
from railwright.training.lanes.tasks import Task
from railwright.training.lanes.timeline import Lane
from railwright.training.layers.communication import Predict
from railwright.training.layers.costs import KernelTime
from railwright.training.recommendation.sharding import GRADIENT_BYTES, TABLE_BYTES, Sharding

DENSE_GRADIENT_BYTES = 4.0
DENSE_UPDATE_BYTES = DENSE_GRADIENT_BYTES + 2.0 * (4.0 + 4.0)
"""HBM bytes of an Adagrad update per dense parameter: gradient, weight and accumulator read, the last two
written, fp32."""


@dataclass
class Step:
    """The tasks of one step, and the collectives behind them."""

    job: RecommendationJob
    model: Recommender
    machine: Machine
    tables: Sharding
    gpus: int
    per_server: int
    predict: Predict
    kernel: KernelTime | None
    used: list[UsedCollective] = field(default_factory=list)
    made: list[Task] = field(default_factory=list)
    chained: int = -1

    def tasks(self) -> list[Task]:
        """In the order of each lane; without overlap each also waits for the one before it."""
        job, held = self.job, self.tables.busiest
        number = TABLE_BYTES[job.table_dtype]
        samples = job.global_batch // self.gpus
        blocks = dense_blocks(self.model, samples, job.dtype)
        laid = layout_blocks(self.model, samples, self.tables.arriving, self.tables.placed)
        meeting = [*laid, *blocks["interaction"]]
        indices = () if job.overlap else (self._indices(),)
        looked = self._compute("lookup", "lookup", [lookup_operator(held, number)], indices)
        arrived = self._exchange_forward(looked)
        if job.overlap:
            self._indices()
        bottom = self._compute("bottom MLP", "mlp", _forward(blocks["bottom"]), ())
        met = self._compute("interaction", "interaction", _forward(meeting), (arrived, bottom))
        top = self._compute("top MLP", "mlp", _forward(blocks["top"]), (met,))
        top = self._compute("top MLP backward", "mlp", _backward(blocks["top"]), (top,))
        waits = [self._reduce("top", top)]
        met = self._compute("interaction backward", "interaction", _backward(meeting), (top,))
        waits.append(self._reduce("interaction", met))
        returned = self._exchange_backward(met)
        bottom = self._compute("bottom MLP backward", "mlp", _backward(blocks["bottom"]), (met,))
        waits.append(self._reduce("bottom", bottom))
        update = list(update_operators(held, number, job.optimizer))
        self._compute("update tables", "optimizer", update, (returned,))
        moved = DENSE_UPDATE_BYTES * self.model.dense_parameters() + self._copies_update(number)
        adagrad = Operator("adagrad", "memory", 0.0, moved, "fp32", phase="optimizer")
        self._compute("update MLPs", "optimizer", [adagrad], tuple(w for w in waits if w >= 0))
        return self.made

    def _copies_update(self, number: float) -> float:
        """HBM bytes of updating the tables that every GPU holds: every row, in the tables' own type and
        optimizer, from a gradient like the MLPs'.

        number  bytes of one number in a table
        """
        optimizer = self.job.optimizer
        state = STATE_BYTES[optimizer] + ROW_STATE_BYTES[optimizer] / self.model.width
        return self.tables.replicated * (DENSE_GRADIENT_BYTES + 2.0 * (number + state))

    def _exchange_forward(self, after: int) -> int:
        """Sums to the samples they belong to: added up inside a domain, then sent to every other."""
        job, within = self.job, self.tables.domain_gpus
        size = job.global_batch * self.tables.sent * ELEMENT
        if within > 1:
            after = self._communicate("embeddings, sum", "reduce_scatter", size, self._domains(), (after,))
        if within < self.gpus:
            name = "embeddings, all-to-all"
            after = self._communicate(name, "all_to_all", size / within, self._across(), (after,))
        return after

    def _exchange_backward(self, after: int) -> int:
        """Gradients of the sums, the way they came."""
        job, within = self.job, self.tables.domain_gpus
        size = job.global_batch * self.tables.sent * ELEMENT
        if within < self.gpus:
            name = "gradients, all-to-all"
            after = self._communicate(name, "all_to_all", size / within, self._across(), (after,))
        if within > 1:
            after = self._communicate("gradients, copy", "all_gather", size, self._domains(), (after,))
        return after

    def _indices(self) -> int:
        """Every GPU's samples name rows that others hold; each piece by columns gets a copy.

        A GPU sends an equal part of all, and the one that looks up most gets its own: the longer of the two.
        """
        most = max(self.tables.indices / self.gpus, self.tables.received)
        each = most * INDEX_BYTES * self.job.global_batch
        return self._communicate("indices, all-to-all", "all_to_all", each, self._world(), ())

    def _reduce(self, part: Part, after: int) -> int:
        """Gradients of one part of the MLPs; those of replicated tables go with the interaction's."""
        numbers = self.model.dense_parameters(part)
        if part == "interaction":
            numbers += int(self.tables.replicated)
        size = numbers * GRADIENT_BYTES[self.job.dtype]
        return self._communicate(f"gradients of {part}", "all_reduce", size, self._world(), (after,), "dp")

    def _communicate(
        self,
        name: str,
        op: Op,
        size: float,
        groups: Sequence[Communicator],
        after: tuple[int, ...],
        lane: Lane = "emb",
    ) -> int:
        """A collective that all groups run at once; its task, or what it follows where groups are one GPU."""
        if size <= 0 or len(groups[0]) == 1:
            return after[-1] if after else -1
        found = self.predict(self.machine, op, size, groups)
        crosses = len(set((groups[0].gpus // self.per_server).tolist())) > 1
        self.used.append(UsedCollective(name, lane, 1.0, found, lane, crosses))
        wire, uses = on_links(found, crosses)
        return self._put(Task(lane, name, op, found.time, after, size=size, wire=wire, uses=uses))

    def _compute(self, name: str, kind: str, operators: Sequence[Operator], after: tuple[int, ...]) -> int:
        timed = self.kernel or (lambda op: kernel_time(op, self.machine.gpu))
        return self._put(Task("compute", name, kind, sum(timed(op) for op in operators), after))

    def _put(self, task: Task) -> int:
        after = tuple(sorted({a for a in task.after if a >= 0}))
        if not self.job.overlap and self.chained >= 0:
            after = tuple(sorted({*after, self.chained}))
        self.made.append(task.behind(after))
        self.chained = len(self.made) - 1
        return self.chained

    def _world(self) -> tuple[Communicator, ...]:
        return (Communicator(np.arange(self.gpus, dtype=np.int32), "world"),)

    def _domains(self) -> tuple[Communicator, ...]:
        within = self.tables.domain_gpus
        return tuple(
            Communicator(np.arange(first, first + within, dtype=np.int32), "table")
            for first in range(0, self.gpus, within)
        )

    def _across(self) -> tuple[Communicator, ...]:
        """GPUs at the same place of every domain: on a rail-optimised fabric, one rail each."""
        within = self.tables.domain_gpus
        return tuple(
            Communicator(np.arange(place, self.gpus, within, dtype=np.int32), "samples")
            for place in range(within)
        )


def _forward(blocks: Sequence[Block]) -> list[Operator]:
    return [b.forward for b in blocks]


def _backward(blocks: Sequence[Block]) -> list[Operator]:
    return [op for b in reversed(blocks) for op in (*b.backward_input, *b.backward_weight)]
