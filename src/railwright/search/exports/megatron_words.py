"""What Megatron-LM, NeMo and Megatron-Bridge have no setting for of a layout, or refuse, as comments.

Sources: those of `megatron` and `nemo`, at the same commits.
"""

from __future__ import annotations

from collections.abc import Callable

from railwright.model.operators.mlp_kernels import splits_square
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import PARTS, layer_kinds, takes_keys
from railwright.search.exports.dispatcher import (
    Hosts,
    backend,
    ranks_per_server,
    router_groups,
    sends_one_copy,
    unequal,
)
from railwright.search.exports.hybrid import said_of_hybrids
from railwright.search.exports.one_mlp import apart
from railwright.search.exports.placed import placed_by
from railwright.search.exports.shape import has_biases
from railwright.spec.training import TrainingJob
from railwright.training.layers.graphs import graphed, ungraphed
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.unhidden import exposed_products, exposed_turns
from railwright.training.layout.schedule import schedule_name
from railwright.training.software.chunked_loss import chunks_told
from railwright.training.software.eras import eager_parts
from railwright.training.software.formats import amax_over, scales_at_once
from railwright.training.software.nf4 import is_nf4

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation can compute again of what a job can name (TransformerConfig.__post_init__)."""

NONE_OF: dict[str, Callable[[Transformer], bool]] = {
    "moe_act": lambda arch: not arch.is_moe,
    "mla_up_proj": lambda arch: arch.attention != "mla",
}
"""Modules that Megatron refuses to compute again of a model without them; others do nothing there."""

COLLECTED_EVERY = 100
"""Steps after which all ranks collect Python's garbage together; automatic, it stops one rank at a time and
all others wait for it: 1.5 % of a step on 512 GPUs (torchtitan pull request 148).

Source of the number: Megatron-Bridge 067f987, recipes (TrainingConfig.manual_gc_interval), and NeMo 2's
scripts/performance (GarbageCollectionCallback).  Megatron-LM's own default is automatic."""

WORDS = {"dense": "a dense MLP", "moe": "experts", "": "no MLP"}


