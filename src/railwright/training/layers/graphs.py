"""CUDA graphs of parts of a layer: which Megatron-LM launches, and what it refuses them beside.

Source: Megatron-LM d98e8a6, read 2026-11-25.
"""

from __future__ import annotations

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import has_attention, has_dense, is_hybrid
from railwright.spec.training import TrainingJob
from railwright.training.layers.unhidden import exposed_turns
from railwright.training.software.eras import era_of


def graphed(job: TrainingJob, arch: Transformer) -> tuple[str, ...]:
    """What Megatron launches as CUDA graphs of what the job asks for."""
    if ungraphed(job, arch):
        return ()
    if "step" in job.cuda_graphs:
        return ("step",)
    there = {
        "attention": has_attention(arch),
        "mixer": arch.linear is not None,
        # Megatron looks for dense layers in moe_layer_freq, which patterns of blocks do not set
        "mlp": has_dense(arch) and not (is_hybrid(arch) and arch.is_moe),
        "router": arch.is_moe,
    }
    return tuple(part for part in job.cuda_graphs if there[part])


def ungraphed(job: TrainingJob, arch: Transformer) -> str:
    """Why Megatron refuses the CUDA graphs that a job asks for; '' where it takes them, or there are none.

    One of a whole step holds no dispatch whose shapes its tokens decide, and nothing that waits for the host:
    of experts fixed capacities, or HybridEP's kernels (`search.exports.megatron_words`).
    Source: TransformerConfig.__post_init__; mcore_fsdp_adapter.py (hidden all-to-alls beside zero 2 and 3);
    arguments.py, validate_args (biases beside delay_wgrad_compute); docs/user-guide/features/cuda_graph.md
    (MoE Model Training).
    """
    layout, parts = job.layout, job.cuda_graphs
    if not parts:
        return ""
    if "step" in parts:
        counted = job.expert_capacity is None and (job.expert_nodes is None or layout.expert == 1)
        return "beside experts without fixed capacities (expert_capacity)" if arch.is_moe and counted else ""
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


def of_graphs(job: TrainingJob, arch: Transformer) -> list[str]:
    """That CUDA graphs are predicted which Megatron-LM refuses; nothing elsewhere."""
    if era_of(job).framework != "megatron" or not (why := ungraphed(job, arch)):
        return []
    what = "the step" if "step" in job.cuda_graphs else "parts of a layer"
    return [f"cuda_graphs is predicted as asked, but Megatron-LM has no CUDA graphs of {what} {why}."]
