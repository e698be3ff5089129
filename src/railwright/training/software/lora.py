"""Low-rank adapters: a frozen model with two thin matrices beside some of its products.

Beside y = x W stands y += (x A) B with A of `inputs` x r and B of r x `outputs`; only A and B have weight
gradients.  Source: Hu et al., ICLR 2022 (arXiv 2106.09685), section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

from railwright.model import Cut, layer_operators
from railwright.model.operators.kernels import Block, elementwise, half, linear
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer, kinds_present
from railwright.spec.lora import Lora, LoraTarget
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layout.sizes import sequence_ranks, weights_cut

PRODUCTS: dict[LoraTarget, tuple[str, ...]] = {
    "qkv": ("qkv projection", "query projection", "query up", "key/value up"),
    "attention output": ("output projection",),
    "mlp up": ("mlp up", "shared expert up"),
    "mlp down": ("mlp down", "shared expert down"),
}
"""Operators of each target.  Routed experts get none: NeMo and PEFT adapt linear layers, not grouped ones."""

ROWS: tuple[LoraTarget, ...] = ("attention output", "mlp down")
"""Targets whose products tensor ranks cut by rows, others by columns.  An adapter's first product is cut as
its target, or by its columns, the second one by its columns: no rank holds either whole.
Source: NeMo 8cfedd7, collections/llm/peft/utils.py, ParallelLinearAdapter (linear_in, linear_out)."""

THIN, DROPOUT = (" adapter in", " adapter out"), " adapter dropout"
"""Ends of the names of an adapter's two products, and of dropout before the first or behind the second."""

SCALE, SUM = " adapter scale", " adapter sum"
"""Of what multiplies their result with alpha / rank, and of what adds it to the product's; backward that adds
the gradients of the input which both read.  Operations of PyTorch, each a kernel each way.
Sources: NeMo 8cfedd7, collections/llm/peft/lora.py (LoRALinear) and peft/utils.py (ParallelLinearAdapter),
Megatron-Bridge 067f987, the same files, PEFT's lora.Linear; of the gradients Transformer Engine 2.2,
pytorch/module/layernorm_linear.py (dgrad + grad_outputs[1]), and autograd else."""

DEQUANTISED = ", dequantised"
"""End of the names of the kernels that make 16 bits of a product's frozen weight (`nf4`); what stands before
it is the product's."""

WIDENED_BY = 3
"""Kernels that one call of bitsandbytes launches for that: of scales, their mean and the weight itself.
Source: bitsandbytes, functional.py, dequantize_4bit (quant_state.nested)."""

EXPERTS_UP = "experts up"
"""First product of routed experts, which has no adapter."""

Apart = Mapping[str, int]
"""Products in whose place stand several linear layers, each with an adapter of its own, and how many."""

MASKED = 0.5
"""An element of dropout's mask, one byte, in those of 16 bits.  Source: PyTorch, aten/src/ATen/native/cuda/
Dropout.cu (native_dropout on GPUs: one kernel that reads the input and writes result and mask; backward
another that reads gradient and mask), tools/autograd/derivatives.yaml (the mask alone is kept)."""


def targets_of(arch: Transformer) -> tuple[LoraTarget, ...]:
    """Targets that layers of a model have."""
    names = {op.name for kind in kinds_present(arch) for op in layer_operators(arch, kind, 1, 1).forward}
    return tuple(target for target, products in PRODUCTS.items() if names & set(products))


def linears(arch: Transformer, apart: bool) -> Apart:
    """Linear layers in the place of a model's products.

    apart  whether the software adapts queries, keys and values, and gates and what they multiply, each for
           itself (`Era.adapts_apart`)
    """
    if not apart:
        return {}
    found = {"qkv projection": 2 if arch.shared_values else 3}
    return found | (dict.fromkeys((*PRODUCTS["mlp up"], EXPERTS_UP), 2) if arch.gated else {})


def input_ranks(job: TrainingJob, target: LoraTarget) -> int:
    """Tensor ranks that share the tokens of what dropout in front of a target's adapters reads.

    Sequence parallelism shares what a norm makes, and tensor ranks gather it for a product cut by columns.
    Transformer Engine gives the adapter what it gathered, unless user buffers gather (`overlap.tp`): then the
    adapter drops parts of its rank's tokens and gathers the rest itself.
    Source: NeMo 8cfedd7, collections/llm/peft/utils.py (get_adapter_attributes_from_linear,
    return_layernorm_output_gathered; ParallelLinearAdapter.forward); so in nlp/modules/common/megatron/
    adapters/mcore_mixins.py of 2024, and in Megatron-Bridge 067f987, peft/utils.py.
    """
    return sequence_ranks(job) if target not in ROWS and job.overlap.tp else 1


