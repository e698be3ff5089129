"""The passes of one chunk as tasks: operators become compute, the layout's collectives sit between them.

Legend: a chunk is some layers of one pipeline stage, with the embedding before the first layer of the model
and the head after the last.  tp, sp: tensor and sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from railwright.collectives.prediction import Op
from railwright.model import embedding_operators, head_operators, layer_operators
from railwright.model.architecture import Operator, Transformer
from railwright.model.operators import Layer, LayerOperators
from railwright.spec.study import TrainingJob
from railwright.training.chain import Chain, take_turns
from railwright.training.communication import Prices, activation_size, routed_size
from railwright.training.eras import Pace, era_of
from railwright.training.host import LaunchTimes, launch_times, launching
from railwright.training.lanes import Task, run

KernelTime = Callable[[Operator], float]

_ROUTER_START, _EXPERTS_START, _EXPERTS_END = "mlp norm", ("sort by expert", "experts up"), "unpermute"
_SHARED = "shared expert"


@dataclass(frozen=True)
class Chunk:
    """What one chunk of a stage holds: its layers in order, and the ends of the model."""

    layers: tuple[Layer, ...]
    embedding: bool
    head: bool


@dataclass(frozen=True)
class _Cost:
    """One operator's times: forward, input gradient, weight gradient [s]."""

    name: str
    product: bool
    forward: float
    input: float
    weight: float

    @property
    def backward(self) -> float:
        return self.input + self.weight


