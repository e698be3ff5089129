"""Low-rank adapters: a frozen model with two thin matrices beside some of its products.

Beside y = x W stands y += (x A) B with A of `inputs` x r and B of r x `outputs`; only A and B have weight
gradients.  Source: Hu et al., ICLR 2022 (arXiv 2106.09685), section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from railwright.errors import PlanError
from railwright.model import layer_operators
from railwright.model.architecture import Operator, Transformer
from railwright.model.kernels import ELEMENT, elementwise, half, linear
from railwright.model.norms import NORMALISED
from railwright.model.operators import LayerOperators
from railwright.model.pattern import Layer, is_routed, kinds_present
from railwright.model.tensor_lists import PROJECTED_INPUT, LayerTensors
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import Layout, TrainingJob

PRODUCTS: dict[LoraTarget, tuple[str, ...]] = {
    "qkv": ("qkv projection", "query projection", "query up", "key/value up"),
    "attention output": ("output projection",),
    "mlp up": ("mlp up", "shared expert up"),
    "mlp down": ("mlp down", "shared expert down"),
}
"""Operators of each target.  Routed experts get none: NeMo and PEFT adapt linear layers, not grouped ones."""

FROZEN: dict[str, LoraTarget] = {
    "attention norm output": "qkv",
    "gated output": "attention output",
    PROJECTED_INPUT: "attention output",
    "mlp norm output": "mlp up",
    "mlp product": "mlp down",
    "shared input": "mlp up",
    "shared norm output": "mlp up",
    "shared product": "mlp down",
}
"""Inputs of products that are kept beside frozen weights only where the product has an adapter."""

MAKES: dict[str, frozenset[str]] = {
    "qkv": frozenset({"query, key, value", "query and key before norm", "before rotation"}),
    "attention output": frozenset({"projected"}),
    "mlp up": frozenset({"mlp up output", "shared up output"}),
    "mlp down": frozenset({"down", "shared down"}),
}
"""Tensors that each target's product makes (`model.tensors`)."""

ROWS: tuple[LoraTarget, ...] = ("attention output", "mlp down")
"""Targets whose products tensor ranks cut by rows, others by columns.  An adapter's first product is cut as
its target, or by its columns, the second one by its columns: no rank holds either whole.
Source: NeMo 8cfedd7, collections/llm/peft/utils.py, ParallelLinearAdapter (linear_in, linear_out)."""

THIN, SUM = (" adapter in", " adapter out"), " adapter sum"
"""Ends of the names of an adapter's two products, and of what adds their result."""

ROUTED = ("expert input", "expert product", "mixer norm output", "mixer output")
"""Inputs of products that get no adapters: those of routed experts and of linear mixers."""


