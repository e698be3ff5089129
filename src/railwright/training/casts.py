"""Casts to fp8 as torch.compile writes them (torchao's recipes), in place of Transformer Engine's fused ones.

Transformer Engine's norms and activations write fp8 themselves, in both layouts; torchao casts every operand
of a product by kernels of its own.  With a scale per tensor the maximum is found first; with one per row
(`fp8_rowwise`) an operand is cast once along each of its dimensions, since the products of the backward pass
sum over the other one.  Backward, those products are cuBLAS's with one scale, and another kernel applies the
scales of rows and columns to what comes out: the row-wise kernel is slow with full accumulation.
With a scale per tensor, what tensor ranks and FSDP gather travels in fp8 (weights are cast before, and only
their other layout is made here); with one per row, in 16 bits.

Bytes per element are those of torchao's own roofline, which four linear layers measured there (pull request
2185; H100 at 2.2 TB/s) bear out: tests/validation/test_torchao_linears.py.
Sources: pytorch/ao, torchao/testing/training/roofline_utils.py (get_tensor_memory_traffic_ovhd_s),
torchao/float8/float8_linear.py, float8_ops.py (addmm_float8_unwrapped), float8_tensor_parallel.py;
pytorch/torchtitan, docs/float8.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from railwright.model.architecture import Operator, Phase
from railwright.model.kernels import half
from railwright.model.operators import LayerOperators
from railwright.spec.training import TrainingJob
from railwright.training.eras import era_of
from railwright.training.sizes import sequence_ranks

DTYPES = ("fp8", "fp8_rowwise")

NARROW_GATHER = 0.5
"""Bytes of a gathered fp8 activation or weight over one of 16 bits."""

ROWWISE_PRODUCT = 1 / 0.95
"""Time of a forward product with scales per row over one with a scale per tensor: most shapes reach 90 to
100 % of its rate.  Source: pytorch issue 147971 (CUTLASS against cuBLAS on H100, fast accumulation)."""

GATHERED_INPUT = ("qkv projection", "mlp up", "shared expert up")
GATHERED_GRADIENT = ("output projection", "mlp down", "shared expert down")
"""Products whose input, or output gradient, comes from all tensor ranks under sequence parallelism."""

JOINED = {"qkv projection": 3, "mlp up": 2, "shared expert up": 2}
"""Linear layers that are one product in our model and several in torchtitan's; gated MLPs only."""


@dataclass(frozen=True)
class Bytes:
    """Memory traffic of one product's casts, per element of its input x, its output y and its weight w.

    x, w             forward;  x_again, w_again  for the products of the backward pass
    x_bare           forward where no norm or activation, with which a read is fused, comes before
    y, y_fused       the gradient of the output; where an activation's backward comes before
    result           every element of the backward products' results
    """

    x: float
    x_bare: float
    x_again: float
    y: float
    y_fused: float
    w: float
    w_again: float
    result: float


PER_TENSOR = Bytes(x=4, x_bare=6, x_again=0, y=6, y_fused=4, w=0, w_again=2, result=0)
PER_ROW = Bytes(x=1, x_bare=3, x_again=5, y=8, y_fused=6, w=3, w_again=7, result=4)


def compiled_casts(job: TrainingJob) -> bool:
    """Whether a job's operands are cast by torch.compile's kernels."""
    return job.dtype == "fp8_rowwise" or (job.dtype == "fp8" and era_of(job).compiled_casts)


def narrow_gathers(job: TrainingJob) -> float:
    """Bytes of what a layer gathers, activations over tensor ranks and weights over shards, over 16 bits'."""
    return NARROW_GATHER if compiled_casts(job) and job.dtype == "fp8" else 1.0


def with_casts(operators: LayerOperators, job: TrainingJob, gated: bool) -> LayerOperators:
    """A layer's operators with torchao's casts in place of the fused ones; grouped products keep theirs."""
    rowwise = job.dtype == "fp8_rowwise"
    per = PER_ROW if rowwise else PER_TENSOR
    ranks = sequence_ranks(job)

    def kernel(name: str, moved: float, phase: Phase = "forward") -> list[Operator]:
        return [Operator(name, "memory", 0.0, moved, half(job.dtype), phase=phase)] if moved else []

    def ahead(op: Operator) -> list[Operator]:
        x, w = float(op.m * op.k * op.batch), float(op.n * op.k)
        gathered = ranks > 1 and op.name in GATHERED_INPUT
        each = per.x_bare if op.name == "output projection" or (gathered and rowwise) else per.x
        moved = each * x + per.w * w
        if gathered and not rowwise:  # its own part is cast and sent, and all that arrives transposed
            moved += each * x * (1 / ranks - 1) + 2 * x
        product = replace(op, flops=op.flops * ROWWISE_PRODUCT) if rowwise else op
        return [*kernel(f"{op.name} input cast", moved), product]

    def forward(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        kept = (op for op in found if op.name != "attention output cast")
        return tuple(one for op in kept for one in (ahead(op) if _product(op) else [op]))

    backward: list[Operator] = []
    for op in operators.backward_input:
        name = op.name.rsplit(", ", 1)[0]
        if not _product(op):
            grouped = name.startswith("experts")
            backward += [] if op.name.endswith(", gradient cast") and not grouped else [op]
            continue
        # the product is dY W^T: its k is the output's width, its n the input's
        y, w, x = float(op.m * op.k * op.batch), float(op.n * op.k), float(op.m * op.n * op.batch)
        each = per.y_fused if name.endswith(" up") else per.y
        moved = each * y
        if ranks > 1 and name in GATHERED_GRADIENT and not rowwise:
            moved = (each - 1) * y / ranks + 2 * y
        parts = JOINED.get(name, 1) if gated or name == "qkv projection" else 1
        backward += [
            *kernel(f"{name}, gradient cast", moved, "backward_input"),
            *kernel(f"{name}, weight cast", per.w_again * w, "backward_input"),
            op,
            *kernel(f"{name}, gradient scaling", per.result * x * parts, "backward_input"),
        ]
    weights: list[Operator] = []
    for op in operators.backward_weight:
        name = op.name.rsplit(", ", 1)[0]
        if not _product(op):
            weights.append(op)
            continue
        x, w = float(op.k * op.n * op.batch), float(op.m * op.n)  # dY^T X
        weights += kernel(f"{name}, input cast", per.x_again * x, "backward_weight")
        weights += [op, *kernel(f"{name}, weight scaling", per.result * w, "backward_weight")]
    return replace(
        operators,
        forward=forward(operators.forward),
        backward_input=tuple(backward),
        backward_weight=tuple(weights),
        recomputed=forward(operators.recomputed),
    )


def _product(op: Operator) -> bool:
    return op.kind == "gemm" and op.dtype in DTYPES
