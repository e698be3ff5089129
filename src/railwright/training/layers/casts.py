"""Casts to fp8 as torch.compile writes them (torchao's recipes), in place of Transformer Engine's fused ones.

Transformer Engine's norms write fp8 themselves, in both layouts; torchao casts every operand
of a product by kernels of its own.  With a scale per tensor the maximum is found first; with one per row
(`fp8_rowwise`) an operand is cast once along each of its dimensions, since the products of the backward pass
sum over the other one.  Backward, those products are cuBLAS's with one scale, and another kernel applies the
scales of rows and columns to what comes out: the row-wise kernel is slow with full accumulation.
With a scale per tensor, what tensor ranks and FSDP gather travels in fp8 (weights are cast before, and only
their other layout is made here); with one per row, in 16 bits.

Bytes per element are those of torchao's own roofline, which four linear layers measured there (pull request
2185; H100 at 2.2 TB/s) bear out: tests/validation/test_torchao_published.py.
Sources: pytorch/ao, torchao/testing/training/roofline_utils.py (get_tensor_memory_traffic_ovhd_s),
torchao/float8/float8_linear.py, float8_ops.py (addmm_float8_unwrapped), float8_tensor_parallel.py;
pytorch/torchtitan, docs/float8.md.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from railwright.model.operators.kernels import half
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Phase
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import sequence_ranks
from railwright.training.software.eras import era_of

DTYPES = ("fp8", "fp8_rowwise")

NARROW_GATHER = 0.5
"""Bytes of a gathered fp8 weight over one of 16 bits."""

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
    """Bytes of a layer's weights gathered over shards, over 16 bits'; activations are in `gathers`."""
    return NARROW_GATHER if compiled_casts(job) and job.dtype == "fp8" else 1.0


def with_casts(operators: LayerOperators, job: TrainingJob, gated: bool) -> LayerOperators:
    """A layer's operators with torchao's casts in place of the fused ones; grouped products keep theirs."""
    casts = _Casts(job.dtype, sequence_ranks(job), gated)
    return replace(
        operators,
        forward=casts.forward(operators.forward),
        backward_input=casts.backward_input(operators.backward_input),
        backward_weight=casts.backward_weight(operators.backward_weight),
        recomputed=casts.forward(operators.recomputed),
    )


@dataclass(frozen=True)
class _Casts:
    """How the products of a layer are cast.

    ranks  tensor ranks that share rows; gated  whether its MLPs are
    """

    dtype: str
    ranks: int
    gated: bool

    @property
    def rowwise(self) -> bool:
        """Whether rows and columns have scales of their own."""
        return self.dtype == "fp8_rowwise"

    @property
    def per(self) -> Bytes:
        """What the kernels of its casts read and write of an element."""
        return PER_ROW if self.rowwise else PER_TENSOR

    def forward(self, found: Iterable[Operator]) -> tuple[Operator, ...]:
        """Products with the cast of their input and weight ahead."""
        kept = (op for op in found if op.name != "attention output cast")
        return tuple(one for op in kept for one in (self._ahead(op) if _product(op) else [op]))

    def _ahead(self, op: Operator) -> list[Operator]:
        x, w = float(op.m * op.k * op.batch), float(op.n * op.k)
        gathered = self.ranks > 1 and op.name in GATHERED_INPUT
        bare = op.name == "output projection" or (gathered and self.rowwise)
        each = self.per.x_bare if bare else self.per.x
        moved = each * x + self.per.w * w
        if gathered and not self.rowwise:  # its own part is cast and sent, and all that arrives transposed
            moved += each * x * (1 / self.ranks - 1) + 2 * x
        product = replace(op, flops=op.flops * ROWWISE_PRODUCT) if self.rowwise else op
        return [*self._kernel(f"{op.name} input cast", moved), product]

    def backward_input(self, found: Iterable[Operator]) -> tuple[Operator, ...]:
        """Products with casts of the output's gradient and of the weight ahead, and scaling behind."""
        made: list[Operator] = []
        phase: Phase = "backward_input"
        for op in found:
            name = op.name.rsplit(", ", 1)[0]
            if not _product(op):
                grouped = name.startswith("experts")
                made += [] if op.name.endswith(", gradient cast") and not grouped else [op]
                continue
            # the product is dY W^T: its k is the output's width, its n the input's
            y, w, x = float(op.m * op.k * op.batch), float(op.n * op.k), float(op.m * op.n * op.batch)
            each = self.per.y_fused if name.endswith(" up") else self.per.y
            moved = each * y
            if self.ranks > 1 and name in GATHERED_GRADIENT and not self.rowwise:
                moved = (each - 1) * y / self.ranks + 2 * y
            parts = JOINED.get(name, 1) if self.gated or name == "qkv projection" else 1
            made += [
                *self._kernel(f"{name}, gradient cast", moved, phase),
                *self._kernel(f"{name}, weight cast", self.per.w_again * w, phase),
                op,
                *self._kernel(f"{name}, gradient scaling", self.per.result * x * parts, phase),
            ]
        return tuple(made)

    def backward_weight(self, found: Iterable[Operator]) -> tuple[Operator, ...]:
        """Products with the cast of the input ahead, and scaling behind."""
        made: list[Operator] = []
        phase: Phase = "backward_weight"
        for op in found:
            name = op.name.rsplit(", ", 1)[0]
            if not _product(op):
                made.append(op)
                continue
            x, w = float(op.k * op.n * op.batch), float(op.m * op.n)  # dY^T X
            made += [
                *self._kernel(f"{name}, input cast", self.per.x_again * x, phase),
                op,
                *self._kernel(f"{name}, weight scaling", self.per.result * w, phase),
            ]
        return tuple(made)

    def _kernel(self, name: str, moved: float, phase: Phase = "forward") -> list[Operator]:
        """A kernel of its own, where it moves anything. [byte]"""
        return [Operator(name, "memory", 0.0, moved, half(self.dtype), phase=phase)] if moved else []


def _product(op: Operator) -> bool:
    return op.kind == "gemm" and op.dtype in DTYPES
