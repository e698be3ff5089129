"""fp8 with a scale per tensor where one copy of an operand does for all products that read it.

A product in fp8 on Hopper takes operands along the dimension that it sums over, so that Transformer Engine
keeps activations, gradients and weights straight and transposed.  Products of NVIDIA's data-centre GPUs from
Blackwell on take any layout, and its tensors there have one buffer.  Of frozen weights there are no weight
gradients, which alone read the other copy of inputs and of gradients.
Formats with scales per block or row have scales of their own along each dimension, and two copies everywhere.
Source: Transformer Engine (d0067d0), pytorch/utils.py, is_non_tn_fp8_gemm_supported; tensor/float8_tensor.py,
Float8CurrentScalingQuantizer; csrc/quantizer.cpp; module/linear.py (set_usage where no weight gradient is
asked for).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright.catalog.parts import LIKE_BLACKWELL, Gpu
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training.layers.casts import compiled_casts

WRITTEN = 3 / 4
"""Bytes of a kernel that reads 16 bits and writes one copy in 8, over those of one that writes two."""

GATED = 5 / 6
"""The same of a gated activation, which reads twice as many elements as it writes."""

NORMS = ("input norm", "mlp norm", "query norm", "key/value norm")
ACTIVATIONS = ("mlp activation", "shared expert activation")
"""Kernels that write what the next product reads in fp8."""


def weighs_one_byte(job: TrainingJob, generation: str) -> bool:
    """Whether a job's weights in fp8 have one copy on GPUs of a generation; frozen ones too have two where
    the gradients of their inputs read the other."""
    return job.dtype == "fp8" and not compiled_casts(job) and generation in LIKE_BLACKWELL


def has_one_copy(job: TrainingJob, gpu: Gpu) -> bool:
    """Whether a job's inputs and gradients are cast once."""
    frozen = job.dtype == "fp8" and not compiled_casts(job) and job.lora is not None
    return frozen or weighs_one_byte(job, gpu.generation)


def with_one_copy(
    operators: LayerOperators, *, alone: Sequence[str], gated: bool, split: bool
) -> LayerOperators:
    """A layer's operators with one copy written instead of two.

    alone  norms and activations that write 16 bits, which other kernels cast: a router reads the norm too, or
           nothing is fused (`input_casts`)
    gated  activations
    split  norms or activations run one kernel per operation and write 16 bits
    """
    shares = dict.fromkeys(NORMS, WRITTEN) | dict.fromkeys(ACTIVATIONS, GATED if gated else WRITTEN)
    shares = {} if split else {name: share for name, share in shares.items() if name not in alone}

    def once(op: Operator) -> Operator:
        share = WRITTEN if op.name.endswith(" cast") else shares.get(op.name, 1.0)
        return replace(op, bytes=op.bytes * share) if share < 1.0 else op

    return replace(
        operators,
        forward=tuple(map(once, operators.forward)),
        backward_input=tuple(map(once, operators.backward_input)),
        recomputed=tuple(map(once, operators.recomputed)),
    )
