"""A layout as Megatron-LM's command line and as the configurations that NeMo and Megatron-Bridge take.

Sources, read 2026-11-22: Megatron-LM d98e8a6, megatron/training/arguments.py and megatron/core's
ModelParallelConfig, TransformerConfig, OptimizerConfig and DistributedDataParallelConfig, whose fields are
arguments but for a few that arguments.py excludes; NeMo 2, nemo/lightning/pytorch/strategies/
megatron_strategy.py (MegatronStrategy), and Megatron-Bridge 067f987, whose providers take the same fields.
"""

from __future__ import annotations

from shlex import quote
from typing import Any

from railwright.model.architecture import Transformer
from railwright.search.dispatcher import Hosts, backend, router_groups, sends_one_copy
from railwright.search.environment import connections
from railwright.search.export_hybrid import hybrid_pattern
from railwright.search.export_megatron_words import keeps_remainders, narrow, repeated, unsaid
from railwright.search.export_shape import shape
from railwright.search.export_sharding import STRATEGIES, copies, sharding
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training.communication import gradient_type
from railwright.training.eras import era_of, loss_of
from railwright.training.graphs import graphed
from railwright.training.lockstep import amax_over
from railwright.training.offload import overlaps_update
from railwright.training.schedule import FOLDED, schedule_name
from railwright.training.shared import hides_behind_shared
from railwright.training.stages import layers_per_piece
from railwright.training.unhidden import exposed_turns, hides_products

CONTEXT_KINDS = {"ring": "p2p", "all-to-all": "a2a", "all-gather": "all_gather"}
"""Megatron's names of them (TransformerConfig.cp_comm_type, which the command line's value becomes)."""


GRAPHS = {
    "attention": ("attn",),
    "mixer": ("mamba",),
    "mlp": ("mlp",),
    "router": ("moe_router", "moe_preprocess"),
}
"""Parts that CUDA graphs hold, and Megatron's names of them (TransformerConfig.cuda_graph_modules)."""

TORCH = {"fp32": "torch.float32", "bf16": "torch.bfloat16", "fp16": "torch.float16", "fp8": "torch.uint8"}
"""What arguments.py makes of the names of types (validate_args, dtype_map)."""

ADAPTED = {"attention output": "linear_proj", "mlp up": "linear_fc1", "mlp down": "linear_fc2"}
"""Modules that adapters are added to, beside those of queries, keys and values (LoRA.target_modules)."""


