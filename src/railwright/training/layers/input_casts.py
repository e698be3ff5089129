"""Casts of what a product reads where nothing in front of it writes 8 bits, in Megatron-LM.

A norm fused with its product writes fp8 itself (TELayerNormColumnParallelLinear).  Megatron's activations are
torch-compiled functions that write 16 bits, and its linear layers cast what they read (te.pytorch.Linear): a
dense MLP's second product, both of shared experts, whose norm the router reads too, and the down-projections
and queries of latent attention, whose norm stands alone.  Rows that tensor ranks gather are cast before.
Casts of attention's output and of routed experts' inputs are operators of their layers.  Not here: layers of
Transformer Engine's fused operations (use_transformer_engine_op_fuser), JAX, whose compiler fuses casts, and
formats that have other casts (`blockwise`, `casts`, `four_bits`).
Sources: Megatron-LM core 0.5 to d98e8a64, core/transformer/mlp.py (bias_swiglu_impl, linear_fc2),
moe/shared_experts.py, core/models/gpt/gpt_layer_specs.py; Transformer Engine d0067d0, pytorch/module/
linear.py.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.operators.kernels import ELEMENT, half
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training.layers.blockwise import GATHERED
from railwright.training.layers.casts import compiled_casts
from railwright.training.layers.gathers import WHOLE, gathers_of
from railwright.training.layout.sizes import sequence_ranks
from railwright.training.software.eras import era_of

DTYPES = ("fp8", "mxfp8")
"""Formats whose casts these are."""

CAST = (
    *("query projection", "query down", "key/value down"),
    *("mlp down", "shared expert up", "shared expert down"),
)
"""Products whose input is cast by a kernel of its own."""

BEHIND_NORMS = ("qkv projection", "query up", "key/value up", "mixer projection", "mlp up")
"""Products that are one layer of Transformer Engine with the norm in front of them: where that does not write
what they read, the norm's call launches the cast too (`four_bits`)."""

REDUCED = ("output projection", "mlp down", "shared expert down", "mixer output projection")
"""Products that tensor ranks cut by rows, the gradients of whose outputs they gather."""

WRITTEN_ONCE, TURNED = ELEMENT + 1, 1.0 + 1
"""Bytes of casting one element straight alone, and of transposing one of 8 bits."""

MOVED = 2 * ELEMENT
"""Bytes of casting one element: 16 bits read, 8 written straight and transposed."""


def casts_inputs(job: TrainingJob) -> bool:
    """Whether products of a job's layers cast what they read."""
    return job.dtype in DTYPES and era_of(job).framework == "megatron"


def with_input_casts(operators: LayerOperators, job: TrainingJob) -> LayerOperators:
    """A layer's operators with those casts, wherever the products run."""
    ranks = sequence_ranks(job)

    def ahead(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        return tuple(one for op in found for one in ((cast(op), op) if op.name in CAST else (op,)))

    def cast(op: Operator) -> Operator:
        rows = op.m * op.batch / (ranks if op.name in GATHERED else 1)
        return Operator(f"{op.name} input cast", "memory", 0.0, MOVED * rows * op.k, half(job.dtype))

    return replace(operators, forward=ahead(operators.forward), recomputed=ahead(operators.recomputed))


def with_gathered_casts(operators: LayerOperators, job: TrainingJob, one_copy: bool) -> LayerOperators:
    """The same where tensor ranks gather what they have cast (`gathers`).

    one_copy  products take any layout, or none reads the other
    A gradient is cast where it is, on a rank's own rows.  With a scale per tensor it travels straight, and
    all that arrives is turned for the products that sum over rows; so are inputs gathered again.
    Source: Transformer Engine d0067d0, pytorch/distributed.py, _all_gather_fp8 (_create_transpose); formats
    with scales in blocks send both copies.
    """
    ranks = sequence_ranks(job)
    if ranks == 1 or gathers_of(job) == WHOLE or compiled_casts(job):
        return operators
    turns = job.dtype == "fp8" and not one_copy
    share = (WRITTEN_ONCE / ranks + TURNED) / MOVED if turns else 1 / ranks

    def cast(op: Operator) -> Operator:
        own = op.name.removesuffix(", gradient cast") in REDUCED and op.name.endswith(", gradient cast")
        return replace(op, bytes=op.bytes * share) if own else op

    def turned(op: Operator) -> tuple[Operator, ...]:
        name = op.name.rsplit(", ", 1)[0]
        if not turns or name not in GATHERED:
            return (op,)
        moved = TURNED * op.k * op.n * op.batch
        label = f"{name}, input turned"
        return Operator(label, "memory", 0.0, moved, half(job.dtype), phase="backward_weight"), op

    return replace(
        operators,
        backward_input=tuple(map(cast, operators.backward_input)),
        backward_weight=tuple(one for op in operators.backward_weight for one in turned(op)),
    )
