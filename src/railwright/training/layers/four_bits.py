"""NVFP4 as Transformer Engine trains in it: what its products read is made by kernels of their own.

No norm or activation writes it.  An input or a gradient is read for its largest element and that of its
columns turned by a Hadamard matrix, then written along its rows and, turned and for the gradient of the
weights, along its columns; until 2.15 by a kernel each.  Until 2.17 others put the scales of both copies in
the order in which tensor cores take them.
On a B300, where Transformer Engine measured twelve products with these casts and without
(docs/examples/gemm_profiling), they move what is counted here at 4.6 to 5.0 TB/s
(tests/validation/test_compute_narrow.py).
Frozen weights have no gradient, so that nothing is turned.  Weights are made narrow once a step
(`weight_casts`).  Not here: agreeing on largest elements over tensor ranks, and the random numbers by which
gradients are rounded.
Sources: Transformer Engine d0067d0 and its releases 2.8 to 2.18, pytorch/csrc/quantizer.cpp,
NVFP4Quantizer::quantize_impl; 523801df (16 March 2026: one kernel writes both copies), 720ec27e (5 June 2026:
with scales in order); csrc/extensions/normalization.cpp (norms whose quantizer turns write 16 bits).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.operators.kernels import ELEMENT, half
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator, Phase
from railwright.spec.training import TrainingJob
from railwright.training.layers.blockwise import GATHERED
from railwright.training.layers.input_casts import BEHIND_NORMS, REDUCED
from railwright.training.layers.weight_casts import COPY_BYTES
from railwright.training.layout.sizes import sequence_ranks
from railwright.training.software.eras import era_of

SCALE = 1 / 16
"""Bytes of an element's share of its scale."""


def cast_bytes(turned: bool, fused: bool) -> float:
    """HBM traffic of casting one element. [byte]

    turned  a second copy, along the columns, is made too
    fused   one kernel writes both
    The largest element is found first; each copy's scales are put in order last.
    """
    copies = 1 + turned
    reads = 1 if fused else copies
    return ELEMENT * (1 + reads) + copies * (COPY_BYTES["nvfp4"] + 2 * SCALE)


def with_four_bit_casts(operators: LayerOperators, job: TrainingJob) -> LayerOperators:
    """A layer's operators with a cast before every product in NVFP4: of its input, of its output's gradient.

    Tensor ranks that share rows cast their own before these travel (`gathers`).
    """
    ranks = sequence_ranks(job)
    moved = cast_bytes(turned=job.lora is None, fused=era_of(job).turns_while_casting)

    def ahead(
        found: tuple[Operator, ...], phase: Phase, what: str, shared: tuple[str, ...]
    ) -> tuple[Operator, ...]:
        def cast(op: Operator) -> Operator:
            name = op.name.removesuffix(", input gradient")
            rows = op.m * op.batch / (ranks if name in shared else 1)
            return Operator(
                f"{name}{what}",
                "memory",
                0.0,
                moved * rows * op.k,
                half(job.dtype),
                phase=phase,
                launches=0 if phase == "forward" and name in BEHIND_NORMS else 1,
            )

        return tuple(one for op in found for one in ((cast(op), op) if op.dtype == "nvfp4" else (op,)))

    return replace(
        operators,
        forward=ahead(operators.forward, "forward", " input cast", GATHERED),
        recomputed=ahead(operators.recomputed, "forward", " input cast", GATHERED),
        backward_input=ahead(operators.backward_input, "backward_input", ", gradient cast", REDUCED),
    )
