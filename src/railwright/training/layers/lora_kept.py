"""What a job with adapters keeps of a layer: what the gradients of their thin matrices need, and of the
frozen model's tensors what is left.

Of an adapter's first product that is its input.  As long as nothing changes it this is the tensor that the
frozen product reads.  Dropout makes a copy, beside a mask; so do tensor ranks that gather what sequence
parallelism shares: the first product keeps what it multiplies, all tokens of it.
Sources: NeMo 8cfedd7, collections/llm/peft/utils.py (ParallelLinearAdapter: linear_in is a linear layer of
Megatron-core's with sequence_parallel off); Megatron-LM d98e8a6, core/tensor_parallel/layers.py
(LinearWithGradAccumulationAndAsyncCommunication.forward, save_for_backward); Megatron-Bridge 067f987,
peft/utils.py (the same, but for sequence_parallel_input_regather, off by default).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from railwright.model import Cut, layer_operators
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.norms import NORMALISED
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import PARTS, Layer, made_as
from railwright.model.tensors.activations import KEPT_INPUT
from railwright.model.tensors.tensor_lists import PROJECTED_INPUT, LayerTensors
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import sequence_ranks, weights_cut
from railwright.training.software.eras import eager_parts, era_of
from railwright.training.software.lora import MASKED, PRODUCTS, ROWS, input_ranks, linears, result_ranks

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

EXCHANGED = "attention output"
"""Kept by attention itself, or for gates on it, unless all-to-alls swap heads for tokens behind it: then that
has kept what was before, and without gates this is the projection's input alone."""

MAKES: dict[str, frozenset[str]] = {
    "qkv": frozenset({"query, key, value", "query and key before norm", "before rotation"}),
    "attention output": frozenset({"projected"}),
    "mlp up": frozenset({"mlp up output", "shared up output"}),
    "mlp down": frozenset({"down", "shared down"}),
}
"""Tensors that each target's product makes (`model.tensors`)."""

ROUTED = ("expert input", "expert product", "mixer norm output", "mixer output")
"""Inputs of products that get no adapters: those of routed experts and of linear mixers."""

ADAPTERS = "adapters' "
"""Begin of the names of what adapters keep; behind a comma stands their target."""

INNER, MASK = f"{ADAPTERS}inner products, ", f"{ADAPTERS}dropout masks, "
READ = f"{ADAPTERS}inputs, "
"""Of all adapters of a target: x A, dropout's masks, and copies of x."""

NORMED = f"{ADAPTERS}norms as multiplied, "
"""The output of a norm in a narrow format, which a frozen product keeps and never reads again.

A product in one module with its norm (queries, keys and values; a dense MLP's first one) is told to give an
adapter the norm's output, and then keeps its own copy of it, frozen or not; in 16 bits that is the tensor
which the adapter gets.  Source: Transformer Engine 2.0 to d0067d0, pytorch/module/layernorm_linear.py (ln_out
is let go where not weight.requires_grad and not return_layernorm_output); up to 1.13 it was saved for weights
that train alone."""


def adapters_keep(job: TrainingJob, arch: Transformer, layer: Layer, rows: float) -> dict[str, float]:
    """What the gradients of A and B need of every adapter of a layer that does not run again. [byte]

    rows  tokens of a microbatch in the tensor-parallel group
    Every tensor rank has all of x A: behind a first product cut by columns it is gathered, behind one cut by
    rows added up.
    """
    lora, layout = job.lora, job.layout
    if lora is None:
        return {}
    found: dict[str, float] = {}
    modules = layout.recompute_modules if layout.recompute == "selective" else ()
    cut = weights_cut(layout, layer)
    apart = linears(made_as(arch, layer), era_of(job).adapts_apart)
    for target, products in _products(arch, layer, cut, modules).items():
        if not products or target not in lora.targets:
            continue
        number = [apart.get(op.name, 1) for op in products]
        found[INNER + target] = ELEMENT * rows * lora.rank * sum(number)
        inputs = sum(op.k for op in products)
        dropped = sum(op.k * n for op, n in zip(products, number, strict=True))
        if reads_copies(job, lora, target):
            found[READ + target] = ELEMENT * rows * (dropped if lora.drops_input else inputs)
        if target in norms_beside(job, arch, layer).values() and job.dtype in KEPT_INPUT:
            found[NORMED + target] = KEPT_INPUT[job.dtype] * rows * arch.hidden / sequence_ranks(job)
        if lora.drops_input:
            found[MASK + target] = MASKED * ELEMENT * rows / input_ranks(job, target) * dropped
        if lora.drops_result:
            made = sum(op.n for op in products)
            found[MASK + target] = MASKED * ELEMENT * rows / result_ranks(job, target) * made
    return found


