"""What one GPU of a stage under DeepSpeed's pipeline engine asks of its allocator.

Versions as in `deepspeed`: ZeRO-1 with fp16 and BF16_Optimizer of February 2022.
"""

from __future__ import annotations

from collections.abc import Sequence

from railwright.training.layout.route import Unit
from railwright.training.memory.allocator import Tensor
from railwright.training.memory.replay import Flight, Replay
from railwright.training.memory.states import STATES
from railwright.training.software.deepspeed import BUCKET, GROUPS, SECOND_GRADIENTS, mask_kept


class DeepSpeedReplay(Replay):
    """A stage under DeepSpeed.

    sums    whether gradients are added to sums in fp32 (BF16_Optimizer), or stay in 16 bits
    state   bytes of one of the optimizer's three states
    groups  weights that the optimizer joins, by their numbers (`_groups`)
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sums = SECOND_GRADIENTS in self.states
        self.state = self.states.get(STATES, 0.0) / 3
        self.part = self.full / self.job.layout.tensor
        self.live: list[Tensor] = []
        self.seen: set[int] = set()
        self.layered = False
        tied = bool(self.shape.head) and self.arch.tied_embeddings
        self.groups = _groups(len(self.weights), last_first=tied and self.shape.chunks[-1].head)

    def share(self, group: Sequence[int]) -> float:
        """Of the stage's weights, those of a group."""
        return sum(self.weights[w] for w in group) / sum(self.weights)

    def start(self) -> None:
        """Weights of a group become one tensor, and each optimizer state of theirs is one.

        With fp16 they go to the host and come back, and the cache keeps what they left (zero/
        stage_1_and_2.py, __init__, initialize_optimizer_states); BF16_Optimizer joins them on the GPU.
        """
        self.loaded()
        weights = self.each(self.states["weights"])
        shares = [self.share(group) for group in self.groups]
        for group, share in zip(self.groups, shares, strict=True):
            separate = [weights[w] for w in group]
            if self.sums:
                self.take(share * self.states["weights"])
                self.give(separate)
            else:
                self.give(separate)
                self.take(share * self.states["weights"])
            narrow = self.take(share * self.state / 2)
            self.take(share * self.state)
            self.give([narrow])
            if self.sums:
                self.take(share * self.states["gradients"])
        zeros = [] if self.sums else [self.take(share * self.state) for share in shares]
        for share in shares:
            self.take(share * self.state)
            self.take(share * self.state)
        self.give(zeros)
        self.always()

    def arrived(self, unit: Unit, flight: Flight) -> Tensor:
        """The engine receives into a buffer, clones that, clones again and makes the parts whole."""
        chunk = self.shape.chunks[unit.chunk]
        if chunk.embedding or chunk.head:
            mask = self.loaded()
            flight.more += [mask] * chunk.embedding
            self.give([mask] * (not chunk.embedding))
        if chunk.embedding:
            return super().arrived(unit, flight)
        parts = [self.take(self.part)]
        if self.job.layout.tensor == 1:
            flight.more += parts
            return self.take(self.full)
        parts.append(self.take(self.part))
        whole = self.whole()
        self.give(parts)
        return whole

    def loaded(self) -> Tensor:
        """The causal mask that the stages which read the data make of every microbatch; the first one keeps a
        copy (`deepspeed.mask_kept`)."""
        pairs = mask_kept(self.job)
        ones, lower = self.take(4 * pairs), self.take(4 * pairs)
        self.give([ones])
        mask = self.take(pairs)
        self.give([lower])
        copy = self.take(pairs)
        self.give([mask])
        return copy

    def whole(self) -> Tensor:
        """A tensor made whole of the tensor ranks' parts: a flat one, NCCL's list of them as one, and a copy
        (runtime/utils.py, PartitionedTensor.full)."""
        flat = self.take(self.full)
        self.once(self.full)
        whole = self.take(self.full)
        self.give([flat])
        return whole

    def left(self, output: Tensor, flight: Flight) -> None:
        if self.job.layout.tensor == 1:
            flight.more.append(output)
            return
        flight.more.append(self.take(self.part))
        self.give([output])

    def returned(self, flight: Flight) -> Tensor:
        if self.job.layout.tensor == 1:
            return self.take(self.full)
        flight.more.append(self.whole())
        return self.whole()

    def layers(self, unit: Unit, flight: Flight, gradient: Tensor) -> Tensor:
        """The engine names output and gradient until the end (pipe/engine.py, _exec_backward_pass)."""
        first = gradient
        while flight.layers:
            gradient = self.layer_back(flight, gradient, self.gradients(unit), named=gradient == first)
        # a piece without layers hands on the gradient that came
        self.give([*([] if gradient == first else [first]), *flight.more])
        if self.job.layout.tensor > 1:
            self.once(self.part)
        return gradient

    def turned(self, unit: Unit) -> Tensor:
        if self.sums:
            self.give(self.live)
            self.live = []
        return super().turned(unit)

    def finish(self, unit: Unit, gradient: Tensor) -> None:
        super().finish(unit, gradient)
        if self.sums:
            # each is added in fp32 (bf16_optimizer.py, update_hp_grads)
            for weight in self.weights:
                self.once(4 * weight)
        self.seen.add(unit.chunk)

    def gradients(self, unit: Unit) -> list[Tensor] | None:
        """Gradients stay where autograd makes them first."""
        return None if not self.sums and unit.chunk in self.seen else self.live

    def update(self, step: int) -> None:
        """Gradients are averaged, looked through and flattened; the new weights are gathered in buckets."""
        totals = [sum(self.weights[w] for w in group) for group in self.groups]
        if self.sums:
            # sums travel in 16 bits (engine.py, communication_data_type, allreduce_bucket)
            for total in totals:
                self.once(2 * total)
        else:
            self._average()
            self.live, self.seen = [], set()
        for total in totals:
            self.once(2 * total / max(1, total // BUCKET))

    def _average(self) -> None:
        """What FP16_Optimizer does without ZeRO, ZeRO-Offload and ZeRO-1."""
        if self.state and not self.job.layout.zero:
            self._flatten()
            return
        ranks = self.ranks if self.job.layout.zero else 1
        mine = [_reached([self.weights[w] for w in group], group, ranks) for group in self.groups]
        if self.state:
            self._share_out(mine)
        else:
            self._offload(mine)

    def _share_out(self, mine: list[dict[int, float]]) -> None:
        """Gradients are averaged in buckets, into which several are joined, and copied back; those that reach
        into this rank's share stay where they are, and each is widened for overflows and for the norm.

        Source: zero/stage_1_and_2.py, reduce_ipg_grads, allreduce_bucket, get_flat_partition,
        _has_inf_or_nan, get_grad_norm_direct, step; engine.py, _configure_zero_optimizer, which ignores
        `contiguous_gradients`.
        """
        for joined in _buckets([self.weights[w] for group in self.groups for w in group]):
            self.once(2 * joined)
        # backward passes make them in the order opposite to that of the weights
        made = dict(zip(reversed(range(len(self.weights))), self.live, strict=False))
        stay = {w for reached in mine for w in reached}
        self.give([gradient for w, gradient in made.items() if w not in stay])
        self._widen(mine, 4)
        wide = []
        for group, reached in zip(self.groups, mine, strict=True):
            self._widen([reached], 8)
            flat = [self.take(self.share(group) * self.state / 2)] if len(reached) > 1 else []
            wide.append(self.take(self.share(group) * self.state))
            self.give([*flat, *(made[w] for w in reached if w in made)])
        self.give(wide)

    def _offload(self, mine: list[dict[int, float]]) -> None:
        """Widened in a bucket in which they lie one after the other, gradients go to the host."""
        bucket = self.take(2 * BUCKET)
        self.give(self.live)
        for width in (4, 8):
            self._widen(mine, width)
        self.give([bucket])

    def _widen(self, mine: list[dict[int, float]], width: int) -> None:
        """Overflows are looked for in 32 bits, norms taken in 64."""
        for part in (part for reached in mine for part in reached.values()):
            self.once(width * part)

    def _flatten(self) -> None:
        """Without ZeRO: averaged in a bucket as large as they are, then all widened and joined (engine.py,
        allreduce_bucket; fp16/fused_optimizer.py, step)."""
        self.once(2 * min(BUCKET, sum(self.weights)))
        flat = self.take(4 * sum(self.weights))
        for weight in self.weights:
            self.once(4 * weight)
        self.give([*self.live, flat])


def _groups(weights: int, last_first: bool) -> list[list[int]]:
    """Numbers of the weights of each of the optimizer's `GROUPS`.

    last_first  the output matrix is the tied table, which every stage that has it names first (runtime/pipe/
                module.py, tied_modules)
    """
    order = [*range(weights)]
    if last_first:
        order = [order[-1], *order[:-1]]
    part = -(-weights // GROUPS)
    return [order[at : at + part] for at in range(0, weights, part)]


def _buckets(weights: list[float]) -> list[float]:
    """Parameters of the buckets in which gradients are averaged, where several are joined into one."""
    found, joined = list[float](), list[float]()
    for weight in [*weights, float(BUCKET)]:
        if sum(joined) + weight > BUCKET:
            found += [sum(joined)] * (len(joined) > 1)
            joined = []
        joined.append(weight)
    return found


def _reached(weights: list[float], numbers: list[int], ranks: int) -> dict[int, float]:
    """Number -> parameters of the weights that reach into the first rank's share of a group: that rank's GPUs
    hold most, since an embedding comes first and its norm is taken in 64 bits.

    Its tensor rank 0 alone does so where a weight's `model_parallel` is asked for, which Megatron's weights
    are without (runtime/utils.py, is_model_parallel_parameter; until April 2022).
    """
    share = sum(weights) / ranks
    found, at = dict[int, float](), 0.0
    for number, weight in zip(numbers, weights, strict=True):
        if at < share:
            found[number] = min(weight, share - at)
        at += weight
    return found
