"""What one GPU asks of its allocator under PyTorch's FSDP2, which has streams of its own.

What is gathered comes on one stream and is copied out on that of the passes, what is reduced goes into a
tensor on the latter and comes out on a third.  The allocator gives no block of one stream to another: what
the largest units took for a moment stays theirs, and so do gradients' shards in passes, when there are none.

Source: PyTorch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather,
foreach_all_gather_copy_out, foreach_reduce), _fsdp_param_group.py (unshard, wait_for_unshard, post_backward,
_backward_prefetch), _fsdp_state.py (_lazy_init: the model itself is not resharded; _post_forward);
torchtitan at 05a8b5e4 and 2c8b5947, apply_fsdp.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Unit
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.allocator import Tensor
from railwright.training.memory.replay import Flight, Replay
from railwright.training.memory.states import PASSING
from railwright.training.memory.units import unit_counts, unit_sizes
from railwright.training.software.eras import era_of
from railwright.training.software.hosted import weights_on_host
from railwright.training.software.lora_checks import inputs_stay

GATHER, REDUCE = 1, 2
"""Streams beside that of the passes."""

FP32 = 4.0
"""Bytes of a gradient in a shard."""

EMBEDDING, HEAD, OWN = "embedding", "head", "own"
"""Units of a chunk beside its layers; the model's own one has both ends."""

Key = tuple[int, str | int]
"""Chunk of a stage and which of its units: a layer by its number."""


class Share(NamedTuple):
    """A unit: bytes that are gathered; parameters that have gradients; and how many ranks share both."""

    gathered: float
    reduced: float
    ranks: float


