"""What one GPU of a pipeline stage asks of its allocator: states, passes in their order, optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.logits import LOSS_TENSORS, Change
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.model.tensors.tensor_lists import RECEIVED
from railwright.spec.training import TrainingJob
from railwright.training.layers.along_sequence import copies_rows
from railwright.training.layers.recompute import layers_again
from railwright.training.layers.stages import StageShape
from railwright.training.layout.route import Chunk, Unit
from railwright.training.layout.schedule import in_pairs
from railwright.training.layout.sizes import sequence_ranks, tokens_of
from railwright.training.memory.activations import layers_away, stage_activations, stays_of_head
from railwright.training.memory.allocator import Requests, Tensor
from railwright.training.memory.chunked_kept import WHOLE_INPUT
from railwright.training.memory.end_activations import loss_kept
from railwright.training.memory.moved import Buffer, buffers
from railwright.training.memory.replay_chunks import ChunkedHead
from railwright.training.memory.states import (
    COPY,
    IN_PASSES,
    JOINED,
    ROOTS,
    STATES,
    WIDENED,
    cached_weights,
    moment_bytes,
    state_parts,
    unit_waits,
)
from railwright.training.memory.tape import LayerPass, LayerPlan, backward, forward
from railwright.training.memory.units import makes_gradients
from railwright.training.optimizer.muon import ITERATION

OneLayer = tuple[Layer, bool]
"""The kind of a layer, and whether `layout.recompute` is for it."""

Plans = Mapping[OneLayer, Sequence[LayerPlan]]


def layers_of(job: TrainingJob, arch: Transformer, chunk: Chunk) -> list[OneLayer]:
    """The layers of a chunk in their order."""
    again = layers_again(job, arch, chunk)
    return [(kind, i < again) for i, kind in enumerate(chunk.layers)]


@dataclass
class Flight:
    """One microbatch of one chunk between its passes.

    layers  what each layer holds
    more    tensors that are freed when its backward pass begins
    loss    what the loss has of its logits, by name
    """

    layers: list[LayerPass] = field(default_factory=list)
    more: list[Tensor] = field(default_factory=list)
    loss: dict[str, Tensor] = field(default_factory=dict)


@dataclass(eq=False)
class Replay:
    """A stage under Megatron-LM or PyTorch's FSDP.

    ranks   that hold the same dense parameters
    one_copy  whether weights in fp8 have no transpose
    plans   of each layer, taken in turn: experts receive other numbers of rows every time
    """

    job: TrainingJob
    arch: Transformer
    shape: StageShape
    ranks: int
    one_copy: bool
    plans: Plans
    memory: Requests

    def __post_init__(self) -> None:
        job, shape = self.job, self.shape
        self.turn = 0
        self.chunks = [layers_of(job, self.arch, chunk) for chunk in shape.chunks]
        self.states = state_parts(job, self.arch, shape, self.ranks, self.one_copy)
        self.tensors = stage_activations(job, self.arch, shape, unit_waits(job, self.states))
        self.split = sequence_ranks(job)
        self.rows = tokens_of(job)
        self.full = ELEMENT * self.rows * self.arch.hidden
        waits = unit_waits(job, self.states)
        self.chunked = ChunkedHead.of(job, self.arch, waits) if job.chunked_loss else None
        self.made = self._weights()
        self.weights = [weight for _, _, weight in self.made]
        self.flights: dict[tuple[int, int], Flight] = {}
        # until a step ends: what its last stage put out, and gradients that its first microbatch made
        self.of_step: list[Tensor] = []
        self.makes = makes_gradients(job, self.ranks)
        self.moment = 0.0
        self.layered = in_pairs(job)
        # a forward pass whose layer goes to the host beside the next backward pass of a layer
        self.leaving: tuple[Flight, Sequence[OneLayer]] | None = None

    def _weights(self) -> list[tuple[int, str, float]]:
        """(chunk, part of it, parameters) of the stage's weights in the order they are made; those of norms
        and biases are spread over them."""
        found: list[tuple[int, str, float]] = []
        for c, (chunk, layers) in enumerate(zip(self.shape.chunks, self.chunks, strict=True)):
            found.append((c, "ends", self.shape.embedding * chunk.embedding))
            for layer in layers:
                tensors = self.plans[layer][0].tensors
                for op in tensors.operators:
                    read = {tensors.groups.get(name, name) for name in op.reads}
                    part = "expert" if read & set(RECEIVED) else "dense"
                    found += [(c, part, weight) for weight in op.weights]
            found.append((c, "ends", self.shape.head * chunk.head))
        return [one for one in found if one[2]]

    def take(self, size: float) -> Tensor:
        """A tensor of so many bytes."""
        return self.memory.take(size)

    def once(self, size: float) -> None:
        """A tensor that is freed at once."""
        if size:
            self.memory.give(self.memory.take(size))

    def each(self, *sizes: float, of: Buffer | None = None) -> list[Tensor]:
        """Tensors for every weight, or for those of one buffer, one after another; so many bytes together of
        each kind."""
        weights = [w for c, part, w in self.made if of is None or (c == of.chunk and part in of.parts)]
        total = sum(weights)
        return [self.take(size * weight / total) for weight in weights for size in sizes if size]

    def give(self, tensors: Sequence[Tensor]) -> None:
        """Free tensors."""
        for tensor in tensors:
            self.memory.give(tensor)

    def start(self) -> None:
        """Weights one by one, buffers of weights that move and of gradients, and fp32 masters.

        Megatron's distributed optimizer moves weights that train into its buffers one after the other
        (`moved`); what shards gradients has shards of each and no buffers.  Casts of weights that are cached
        come with the first pass, moments with the first step (Transformer Engine, pytorch/module/base.py,
        get_weight_workspace, and pytorch/optimizers/fused_adam.py).
        """
        states = self.states
        casts = cached_weights(self.job, self.shape, self.ranks, self.one_copy)
        moved = buffers(self.job, self.shape)
        weights = [self.each(one.weights, of=one) for one in moved]
        self.each(states["weights"] - casts - sum(one.weights for one in moved))
        for one, blocks in zip(moved, weights, strict=True):
            for size in (one.weights, one.gradients):
                if size:
                    self.take(size)
            self.give(blocks)
        if not moved:
            self.hold_gradients()
        self.passing = self.in_passes()
        if STATES in states:
            self.moment = moment_bytes(self.job, self.arch, self.shape, self.ranks) / 2
            self.each(states[STATES] - 2 * self.moment)
        self.each(casts / 2, casts / 2)
        self.always()

    def hold_gradients(self) -> None:
        """Sums of gradients, or shards of them."""
        gradients = 0.0 if self.makes else self.states["gradients"]
        if self.job.layout.zero >= 2:
            self.each(gradients)
        elif gradients:
            self.take(gradients)

    def in_passes(self) -> list[Tensor]:
        """What is gathered, waits to be reduced or is on its way, but at the optimizer's step."""
        return [self.take(size) for name in IN_PASSES if (size := self.states.get(name))]

    def always(self) -> None:
        """What stays for good: workspaces, placeholders, buffers."""
        for size in (*self.tensors.always.values(), *stays_of_head(self.job, self.tensors).values()):
            if size:
                self.take(size)

    def begin(self, left_out: int) -> None:
        """A step, of which so many microbatches are not replayed: what stays of these until the next one."""
        if size := left_out * self.tensors.output:
            self.of_step.append(self.take(size))

    def run(self, unit: Unit) -> None:
        """One pass.  Where gradients of weights run later, what the layers hold is freed then; a backward
        pass beside a forward one has left the head before that one reaches it."""
        if unit.kind == "F":
            self.leave(unit, *self.enter(unit))
        elif unit.kind == "B":
            self.finish(unit, self.turned(unit))
        elif unit.kind == "I":
            self.memory.give(self.turned(unit))
        elif unit.kind == "W":
            self.finish(unit, self.take(self.full / self.split))
        elif unit.kind == "FB":
            self.together(*unit.passes)

    def together(self, ahead: Unit, back: Unit) -> None:
        """A forward pass beside a backward one; Megatron's combined ones take turns layer by layer.

        A layer of the one leaves for the host while one of the other comes back.
        """
        gradient, flight = self.turned(back), Flight()
        output = self.arrived(ahead, flight)
        layers, other = self.chunks[ahead.chunk], self.flights[back.chunk, back.microbatch]
        while len(flight.layers) < len(layers):
            self.depart(flight, layers)
            output = self.layer(flight, layers, output)
            if self.layered and other.layers:
                gradient = self.layer_back(other, gradient, self.gradients(back))
        if other.layers and not self.layered:
            self.leaving = (flight, layers)
        else:
            self.depart(flight, layers)
        self.finish(back, gradient)
        self.leave(ahead, flight, output)

    def enter(self, unit: Unit) -> tuple[Flight, Tensor]:
        """A forward pass up to its last layer's output."""
        flight, layers = Flight(), self.chunks[unit.chunk]
        output = self.arrived(unit, flight)
        while len(flight.layers) < len(layers):
            output = self.layer(flight, layers, output)
            self.depart(flight, layers)
        return flight, output

    def layer(self, flight: Flight, layers: Sequence[OneLayer], entry: Tensor) -> Tensor:
        """The next layer's forward pass; returns its output."""
        plans = self.plans[layers[len(flight.layers)]]
        done, output = forward(self.memory, plans[self.turn % len(plans)], entry)
        self.turn += 1
        flight.layers.append(done)
        return output

    def depart(self, flight: Flight, layers: Sequence[OneLayer]) -> None:
        """The layer before the last one has left for the host while that computed."""
        if 2 <= len(flight.layers) <= layers_away(self.job, len(layers)) + 1:
            flight.layers[-2].send(self.memory)

    def layer_back(
        self, flight: Flight, gradient: Tensor, into: list[Tensor] | None, named: bool = False
    ) -> Tensor:
        """The last layer's backward pass that is left; it and the one before come back from the host."""
        for done in flight.layers[-2:]:
            done.fetch(self.memory)
        gradient = backward(self.memory, flight.layers.pop(), gradient, into, named)
        if self.leaving:
            self.depart(*self.leaving)
            self.leaving = None
        return gradient

    def leave(self, unit: Unit, flight: Flight, output: Tensor) -> None:
        """The end of a forward pass: norm, product and loss, or the next stage."""
        self.flights[unit.chunk, unit.microbatch] = flight
        if not self.shape.chunks[unit.chunk].head:
            self.left(output, flight)
            return
        if self.tensors.output:
            self.of_step.append(self.take(self.tensors.output))
        if self.chunked:
            flight.more += self.chunked.forward(self.memory, output, (unit.chunk, unit.microbatch))
            return
        part = self.full / self.split
        inputs = 2 * part
        flight.more += [output, self.take(part)]
        if copies_rows(self.job):
            gathered = self.take(self.full)
            flight.more.append(self.take(self.full))
            self.give([gathered])
            inputs += self.full
        elif self.split > 1:
            self.once(self.full)
        tensors = LOSS_TENSORS.get(loss_kept(self.job))
        # without the inputs, which are counted with it
        waiting = self.tensors.waiting - inputs
        if tensors is None:
            flight.more.append(self.take(waiting))
            self.give(self.loss())
            return
        if (more := waiting - tensors.waits * self.logits) >= 1:
            flight.more.append(self.take(more))
        self.change(flight.loss, tensors.forward)

    @property
    def logits(self) -> float:
        """Of a microbatch, on this rank."""
        return (1 + self.arch.mtp_layers) * self.rows * self.arch.vocab / self.job.layout.tensor

    def change(self, live: dict[str, Tensor], changes: Sequence[Change]) -> None:
        """Tensors of the loss come and go."""
        for name, size in changes:
            if size > 0:
                live[name] = self.take(size * self.logits)
            else:
                self.memory.give(live.pop(name))

    def loss(self) -> list[Tensor]:
        """What a pass of the loss makes beside what it keeps between its passes, as so many copies of 16-bit
        logits; of losses that are not PyTorch's."""
        beside = self.tensors.head_backward["logits"] - self.tensors.waiting
        one = ELEMENT * self.rows * self.arch.vocab / self.job.layout.tensor
        sizes = [one] * int(beside / one + 1e-9)
        return [self.take(size) for size in (*sizes, beside - sum(sizes)) if size >= 1]

    def arrived(self, unit: Unit, flight: Flight) -> Tensor:
        """What the first layer of a pass reads; an embedding keeps what its norm and its dropout need."""
        if self.shape.chunks[unit.chunk].embedding:
            flight.more += [self.take(size) for size in self.tensors.embedded]
        return self.take(self.full / self.split)

    def left(self, output: Tensor, flight: Flight) -> None:
        """What becomes of a pass's output: it is sent and freed."""
        self.memory.give(output)

    def turned(self, unit: Unit) -> Tensor:
        """The beginning of a backward pass: the gradient of its last layer's output.

        Logits and their gradient have gone with the head's product when the final norm's gradient comes.
        """
        if not self.shape.chunks[unit.chunk].head:
            return self.returned(self.flights[unit.chunk, unit.microbatch])
        flight, parts = self.flights[unit.chunk, unit.microbatch], self.tensors.head_backward
        if self.chunked:
            more, flight.more = flight.more, []
            return self.chunked.backward(self.memory, more, (unit.chunk, unit.microbatch))
        if tensors := LOSS_TENSORS.get(loss_kept(self.job)):
            self.change(flight.loss, tensors.backward)
            beside, inputs = list(flight.loss.values()), flight.more
        else:
            *inputs, logits = flight.more
            beside = [*self.loss(), logits]
        flowing = self.take(self.full)
        if not copies_rows(self.job):
            self.once(parts.get(WHOLE_INPUT, 0.0))
        if not stays_of_head(self.job, self.tensors):
            self.weight_gradient(self.tensors.of_head, unit)
        self.give(beside)
        if copies_rows(self.job):
            self.once(self.full)
        gradient = self.take(self.full / self.split)
        self.give([flowing, *inputs])
        flight.more, flight.loss = [], {}
        return gradient

    def returned(self, flight: Flight) -> Tensor:
        """The gradient of a pass's output, from the next stage."""
        return self.take(self.full / self.split)

    def finish(self, unit: Unit, gradient: Tensor) -> None:
        """The layers' backward passes, and the embedding's."""
        flight = self.flights.pop((unit.chunk, unit.microbatch))
        gradient = self.layers(unit, flight, gradient)
        if self.shape.chunks[unit.chunk].embedding:
            size = self.tensors.embedding_backward.get("gradient of the embedding", 0.0)
            self.weight_gradient(size, unit, of_head=False)
        self.memory.give(gradient)

    def layers(self, unit: Unit, flight: Flight, gradient: Tensor) -> Tensor:
        """From the gradient of the last layer's output to that of the first one's input."""
        self.give(flight.more)
        while flight.layers:
            gradient = self.layer_back(flight, gradient, self.gradients(unit))
        return gradient

    def weight_gradient(self, size: float, unit: Unit, of_head: bool = True) -> None:
        """The gradient of the head's weight, or of the embedding's, where a pass makes it.

        size  in bytes
        """
        into = self.gradients(unit)
        if into is None:
            self.once(size)
        elif size:
            into.append(self.take(size))

    def gradients(self, unit: Unit) -> list[Tensor] | None:
        """Where a pass's gradients of weights stay; None where they are added to sums and freed."""
        return self.of_step if self.makes and unit.microbatch == 0 else None

    def update(self, step: int) -> None:
        """The optimizer's step, on gradients in fp32; the first one makes the moments."""
        self.give(self.passing)
        copies = self.each(self.states.get(COPY, 0.0))
        if step == 0:
            self.each(self.moment, self.moment)
        self.once(self.states.get(ITERATION, 0.0))
        for name in (JOINED, WIDENED, ROOTS):
            self.give(self.each(self.states.get(name, 0.0)))
        self.give([*copies, *self.of_step])
        self.of_step = []
        self.passing = self.in_passes()
