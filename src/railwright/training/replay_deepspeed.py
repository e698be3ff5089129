"""What one GPU of a stage under DeepSpeed's pipeline engine asks of its allocator.

Versions as in `deepspeed`: ZeRO-1 with fp16 of February 2022, BF16_Optimizer of April 2022.
"""

from __future__ import annotations

from railwright.training.allocator import Tensor
from railwright.training.deepspeed import BUCKET, SECOND_GRADIENTS
from railwright.training.replay import Flight, Replay
from railwright.training.route import Unit
from railwright.training.states import STATES


class DeepSpeedReplay(Replay):
    """A stage under DeepSpeed.

    sums   whether gradients are added to sums in fp32 (BF16_Optimizer), or stay in 16 bits
    state  bytes of one of the optimizer's three states
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sums = SECOND_GRADIENTS in self.states
        self.state = self.states.get(STATES, 0.0) / 3
        self.part = self.full / self.job.layout.tensor
        self.live: list[Tensor] = []
        self.seen: set[int] = set()
        self.layered = False

    def start(self) -> None:
        """Weights become one tensor, and each optimizer state is one.

        With fp16 they go to the host and come back, and the cache keeps what they left (zero/
        stage_1_and_2.py, __init__, initialize_optimizer_states); BF16_Optimizer joins them on the GPU.
        """
        weights = self.each(self.states["weights"])
        if self.sums:
            self.take(self.states["weights"])
            self.give(weights)
        else:
            self.give(weights)
            self.take(self.states["weights"])
        share = self.take(self.state / 2)
        self.take(self.state)
        self.give([share])
        zeros = self.take(self.states["gradients"] if self.sums else self.state)
        self.take(self.state)
        self.take(self.state)
        if not self.sums:
            self.give([zeros])
        self.always()

    def arrived(self, unit: Unit, flight: Flight) -> Tensor:
        """The engine receives into a buffer, clones that, clones again and makes the parts whole."""
        if self.shape.chunks[unit.chunk].embedding:
            return super().arrived(unit, flight)
        parts = [self.take(self.part)]
        if self.job.layout.tensor == 1:
            flight.more += parts
            return self.take(self.full)
        parts.append(self.take(self.part))
        whole = self.whole()
        self.give(parts)
        return whole

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
        if not self.sums:
            self._average()
            self.live, self.seen = [], set()
        total = sum(self.weights)
        self.once(2 * total / max(1, total // BUCKET))

    def _average(self) -> None:
        """Gradients go through a bucket; those of weights that reach into this rank's share are copied out of
        it, and each is widened to look for overflows, and for its norm (zero/stage_1_and_2.py,
        reduce_ipg_grads, copy_grads_in_partition, _has_inf_or_nan, get_grad_norm_direct, step).

        Offloaded, they are widened in the bucket and go to the host.
        """
        if not self.job.layout.zero and self.state:
            self._flatten()
            return
        mine = _reached(self.weights, self.ranks if self.job.layout.zero else 1)
        bucket = self.take(2 * BUCKET)
        copied = [self.take(2 * sum(whole for whole, _ in mine))] if self.state else []
        self.give(self.live)
        if not self.state:
            self._widen(mine)
            self.give([bucket])
            return
        self.give([bucket])
        self._widen(mine)
        flat = self.take(self.state / 2)
        wide = self.take(self.state)
        self.give([flat, *copied, wide])

    def _widen(self, mine: list[tuple[float, float]]) -> None:
        """Overflows are looked for in 32 bits, norms taken in 64."""
        for width in (4, 8):
            for _, part in mine:
                self.once(width * part)

    def _flatten(self) -> None:
        """Without ZeRO: averaged in a bucket as large as they are, then all widened and joined (engine.py,
        allreduce_bucket; fp16/fused_optimizer.py, step)."""
        self.once(2 * min(BUCKET, sum(self.weights)))
        flat = self.take(4 * sum(self.weights))
        for weight in self.weights:
            self.once(4 * weight)
        self.give([*self.live, flat])


def _reached(weights: list[float], ranks: int) -> list[tuple[float, float]]:
    """(parameters, those of this rank) of the weights that reach into the share of the rank in the middle; an
    embedding lies with the first ranks, which pass more of it through memory than was ever read there."""
    share = sum(weights) / ranks
    begin = ranks // 2 * share
    found, at = [], 0.0
    for weight in weights:
        part = min(at + weight, begin + share) - max(at, begin)
        if part > 0:
            found.append((weight, part))
        at += weight
    return found
