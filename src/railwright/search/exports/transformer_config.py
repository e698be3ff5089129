"""Fields of Megatron's configurations that a layout sets, for its command line and for NeMo's.

Source, read 2026-11-22: Megatron-LM d98e8a6, megatron/core's ModelParallelConfig, TransformerConfig and
OptimizerConfig.
"""

from __future__ import annotations

from typing import Any

from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts, backend, router_groups, sends_one_copy
from railwright.search.exports.hybrid import hybrid_pattern
from railwright.search.exports.megatron_words import narrow, repeated
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.graphs import graphed
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layers.unhidden import exposed_turns, hides_products
from railwright.training.layout.schedule import FOLDED, in_pairs, schedule_name
from railwright.training.passes.offload import overlaps_update
from railwright.training.software.dropout import attention_dropout, hidden_dropout
from railwright.training.software.eras import loss_of
from railwright.training.software.formats import amax_over

CONTEXT_KINDS = {"ring": "p2p", "all-to-all": "a2a", "all-gather": "all_gather"}
"""Megatron's names of them (TransformerConfig.cp_comm_type, which the command line's value becomes)."""

GRAPHS = {
    "attention": ("attn",),
    "mixer": ("mamba",),
    "mlp": ("mlp",),
    "router": ("moe_router", "moe_preprocess"),
}
"""Parts that CUDA graphs hold, and Megatron's names of them (TransformerConfig.cuda_graph_modules)."""


