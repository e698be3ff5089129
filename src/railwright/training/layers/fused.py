"""Kernels that a dispatcher or an era runs inside others, or apart from them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from railwright.catalog.parts import Gpu
from railwright.model.operators.kernels import ELEMENT, GRADIENT
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training.software.constants import constant
from railwright.training.software.eras import era_of

DISPATCH = frozenset({"permute", "permute, backward", "unpermute", "unpermute, backward"})
"""DeepEP and HybridEP send a token's row from where it lies to every GPU that needs it, and add up what comes
back: the sender never writes one copy per expert.  Source: deepseek-ai/DeepEP, README (dispatch, combine);
Megatron-LM, moe/token_dispatcher.py, MoEFlexTokenDispatcher (permutes only what has arrived)."""

DROP_LAUNCHES, DROP_PASSES = 8, 24.0
"""With a fixed capacity of experts nobody counts tokens: kernels that choose each expert's tokens instead
(top-k over all of them, which sorts, a mask scattered into zeros, its cast, a product with the gates), and
what they move (twelve passes over 32 bits) over one pass over 16 bits, the counts'.  Source: Megatron-LM core
0.12, moe/moe_utils.py, topk_softmax_with_capacity; moe/token_dispatcher.py, drop_and_pad."""

EXPERTS = frozenset(
    {
        "experts activation",
        "experts activation, backward",
        "experts down, cast",
        "experts up, gradient cast",
        "experts bias",
        "experts bias, backward",
    }
)
"""A fused grouped MLP computes the activation and casts its result in the epilogue of the products, both
ways.  Source: Transformer Engine v2.18 release notes (fused grouped MLP); Megatron-Bridge,
scripts/performance, cutedsl_fused_grouped_mlp."""


TENSORS = 3
"""Parameters of a layer of Megatron-LM's GPT for each of its products: twelve (weights and biases of four
products and two norms) for four."""


def fused_by(operators: LayerOperators, job: TrainingJob, gpu: Gpu) -> LayerOperators:
    """A layer of experts' operators with what the job's dispatcher and its era run inside others."""
    era = era_of(job)
    if job.expert_capacity is not None:
        operators = dropping(operators)
    for names, applies in (
        (DISPATCH, job.expert_nodes is not None and job.layout.expert > 1),
        (EXPERTS, era.fuses_experts(gpu, job.dtype)),
    ):
        operators = inside(operators, names) if applies else operators
    return operators


def dropping(operators: LayerOperators) -> LayerOperators:
    """The operators with tokens chosen up to a capacity where they would be counted."""

    def each(found: Iterable[Operator]) -> tuple[Operator, ...]:
        return tuple(
            replace(op, bytes=DROP_PASSES * op.bytes, launches=DROP_LAUNCHES)
            if op.name == "expert counts"
            else op
            for op in found
        )

    return replace(operators, forward=each(operators.forward), recomputed=each(operators.recomputed))


def inside(operators: LayerOperators, names: frozenset[str]) -> LayerOperators:
    """The operators with those of some names at no cost; they keep their place."""

    def each(found: Iterable[Operator]) -> tuple[Operator, ...]:
        return tuple(replace(op, bytes=0.0, launches=0) if op.name in names else op for op in found)

    return replace(
        operators,
        forward=each(operators.forward),
        backward_input=each(operators.backward_input),
        recomputed=each(operators.recomputed),
    )


def summing_biases(kernel_time: Callable[[Operator], float], spilled: bool) -> Callable[[Operator], float]:
    """Kernel times of a fused MLP whose backward kernel also sums the gradients of the experts' biases.

    spilled  the sums are kept in memory instead of registers (`Era.spills_biases`)
    """
    longer = constant("bias_gradient_fused") * (constant("bias_gradient_spilled") if spilled else 1.0)

    def timed(op: Operator) -> float:
        return kernel_time(op) * (longer if op.name == "experts down, input gradient" else 1.0)

    return timed


def summing_gradients(operators: LayerOperators) -> LayerOperators:
    """The operators where no product adds its weight gradient to what earlier microbatches left.

    The product then writes a 16-bit gradient, and autograd adds it in a kernel of its own: two reads and a
    write.  Biases and norms have such kernels too: TENSORS for every product, of which the weight's alone
    moves anything to speak of.  A step's first microbatch has nothing to add to, which is not taken off.
    Sources: PyTorch, csrc/autograd/functions/accumulate_grad.h; DeepSpeed v0.7, runtime/pipe/engine.py and
    runtime/fp16/fused_optimizer.py (gradients stay 16-bit until the step); microsoft/Megatron-DeepSpeed,
    core/tensor_parallel/layers.py (the fused product is commented out).  Megatron-LM adds inside the product
    since February 2022 (commit 83b1e42f, "gradient accumulation fusion").
    """

    def each(op: Operator) -> tuple[Operator, ...]:
        if op.kind not in ("gemm", "grouped_gemm"):
            return (op,)
        weights = float(op.batch * op.m * op.n)
        moved = 3 * ELEMENT * weights
        added = Operator(op.name, "memory", 0.0, moved, op.dtype, phase=op.phase, launches=TENSORS)
        return replace(op, bytes=op.bytes + (ELEMENT - 2 * GRADIENT) * weights), added

    return replace(
        operators, backward_weight=tuple(new for op in operators.backward_weight for new in each(op))
    )
