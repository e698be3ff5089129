"""Number formats that a job asks for and its kernels must take."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.eras import era_of

BLOCK = 32
"""Elements that share a scale in MXFP8 (OCP Microscaling Formats, version 1.0)."""

TOKENS = 128
"""Tokens of a rank that attention in MXFP8 wants a multiple of (Transformer Engine 2.16,
dot_product_attention/utils.py, combine_and_quantize)."""


def check_formats(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where what `dtype_also` names cannot be multiplied in `dtype`."""
    if job.dtype_also and job.dtype != "mxfp8":
        raise PlanError(
            f"{job.name}: dtype_also names {' and '.join(job.dtype_also)}, which only dtype mxfp8 multiplies "
            f"in 8 bits; dtype is {job.dtype}. Leave dtype_also out, or set dtype to mxfp8."
        )
    if "attention" not in job.dtype_also:
        return
    why = _refused(job, arch)
    if why:
        raise PlanError(f"{job.name}: attention in mxfp8 {why}; leave attention out of dtype_also.")


def _refused(job: TrainingJob, arch: Transformer) -> str:
    """Why Transformer Engine's attention in MXFP8 does not take a job; '' where it does."""
    if era_of(job).attention != "flash":
        return f"is a fused kernel, and software {job.software} writes scores to memory"
    if job.attended < job.sequence:
        return "takes no packed samples (sample_length)"
    here = job.sequence // job.layout.context
    if here % TOKENS:
        return f"wants a multiple of {TOKENS} tokens of a sequence on every rank, and there are {here}"
    widths = {arch.head_dim + arch.rope_dim, arch.v_head_dim} if arch.attention == "mla" else {arch.head_dim}
    odd = sorted(width for width in widths if width % BLOCK)
    if odd:
        return f"wants heads of a multiple of {BLOCK}, and {arch.name} has {odd[0]}"
    return ""
