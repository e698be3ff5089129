"""Experts as one fused MLP, as eras from 2026 on are predicted with on Blackwell, and what turns it on.

Sources: Megatron-LM d98e8a6, core/transformer/moe/experts.py (_is_fused_impl_supported); Transformer Engine
d0067d0, pytorch/ops/fused/grouped_mlp.py (NVTE_CUTEDSL_FUSED_GROUPED_MLP; MXFP8 and NVFP4); Megatron-Bridge
067f987, perf_recipes/qwen (gates and what they multiply in turns of 32).
"""

from __future__ import annotations

from typing import Any

from railwright.model.operators.mlp_kernels import SQUARED
from railwright.model.shape.architecture import Transformer
from railwright.search.exports.details import SWIGLU
from railwright.search.exports.dispatcher import Hosts
from railwright.spec.training import TrainingJob

INTERLEAVED = 32
"""Gates in a row before as many of what they multiply (moe_mlp_glu_interleave_size)."""

VARIABLE = "NVTE_CUTEDSL_FUSED_GROUPED_MLP"


def one_mlp(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """Fields of TransformerConfig that make experts one MLP; {} where they are not predicted so or cannot."""
    if not (arch.is_moe and hosts.fused) or apart(job, arch, hosts):
        return {}
    activation = (
        {"moe_mlp_glu_interleave_size": INTERLEAVED}
        if arch.gated
        else {"use_fused_weighted_squared_relu": True}
    )
    return {"use_transformer_engine_op_fuser": True, **activation}


def apart(job: TrainingJob, arch: Transformer, hosts: Hosts) -> str:
    """Why Megatron has no such MLP of experts that are predicted as one; '' where it has, or none is."""
    if not (arch.is_moe and hosts.fused):
        return ""
    name = arch.details.activation
    known = name in (*SWIGLU, "quick_gelu") if arch.gated else name in SQUARED
    where = {
        f"in {job.dtype}": job.dtype != "mxfp8",
        "of experts that are cut": job.layout.expert_cut > 1,
        f"with {name or 'GeLU'}": not known,
    }
    return " or ".join(words for words, applies in where.items() if applies)