def communication(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """Fields of TransformerConfig for what tensor, context and expert groups send."""
    layout, found = job.layout, dict[str, Any]()
    if layout.context > 1:
        found["cp_comm_type"] = CONTEXT_KINDS[layout.context_kind]
    if arch.is_moe:
        found |= _dispatcher(job, arch, hosts)
        if in_pairs(job) and not exposed_turns(job, arch):
            # weight gradients behind a pass's result, as its schedule is predicted
            found |= {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}
        if hides_behind_shared(job, arch):
            found["moe_shared_expert_overlap"] = True
        if job.expert_capacity is not None:
            found["moe_expert_capacity_factor"] = job.expert_capacity
            found["moe_pad_expert_input_to_capacity"] = True
    if hides_products(job, arch):
        found["tp_comm_overlap"] = True
    return found


def _dispatcher(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """Fields of TransformerConfig for who exchanges tokens among experts, and how far they go.

    Where tensor-parallel ranks alone share experts these gather every token once ('allgather', Megatron's
    default, not its recipes'); 'alltoall' would gather each of its copies.
    """
    if not sends_one_copy(job, arch):
        whole = job.layout.expert == 1 and job.layout.expert_cut == job.layout.tensor
        gathers = whole and not (job.layout.expert_cut == 1 and job.expert_capacity is not None)
        return {"moe_token_dispatcher_type": "allgather" if gathers else "alltoall"}
    found = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": backend(job, hosts)}
    if groups := router_groups(job, arch, hosts):
        return {**found, "moe_router_num_groups": groups[0], "moe_router_group_topk": groups[1]}
    return found


def fusions(job: TrainingJob, arch: Transformer, loss: str) -> dict[str, Any]:
    """Fields of TransformerConfig for attention, dropout, and kernels that are fused here and, unless it is
    told, not in Megatron.

    loss  whose fused cross-entropy: Transformer Engine's, as it is predicted, or Megatron's own ('native'),
          since pretrain_gpt.py refuses the other one at that commit (arguments.py, validate_args); what
          is predicted as compiled (software of 2024) is Megatron's own, which torch.compile takes
          (core/fusions/fused_cross_entropy.py) and which cross_entropy_loss_fusion alone asks for
    """
    found = _attention(arch) | _dropout(job)
    if job.layout.zero >= 2:
        # Megatron-FSDP asserts Transformer Engine 2.10 with it (mcore_fsdp_adapter.py)
        found["gradient_accumulation_fusion"] = False
    if arch.is_moe:
        found |= {"moe_grouped_gemm": True, "moe_permute_fusion": True}
        found |= {} if "router" in job.unfused else {"moe_router_fusion": True}
    if "activation" in job.unfused and arch.gated:
        found["bias_activation_fusion"] = False
    if loss_of(job) == "fused":
        found |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": loss}
    elif loss_of(job) == "compiled":
        found["cross_entropy_loss_fusion"] = True
    return found


def _dropout(job: TrainingJob) -> dict[str, Any]:
    """Fields of TransformerConfig for the dropout that was predicted: 0.1 where neither is told."""
    return {"attention_dropout": attention_dropout(job), "hidden_dropout": hidden_dropout(job)}


def _attention(arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for gates on attention's outputs, and for keys that an indexer chooses."""
    if arch.index_topk:
        return {
            "experimental_attention_variant": "dsa",
            "dsa_indexer_n_heads": arch.index_heads,
            "dsa_indexer_head_dim": arch.index_dim,
            "dsa_indexer_topk": arch.index_topk,
            "dsa_indexer_use_sparse_loss": True,
            "dsa_kernel_backend": "tilelang",
        }
    return {"attention_output_gate": True} if arch.attention_gate == "element" else {}


def recomputation(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for what is computed again or lies in host memory."""
    layout = job.layout
    if layout.recompute == "selective":
        names = repeated(job, arch)
        return {"recompute_granularity": "selective", "recompute_modules": names} if names else {}
    if layout.recompute == "full":
        found: dict[str, Any] = {"recompute_granularity": "full"}
        if layout.recompute_layers is not None:
            return {**found, "recompute_method": "block", "recompute_num_layers": layout.recompute_layers}
        return {**found, "recompute_method": "uniform", "recompute_num_layers": 1}
    if "activations" in layout.offload and layout.pipeline == 1:
        # One layer less than there are, at most: TransformerConfig.__post_init__.
        return {"cpu_offloading_num_layers": min(layout.offload_layers or arch.layers, arch.layers - 1)}
    return {}


def precision(job: TrainingJob) -> dict[str, Any]:
    """Fields of TransformerConfig for number formats; Megatron's default for fp8 is delayed scaling."""
    if job.dtype == "fp16":
        return {"fp16": True}
    formats: dict[str, dict[str, Any]] = {
        "fp8": {"fp8": "hybrid", "fp8_recipe": "tensorwise"},
        "fp8_block": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
        "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8"},
        "nvfp4": {"fp4": "e2m1"},
    }
    found = {"bf16": True} | formats.get(job.dtype, {})
    if job.dtype == "fp8" and amax_over(job) != "none":
        found["fp8_recipe"] = "delayed"
        if amax_over(job) == "tensor":
            found["tp_only_amax_red"] = True
    if "attention" in job.dtype_also:
        found["fp8_dot_product_attention"] = True
    if "head" in job.dtype_also:
        found["fp8_output_proj"] = True
    if job.activation_input_dtype == "fp8":
        found["activation_func_fp8_input_store"] = True
    return found


def stages(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for stages that are not alike; none where Megatron cuts so by itself.

    Patterns of layers have stages of their own (`hybrid`).  A first and a last stage beside equal ones
    have fields; other pieces are written out, one letter a layer
    (E embedding, t layer, m multi-token prediction, L loss).
    Source: megatron/core/transformer/pipeline_parallel_layer_layout.py.
    """
    layout, pieces = job.layout, job.layout.pipeline * job.layout.virtual_pipeline
    if layout.pipeline == 1 or schedule_name(layout) in FOLDED or hybrid_pattern(job, arch):
        return {}
    sizes = layers_per_piece(arch.layers, pieces, layout, arch.mtp_layers)
    if len(set(sizes)) == 1:
        return {}
    first, *inner, last = sizes
    if pieces == layout.pipeline and len(set(inner)) <= 1 and min(sizes) > 0:
        return {"num_layers_in_first_pipeline_stage": first, "num_layers_in_last_pipeline_stage": last}
    words = [f"t*{n}" if n else "" for n in sizes]
    words[0] = "E" + words[0]
    words[-1] += "m" * arch.mtp_layers + "L"
    return {"pipeline_model_parallel_layout": "|".join(words)}


def graphs(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for what is launched as CUDA graphs."""
    parts = graphed(job, arch)
    if "step" in parts:
        return {"cuda_graph_impl": "full_iteration"}
    names = [name for part in parts for name in GRAPHS[part]]
    return {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": names} if names else {}


def optimizer_fields(job: TrainingJob) -> dict[str, Any]:
    """Fields of OptimizerConfig for the types of its states and for the host that holds them."""
    held = "optimizer" in job.layout.offload
    found: dict[str, Any] = {"optimizer_cpu_offload": True, "optimizer_offload_fraction": 1.0} if held else {}
    if overlaps_update(job):
        found["overlap_cpu_optimizer_d2h_h2d"] = True
    if held or narrow(job):
        found["use_precision_aware_optimizer"] = True
    if job.moment_dtype != "fp32":
        found |= {"exp_avg_dtype": job.moment_dtype, "exp_avg_sq_dtype": job.moment_dtype}
    if found and job.layout.zero < 2 and gradient_type(job) == "bf16":
        # without, a copy of the gradients in fp32 is made for the optimizer
        found["main_grads_dtype"] = "bf16"
    return found


def muon(job: TrainingJob) -> dict[str, Any]:
    """Fields of OptimizerConfig for Muon; whole matrices for each data-parallel rank are a field apart."""
    if job.optimizer != "muon":
        return {}
    return {"optimizer": "muon", "muon_num_ns_steps": job.muon.steps, "muon_tp_mode": job.muon.tp_mode}