def megatron(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """Command-line arguments of Megatron-LM's pretrain_gpt.py."""
    layout, overlap = job.layout, job.overlap
    stages = _stages(job, arch)
    lines = [
        f"--tensor-model-parallel-size {layout.tensor}",
        f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--context-parallel-size {layout.context}",
        f"--micro-batch-size {job.micro_batch}",
        f"--global-batch-size {job.global_batch}",
        f"--seq-length {job.sequence}",
    ]
    if pattern := hybrid_pattern(job, arch):
        lines.append(f"--hybrid-layer-pattern {quote(pattern)}")
    elif layout.virtual_pipeline > 1 and "pipeline_model_parallel_layout" not in stages:
        lines.append(f"--num-virtual-stages-per-pipeline-rank {layout.virtual_pipeline}")
    if layout.pipeline > 1 and not overlap.pp:
        lines.append("--no-overlap-p2p-communication")
    if arch.is_moe:
        lines.append(f"--expert-model-parallel-size {layout.expert}")
        lines.append(f"--expert-tensor-parallel-size {layout.expert_cut}")
    if layout.sequence_parallel and layout.tensor > 1:
        lines.append("--sequence-parallel")
    fields = stages | _communication(job, arch, hosts) | _recomputation(job, arch) | _precision(job)
    fields |= _fusions(job, arch, loss="native") | _graphs(job, arch) | _optimizer(job) | _muon(job)
    for name, value in fields.items():
        argument = _argument(name, arch)
        words = [] if isinstance(value, bool) else value if isinstance(value, list) else [str(value)]
        if argument:
            lines.append(" ".join([argument, *map(quote, words)]))
    if fields.get("cuda_graph_impl") == "full_iteration":
        lines.append("--no-check-for-nan-in-loss-and-grad")
    if "rotary" in job.unfused or arch.index_topk:
        lines.append("--no-rope-fusion")
    if job.data.workers != Data().workers:
        lines.append(f"--num-workers {job.data.workers}")
    lines += sharding(job, hosts, bool(_optimizer(job)))
    return [*unsaid(job, arch, hosts), *_of_the_script(job, arch), *shape(job, arch), *lines]


def _argument(field: str, arch: Transformer) -> str:
    """The argument of a field of TransformerConfig."""
    if field == "bias_activation_fusion" and arch.details.activation == "quick_gelu":
        return "--no-bias-gelu-fusion"  # --quick-geglu is not --swiglu (core_transformer_config_from_args)
    return ARGUMENTS.get(field, f"--{field.replace('_', '-')}")


def _of_the_script(job: TrainingJob, arch: Transformer) -> list[str]:
    """What pretrain_gpt.py asks of its environment, or cannot where the configurations can, as comments."""
    found = []
    if queues := connections(job, arch):
        older = "before Blackwell: " if queues.older else ""
        found.append(f"{older}export CUDA_DEVICE_MAX_CONNECTIONS={queues.number}")
    if loss_of(job) == "fused":
        found.append("the loss is predicted as Transformer Engine's kernel, which pretrain_gpt.py refuses")
    if job.lora:
        found.append(f"adapters of rank {job.lora.rank} (lora): pretrain_gpt.py trains all weights")
    if narrow(job) and job.master == "fp32" and keeps_remainders(job):
        found.append("master weights whole in fp32: its precision-aware optimizer keeps remainders alone")
    return [f"# {sentence}" for sentence in found]


def nemo(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """Keyword arguments of NeMo's MegatronStrategy and what goes into the configurations beside it."""
    layout, overlap = job.layout, job.overlap
    strategy: dict[str, Any] = {
        "tensor_model_parallel_size": layout.tensor,
        "pipeline_model_parallel_size": layout.pipeline,
        "virtual_pipeline_model_parallel_size": layout.virtual_pipeline
        if layout.virtual_pipeline > 1
        else None,
        "context_parallel_size": layout.context,
        "sequence_parallel": layout.sequence_parallel and layout.tensor > 1,
        "expert_model_parallel_size": layout.expert,
    }
    if arch.is_moe:
        # always: Megatron-Bridge takes 1 where it is left out, Megatron the tensor-parallel size
        strategy["expert_tensor_parallel_size"] = layout.expert_cut
    strategy |= _stages(job, arch)
    optimizer = _optimizer(job) | _muon(job)
    whole = job.optimizer == "muon" and layout.zero > 0
    if job.optimizer == "muon":
        optimizer |= {"use_distributed_optimizer": False, "use_layer_wise_distributed_optimizer": whole}
    ddp: dict[str, Any] = {
        "use_distributed_optimizer": not whole and (layout.zero > 0 or bool(_optimizer(job))),
        "overlap_grad_reduce": overlap.dp,
        "overlap_param_gather": overlap.dp and layout.zero > 0,
        "grad_reduce_in_fp32": gradient_type(job) == "fp32",
    }
    if layout.zero >= 2:
        strategy["save_ckpt_format"] = "fsdp_dtensor"  # MegatronStrategy refuses Megatron-FSDP without
        ddp |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": STRATEGIES[layout.zero]}
        ddp["megatron_fsdp_main_grads_dtype"] = _Name(TORCH[gradient_type(job)])
    if (instances := copies(job, hosts)) > 1:
        ddp["num_distributed_optimizer_instances"] = instances
    model: dict[str, Any] = {"recompute_granularity": None, "tp_comm_overlap": False}
    if layout.virtual_pipeline > 1:
        model |= {"overlap_p2p_comm": overlap.pp, "batch_p2p_comm": not overlap.pp}
    model |= _communication(job, arch, hosts) | _recomputation(job, arch) | _precision(job)
    model |= _fusions(job, arch, loss="te") | _graphs(job, arch)
    if model.get("cuda_graph_impl") == "full_iteration":
        ddp["check_for_nan_in_grad"] = False
    if "rotary" in job.unfused or arch.index_topk:
        model["apply_rope_fusion"] = False
    if "cpu_offloading_num_layers" in model:
        model["cpu_offloading"] = True
    data_module: dict[str, Any] = {
        "micro_batch_size": job.micro_batch,
        "global_batch_size": job.global_batch,
        "seq_length": job.sequence,
    }
    if job.data.workers != Data().workers:
        data_module["num_workers"] = job.data.workers
    parts = [
        ("MegatronStrategy (nemo/lightning/pytorch/strategies/megatron_strategy.py)", "strategy", strategy),
        ("its ddp=DistributedDataParallelConfig (megatron/core/distributed)", "ddp", ddp),
        (
            "the model's TransformerConfig (megatron/core/transformer); NeMo 2 sets its number formats by "
            "MegatronMixedPrecision",
            "model",
            model,
        ),
        ("the data module", "data", data_module),
    ]
    if optimizer:
        held = {k: _Name(TORCH[v]) if k.endswith("_dtype") else v for k, v in optimizer.items()}
        if job.master == "fp32" and job.optimizer == "adam":
            held["store_param_remainders"] = False
        parts.append(("the OptimizerConfig (megatron/core/optimizer)", "optimizer", held))
    if job.lora:
        targets = [name for target in job.lora.targets for name in _adapted(target, arch)]
        adapters = {"target_modules": targets, "dim": job.lora.rank}
        parts.append(("llm.peft.LoRA; routed experts have no adapters here", "peft", adapters))
    lines = unsaid(job, arch, hosts)
    for what, name, values in parts:
        lines += [f"# {what}", f"{name} = dict("]
        lines += [f"    {key}={value!r}," for key, value in values.items()]
        lines.append(")")
    return lines


ARGUMENTS = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "tp_only_amax_red": "",
    "num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "fp8_dot_product_attention": "",
    "gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "bias_activation_fusion": "--no-bias-swiglu-fusion",
}
"""Arguments not named after their field of TransformerConfig; '' has none (arguments.py excludes it), and a
field that is only ever written as False has the argument that says no."""


def _communication(job: TrainingJob, arch: Transformer, hosts: Hosts) -> dict[str, Any]:
    """Fields of TransformerConfig for what tensor, context and expert groups send."""
    layout, found = job.layout, dict[str, Any]()
    if layout.context > 1:
        found["cp_comm_type"] = CONTEXT_KINDS[layout.context_kind]
    if arch.is_moe:
        if layout.expert > 1:
            found |= _dispatcher(job, arch, hosts)
            if job.overlap.ep and not exposed_turns(job, arch):
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
    """Fields of TransformerConfig for who exchanges tokens among experts, and how far they go."""
    if not sends_one_copy(job, arch):
        return {"moe_token_dispatcher_type": "alltoall"}
    found = {"moe_token_dispatcher_type": "flex", "moe_flex_dispatcher_backend": backend(job, hosts)}
    if groups := router_groups(job, arch, hosts):
        return {**found, "moe_router_num_groups": groups[0], "moe_router_group_topk": groups[1]}
    return found


def _fusions(job: TrainingJob, arch: Transformer, loss: str) -> dict[str, Any]:
    """Fields of TransformerConfig for attention, dropout, and kernels that are fused here and, unless it is
    told, not in Megatron.

    loss  whose fused cross-entropy: Transformer Engine's, as it is predicted, or Megatron's own ('native'),
          since pretrain_gpt.py refuses the other one at that commit (arguments.py, validate_args)
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
    return found


def _dropout(job: TrainingJob) -> dict[str, Any]:
    """Fields of TransformerConfig for the dropout that was predicted: 0.1 where neither is told."""
    return dict.fromkeys(("attention_dropout", "hidden_dropout"), era_of(job).dropout)


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


def _recomputation(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
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


def _precision(job: TrainingJob) -> dict[str, Any]:
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
    return found


def _stages(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for stages that are not alike; none where Megatron cuts so by itself.

    Patterns of layers have stages of their own (`export_hybrid`).  A first and a last stage beside equal ones
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


def _graphs(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for what is launched as CUDA graphs."""
    parts = graphed(job, arch)
    if "step" in parts:
        return {"cuda_graph_impl": "full_iteration"}
    names = [name for part in parts for name in GRAPHS[part]]
    return {"cuda_graph_impl": "transformer_engine", "cuda_graph_modules": names} if names else {}


def _optimizer(job: TrainingJob) -> dict[str, Any]:
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


def _muon(job: TrainingJob) -> dict[str, Any]:
    """Fields of OptimizerConfig for Muon; whole matrices for each data-parallel rank are a field apart."""
    if job.optimizer != "muon":
        return {}
    return {"optimizer": "muon", "muon_num_ns_steps": job.muon.steps, "muon_tp_mode": job.muon.tp_mode}


def _adapted(target: str, arch: Transformer) -> tuple[str, ...]:
    """Modules of one target of adapters."""
    if target != "qkv":
        return (ADAPTED[target],)
    if arch.attention != "mla":
        return ("linear_qkv",)
    return ("linear_q_up_proj" if arch.q_lora else "linear_q_proj", "linear_kv_up_proj")


class _Name(str):
    """A name of Python's in keyword arguments that are written: without quotes."""

    def __repr__(self) -> str:
        return str(self)