class Work:
    """Builds the tasks of a job's passes; every operator and every collective is priced once."""

    def __init__(
        self, job: TrainingJob, arch: Transformer, prices: Prices, kernel_time: KernelTime, pace: Pace
    ) -> None:
        self.job, self.arch, self.prices = job, arch, prices
        self.tp = job.layout.tensor
        self.sp = job.layout.sequence_parallel and self.tp > 1
        self.halves = 2 if job.overlap.ep and arch.is_moe and job.layout.expert > 1 else 1
        self.part = 1.0 / self.halves
        rows = job.micro_batch * job.sequence
        attention = era_of(job).attention
        self._layers: dict[Layer, list[_Cost]] = {}
        self._again: dict[Layer, float] = {}
        self._launches: dict[Layer, LaunchTimes] = {}
        kinds: tuple[Layer, ...] = (
            ("dense", "moe")
            if arch.is_moe and arch.dense_layers
            else (("moe",) if arch.is_moe else ("dense",))
        )
        for kind in kinds:
            operators = layer_operators(
                arch,
                kind,
                rows,
                job.sequence,
                tp=self.tp,
                sequence_parallel=self.sp,
                ep=job.layout.expert if kind == "moe" else 1,
                imbalance=job.expert_imbalance if kind == "moe" else 1.0,
                dtype=job.dtype,
                attention=attention,
            )
            self._layers[kind] = _costs(operators, kernel_time)
            self._launches[kind] = launch_times(operators, prices.machine.gpu, pace.host)
            self._again[kind] = sum(kernel_time(op) for op in operators.recomputed)
        self._embedding = _costs(
            embedding_operators(arch, rows, tp=self.tp, sequence_parallel=self.sp), kernel_time
        )
        self._head = _costs(head_operators(arch, rows, tp=self.tp, sequence_parallel=self.sp), kernel_time)

    def forward(self, chunk: Chunk) -> list[Task]:
        """Tasks of a forward pass through a chunk."""
        return take_turns([self._forward(chunk) for _ in range(self.halves)])

    def backward(self, chunk: Chunk) -> list[Task]:
        """Tasks of a backward pass through a chunk, recomputation first where the job asks for it."""
        return take_turns([self._backward(chunk) for _ in range(self.halves)])

    def _forward(self, chunk: Chunk) -> Chain:
        chain = Chain()
        if chunk.embedding:
            self._compute(chain, "embedding", "embedding", sum(c.forward for c in self._embedding))
            self._reduce(chain)
        for i, kind in enumerate(chunk.layers):
            chain.at_layer(i)
            begin, before = len(chain.tasks), chain.tail
            self._layer_forward(chain, kind, "")
            self._drained(chain, kind, begin, before, self._launches[kind].forward)
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            pre, first, rest = _head_split(self._head)
            self._compute(chain, "head", "head", sum(c.forward for c in pre))
            self._gather(chain, "head", "head", first.forward)
            self._compute(chain, "head", "head", sum(c.forward for c in rest))
        chain.flush()
        return chain

    def _backward(self, chunk: Chunk) -> Chain:
        chain = Chain()
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            pre, first, rest = _head_split(self._head)
            self._compute(chain, "head backward", "head", sum(c.backward for c in rest))
            self._column_backward(chain, "head backward", "head", first)
            self._compute(chain, "head backward", "head", sum(c.backward for c in pre))
        for i in reversed(range(len(chunk.layers))):
            chain.at_layer(i)
            kind = chunk.layers[i]
            begin, before = len(chain.tasks), chain.tail
            if self.job.layout.recompute == "full":
                self._layer_forward(chain, kind, "recomputed ")
            elif self.job.layout.recompute == "selective":
                self._compute(chain, "recomputed attention", "recompute", self._again[kind])
            self._layer_backward(chain, kind)
            if self.job.layout.recompute == "full":
                known = self._launches[kind]
                self._drained(chain, kind, begin, before, known.forward + known.backward)
        chain.at_layer(-1)
        if chunk.embedding:
            if self.sp:
                chain.communicate("tp", *self._gathering("tp all-gather"))
            self._compute(chain, "embedding backward", "embedding", sum(c.backward for c in self._embedding))
        chain.flush()
        self._caught_up(chain, chunk)
        return chain

    def _drained(
        self, chain: Chain, kind: Layer, begin: int, before: tuple[int, ...], seconds: float
    ) -> None:
        """The tasks from `begin` on take what their kernels or what their launches take, with experts.

        Dropless dispatch copies counts of tokens to the host, which waits for them: once per layer the queue
        of launches runs empty.  Source: Megatron-LM, moe/token_dispatcher.py, _maybe_dtoh_and_synchronize.
        """
        chain.flush()
        if kind == "moe":
            chain.launched(launching(self._launches[kind], seconds, chain.tasks[begin:]), before)

    def _caught_up(self, chain: Chain, chunk: Chunk) -> None:
        """A backward pass waits for the host only where launching all of it takes longer than running it.

        Nothing drains the queue there.  In a dense model nothing does forward either, so the host runs ahead
        over both.
        """
        again = self.job.layout.recompute == "full"
        known = [self._launches[kind] for kind in chunk.layers]
        if not known or (again and self.arch.is_moe):
            return
        seconds = sum(one.backward + again * one.forward for one in known)
        if self.arch.is_moe:
            chain.launched(launching(known[0], seconds, chain.tasks), ())
            return
        forward = self._forward(chunk).tasks
        total = launching(known[0], seconds + sum(one.forward for one in known), [*chain.tasks, *forward])
        if total:
            chain.launched(total - run(forward).duration, ())

    def _layer_forward(self, chain: Chain, kind: Layer, again: str) -> None:
        attention, rest = _sections(self._layers[kind])
        self._block_forward(chain, f"{again}attention", "recompute" if again else "attention", attention)
        if kind == "dense":
            self._block_forward(chain, f"{again}mlp", "recompute" if again else "mlp", rest)
            return
        route, experts, shared, after = _expert_sections(rest)
        label = "recompute" if again else "experts"
        self._compute(chain, f"{again}router", label, sum(c.forward for c in route))
        self._exchange(chain, "ep dispatch")
        self._expert_gather(chain)
        self._compute(chain, f"{again}experts", label, sum(c.forward for c in experts))
        self._expert_reduce(chain)
        self._exchange(chain, "ep combine")
        if shared:
            self._block_forward(chain, f"{again}shared expert", label, shared)
        self._compute(chain, f"{again}combine", label, sum(c.forward for c in after))
        self._whole_again(chain)

    def _layer_backward(self, chain: Chain, kind: Layer) -> None:
        attention, rest = _sections(self._layers[kind])
        if kind == "dense":
            self._block_backward(chain, "mlp backward", "mlp", rest)
        else:
            route, experts, shared, after = _expert_sections(rest)
            self._compute(chain, "combine backward", "experts", sum(c.backward for c in after))
            if shared:
                self._block_backward(chain, "shared expert backward", "experts", shared)
            self._exchange(chain, "ep combine backward")
            self._expert_gather(chain)
            self._compute(chain, "experts backward", "experts", sum(c.backward for c in experts))
            self._expert_reduce(chain)
            self._exchange(chain, "ep dispatch backward")
            self._compute(chain, "router backward", "experts", sum(c.backward for c in route))
            self._whole_again(chain)
        self._block_backward(chain, "attention backward", "attention", attention)

    def _block_forward(self, chain: Chain, name: str, kind: str, costs: list[_Cost]) -> None:
        """Norm, gather, column-parallel product, …, row-parallel product, reduce, residual."""
        pre, first, middle, last, post = _products(costs)
        self._compute(chain, name, kind, sum(c.forward for c in pre))
        if self.sp:
            self._gather(chain, name, kind, first.forward)
        else:
            self._compute(chain, name, kind, first.forward)
        self._compute(chain, name, kind, sum(c.forward for c in middle))
        comm = self._reduction()
        if self.job.overlap.tp:
            chain.reduce_out_of(comm, name, kind, last.forward * self.part, self.tp)
        else:
            self._compute(chain, name, kind, last.forward)
            chain.communicate("tp", *comm)
        self._compute(chain, name, kind, sum(c.forward for c in post))

    def _block_backward(self, chain: Chain, name: str, kind: str, costs: list[_Cost]) -> None:
        """Backwards through `_block_forward`; under sp the inputs are gathered again for the weights."""
        pre, first, middle, last, post = _products(costs)
        self._compute(chain, name, kind, sum(c.backward for c in post))
        if self.sp:
            self._gather(chain, name, kind, last.input)
            self._compute(chain, name, kind, last.weight)
        else:
            self._compute(chain, name, kind, last.backward)
        self._compute(chain, name, kind, sum(c.backward for c in middle))
        self._column_backward(chain, name, kind, first)
        self._compute(chain, name, kind, sum(c.backward for c in pre))

    def _column_backward(self, chain: Chain, name: str, kind: str, cost: _Cost) -> None:
        """Gradients of a column-parallel product: gather its input again, reduce its input gradient.

        Source: Megatron-LM, core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication.
        """
        again = self._gathering("tp all-gather again") if self.sp else ("", "", 0.0, 0.0)
        if self.job.overlap.tp:
            chain.beside(again, name, kind, cost.input * self.part)
            chain.beside(self._reduction(), name, kind, cost.weight * self.part)
            return
        chain.communicate("tp", *again)
        self._compute(chain, name, kind, cost.input)
        chain.communicate("tp", *self._reduction())
        self._compute(chain, name, kind, cost.weight)

    def _compute(self, chain: Chain, name: str, kind: str, seconds: float) -> None:
        chain.compute(name, kind, seconds * self.part)

    def _gather(self, chain: Chain, name: str, kind: str, seconds: float) -> None:
        """Under sp: an all-gather into the product that follows it."""
        comm = self._gathering("tp all-gather") if self.sp else ("", "", 0.0, 0.0)
        if self.job.overlap.tp and seconds:
            chain.gather_into(comm, name, kind, seconds * self.part, self.tp)
        else:
            chain.communicate("tp", *comm)
            self._compute(chain, name, kind, seconds)

    def _reduce(self, chain: Chain) -> None:
        chain.communicate("tp", *self._reduction())

    def _gathering(self, purpose: str) -> tuple[str, str, float, float]:
        size = activation_size(self.job, self.arch, self.part)
        return purpose, "all_gather", self.prices.time("tp", purpose, "all_gather", size, "tp"), size

    def _reduction(self) -> tuple[str, str, float, float]:
        """What ends a row-parallel product: an all-reduce, or a reduce-scatter under sp (half the volume)."""
        size = activation_size(self.job, self.arch, self.part)
        if self.sp:
            purpose = "tp reduce-scatter"
            return (
                purpose,
                "reduce_scatter",
                self.prices.time("tp", purpose, "reduce_scatter", size, "tp"),
                size,
            )
        purpose = "tp all-reduce"
        return purpose, "all_reduce", self.prices.time("tp", purpose, "all_reduce", size, "tp"), size

    def _exchange(self, chain: Chain, purpose: str) -> None:
        """One expert all-to-all; where half microbatches alternate, the other half runs meanwhile."""
        if self.job.layout.expert == 1:
            return
        size = routed_size(self.job, self.arch, self.part)
        seconds = self.prices.time("ep", purpose, "all_to_all", size, "ep")
        chain.communicate(
            "ep", purpose, "all_to_all", seconds, size, self.prices.wire("all_to_all", size, "ep")
        )
        if self.halves > 1:
            chain.cut()

    def _expert_gather(self, chain: Chain) -> None:
        """Tokens of all tensor ranks come together before a cut expert (expert tensor parallel = tp).

        With experts spread over ranks these are the routed copies, else the hidden states once.
        """
        if self.job.layout.expert > 1:
            self._expert_tp(chain, "expert tp all-gather", "all_gather")
        elif self.sp:
            chain.communicate("tp", *self._gathering("tp all-gather"))

    def _expert_reduce(self, chain: Chain) -> None:
        if self.job.layout.expert > 1:
            self._expert_tp(chain, "expert tp reduce-scatter", "reduce_scatter")
        else:
            self._reduce(chain)

    def _expert_tp(self, chain: Chain, purpose: str, op: Op) -> None:
        size = routed_size(self.job, self.arch, self.part) * self.tp
        seconds = self.prices.time("tp", purpose, op, size, "tp")
        chain.communicate("tp", purpose, op, seconds, size)

    def _whole_again(self, chain: Chain) -> None:
        """Without sp every tensor rank needs all tokens again after routing its share of them."""
        if self.tp > 1 and not self.sp and self.job.layout.expert > 1:
            chain.communicate("tp", *self._gathering("tp all-gather"))


