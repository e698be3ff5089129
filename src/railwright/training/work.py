"""The passes of one chunk as tasks: operators become compute, the layout's collectives sit between them.

Legend: a chunk is some layers of one pipeline stage, with the embedding before the first layer of the model
and the head after the last.  tp, sp: tensor and sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from railwright.model import embedding_operators
from railwright.model.architecture import Transformer
from railwright.model.operators import CORE
from railwright.model.pattern import Layer, kinds_present
from railwright.spec.training import TrainingJob
from railwright.training.chain import BEFORE, Chain, take_turns, woven
from railwright.training.communication import NOTHING, Prices
from railwright.training.copies import FROM_HOST, TO_HOST, copied_both, copy_tasks
from railwright.training.costs import (
    Cost,
    KernelTime,
    around_core,
    costs,
    expert_sections,
    gradients_of,
    head_split,
    products,
    sections,
    shared_halves,
)
from railwright.training.eras import Pace, era_of
from railwright.training.exchange import Exchange
from railwright.training.fused import summing_biases, summing_gradients
from railwright.training.host import LaunchTimes, launch_times, launching
from railwright.training.lanes import Task, ahead_of, run
from railwright.training.layers import head_of, operators_of
from railwright.training.lockstep import Lockstep
from railwright.training.lora import frozen
from railwright.training.plan import rows_of
from railwright.training.route import Chunk
from railwright.training.schedule import TOGETHER, in_pairs, order_name
from railwright.training.shared import hides_behind_shared
from railwright.training.weights import AGAIN, LAST_WEIGHTS, weight_gradients

Gradients = Literal["both", "input", "weight"]
"""What a backward pass computes: all of it, or one half of a split one."""


class Work:
    """Builds the tasks of a job's passes; every operator and every collective is priced once."""

    def __init__(
        self,
        job: TrainingJob,
        arch: Transformer,
        prices: Prices,
        kernel_time: KernelTime,
        pace: Pace,
        copies: Mapping[Layer, float] | None = None,
    ) -> None:
        """`copies`: time to copy a layer's activations to the host, where they are offloaded [s]."""
        self.job, self.arch, self.prices, self.copies = job, arch, prices, copies or {}
        self.tp = job.layout.tensor
        self.sp = job.layout.sequence_parallel and self.tp > 1
        self.paired = in_pairs(job)
        self.together = order_name(job) in TOGETHER
        exchanging = arch.is_moe and job.layout.expert > 1
        self.halves = 2 if job.overlap.ep and exchanging and not self.together else 1
        self.turns = exchanging and (self.halves > 1 or self.together)
        self.share = 1.0 / self.halves
        self.behind_shared = hides_behind_shared(job, arch)
        self.ahead = not arch.is_moe or job.expert_capacity is not None
        self.exchange = Exchange(job, arch, prices, self.share)
        self.lockstep = Lockstep(job, prices)
        era = era_of(job)
        self.beside = job.overlap.tp or (era.async_linear and not job.launch_blocking)
        self._layers: dict[Layer, list[Cost]] = {}
        self._again: dict[Layer, tuple[float, float]] = {}
        self._launches: dict[Layer, LaunchTimes] = {}
        self._parts: dict[tuple[Layer, str, float | None], Chain] = {}
        for kind in kinds_present(arch):
            operators = operators_of(job, arch, kind, prices.machine.gpu)
            timed = kernel_time
            if kind == "moe" and arch.mlp_bias and era.fuses_experts(prices.machine.gpu, job.dtype):
                timed = summing_biases(kernel_time, era.spills_biases)
            self._layers[kind] = costs(operators, timed)
            self._launches[kind] = launch_times(operators, prices.machine.gpu, pace.host, job.cuda_graphs)
            core = sum(timed(op) for op in operators.recomputed if op.name in CORE)
            rest = sum(timed(op) for op in operators.recomputed if op.name not in CORE)
            self._again[kind] = (rest, core)
        rows = rows_of(job)
        ends = [
            embedding_operators(arch, rows, tp=self.tp, sequence_parallel=self.sp),
            head_of(job, arch),
        ]
        if job.lora:
            ends = [frozen(end) for end in ends]
        elif era.sums_gradients:
            ends = [summing_gradients(end) for end in ends]
        self._embedding, self._head = (costs(end, kernel_time) for end in ends)

    def forward(self, chunk: Chunk) -> list[Task]:
        """Tasks of a forward pass through a chunk."""
        tasks = take_turns([self._forward(chunk)] * self.halves)
        tasks += self.lockstep.after(tasks, len(chunk.layers), "forward")
        leaving = copy_tasks(self.job, self.copies, chunk.layers, TO_HOST)
        return woven(tasks, range(len(chunk.layers)), {}, leaving, 0) if leaving else tasks

    def backward(self, chunk: Chunk, gradients: Gradients = "both") -> list[Task]:
        """Tasks of a backward pass through a chunk, recomputation first where the job asks for it."""
        if gradients == "weight":
            return self._weights(chunk).tasks
        tasks = take_turns([self._backward(chunk, gradients)] * self.halves)
        tasks += self.lockstep.after(tasks, len(chunk.layers), "backward")
        coming = copy_tasks(self.job, self.copies, chunk.layers, FROM_HOST)
        return woven(tasks, range(len(chunk.layers))[::-1], coming, {}, 1) if coming else tasks

    def both(self, ahead: Chunk, back: Chunk) -> list[Task]:
        """A forward pass of one microbatch and a backward pass of another that take turns.

        While one is in its expert all-to-all the other computes (DualPipe, arXiv 2412.19437, section 3.2.1;
        Megatron-LM, core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run).
        """
        backward = self._backward(back, "both", result_first=self.paired)
        forward = self._forward(ahead, self._launching_both(ahead, back, backward.tasks))
        forward.tasks = [task._replace(layer=ahead_of(task.layer)) for task in forward.tasks]
        if ahead.layers:
            backward.tasks = [t._replace(duration=0.0) if t.lane == "host" else t for t in backward.tasks]
        tasks = take_turns([backward, forward])
        tasks += self.lockstep.after_both(tasks, len(ahead.layers), len(back.layers))
        return copied_both(self.job, self.copies, tasks, ahead.layers, back.layers)

    def _launching_both(self, ahead: Chunk, back: Chunk, backward: list[Task]) -> float:
        """What the host needs for each layer of a forward pass and its part of the backward one beside it,
        which it launches too, where all of that takes longer than all compute; else 0. [s]"""
        again = self.job.layout.recompute == "full"
        known = self._launches
        seconds = sum(known[k].forward for k in ahead.layers)
        seconds += sum(known[k].backward + again * known[k].forward for k in back.layers)
        every = [*backward, *self._forward(ahead, 0.0).tasks]
        return launching(known[ahead.layers[0]], seconds, every) / len(ahead.layers) if ahead.layers else 0.0

    def _forward(self, chunk: Chunk, host: float | None = None) -> Chain:
        """`host`: what launching takes of each layer, where that is not for the layer to say [s]."""
        chain = Chain()
        if chunk.embedding:
            self._compute(chain, "embedding", "embedding", sum(c.forward for c in self._embedding))
            chain.communicate(self.exchange.reduction())
        for i, kind in enumerate(chunk.layers):
            chain.at_layer(i)
            chain.add(self._forward_part(kind, host))
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            pre, first, rest = head_split(self._head)
            self._compute(chain, "head", "head", sum(c.forward for c in pre))
            self._gather(chain, "head", "head", first.forward)
            self._compute(chain, "head", "head", sum(c.forward for c in rest))
        chain.flush()
        return chain

    def _backward(self, chunk: Chunk, gradients: Gradients, result_first: bool = False) -> Chain:
        """`result_first`: the last weight gradients of attention are computed behind the pass's result."""
        chain, whole = Chain(), gradients == "both"
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            pre, first, rest = head_split(self._head)
            self._compute(chain, "head backward", "head", gradients_of(rest, whole))
            self._column_backward(chain, "head backward", "head", first, whole)
            self._compute(chain, "head backward", "head", gradients_of(pre, whole))
        for i in reversed(range(len(chunk.layers))):
            chain.at_layer(i)
            chain.add(self._backward_part(chunk.layers[i], whole, result_first and i == 0))
        chain.at_layer(-1)
        if chunk.embedding and not self.job.lora:
            if self.sp:
                chain.communicate(self.exchange.gathering())
            self._compute(chain, "embedding backward", "embedding", gradients_of(self._embedding, True))
        chain.flush()
        self._caught_up(chain, chunk, whole)
        return chain

    def _weights(self, chunk: Chunk) -> Chain:
        """Gradients of weights in a pass of their own; where the host runs ahead over all passes of a
        microbatch, it is the input gradients that wait for their launches."""
        head = self._head if chunk.head else None
        chain = weight_gradients(chunk.layers, self._layers, head, self.exchange, self.sp)
        if chunk.layers and not self.ahead and not self.job.launch_blocking:
            known = [self._launches[kind] for kind in chunk.layers]
            chain.launched(launching(known[0], sum(one.weight for one in known), chain.tasks), ())
        return chain

    def _forward_part(self, kind: Layer, host: float | None) -> Chain:
        """A layer's forward pass; made once."""
        key = (kind, "forward", host)
        if key not in self._parts:
            part = self._parts[key] = Chain.part()
            self._layer_forward(part, kind, "")
            if host is None:
                self._drained(part, kind, self._launches[kind].forward)
            else:
                part.launched(host, (BEFORE,))
        return self._parts[key]

    def _backward_part(self, kind: Layer, whole: bool, result_first: bool) -> Chain:
        """A layer's backward pass, recomputation first; made once."""
        key = (kind, "result first" if result_first else "both" if whole else "input", None)
        if key not in self._parts:
            part = self._parts[key] = Chain.part()
            again = self.job.layout.recompute == "full"
            if again:
                self._layer_forward(part, kind, "recomputed ")
            elif self.job.layout.recompute == "selective":
                rest_again, core_again = self._again[kind]
                self._compute(part, "recomputed attention", "recompute", rest_again)
                self._attend(part, "recomputed attention", "recompute", core_again)
            self._layer_backward(part, kind, whole, result_first)
            if again or self.job.launch_blocking:
                known = self._launches[kind]
                back = known.backward if whole or self.job.launch_blocking else known.input
                self._drained(part, kind, again * known.forward + back)
        return self._parts[key]

    def _drained(self, part: Chain, kind: Layer, seconds: float) -> None:
        """A layer takes what its kernels or what their launches take, with experts.

        Halves that take turns stand for whole microbatches, whose kernels are launched once.
        Dropless dispatch copies counts of tokens to the host, which waits for them: once per layer the queue
        of launches runs empty; with a fixed capacity nothing need be counted.  Where launches block, the
        GPU waits for all of them, in every layer.
        Source: Megatron-LM, moe/token_dispatcher.py, _maybe_dtoh_and_synchronize.
        """
        part.flush()
        blocking = self.job.launch_blocking
        if blocking or (kind == "moe" and not self.ahead):
            host = launching(self._launches[kind], seconds * self.share, part.tasks, blocking)
            part.launched(host, part.tail if blocking else (BEFORE,))

    def _caught_up(self, chain: Chain, chunk: Chunk, whole: bool) -> None:
        """A backward pass waits for the host only where launching all of it takes longer than running it.

        Nothing drains the queue there.  In a dense model, or with a fixed capacity of experts, nothing does
        forward either, so the host runs ahead over both, and over the weight gradients of a split pass.
        """
        again = self.job.layout.recompute == "full"
        known = [self._launches[kind] for kind in chunk.layers]
        if not known or (again and not self.ahead) or self.job.launch_blocking:
            return
        if not self.ahead:
            back = sum((one.backward if whole else one.input) + again * one.forward for one in known)
            chain.launched(launching(known[0], self.share * back, chain.tasks), ())
            return
        passes = [self._forward(chunk).tasks]
        if not whole:
            passes.append([task.part(self.share) for task in self._weights(chunk).tasks])
        seconds = sum(one.backward + (1 + again) * one.forward for one in known)
        total = launching(known[0], self.share * seconds, sum(passes, chain.tasks))
        if total:
            chain.launched(total - sum(run(tasks).duration for tasks in passes), ())

    def _layer_forward(self, chain: Chain, kind: Layer, again: str) -> None:
        attention, rest = sections(self._layers[kind])
        self._block_forward(chain, f"{again}attention", "recompute" if again else "attention", attention)
        if kind == "dense":
            self._block_forward(chain, f"{again}mlp", "recompute" if again else "mlp", rest)
            return
        route, experts, shared, after = expert_sections(rest)
        label = "recompute" if again else "experts"
        self._compute(chain, f"{again}router", label, sum(c.forward for c in route))
        first, last = self._shared(chain, shared, lambda half: sum(c.forward for c in half))
        self._exchange(chain, "ep dispatch", first, label)
        chain.communicate(self.exchange.expert_gather())
        self._compute(chain, f"{again}experts", label, sum(c.forward for c in experts))
        chain.communicate(self.exchange.expert_reduce())
        self._exchange(chain, "ep combine", last, label)
        if self.behind_shared:
            chain.communicate(self.exchange.reduction())
        elif shared:
            self._block_forward(chain, f"{again}shared expert", label, shared)
        self._compute(chain, f"{again}combine", label, sum(c.forward for c in after))
        chain.communicate(self.exchange.whole_again())

    def _layer_backward(self, chain: Chain, kind: Layer, whole: bool, result_first: bool) -> None:
        """Backwards through `_layer_forward`; `whole` says whether weight gradients are computed too."""
        attention, rest = sections(self._layers[kind])
        if kind == "dense":
            self._block_backward(chain, "mlp backward", "mlp", rest, whole)
        else:
            route, experts, shared, after = expert_sections(rest)
            self._compute(chain, "combine backward", "experts", gradients_of(after, whole))
            first, last = self._shared(chain, shared, lambda half: gradients_of(half, whole))
            if shared and not self.behind_shared:
                self._block_backward(chain, "shared expert backward", "experts", shared, whole)
            self._exchange(chain, "ep combine backward", last)
            chain.communicate(self.exchange.expert_gather())
            self._compute(chain, "experts backward", "experts", gradients_of(experts, whole))
            chain.communicate(self.exchange.expert_reduce())
            self._exchange(chain, "ep dispatch backward", first)
            chain.communicate(self.exchange.reduction() if self.behind_shared else NOTHING)
            self._compute(chain, "router backward", "experts", gradients_of(route, whole))
            chain.communicate(self.exchange.whole_again())
        self._block_backward(chain, "attention backward", "attention", attention, whole and not result_first)
        if result_first:
            chain.communicate(self.exchange.gathering(AGAIN) if self.sp else NOTHING)
            self._compute(chain, LAST_WEIGHTS, "attention", sum(c.weight for c in attention))

    def _shared(
        self, chain: Chain, shared: list[Cost], seconds: Callable[[list[Cost]], float]
    ) -> tuple[float, float]:
        """What of shared experts runs beside dispatch and beside combine (`shared`) [s]."""
        if not self.behind_shared:
            return 0.0, 0.0
        chain.communicate(self.exchange.gathering() if self.sp else NOTHING)
        first, last = shared_halves(shared)
        return seconds(first), seconds(last)

    def _block_forward(self, chain: Chain, name: str, kind: str, found: list[Cost]) -> None:
        """Norm, gather, column-parallel product, …, row-parallel product, reduce, residual."""
        pre, first, middle, last, post = products(found)
        before, core, behind = around_core(middle)
        self._compute(chain, name, kind, sum(c.forward for c in pre))
        if self.sp:
            self._gather(chain, name, kind, first.forward)
        else:
            self._compute(chain, name, kind, first.forward)
        self._compute(chain, name, kind, sum(c.forward for c in before))
        if core:
            self._attend(chain, name, kind, sum(c.forward for c in core))
        self._compute(chain, name, kind, sum(c.forward for c in behind))
        comm = self.exchange.reduction()
        if self.job.overlap.tp:
            chain.reduce_out_of(comm, name, kind, last.forward * self.share, self.tp)
        else:
            self._compute(chain, name, kind, last.forward)
            chain.communicate(comm)
        self._compute(chain, name, kind, sum(c.forward for c in post))

    def _block_backward(self, chain: Chain, name: str, kind: str, found: list[Cost], whole: bool) -> None:
        """Backwards through `_block_forward`; under sp the inputs are gathered again for the weights."""
        pre, first, middle, last, post = products(found)
        before, core, behind = around_core(middle)
        self._compute(chain, name, kind, gradients_of(post, whole))
        if self.sp:
            self._gather(chain, name, kind, last.input)
            self._compute(chain, name, kind, last.weight if whole else 0.0)
        else:
            self._compute(chain, name, kind, gradients_of([last], whole))
        self._compute(chain, name, kind, gradients_of(behind, whole))
        if core:
            self._attend(chain, name, kind, gradients_of(core, whole), backward=True)
        self._compute(chain, name, kind, gradients_of(before, whole))
        self._column_backward(chain, name, kind, first, whole)
        self._compute(chain, name, kind, gradients_of(pre, whole))

    def _column_backward(self, chain: Chain, name: str, kind: str, cost: Cost, whole: bool) -> None:
        """Gradients of a column-parallel product: gather its input again, reduce its input gradient.

        Only a weight gradient needs the input again.
        Source: Megatron-LM, core/tensor_parallel/layers.py, LinearWithGradAccumulationAndAsyncCommunication;
        megatron/mpu/layers.py, ColumnParallelLinearWithAsyncAllreduce, since September 2021 (16c90445).
        """
        weight = cost.weight if whole else 0.0
        again = self.exchange.gathering(AGAIN) if self.sp and weight else NOTHING
        if self.beside:
            chain.beside(again, name, kind, cost.input * self.share)
            chain.beside(self.exchange.reduction(), name, kind, weight * self.share)
            return
        chain.communicate(again)
        self._compute(chain, name, kind, cost.input)
        chain.communicate(self.exchange.reduction())
        self._compute(chain, name, kind, weight)

    def _attend(self, chain: Chain, name: str, kind: str, seconds: float, backward: bool = False) -> None:
        self.exchange.attend(chain, name, kind, seconds * self.share, backward)

    def _compute(self, chain: Chain, name: str, kind: str, seconds: float) -> None:
        chain.compute(name, kind, seconds * self.share)

    def _gather(self, chain: Chain, name: str, kind: str, seconds: float) -> None:
        """Under sp: an all-gather into the product that follows it."""
        comm = self.exchange.gathering() if self.sp else NOTHING
        if self.job.overlap.tp and seconds:
            chain.gather_into(comm, name, kind, seconds * self.share, self.tp)
        else:
            chain.communicate(comm)
            self._compute(chain, name, kind, seconds)

    def _exchange(self, chain: Chain, purpose: str, shared: float = 0.0, kind: str = "experts") -> None:
        """One expert all-to-all beside `shared` seconds of compute; passes that take turns do so here."""
        for comm in self.exchange.routed(purpose):
            if shared:
                back = " backward" if purpose.endswith("backward") else ""
                chain.beside(comm, f"shared expert{back}", kind, shared * self.share)
            else:
                chain.communicate(comm)
        if self.turns:
            chain.cut()