@lru_cache(maxsize=256)
def _products(
    arch: Transformer, layer: Layer, cut: Cut, modules: tuple[str, ...]
) -> dict[LoraTarget, list[Operator]]:
    """Each target's products on one tensor rank, of those that do not run again."""
    operators = layer_operators(arch, layer, cut.tp, cut.tp, cut, modules=modules)
    again = {op.name for op in operators.recomputed}
    stay = [op for op in operators.forward if op.name not in again]
    return {t: [op for op in stay if op.name in names] for t, names in PRODUCTS.items()}


def reads_copies(job: TrainingJob, lora: Lora, target: LoraTarget) -> bool:
    """Whether adapters of a target read tensors of their own: what dropout left, or what is gathered."""
    return lora.drops_input or (target not in ROWS and sequence_ranks(job) > 1)


def norms_beside(job: TrainingJob, arch: Transformer, layer: Layer) -> dict[str, LoraTarget]:
    """Outputs of norms that a layer's frozen products keep beside adapters (NORMED), and those products."""
    if not era_of(job).keeps_adapted_norms or "norm" in eager_parts(job):
        return {}
    parts, made = PARTS[layer], made_as(arch, layer)
    found: dict[str, LoraTarget] = {}
    if parts.mixer == "attention" and made.attention != "mla":
        found["attention norm output"] = "qkv"
    if parts.mlp == "dense" and made.norms_per_layer > 1:
        found["mlp norm output"] = "mlp up"
    return found


def with_adapters_kept(tensors: LayerTensors, kept: Mapping[str, float]) -> LayerTensors:
    """A layer's tensors with what its adapters keep among what their targets make and keep.

    kept  what the layer keeps, `adapters_keep` among it [byte]
    """
    operators = list(tensors.operators)
    for name, size in kept.items():
        if not name.startswith(ADAPTERS):
            continue
        made = MAKES[name.rsplit(", ", 1)[1]]
        # of a layout of tensors without that name the first product, since where it lies decides little
        products = [i for i, op in enumerate(operators) if op.weights]
        i = next((i for i in products if made & set(operators[i].makes)), products[0])
        op = operators[i]
        operators[i] = replace(op, makes={**op.makes, name: size}, keeps=(*op.keeps, name))
    return replace(tensors, operators=tuple(operators))


def is_needed(job: TrainingJob, arch: Transformer, layer: Layer, name: str) -> bool:
    """Whether a layer's backward pass keeps a tensor; a frozen product without an adapter never reads its
    input again, nor does an adapter that reads copies, and frozen gains no more than what they multiply.

    name  as in `layer_activations`
    """
    lora = job.lora
    if lora is None:
        return True
    if name.endswith(NORMALISED) or name in ROUTED:
        return False
    target = FROZEN.get(name)
    swapped = job.layout.context > 1 and job.layout.context_kind == "all-to-all"
    if name == EXCHANGED and swapped and not made_as(arch, layer).attention_gate:
        target = "attention output"
    if target is None or target not in lora.targets:
        return target is None
    kept = name in norms_beside(job, arch, layer) and job.dtype not in KEPT_INPUT
    return kept or not reads_copies(job, lora, target)


def of_mlp(name: str) -> bool:
    """Whether adapters of an MLP keep a tensor, which its backward pass frees."""
    return name.startswith(ADAPTERS) and name.endswith((", mlp up", ", mlp down"))
