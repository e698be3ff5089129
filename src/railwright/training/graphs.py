"""CUDA graphs of parts of a layer: which Megatron-LM launches, and what it refuses them beside.

Source: Megatron-LM d98e8a6, read 2026-11-25.
"""

from __future__ import annotations

from railwright.model.architecture import Transformer
from railwright.model.pattern import has_attention, has_dense, is_hybrid
from railwright.spec.training import TrainingJob
from railwright.training.unhidden import exposed_turns


def graphed(job: TrainingJob, arch: Transformer) -> tuple[str, ...]:
    """What Megatron launches as CUDA graphs of what the job asks for."""
    if "step" in job.cuda_graphs or ungraphed(job, arch):
        return tuple(part for part in job.cuda_graphs if part == "step")
    there = {
        "attention": has_attention(arch),
        "mixer": arch.linear is not None,
        # Megatron looks for dense layers in moe_layer_freq, which patterns of blocks do not set
        "mlp": has_dense(arch) and not (is_hybrid(arch) and arch.is_moe),
        "router": arch.is_moe,
    }
    return tuple(part for part in job.cuda_graphs if there[part])


def ungraphed(job: TrainingJob, arch: Transformer) -> str:
    """Why Megatron refuses CUDA graphs of parts of a layer; '' where it takes them, or none are asked for.

    Source: TransformerConfig.__post_init__; mcore_fsdp_adapter.py (hidden all-to-alls beside zero 2 and 3);
    arguments.py, validate_args (biases beside delay_wgrad_compute).
    """
    layout, parts = job.layout, job.cuda_graphs
    if not parts or "step" in parts:
        return ""
    selective = layout.recompute == "selective"
    turns = arch.is_moe and job.overlap.ep and layout.expert > 1
    if layout.recompute == "full":
        return "beside recomputation of whole layers"
    if selective and "moe" in layout.recompute_modules and "router" in parts:
        return "beside recomputation of experts"
    if "activations" in layout.offload:
        return "beside offloaded activations"
    if turns and (layout.zero >= 2 or "mlp" in parts):
        return "beside hidden expert all-to-alls"
    late = turns and job.overlap.dp and not exposed_turns(job, arch)
    if late and "attention" in parts and (arch.attention_bias or arch.output_bias or arch.mlp_bias):
        return "beside hidden expert all-to-alls, of attention with biases"
    return ""