def _costs(operators: LayerOperators, kernel_time: KernelTime) -> list[_Cost]:
    """Forward order; gradients are joined to their forward operator by name."""
    gradients: dict[str, float] = {}
    for op in operators.backward_input:
        name = op.name.rsplit(", ", 1)[0]
        gradients[name] = gradients.get(name, 0.0) + kernel_time(op)
    weights: dict[str, float] = {}
    for op in operators.backward_weight:
        name = op.name.rsplit(", ", 1)[0]
        weights[name] = weights.get(name, 0.0) + kernel_time(op)
    costs = [
        _Cost(
            op.name,
            op.kind in ("gemm", "grouped_gemm"),
            kernel_time(op),
            gradients.pop(op.name, 0.0),
            weights.pop(op.name, 0.0),
        )
        for op in operators.forward
    ]
    lost = [*gradients, *weights]
    assert not lost, f"gradients without a forward operator: {lost}"
    return costs


_NONE = _Cost("", False, 0.0, 0.0, 0.0)


def _products(costs: list[_Cost]) -> tuple[list[_Cost], _Cost, list[_Cost], _Cost, list[_Cost]]:
    """Before the first product, it, between, the last product, after it."""
    at = [i for i, c in enumerate(costs) if c.product]
    if len(at) < 2:
        return costs, _NONE, [], _NONE, []
    first, last = at[0], at[-1]
    return costs[:first], costs[first], costs[first + 1 : last], costs[last], costs[last + 1 :]


def _head_split(costs: list[_Cost]) -> tuple[list[_Cost], _Cost, list[_Cost]]:
    at = next(i for i, c in enumerate(costs) if c.product)
    return costs[:at], costs[at], costs[at + 1 :]


def _sections(costs: list[_Cost]) -> tuple[list[_Cost], list[_Cost]]:
    """Attention, and the MLP or experts."""
    at = next(i for i, c in enumerate(costs) if c.name == _ROUTER_START)
    return costs[:at], costs[at:]


def _expert_sections(costs: list[_Cost]) -> tuple[list[_Cost], list[_Cost], list[_Cost], list[_Cost]]:
    """Router, this GPU's experts, shared experts, the rest."""
    start = next(i for i, c in enumerate(costs) if c.name in _EXPERTS_START)
    end = next(i for i, c in enumerate(costs) if c.name == _EXPERTS_END)
    shared = [c for c in costs[end:] if c.name.startswith(_SHARED)]
    after = [c for c in costs[end:] if not c.name.startswith(_SHARED)]
    return costs[:start], costs[start:end], shared, after