@dataclass(eq=False)
class ShardedReplay(Replay):
    """A stage under FSDP2.

    units   of all chunks
    opened  weights of units that are whole
    ahead   units that were gathered ahead and not copied out, and what they were gathered into
    before  what the unit that was copied out last was gathered into
    unreduced  gradients of units that are not reduced yet
    waits   what is being reduced
    shards  gradients of units
    """

    units: dict[Key, Share] = field(init=False)
    opened: dict[Key, list[Tensor]] = field(init=False, default_factory=dict)
    ahead: dict[Key, Tensor] = field(init=False, default_factory=dict)
    before: Tensor | None = field(init=False, default=None)
    unreduced: dict[Key, list[Tensor]] = field(init=False, default_factory=dict)
    waits: Tensor | None = field(init=False, default=None)
    shards: dict[Key, Tensor] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.units = _units(self.job, self.shape, self.ranks)

    def hold_gradients(self) -> None:
        if not self.job.layout.reduce_each:
            super().hold_gradients()

    def in_passes(self) -> list[Tensor]:
        return [self.take(size) for size in [self.states.get(PASSING, 0.0)] if size]

    def end(self, chunk: int, name: str) -> Key | None:
        """The unit with an end of a chunk; a tied head's is the embedding's."""
        keys = ((chunk, which) for which in (name, OWN, EMBEDDING))
        return next((key for key in keys if key in self.units), None)

    def gather(self, key: Key) -> None:
        """Shards in 16 bits, and one tensor of all of them."""
        unit = self.units[key]
        own = self.memory.take(unit.gathered / unit.ranks, GATHER)
        self.ahead[key] = self.memory.take(unit.gathered, GATHER)
        self.memory.give(own)

    def gather_ahead(self, key: Key, back: bool) -> None:
        """Of units behind one that is copied out, in a forward pass one less: the next one is gathered when
        its turn comes, while this one computes."""
        count = self.job.overlap.prefetch - (not back)
        if count <= 0:
            return
        units = [one for one in self.units if one[0] == key[0]]
        units = units[::-1] if back else units
        at = units.index(key) + 1
        for one in units[at : at + count]:
            if one not in self.opened and one not in self.ahead:
                self.gather(one)

    def unshard(self, key: Key, back: bool = False) -> None:
        """A unit's weights whole.

        In a forward pass what they were gathered into stays until the next unit's is there, in a backward
        pass that one comes behind it.
        """
        if key not in self.units:
            return
        if key not in self.opened:
            if not self.job.overlap.prefetch:
                self.flush()
            if key not in self.ahead:
                self.gather(key)
            self.flush()
            self.opened[key] = [self.take(size) for size in self.weights_of(key)]
            self.before = self.ahead.pop(key)
            if back:
                self.flush()
        self.gather_ahead(key, back)

    def weights_of(self, key: Key) -> list[float]:
        """Bytes of the weights of a unit, those of norms spread over them."""
        chunk, name = key
        if name == OWN:
            of, shape = self.shape.chunks[chunk], self.shape
            found = [end for end in (shape.embedding * of.embedding, shape.head * of.head) if end]
        elif isinstance(name, int):
            operators = self.plans[self.chunks[chunk][name]][0].tensors.operators
            found = [weight for op in operators for weight in op.weights if weight]
        else:
            found = [1.0]
        total, whole = sum(found), self.units[key].gathered
        return [whole * weight / total for weight in found] or [whole]

    def flush(self) -> None:
        """Let go of what the last unit was gathered into."""
        if self.before is not None:
            self.memory.give(self.before)
            self.before = None

    def reshard(self, key: Key, back: bool = False) -> None:
        """Let go of a unit's weights, where they do not stay."""
        layout = self.job.layout
        if layout.reshard or (back and layout.pipeline == 1):
            self.give(self.opened.pop(key, []))

    def enter(self, unit: Unit) -> tuple[Flight, Tensor]:
        c, flight, layers = unit.chunk, Flight(), self.chunks[unit.chunk]
        self.unshard((c, OWN))
        self.unshard((c, EMBEDDING))
        output = self.arrived(unit, flight)
        self.reshard((c, EMBEDDING))
        for i in range(len(layers)):
            self.unshard((c, i))
            output = self.layer(flight, layers, output)
            self.depart(flight, layers)
            # the last one's backward pass comes soon, unless the head is a unit of its own
            if i < len(layers) - 1 or (c, OWN) not in self.units:
                self.reshard((c, i))
        return flight, output

    def leave(self, unit: Unit, flight: Flight, output: Tensor) -> None:
        self.unshard((unit.chunk, HEAD))
        self.flush()
        super().leave(unit, flight, output)

    def turned(self, unit: Unit) -> Tensor:
        key = unit.chunk, HEAD
        gradient = super().turned(unit)
        self.unshard(key, back=True)
        self.reduce(key)
        return gradient

    def together(self, ahead: Unit, back: Unit) -> None:
        """Two chunks whose weights are whole together."""
        keys = [key for key in self.units if key[0] in (ahead.chunk, back.chunk)]
        for key in keys:
            self.unshard(key)
        self.flush()
        layers = [(back.chunk, i) for i in range(len(self.chunks[back.chunk]))]
        super().together(ahead, back)
        for key in layers if self.layered else []:
            self.reduce(key)
        for key in keys:
            self.reshard(key)

    def layers(self, unit: Unit, flight: Flight, gradient: Tensor) -> Tensor:
        self.give(flight.more)
        stay = list[Tensor]()
        while flight.layers:
            key = unit.chunk, len(flight.layers) - 1
            self.unshard(key, back=True)
            made = self.unreduced[key] = list[Tensor]()
            # sums in 16 bits take what autograd makes as it is
            summed = not self.job.layout.reduce_each and gradient_bytes(self.job) < FP32
            gradient = self.layer_back(flight, gradient, None if summed else made)
            self.reduce(key)
            if inputs_stay(self.job):
                stay += [self.take(self.full / self.split) for _ in range(2)]
        self.give(stay)
        return gradient

    def weight_gradient(self, size: float, unit: Unit, of_head: bool = True) -> None:
        key = self.end(unit.chunk, HEAD if of_head else EMBEDDING)
        if key is None:
            super().weight_gradient(size, unit, of_head)
        elif size:
            self.unshard(key, back=True)
            self.unreduced.setdefault(key, []).append(self.take(size))

    def finish(self, unit: Unit, gradient: Tensor) -> None:
        super().finish(unit, gradient)
        for name in (EMBEDDING, OWN):
            self.reduce((unit.chunk, name))
        self.reduced()

    def reduced(self) -> None:
        """Let go of what was reduced last."""
        if self.waits is not None:
            self.memory.give(self.waits)
            self.waits = None

    def reduce(self, key: Key) -> None:
        """A unit's weights go; its gradients are joined in one tensor, and their shards come out of it, in
        fp32, to be added to those of microbatches before or sent to the host."""
        if key not in self.units:
            return
        self.reshard(key, back=True)
        unit, width, gradients = self.units[key], gradient_bytes(self.job), self.unreduced.pop(key, [])
        if not self.job.layout.reduce_each or not unit.reduced:
            self.give(gradients)
            return
        self.reduced()
        self.waits = self.take(width * unit.reduced)
        self.give(gradients)
        shard = self.memory.take(width * unit.reduced / unit.ranks, REDUCE)
        if width != FP32:
            narrow, shard = shard, self.memory.take(FP32 * unit.reduced / unit.ranks, REDUCE)
            self.memory.give(narrow)
        if key in self.shards or weights_on_host(self.job):
            self.memory.give(shard)
        else:
            self.shards[key] = shard

    def update(self, step: int) -> None:
        super().update(step)
        self.flush()
        self.give([*self.shards.values(), *self.ahead.values(), *chain(*self.opened.values())])
        self.shards, self.ahead, self.opened = {}, {}, {}


def _units(job: TrainingJob, shape: StageShape, ranks: int) -> dict[Key, Share]:
    """Units of all chunks in the order in which forward passes gather them.

    ranks  that hold the same dense parameters
    """
    dense, expert = Sizes.under(job.layout, ranks // job.layout.context).over(3)
    first, last = [0.0] * bool(shape.embedding), [0.0] * bool(shape.head)
    trained = counts = unit_counts(shape)
    if shape.adapters is not None:
        trained = [*first, *(size for chunk in shape.adapters for size in chunk), *last]
    routed = [*first, *unit_counts(shape, of_dense=False), *last]
    sizes = unit_sizes(job, shape, True, True)
    shares = [
        Share(size, trains, count / ((count - of_experts) / dense + of_experts / expert))
        for size, count, trains, of_experts in zip(sizes, counts, trained, routed, strict=True)
    ]
    found, joined, at = dict[Key, Share](), era_of(job).units == "joined", len(first)
    for c, chunk in enumerate(shape.chunks):
        embedding = shares[:1] if first and chunk.embedding else []
        head = shares[-1:] if last and chunk.head else []
        if joined and (own := [*embedding, *head]):
            found[c, OWN] = Share(sum(u.gathered for u in own), sum(u.reduced for u in own), own[0].ranks)
        elif embedding and not joined:
            found[c, EMBEDDING] = embedding[0]
        for i in range(len(chunk.layers)):
            found[c, i] = shares[at + i]
        at += len(chunk.layers)
        if head and not joined:
            found[c, HEAD] = head[0]
    return found