def result_ranks(job: TrainingJob, target: LoraTarget) -> int:
    """Tensor ranks that share the tokens of what a target's product and its adapters make: what is cut by
    rows is summed up and scattered under sequence parallelism (ParallelLinearAdapter.forward too,
    scatter_to_sequence_parallel_region or all2all_hp2sp)."""
    return sequence_ranks(job) if target in ROWS else 1


def with_adapters(
    operators: LayerOperators,
    job: TrainingJob,
    dtype: str,
    apart: Apart | None = None,
    compiled: bool = False,
) -> LayerOperators:
    """A layer's operators with its weights frozen and adapters beside their targets.

    apart     as `linears` says
    compiled  a compiler joins scale and sum, and the sum of gradients with what reads it

    Weight gradients of the layer go away.  An adapter runs before its product, in 16 bits, and its result is
    added to the product's; where that is computed again, so is the adapter.
    """
    lora = job.lora
    assert lora is not None
    targets = {name: target for target in lora.targets for name in PRODUCTS[target]}
    forward: list[Operator] = []
    extra_input: dict[str, tuple[Operator, ...]] = {}
    weights: list[Operator] = []
    again: dict[str, list[Operator]] = {}
    for op in operators.forward:
        if op.name not in targets:
            forward.append(op)
            continue
        number = (apart or {}).get(op.name, 1)
        blocks = _beside(op, targets[op.name], job, half(dtype), number, compiled)
        again[op.name] = [block.forward for block in blocks]
        forward += [*again[op.name], op]
        extra_input[op.name] = tuple(one for block in reversed(blocks) for one in block.backward_input)
        weights += [one for block in reversed(blocks) for one in block.backward_weight]
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


def _beside(
    op: Operator, target: LoraTarget, job: TrainingJob, dtype: str, number: int, compiled: bool
) -> list[Block]:
    """Adapters as they run forward, with dropout in front of them or behind.

    op      the product that they stand beside
    number  of them, whose results are taken to be equally wide
    """
    lora = job.lora
    assert lora is not None
    rows, (inner, outputs) = op.m * op.batch, _columns(op, lora.rank, job.layout.tensor)
    made = rows / result_ranks(job, target)
    added, thin = _parts(op.n, number), _parts(outputs, number)
    found = [linear(f"{op.name}{THIN[0]}", rows, inner, op.k, dtype)] * number
    found += [linear(f"{op.name}{THIN[1]}", rows, width, lora.rank, dtype) for width in thin]
    if lora.drops_input:
        found = [_dropout(op.name, rows / input_ranks(job, target), op.k)] * number + found
    if lora.drops_result:
        found += [_dropout(op.name, made, width) for width in added]
    back = 0.0
    if not compiled:
        found += [elementwise(f"{op.name}{SCALE}", made, width, width, back=2 * width) for width in added]
        back = 3 * op.k * rows / input_ranks(job, target) / made
    return found + [elementwise(f"{op.name}{SUM}", made, 2 * width, width, back=back) for width in added]


def _parts(width: int, number: int) -> list[int]:
    """A width in as many parts, which differ by one at most."""
    return [width // number + (i < width % number) for i in range(number)]


def _dropout(product: str, rows: float, width: int) -> Block:
    moved = (1 + MASKED) * width
    return elementwise(f"{product}{DROPOUT}", rows, reads=width, writes=moved, back=width + moved)


def frozen(operators: LayerOperators) -> LayerOperators:
    """The same operators without weight gradients."""
    return replace(operators, backward_weight=())


def adapter_parameters(
    arch: Transformer, layer: Layer, layout: Layout, lora: Lora, apart: bool = False
) -> float:
    """Parameters of one layer's adapters on one GPU: (inputs + outputs) r per adapter over tensor ranks.

    apart  as in `linears`
    """
    return float(_thin_weights(arch, layer, weights_cut(layout, layer), lora.rank, lora.targets, apart))


@lru_cache(maxsize=256)
def _thin_weights(
    arch: Transformer,
    layer: Layer,
    cut: Cut,
    rank: int,
    targets: tuple[LoraTarget, ...],
    apart: bool,
) -> int:
    names, several = {name for target in targets for name in PRODUCTS[target]}, linears(arch, apart)
    operators = layer_operators(arch, layer, cut.tp, cut.tp, cut)
    found = [(op, *_columns(op, rank, cut.tp)) for op in operators.forward if op.name in names]
    return sum(several.get(op.name, 1) * op.k * inner + rank * outputs for op, inner, outputs in found)


def _columns(product: Operator, rank: int, tp: int) -> tuple[int, int]:
    """Columns of an adapter's two products on one tensor rank.

    product  that it stands beside, as that rank has it
    """
    if any(product.name in PRODUCTS[target] for target in ROWS):
        return rank, -(-product.n // tp)
    return -(-rank // tp), product.n
