"""The passes of one chunk as tasks: operators become compute, the layout's collectives sit between them.

Legend: a chunk is some layers of one pipeline stage, with the embedding before the first layer of the model
and the head after the last.  tp, sp: tensor and sequence parallelism.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, is_routed, kinds_present
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task, ahead_of, run
from railwright.training.layers.communication import Prices
from railwright.training.layers.costs import (
    Cost,
    KernelTime,
    costs,
    gradients_of,
)
from railwright.training.layers.fused import summing_biases, summing_gradients
from railwright.training.layers.operators import embedding_of, head_of, operators_of
from railwright.training.layers.recompute import (
    Again,
    again_of,
    counts_again,
    counts_stay,
    launched_again,
    layers_again,
)
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import SPLIT, TOGETHER, in_pairs, order_name, schedule_name
from railwright.training.passes.blocks import RECOMPUTED, Blocks
from railwright.training.passes.chain import BEFORE, FINDING, Chain, take_turns, woven
from railwright.training.passes.copies import FROM_HOST, TO_HOST, copied_both, copy_tasks
from railwright.training.passes.exchange import Exchange
from railwright.training.passes.head import gathered_for_weights, head_backward, head_forward
from railwright.training.passes.host_queue import Queue, behind_launches
from railwright.training.passes.lockstep import Lockstep
from railwright.training.passes.weights import weight_gradients
from railwright.training.software.chunked_loss import with_chunks
from railwright.training.software.constants import constant
from railwright.training.software.eras import Pace, era_of
from railwright.training.software.host import (
    CATCHING_UP,
    WHOLE_PASS,
    LaunchTimes,
    binds,
    host_seconds,
    launch_times,
    launching,
    shared_out,
)
from railwright.training.software.lora import frozen
from railwright.training.software.zero_engine import with_sent_gradients

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
        copies: Mapping[Layer, Task] | None = None,
    ) -> None:
        """`copies`: of a layer's activations to the host, where they are offloaded."""
        self.job, self.arch, self.prices, self.copies = job, arch, prices, copies or {}
        self.kernel_time = kernel_time
        self.tp = job.layout.tensor
        self.sp = job.layout.sequence_parallel and self.tp > 1
        self.paired = in_pairs(job)
        self.together = order_name(job) in TOGETHER
        exchanging = arch.is_moe and job.layout.expert > 1
        self.turns = exchanging and self.together
        self.ahead = not arch.is_moe or job.expert_capacity is not None or counts_stay(job)
        self.exchange = Exchange(job, arch, prices)
        self.lockstep = Lockstep(job, prices)
        era = era_of(job)
        self._layers: dict[Layer, list[Cost]] = {}
        again: dict[Layer, Again] = {}
        self._launches: dict[Layer, LaunchTimes] = {}
        self.blocks = Blocks(job, arch, self.exchange, self._layers, again, self._launches, self.turns)
        self.beside = self.blocks.beside
        self.counts_again = counts_again(job)
        self._parts: dict[tuple[Layer, str], Chain] = {}
        self._bound: dict[tuple[Chunk, bool], tuple[float, float, float] | None] = {}
        self._made: dict[tuple[Chunk, Gradients], Chain] = {}
        for kind in kinds_present(arch):
            operators = operators_of(job, arch, kind, prices.machine.gpu)
            timed = kernel_time
            if is_routed(kind) and arch.mlp_bias and era.fuses_experts(prices.machine.gpu, job.dtype):
                timed = summing_biases(kernel_time, era.spills_biases)
            self._layers[kind] = costs(operators, timed)
            self._launches[kind] = launch_times(
                operators, prices.machine.gpu, pace.host, job.cuda_graphs, era.launcher
            )
            again[kind] = again_of(job, arch, kind, operators, timed)
        ends = [embedding_of(job, arch), head_of(job, arch, prices.machine.gpu)]
        if job.lora:
            ends = [frozen(end) for end in ends]
        elif era.sums_gradients:
            ends = [summing_gradients(end) for end in ends]
        elif era.zero_engine:
            ends = [with_sent_gradients(end, job, arch.hidden) for end in ends]
        ends[1] = with_chunks(ends[1], job, arch)
        self._embedding, self._head = (costs(end, kernel_time) for end in ends)

    def forward(self, chunk: Chunk) -> list[Task]:
        """Tasks of a forward pass through a chunk."""
        chain, whole = self._forward(chunk), schedule_name(self.job.layout) not in SPLIT
        if bound := self._launch_bound(chunk, whole, chain):
            chain.launched(bound[0], (), WHOLE_PASS)
        tasks = take_turns([chain])
        tasks += self.lockstep.after(tasks, len(chunk.layers), "forward")
        return self._copied(tasks, chunk)

    def backward(self, chunk: Chunk, gradients: Gradients = "both") -> list[Task]:
        """Tasks of a backward pass through a chunk, recomputation first where the job asks for it."""
        if gradients == "weight":
            chain = self._weights(chunk)
            if bound := self._launch_bound(chunk, whole=False):
                chain.launched(bound[2], (), WHOLE_PASS)
            return chain.tasks
        tasks = take_turns([self._backward(chunk, gradients)])
        tasks += self.lockstep.after(tasks, len(chunk.layers), "backward")
        coming = copy_tasks(self.job, self.copies, chunk.layers, FROM_HOST)
        return woven(tasks, range(len(chunk.layers))[::-1], coming, {}, 1) if coming else tasks

    def both(self, ahead: Chunk, back: Chunk) -> list[Task]:
        """A forward pass of one microbatch and a backward pass of another that take turns.

        While one is in its expert all-to-all the other computes (DualPipe, arXiv 2412.19437, section 3.2.1;
        Megatron-LM, core/models/common/model_chunk_schedule_plan.py, TransformerLayerSchedulePlan.run).
        """
        backward = self._backward(back, "both", result_first=self.paired)
        forward = self._forward(ahead, launched=False)
        forward.tasks = [task.in_layer(ahead_of(task.layer)) for task in forward.tasks]
        if ahead.layers:
            tasks = self._launched_both(ahead, back, take_turns([backward.unlaunched(), forward]))
        else:
            tasks = take_turns([backward, forward])
        tasks += self.lockstep.after_both(tasks, len(ahead.layers), len(back.layers))
        return copied_both(self.job, self.copies, tasks, ahead.layers, back.layers)

    def _launched_both(self, ahead: Chunk, back: Chunk, tasks: list[Task]) -> list[Task]:
        """Two passes that take turns, with what the GPU waits for launches.

        The host stops for the counts of tokens in each layer of the forward pass, and launches the layer of
        the backward one beside it too; in the last one what is left of a longer backward pass.  Where nothing
        stops it, it runs ahead over all of them.
        """
        known, last, depth = self._launches, len(ahead.layers) - 1, len(back.layers)
        again = layers_again(self.job, self.arch, back)
        stretch = {ahead_of(i): 0 if self.ahead else i for i in range(len(ahead.layers))}
        stretch |= {i: 0 if self.ahead else min(depth - 1 - i, last) for i in range(depth)}
        seconds = [0.0] * len(ahead.layers)
        for i, kind in enumerate(ahead.layers):
            seconds[stretch[ahead_of(i)]] += known[kind].forward
        for i, kind in enumerate(back.layers):
            seconds[stretch[i]] += known[kind].backward + (i < again) * self._again(kind)
        here = [stretch.get(task.layer) for task in tasks]
        launched: list[list[Task]] = [[] for _ in seconds]
        for task, n in zip(tasks, here, strict=True):
            if n is not None:
                launched[n].append(task)
        waits = [
            launching(known[k], s, one) for k, s, one in zip(ahead.layers, seconds, launched, strict=True)
        ]
        return behind_launches(tasks, here, waits)

    def _copied(self, forward: list[Task], chunk: Chunk) -> list[Task]:
        """A forward pass with the copies of its activations to the host."""
        leaving = copy_tasks(self.job, self.copies, chunk.layers, TO_HOST)
        return woven(forward, range(len(chunk.layers)), {}, leaving, 0) if leaving else forward

    def _forward(self, chunk: Chunk, launched: bool = True) -> Chain:
        """`launched`: with what its layers wait for the host."""
        chain = Chain()
        if chunk.embedding:
            self.blocks.compute(chain, "embedding", "embedding", sum(c.forward for c in self._embedding))
            chain.communicate(self.exchange.reduction())
        else:
            chain.communicate(self.exchange.received())
        for i, kind in enumerate(chunk.layers):
            chain.at_layer(i)
            chain.add(self._forward_part(kind, launched))
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            head_forward(chain, self.blocks, self._head)
        chain.flush()
        return chain

    def _backward(self, chunk: Chunk, gradients: Gradients, result_first: bool = False) -> Chain:
        """`result_first`: the last weight gradients of attention are computed behind the pass's result.

        Where nothing drains the queue of launches, the pass waits for the host only where launching all of it
        takes longer than running it.
        """
        whole, made = gradients == "both", None if result_first else self._made.pop((chunk, gradients), None)
        chain = made or self._backward_run(chunk, gradients, result_first)
        again = layers_again(self.job, self.arch, chunk)
        if self.job.launch_blocking or not chunk.layers or any(map(self._waits, chunk.layers[:again])):
            return chain
        if not self.ahead:
            known = [self._launches[kind] for kind in chunk.layers]
            back = sum(one.backward if whole else one.input for one in known)
            back += sum(self._again(kind) for kind in chunk.layers[:again])
            chain.launched(launching(known[0], back, chain.tasks), ())
        elif bound := self._launch_bound(chunk, whole):
            chain.launched(bound[1], (), CATCHING_UP)
        return chain

    def _backward_run(self, chunk: Chunk, gradients: Gradients, result_first: bool) -> Chain:
        """A backward pass, with what the host needs where it has waited for the GPU before."""
        chain, whole = Chain(), gradients == "both"
        chain.at_layer(len(chunk.layers))
        if chunk.head:
            head_backward(chain, self.blocks, self._head, whole)
        else:
            chain.communicate(self.exchange.received())
        again, queue = layers_again(self.job, self.arch, chunk), Queue()
        for i in reversed(range(len(chunk.layers))):
            kind, waits = chunk.layers[i], i < again and self._waits(chunk.layers[i])
            if waits:
                queue.empty(chain)
            chain.at_layer(i)
            chain.add(self._backward_part(kind, whole, result_first and i == 0, i < again))
            if waits:
                queue = Queue(chain.tail, len(chain.tasks))
            else:
                queue.put(self._launches[kind], whole, (i < again) * self._again(kind))
        chain.at_layer(-1)
        if chunk.embedding and not self.job.lora:
            if self.sp:
                chain.communicate(self.exchange.gathering())
            self.blocks.compute(chain, "embedding backward", "embedding", gradients_of(self._embedding, True))
        chain.flush()
        if any(map(self._waits, chunk.layers[:again])):
            queue.empty(chain)
        return chain

    def _weights(self, chunk: Chunk) -> Chain:
        """Gradients of weights in a pass of their own, without what a host that runs ahead waits for."""
        head = self._head if chunk.head else None
        of_head = gathered_for_weights(self.blocks, self._head)
        chain = weight_gradients(chunk.layers, self._layers, head, self.exchange, self.blocks.widths, of_head)
        if chunk.layers and not self.ahead and not self.job.launch_blocking:
            known = [self._launches[kind] for kind in chunk.layers]
            last = sum(one.weight for one in known)
            chain.at_layer(-1)
            chain.launched(launching(known[0], last, chain.tasks), ())
        return chain

    def _forward_part(self, kind: Layer, launched: bool) -> Chain:
        """A layer's forward pass; made once."""
        key = (kind, f"forward {launched}")
        if key not in self._parts:
            part = self._parts[key] = Chain.part()
            self.blocks.forward(part, kind)
            if launched:
                self._drained(part, kind, self._launches[kind].forward)
        return self._parts[key]

    def _backward_part(self, kind: Layer, whole: bool, result_first: bool, again: bool) -> Chain:
        """A layer's backward pass, made once; `again`: what the job computes again of a layer first."""
        way = "result first" if result_first else "both" if whole else "input"
        key = (kind, f"{way} {again}")
        if key not in self._parts:
            part = self._parts[key] = Chain.part()
            if again and self.job.layout.recompute == "full":
                self.blocks.forward(part, kind, RECOMPUTED)
            elif again and self.job.layout.recompute == "selective":
                self.blocks.again(part, kind)
            self.blocks.backward(part, kind, whole, result_first)
            if (again and self.counts_again and is_routed(kind)) or self.job.launch_blocking:
                known = self._launches[kind]
                back = known.backward if whole or self.job.launch_blocking else known.input
                self._drained(part, kind, again * self._again(kind) + back)
        return self._parts[key]

    def _waits(self, kind: Layer) -> bool:
        """Whether the host waits for the GPU in the backward pass of a layer that is computed again, to learn
        how many tokens each expert gets once more."""
        return self.counts_again and is_routed(kind) and not self.ahead and not self.job.launch_blocking

    def _again(self, kind: Layer) -> float:
        """Host time of what a layer's backward pass computes again. [s]"""
        return launched_again(self.job, self._launches[kind])

    def _drained(self, part: Chain, kind: Layer, seconds: float) -> None:
        """A layer takes what its kernels or what their launches take, in a model with experts.

        Dropless dispatch copies counts of tokens to the host, which waits for them: once per layer with
        experts the queue of launches runs empty, so that the host is not far ahead in a layer between two
        of them either; with a fixed capacity nothing need be counted.  Where launches block, the GPU waits
        for all of them, in every layer.
        Source: Megatron-LM, moe/token_dispatcher.py, _maybe_dtoh_and_synchronize.
        """
        part.flush()
        blocking = self.job.launch_blocking
        if not blocking and self.ahead:
            return
        host = launching(self._launches[kind], seconds, part.tasks, blocking)
        searched = [i for i, task in enumerate(part.tasks) if task.name == FINDING]
        if searched:
            part.launched_around(host, searched[-1])
        else:
            part.launched(host, part.tail if blocking else (BEFORE,))

    def _launch_bound(
        self, chunk: Chunk, whole: bool, forward: Chain | None = None
    ) -> tuple[float, float, float] | None:
        """How long a forward, a backward and a weight gradients' pass of a chunk take where launching them
        takes longer than to run them, 0 for one that does not wait; None where none does, or the queue runs
        empty inside. [s]

        Nothing drains the queue of launches in a dense model, or with a fixed capacity of experts, so the
        host runs ahead from one into the next (a backward pass is split, or `whole`); also while the forward
        pass waits for copies of its activations.  How far it gets ahead where ranks gather or reduce beside
        passes, which makes these longer, is `Stage`'s.
        """
        if not self.ahead or self.job.launch_blocking or not chunk.layers:
            return None
        if (chunk, whole) not in self._bound:
            self._bound[chunk, whole] = self._bound_of(chunk, whole, forward or self._forward(chunk))
        return self._bound[chunk, whole]

    def _bound_of(self, chunk: Chunk, whole: bool, ahead: Chain) -> tuple[float, float, float] | None:
        known = [self._launches[kind] for kind in chunk.layers]
        again = sum(self._again(kind) for kind in chunk.layers[: layers_again(self.job, self.arch, chunk)])
        forward = self._copied(ahead.tasks, chunk)
        gradients: Gradients = "both" if whole else "input"
        # made once: the pass itself is this one, with what it waits for
        self._made[chunk, gradients] = self._backward_run(chunk, gradients, result_first=False)
        weights = [] if whole else self._weights(chunk).tasks
        passes = [forward, list(self._made[chunk, gradients].tasks), weights]
        first, last = sum(one.forward for one in known), sum(one.weight for one in known)
        back = again + sum(one.input for one in known)
        needs = (first, back + last, 0.0) if whole else (first, back, last)
        launched = [host_seconds(known[0], *one) for one in zip(needs, passes, strict=True)]
        if not binds(sum(launched), [task for tasks in passes for task in tasks]):
            return None
        # as long as they are placed (`PassBook`): beside communication compute is slower
        runs = [run(tasks, constant("compute_slowdown_in_overlap")).duration for tasks in passes]
        takes = shared_out(launched, runs)
        waits = [t if t > alone else 0.0 for t, alone in zip(takes, runs, strict=True)]
        return waits[0], waits[1], waits[2]