def unsaid(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """What Megatron has no argument for, or refuses, as comments."""
    layout, name = job.layout, schedule_name(job.layout)
    found = []
    if name not in ("1f1b", "interleaved"):
        plain = "interleaved 1F1B" if layout.virtual_pipeline > 1 else "1F1B"
        found.append(f"schedule {name}: not in Megatron-LM; without it, {plain} runs")
    found += placed_by(job)
    if job.master == "none":
        found.append("weights without master weights (master: none): Megatron-LM keeps those")
    if job.apex_bucket is not None:
        found.append(
            "Apex's distributed optimizer (apex_bucket): files of NeMo up to 24.12 have it (optim.name: "
            f"distributed_fused_adam, bucket_cap_mb: {job.apex_bucket / 2**20:g}), Megatron-LM has its own"
        )
    if layout.zero == 3 and not layout.reshard:
        found.append("parameters kept until the backward pass (reshard: false): Megatron-FSDP drops them")
    if job.dtype == "fp8_rowwise":
        found.append("fp8 with a scale per row: Transformer Engine has none; without it, 16 bits")
    if job.dispatch_dtype == "fp8":
        found.append(
            "tokens dispatched in 8 bits: Megatron has it for mxfp8 and its ncclep dispatcher alone "
            "(moe_dispatch_fwd_dtype, moe_combine_bwd_dtype, with use_transformer_engine_op_fuser)"
        )
    if amax_over(job) == "tensor":
        found.append("fp8 maxima over tensor-parallel ranks alone: a field (tp_only_amax_red), no argument")
    if "attention" in job.dtype_also:
        found.append("attention in 8 bits: a field (fp8_dot_product_attention), no argument")
    if job.activation_input_dtype == "fp8":
        found.append("SwiGLU's input kept in fp8: a field (activation_func_fp8_input_store), no argument")
    if job.sample_length is not None:
        found.append(f"samples of {job.sample_length} tokens are packed by the data set")
    if "norm" in job.unfused:
        found.append("norms one kernel per operation (unfused): Megatron's are fused")
    if splits_square(arch, eager_parts(job)):
        found.append(
            "squared ReLU one kernel per operation (unfused): so NeMo 2 has it; Megatron-LM and "
            "Megatron-Bridge compile it (core/activations.py)"
        )
    if arch.is_moe and "experts" in job.unfused:
        found.append("experts one after the other (unfused): Megatron's products are grouped, without waits")
    found += _exchanged(job, arch, hosts)
    if why := apart(job, arch, hosts):
        found.append(f"experts are predicted as one fused MLP: Megatron has none {why}")
    if arch.is_moe and layout.expert > 1 and job.overlap.ep and (where := exposed_turns(job, arch)):
        found.append(
            f"hidden expert all-to-all: Megatron has no overlap_moe_expert_parallel_comm {' or '.join(where)}"
        )
    if "activations" in layout.offload and (layout.pipeline > 1 or layout.recompute != "none"):
        found.append(
            "offloaded activations: Megatron's cpu_offloading allows no pipeline and no recomputation; since "
            "core 0.16 inputs of named modules go to the host beside them "
            "(fine_grained_activation_offloading, offload_modules), which is not predicted"
        )
    if job.chunked_loss:
        found.append(
            f"head and loss in chunks ({chunks_told(job)}): Megatron's main branch has no such loss, its dev "
            "branch another (--cross-entropy-fusion-impl linear, on Blackwell)"
        )
    if is_nf4(job):
        found.append(
            "frozen weights in 4 bits (lora.frozen_dtype: nf4): neither Megatron-Bridge nor NeMo 2 has any"
        )
    if "weights" in layout.offload:
        found.append("offloaded weights: Transformer Engine does nothing any more for cpu_offloading_weights")
    if job.overlap.tp and layout.tensor > 1 and (where := exposed_products(job, arch)):
        found.append(f"overlapped tensor parallelism: Megatron has no tp_comm_overlap {' or '.join(where)}")
    return [f"# {sentence}" for sentence in [*found, *_unset(job, arch)]]


def _exchanged(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """What the kernels that send one copy to each server want beside their arguments."""
    if not sends_one_copy(job, arch):
        return []
    if hosts.apart:
        return [unequal(job, arch, hosts)]
    which = backend(job, hosts)
    found = {
        "deepep": ["DeepEP must be installed; before Megatron core 0.16 its argument is --moe-enable-deepep"],
        "hybridep": [
            "HybridEP must be installed: export NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN="
            f"{ranks_per_server(job, hosts)}"
        ],
    }[which]
    if groups := router_groups(job, arch, hosts):
        found.append(
            f"the router's {groups[0]} groups are the servers of an expert group, of which a token goes to "
            f"{groups[1]} (expert_nodes); a model trained with other groups routes otherwise"
        )
    if why := unequal(job, arch, hosts):
        found.append(why)
    return found


def _unset(job: TrainingJob, arch: Transformer) -> list[str]:
    """What there is no switch for."""
    layout = job.layout
    found = [
        *said_of_hybrids(job, arch),
        *_of_the_model(arch),
        *_computed_again(job, arch),
        *_of_experts(job, arch),
        *_of_shards(job),
        *_predicting_on(arch),
    ]
    if layout.context > 1 and layout.context_kind == "ring" and not job.overlap.cp:
        found.append("a ring of keys and values that is not hidden: Transformer Engine hides it")
    if job.gradient_dtype not in (None, "fp32") and (job.gradient_dtype == "fp16") != (job.dtype == "fp16"):
        found.append(f"gradients in {job.gradient_dtype} beside {job.dtype}: Megatron has no setting for it")
    for part in job.cuda_graphs:
        if part not in graphed(job, arch):
            found.append(f"CUDA graphs of {part}: refused, {ungraphed(job, arch) or 'the model has none'}")
    if "step" in graphed(job, arch) and arch.is_moe and job.expert_capacity is None:
        found.append(
            "CUDA graphs of the step hold dropless experts with HybridEP alone: to add are "
            "moe_expert_rank_capacity_factor, moe_paged_stash and use_transformer_engine_op_fuser"
        )
    return found


def _of_the_model(arch: Transformer) -> list[str]:
    """Attention and norms that Megatron's layers do not have so."""
    found = []
    if arch.index_topk:
        if any(map(takes_keys, layer_kinds(arch))):
            found.append(
                "layers that take the keys another one chose: give --dsa-indexer-topk-freq and "
                "--dsa-indexer-skip-topk-offset"
            )
        found.append("the weight of the indexer's loss is yours to give: --dsa-indexer-loss-coeff")
    if arch.attention_gate == "head":
        found.append("gates per head on attention's outputs: attention_output_gate makes one per element")
    if arch.window_heads:
        found.append(
            "other heads in windowed layers: Megatron takes them by --heterogeneous-layers-config-path"
        )
    if arch.attention == "gqa" and arch.v_head_dim:
        found.append("values of another width than keys: Megatron's grouped queries have one (kv_channels)")
    if (arch.shared_norm and arch.shared_ffn) or arch.experts_norm or arch.branch_norms:
        found.append("norms that only layers with experts have: not in Megatron's layers")
    if arch.attention_gate_bias:
        found.append("biases of the gates on attention's outputs: Megatron's gates have none")
    return found


def _computed_again(job: TrainingJob, arch: Transformer) -> list[str]:
    """Selective recomputation of what Megatron has no module for, or not beside the rest."""
    absent = [name for name in _modules(job) if name not in MODULES]
    found = [f"recomputation of {' and '.join(absent)}: Megatron has other modules"] if absent else []
    refused = refused_again(job, arch).items()
    return found + [f"recomputation of {name}: Megatron refuses it {beside}" for name, beside in refused]


def _of_experts(job: TrainingJob, arch: Transformer) -> list[str]:
    """Experts under tensor parallelism."""
    layout, found = job.layout, []
    if arch.is_moe and layout.tensor > 1 and not layout.sequence_parallel:
        found.append("experts under tensor parallelism: Megatron trains them with --sequence-parallel only")
    if arch.is_moe and layout.expert_cut > 1 and has_biases(arch):
        found.append(
            "biases in experts that are cut: Megatron has them with --expert-tensor-parallel-size 1 only"
        )
    if job.expert_capacity is not None and layout.expert == 1 and layout.expert_cut == layout.tensor > 1:
        found.append(
            "fixed capacities, of which the host needs no counts: Megatron's allgather dispatcher, which "
            "gathers tokens once over the ranks that experts are cut over, counts them all the same"
        )
    return found


def _of_shards(job: TrainingJob) -> list[str]:
    """When Megatron-FSDP reduces and gathers, and which master weights are kept."""
    layout, found = job.layout, []
    if layout.zero >= 2 and not layout.reduce_each:
        found.append("gradients reduced once per step (reduce_each: false): Megatron-FSDP does so every time")
    if layout.zero == 3 and job.overlap.prefetch != 1:
        ahead = job.overlap.prefetch
        found.append(f"parameters gathered {ahead} layers ahead: Megatron-FSDP counts in elements")
    if kept := whole_masters(job):
        found.append(f"master weights as remainders: Megatron keeps them whole in fp32 {kept}")
    return found


def _predicting_on(arch: Transformer) -> list[str]:
    """Multi-token prediction by another kind of layer than Megatron builds."""
    kinds = layer_kinds(arch)
    if not arch.mtp_layers or arch.pattern or kinds[-1] == kinds[arch.layers - 1]:
        return []
    own, last = (WORDS[PARTS[kinds[i]].mlp] for i in (-1, arch.layers - 1))
    return [
        f"multi-token prediction by {own}: --mtp-num-layers {arch.mtp_layers} builds it like the model's "
        f"last layer, by {last}; pretrain_hybrid.py takes others behind the / of --hybrid-layer-pattern"
    ]


def repeated(job: TrainingJob, arch: Transformer) -> list[str]:
    """Modules that Megatron computes again selectively: those a job names, the model has and it takes."""
    refused = refused_again(job, arch)
    known = [name for name in _modules(job) if name in MODULES and name not in refused]
    return [name for name in known if not (name in NONE_OF and NONE_OF[name](arch))]


def refused_again(job: TrainingJob, arch: Transformer) -> dict[str, str]:
    """Modules that a job computes again and Megatron does not beside the rest of it, and beside what.

    Source: TransformerConfig.__post_init__.
    """
    beside = {}
    if hides_behind_shared(job, arch):
        beside["shared_experts"] = "beside all-to-alls hidden behind them"
    if amax_over(job) != "none":
        beside["layernorm"] = "beside fp8 with delayed scaling"
        if arch.is_moe:
            beside["moe_act"] = beside["layernorm"]
    return {name: beside[name] for name in _modules(job) if name in beside}


def _modules(job: TrainingJob) -> tuple[str, ...]:
    """What a job computes again selectively."""
    return job.layout.recompute_modules if job.layout.recompute == "selective" else ()


def narrow(job: TrainingJob) -> bool:
    """Whether the optimizer's states take less than fp32: --use-precision-aware-optimizer."""
    return job.moment_dtype != "fp32" or job.master == "remainder"


def whole_masters(job: TrainingJob) -> str:
    """Where Megatron keeps fp32 master weights whole although the job keeps remainders; '' where it does not,
    or keeps them in host memory.

    Source: Megatron-FSDP, get_megatron_optimizer; optimizer_config.py and distrib_optimizer.py, where
    Megatron itself holds fp32 master weights unless use_precision_aware_optimizer_no_fp8_or_ds_fp8.
    """
    if job.master != "remainder" or keeps_remainders(job):
        return ""
    if job.layout.zero >= 2:
        return "under Megatron-FSDP"
    return "" if "optimizer" in job.layout.offload else "beside fp8 whose scaling is not delayed"


def keeps_remainders(job: TrainingJob) -> bool:
    """Whether the master weights that narrow states go with are remainders of bf16 weights: Transformer
    Engine's FusedAdam keeps those (store_param_remainders), where it is the one to keep them."""
    elsewhere = job.layout.zero >= 2 or "optimizer" in job.layout.offload
    return job.dtype != "fp16" and not scales_at_once(job) and not elsewhere
