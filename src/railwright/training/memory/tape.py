"""What one layer's passes ask of the allocator: tensors are made, kept and freed as autograd does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from railwright.model.operators.norms import COPIED
from railwright.model.tensors.tensor_lists import INPUT, OUTPUT, LayerTensors
from railwright.training.memory.allocator import Part, Requests, Tensor


@dataclass(frozen=True)
class Taped:
    """One pass through a layer.

    held  name -> tensor that stays from a forward to its backward pass
    more  tensors that the pass leaves to whoever comes next
    """

    part: Part
    held: Mapping[str, Tensor]
    more: tuple[Tensor, ...]


@dataclass(frozen=True)
class LayerPlan:
    """What a layer's passes do with its tensors.

    kept       name -> bytes that a pass keeps (`layer_activations`); names that no tensor has are kept as
               they are
    again      whether the whole layer is computed again, from its input
    gradient   bytes of one weight's gradient that autograd makes; 0 where products add to sums of their own
    eager      Python's variables keep tensors until they go out of scope; compiled code frees them once read
    """

    tensors: LayerTensors
    kept: Mapping[str, float]
    again: bool
    gradient: float
    eager: bool = True

    @cached_property
    def last_read(self) -> Mapping[str, int]:
        """Tensor -> number of the operator after which no forward pass needs or names it."""
        made = {t: i for i, op in enumerate(self.tensors.operators) for t in op.makes}
        last = made | {t: i for i, op in enumerate(self.tensors.operators) for t in op.reads}
        for tensor, until in self.tensors.until.items() if self.eager else ():
            last[tensor] = max(last[tensor], made[until])
        return last

    @cached_property
    def freed(self) -> tuple[tuple[str, ...], ...]:
        """For every operator, the tensors that no forward pass needs or names after it."""
        found: list[list[str]] = [[] for _ in self.tensors.operators]
        for tensor, i in self.last_read.items():
            found[i].append(tensor)
        return tuple(map(tuple, found))

    @cached_property
    def first_kept(self) -> Mapping[str, int]:
        """Tensor that a backward pass needs -> number of the first operator that needs it."""
        found: dict[str, int] = {}
        for i, op in enumerate(self.tensors.operators):
            for tensor in op.keeps:
                found.setdefault(tensor, i)
        return found

    @cached_property
    def sizes(self) -> Mapping[str, float]:
        """Bytes of every tensor that the layer makes."""
        return {t: size for op in self.tensors.operators for t, size in op.makes.items()}

    @cached_property
    def stays(self) -> frozenset[str]:
        """Tensors that stay from the forward to the backward pass."""
        groups = self.tensors.groups
        return frozenset(t for t in self.first_kept if groups.get(t, t) in self.kept)

    @cached_property
    def holds_input(self) -> bool:
        """Whether what the layer reads stays until its backward pass; a norm that runs one kernel per
        operation keeps a copy of its own instead."""
        name = self.tensors.groups.get(INPUT, INPUT)
        return self.again or name in self.kept or not any(one.endswith(COPIED) for one in self.kept)

    @cached_property
    def forwards(self) -> Taped:
        """A forward pass; given is what the layer reads."""
        asked = Requests(sizes=[0])
        held, output = _forward(asked, self, 0)
        return Taped(Part.of(asked, 1), held, (output,))

    @cached_property
    def backwards(self) -> dict[tuple[bool, bool], Taped]:
        """Backward passes by whether gradients of weights stay and whether the caller frees the gradient of
        the output; given are what the forward pass holds, in its order, and that gradient."""
        return {}

    def backward(self, stay: bool, named: bool) -> Taped:
        """One of `backwards`; `more` are the gradient of the input and those of weights that stay."""
        if (stay, named) not in self.backwards:
            given = len(self.forwards.held) + 1
            asked, weights = Requests(sizes=[0] * given), list[Tensor]()
            live = {name: tensor for tensor, name in enumerate(self.forwards.held)}
            gradient = _backward(asked, self, live, given - 1, weights if stay else None, named)
            self.backwards[stay, named] = Taped(Part.of(asked, given), {}, (gradient, *weights))
        return self.backwards[stay, named]

    @cached_property
    def others(self) -> Mapping[str, float]:
        """What is kept and no tensor of the layer."""
        own = {self.tensors.groups.get(t, t) for t in (*self.first_kept, INPUT)} | {"layer input"}
        return {n: size for n, size in self.kept.items() if n not in own and not self.again}


@dataclass
class LayerPass:
    """One microbatch in one layer: what it holds between its passes, and what of it went to the host."""

    plan: LayerPlan
    held: dict[str, Tensor] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)

    def send(self, memory: Requests) -> None:
        """What it holds goes to the host."""
        self.sent = {name: memory.sizes[tensor] for name, tensor in self.held.items()}
        for tensor in self.held.values():
            memory.give(tensor)
        self.held = {}

    def fetch(self, memory: Requests) -> None:
        """What went to the host comes back."""
        self.held.update({name: memory.take(size) for name, size in self.sent.items()})
        self.sent = {}


def forward(memory: Requests, plan: LayerPlan, entry: Tensor) -> tuple[LayerPass, Tensor]:
    """Run a layer on its input; returns what it holds, the input included, and its output."""
    taped = plan.forwards
    here = memory.repeat(taped.part, (entry,))
    held = {name: here[tensor] for name, tensor in taped.held.items()}
    return LayerPass(plan, held), here[taped.more[0]]


def backward(
    memory: Requests, done: LayerPass, gradient: Tensor, weights: list[Tensor] | None, named: bool = False
) -> Tensor:
    """Run a layer back from the gradient of its output; returns that of its input.

    weights  takes the gradients of weights that stay; None where they are freed once they are added
    named    the caller frees the gradient of the output
    """
    taped = done.plan.backward(weights is not None, named)
    here = memory.repeat(taped.part, (*done.held.values(), gradient))
    done.held = {}
    result, *stay = (here[tensor] for tensor in taped.more)
    if weights is not None:
        weights += stay
    return result


def _forward(memory: Requests, plan: LayerPlan, entry: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    if plan.again:
        output = _run(memory, plan, {INPUT: entry}, frozenset((INPUT,)))[OUTPUT]
        return {INPUT: entry}, output
    live = _run(memory, plan, {INPUT: entry}, plan.stays | ({INPUT} if plan.holds_input else set()))
    output = live.pop(OUTPUT)
    return live | {name: memory.take(size) for name, size in plan.others.items()}, output


def _backward(
    memory: Requests,
    plan: LayerPlan,
    live: dict[str, Tensor],
    gradient: Tensor,
    weights: list[Tensor] | None,
    named: bool,
) -> Tensor:
    """What runs a layer again holds its output and that one's gradient until its end (Megatron-LM,
    core/tensor_parallel/random.py, CheckpointFunction.backward; PyTorch's and DeepSpeed's too)."""
    for name in plan.others:
        # what runs again starts from them
        memory.give(live.pop(name))
    held: list[Tensor] = []
    if plan.again:
        live = _run(memory, plan, live, frozenset((INPUT, *plan.first_kept)))
        held = [live.pop(OUTPUT)]
        if not named:
            held.append(gradient)
    flowing: dict[str, Tensor] = {OUTPUT: gradient}
    uses = {gradient: 2 if named or plan.again else 1}

    for i, op in reversed(list(enumerate(plan.tensors.operators))):
        for tensor in op.keeps:
            if tensor not in live and (size := plan.sizes.get(tensor, 0.0)):
                live[tensor] = memory.take(size)
        if op.beside[1]:
            memory.give(memory.take(op.beside[1]))
        out = [flowing.pop(t) for t in op.makes if t in flowing]
        for tensor in op.reads if out else ():
            _flow(memory, plan, flowing, uses, tensor, out[0] if op.same else None)
        for weight in op.weights if plan.gradient else ():
            made = memory.take(plan.gradient * weight)
            if weights is None:
                memory.give(made)
            else:
                weights.append(made)
        for one in out:
            _drop(memory, uses, one)
        for tensor in op.keeps:
            if plan.first_kept[tensor] == i and tensor in live:
                memory.give(live.pop(tensor))
    for one in (*held, *live.values()):
        memory.give(one)
    return flowing[INPUT]


def _flow(
    memory: Requests,
    plan: LayerPlan,
    flowing: dict[str, Tensor],
    uses: dict[Tensor, int],
    tensor: str,
    same: Tensor | None,
) -> None:
    """The gradient of one tensor that an operator reads; a second one is added to the first."""
    size = plan.tensors.gradients.get(tensor, 0.0)
    if not size:
        return
    if same is not None:
        made = same
        uses[same] += 1
    else:
        made = memory.take(size)
        uses[made] = 1
    before = flowing.get(tensor)
    if before is None:
        flowing[tensor] = made
        return
    # in place only where nobody else reads the first one
    if uses[before] > 1:
        total = memory.take(size)
        uses[total] = 1
        flowing[tensor] = total
    else:
        total = before
    for one in (before, made):
        if one != total:
            _drop(memory, uses, one)


def _drop(memory: Requests, uses: dict[Tensor, int], gradient: Tensor) -> None:
    """One use less of a gradient; after the last one it is freed."""
    uses[gradient] -= 1
    if not uses[gradient]:
        del uses[gradient]
        memory.give(gradient)


def _run(
    memory: Requests, plan: LayerPlan, live: dict[str, Tensor], stays: frozenset[str]
) -> dict[str, Tensor]:
    """The forward pass: what is not kept is freed once it was read for the last time."""
    live = dict(live)
    for i, op in enumerate(plan.tensors.operators):
        beside = memory.take(op.beside[0]) if op.beside[0] else None
        for tensor, size in op.makes.items():
            if size:
                live[tensor] = memory.take(size)
        if beside is not None:
            memory.give(beside)
        for tensor in plan.freed[i]:
            if tensor in live and tensor not in stays and tensor != OUTPUT:
                memory.give(live.pop(tensor))
    return live