def check_adapters(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where a model has none of the products that get an adapter: nothing would train."""
    if job.lora is None:
        return
    present = targets_of(arch)
    if not set(present) & set(job.lora.targets):
        routed = " (routed experts get no adapters)" if arch.is_moe else ""
        raise PlanError(
            f"{job.name}: lora.targets names {', '.join(job.lora.targets)}, and {arch.name} has none of "
            f"them{routed}, so nothing would be trained; name {' or '.join(present)}."
        )


def targets_of(arch: Transformer) -> tuple[LoraTarget, ...]:
    """Targets that layers of a model have."""
    names = {op.name for kind in kinds_present(arch) for op in layer_operators(arch, kind, 1, 1).forward}
    return tuple(target for target, products in PRODUCTS.items() if names & set(products))


def with_adapters(operators: LayerOperators, lora: Lora, dtype: str, tp: int = 1) -> LayerOperators:
    """A layer's operators with its weights frozen and adapters beside their targets.

    tp  tensor-parallel size
    Weight gradients of the layer go away.  An adapter runs before its product, in 16 bits, and its result is
    added to the product's; where that is computed again, so is the adapter.
    """
    targets = {name for target in lora.targets for name in PRODUCTS[target]}
    forward: list[Operator] = []
    extra_input: dict[str, tuple[Operator, ...]] = {}
    weights: list[Operator] = []
    again: dict[str, list[Operator]] = {}
    for op in operators.forward:
        if op.name not in targets:
            forward.append(op)
            continue
        rows, (inner, outputs) = op.m * op.batch, _columns(op, lora.rank, tp)
        down = linear(f"{op.name}{THIN[0]}", rows, inner, op.k, half(dtype))
        up = linear(f"{op.name}{THIN[1]}", rows, outputs, lora.rank, half(dtype))
        added = elementwise(f"{op.name}{SUM}", rows, reads=2 * op.n, writes=op.n, back=0)
        again[op.name] = [down.forward, up.forward, added.forward]
        forward += [*again[op.name], op]
        extra_input[op.name] = (*up.backward_input, *down.backward_input)
        weights += [*up.backward_weight, *down.backward_weight]
    backward: list[Operator] = []
    for op in operators.backward_input:
        backward.append(op)
        backward += extra_input.pop(op.name.rsplit(", ", 1)[0], ())
    for left in extra_input.values():
        backward += left
    return replace(
        operators,
        forward=tuple(forward),
        backward_input=tuple(backward),
        backward_weight=tuple(weights),
        recomputed=tuple(one for op in operators.recomputed for one in (*again.get(op.name, ()), op)),
    )


def frozen(operators: LayerOperators) -> LayerOperators:
    """The same operators without weight gradients."""
    return replace(operators, backward_weight=())


def adapter_parameters(arch: Transformer, layer: Layer, layout: Layout, lora: Lora) -> float:
    """Parameters of one layer's adapters on one GPU: (inputs + outputs) r per target over tensor ranks."""
    routed = is_routed(layer)
    cut = (layout.tensor, layout.expert, layout.expert_tensor) if routed else (layout.tensor, 1, None)
    return float(_thin_weights(arch, layer, *cut, lora.rank, lora.targets))


@lru_cache(maxsize=256)
def _thin_weights(
    arch: Transformer,
    layer: Layer,
    tp: int,
    ep: int,
    expert_tp: int | None,
    rank: int,
    targets: tuple[LoraTarget, ...],
) -> int:
    names = {name for target in targets for name in PRODUCTS[target]}
    operators = layer_operators(arch, layer, tp, tp, tp=tp, ep=ep, expert_tp=expert_tp)
    found = [(op, *_columns(op, rank, tp)) for op in operators.forward if op.name in names]
    return sum(op.k * inner + rank * outputs for op, inner, outputs in found)


def _columns(product: Operator, rank: int, tp: int) -> tuple[int, int]:
    """Columns of an adapter's two products on one tensor rank.

    product  that it stands beside, as that rank has it
    """
    if any(product.name in PRODUCTS[target] for target in ROWS):
        return rank, -(-product.n // tp)
    return -(-rank // tp), product.n


INNER = "adapter's inner product, "
"""Begin of the name of x A of all adapters of a target; its end is the target."""


def inner_kept(job: TrainingJob, arch: Transformer, layer: Layer, rows: float) -> dict[str, float]:
    """What the gradient of B needs: x A of every adapter of a layer that does not run again. [byte]

    rows  tokens of a microbatch in the tensor-parallel group
    Every tensor rank has all of it: behind a first product cut by columns it is gathered, behind one cut by
    rows added up.  Source: NeMo 8cfedd7, collections/llm/peft/utils.py (ParallelLinearAdapter).
    """
    if job.lora is None:
        return {}
    layout, found = job.layout, {}
    modules = layout.recompute_modules if layout.recompute == "selective" else ()
    for target, number in _kept_adapters(arch, layer, modules).items():
        if number and target in job.lora.targets:
            found[INNER + target] = ELEMENT * rows * job.lora.rank * number
    return found


@lru_cache(maxsize=256)
def _kept_adapters(arch: Transformer, layer: Layer, modules: tuple[str, ...]) -> dict[LoraTarget, int]:
    operators = layer_operators(arch, layer, 1, 1, modules=modules)
    names = {op.name for op in operators.forward} - {op.name for op in operators.recomputed}
    return {target: len(names & set(products)) for target, products in PRODUCTS.items()}


def with_inner(tensors: LayerTensors, kept: Mapping[str, float]) -> LayerTensors:
    """A layer's tensors with x A of its adapters among what their targets make and keep.

    kept  what the layer keeps, `inner_kept` among it [byte]
    """
    inner = {name: size for name, size in kept.items() if name.startswith(INNER)}
    operators = list(tensors.operators)
    for name, size in inner.items():
        made = MAKES[name.removeprefix(INNER)]
        # of a layout of tensors without that name the first product, since where it lies decides little
        products = [i for i, op in enumerate(operators) if op.weights]
        i = next((i for i in products if made & set(operators[i].makes)), products[0])
        op = operators[i]
        operators[i] = replace(op, makes={**op.makes, name: size}, keeps=(*op.keeps, name))
    return replace(tensors, operators=tuple(operators), gradients={**tensors.gradients, **inner})


def is_needed(job: TrainingJob, name: str) -> bool:
    """Whether a layer's backward pass needs a tensor; a frozen product without an adapter never reads its
    input again, and frozen gains no more than what they multiply.

    name  as in `layer_activations`
    """
    if job.lora is None:
        return True
    if name.endswith(NORMALISED):
        return False
    return name not in ROUTED and (name not in FROZEN or FROZEN[name] in job.lora.targets)
