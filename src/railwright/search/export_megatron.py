"""A layout as Megatron-LM's command line and as the configurations that NeMo and Megatron-Bridge take.

Sources, read 2026-11-22: Megatron-LM d98e8a6, megatron/training/arguments.py and megatron/core's
ModelParallelConfig, TransformerConfig, OptimizerConfig and DistributedDataParallelConfig, whose fields are
arguments but for a few that arguments.py excludes; NeMo 2, nemo/lightning/pytorch/strategies/
megatron_strategy.py (MegatronStrategy), and Megatron-Bridge 067f987, whose providers take the same fields.
"""

from __future__ import annotations

from typing import Any

from railwright.model.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.eras import loss_of
from railwright.training.lockstep import amax_over
from railwright.training.schedule import FOLDED, schedule_name
from railwright.training.shared import hides_behind_shared
from railwright.training.stages import layers_per_piece

CONTEXT_KINDS = {"ring": "p2p", "all-to-all": "a2a", "all-gather": "all_gather"}
"""Megatron's names of them (TransformerConfig.cp_comm_type, which the command line's value becomes)."""

MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
"""What selective recomputation can compute again of what a job can name (TransformerConfig.__post_init__)."""

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
"""Megatron-FSDP's names of ZeRO-2 and ZeRO-3 (--data-parallel-sharding-strategy)."""


def megatron(job: TrainingJob, arch: Transformer, data: int) -> list[str]:
    """Command-line arguments of Megatron-LM's pretrain_gpt.py."""
    layout, overlap = job.layout, job.overlap
    lines = [
        f"--tensor-model-parallel-size {layout.tensor}",
        f"--pipeline-model-parallel-size {layout.pipeline}",
        f"--context-parallel-size {layout.context}",
        f"--micro-batch-size {job.micro_batch}",
        f"--global-batch-size {job.global_batch}",
        f"--seq-length {job.sequence}",
    ]
    if layout.virtual_pipeline > 1:
        lines.append(f"--num-virtual-stages-per-pipeline-rank {layout.virtual_pipeline}")
    if layout.pipeline > 1 and not overlap.pp:
        lines.append("--no-overlap-p2p-communication")
    if arch.is_moe:
        lines.append(f"--expert-model-parallel-size {layout.expert}")
        lines.append(f"--expert-tensor-parallel-size {layout.expert_tensor or layout.tensor}")
    if layout.sequence_parallel and layout.tensor > 1:
        lines.append("--sequence-parallel")
    fields = _communication(job, arch) | _recomputation(job, arch) | _precision(job)
    fields |= _fusions(job, arch, loss="native")
    for name, value in fields.items():
        argument = ARGUMENTS.get(name, f"--{name.replace('_', '-')}")
        words = "" if value is True else f" {' '.join(value) if isinstance(value, list) else value}"
        if argument:
            lines.append(f"{argument}{words}")
    if "rotary" in job.unfused:
        lines.append("--no-rope-fusion")
    lines += _sharding(layout.zero, overlap.dp)
    if "optimizer" in layout.offload:
        lines += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    comments = _unsaid(job, arch, data)
    if "cross_entropy_loss_fusion" in fields:
        comments.append("# the loss is predicted as Transformer Engine's kernel, which pretrain_gpt.py refuses")
    return [*comments, *lines]


def nemo(job: TrainingJob, arch: Transformer, data: int) -> list[str]:
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
    if arch.is_moe and layout.expert_tensor is not None:
        strategy["expert_tensor_parallel_size"] = layout.expert_tensor
    ddp: dict[str, Any] = {
        "use_distributed_optimizer": layout.zero > 0,
        "overlap_grad_reduce": overlap.dp,
        "overlap_param_gather": overlap.dp and layout.zero > 0,
    }
    if layout.zero >= 2:
        ddp |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": STRATEGIES[layout.zero]}
    model: dict[str, Any] = {"recompute_granularity": None, "tp_comm_overlap": False}
    if layout.virtual_pipeline > 1:
        model |= {"overlap_p2p_comm": overlap.pp, "batch_p2p_comm": not overlap.pp}
    model |= _communication(job, arch) | _recomputation(job, arch) | _precision(job)
    model |= _fusions(job, arch, loss="te")
    if "rotary" in job.unfused:
        model["apply_rope_fusion"] = False
    if "cpu_offloading_num_layers" in model:
        model["cpu_offloading"] = True
    data_module = {
        "micro_batch_size": job.micro_batch,
        "global_batch_size": job.global_batch,
        "seq_length": job.sequence,
    }
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
    if "optimizer" in layout.offload:
        held = {"optimizer_cpu_offload": True, "use_precision_aware_optimizer": True}
        parts.append(("the OptimizerConfig (megatron/core/optimizer)", "optimizer", held))
    lines = _unsaid(job, arch, data)
    for what, name, values in parts:
        lines += [f"# {what}", f"{name} = dict("]
        lines += [f"    {key}={value!r}," for key, value in values.items()]
        lines.append(")")
    return lines


ARGUMENTS = {
    "fp8": "--fp8-format",
    "fp4": "--fp4-format",
    "tp_only_amax_red": "",
    "fp8_dot_product_attention": "",
}
"""Arguments not named after their field of TransformerConfig; '' has none (arguments.py excludes it)."""


def _communication(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for what tensor, context and expert groups send."""
    layout, found = job.layout, dict[str, Any]()
    if layout.context > 1:
        found["cp_comm_type"] = CONTEXT_KINDS[layout.context_kind]
    if arch.is_moe:
        if layout.expert > 1:
            found["moe_token_dispatcher_type"] = "alltoall"
            if job.overlap.ep and not _takes_no_turns(job):
                # weight gradients behind a pass's result, as its schedule is predicted
                found |= {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": True}
        if hides_behind_shared(job, arch):
            found["moe_shared_expert_overlap"] = True
        if job.expert_capacity is not None:
            found["moe_expert_capacity_factor"] = job.expert_capacity
            found["moe_pad_expert_input_to_capacity"] = True
    if job.overlap.tp and layout.tensor > 1 and layout.sequence_parallel:
        found["tp_comm_overlap"] = True
    return found


def _fusions(job: TrainingJob, arch: Transformer, loss: str) -> dict[str, Any]:
    """Fields of TransformerConfig for kernels that are fused here and, unless it is told, not in Megatron.

    loss  whose fused cross-entropy: Transformer Engine's, as it is predicted, or Megatron's own ('native'),
          since pretrain_gpt.py refuses the other one at that commit (arguments.py, validate_args)
    """
    found: dict[str, Any] = {}
    if arch.is_moe:
        found |= {"moe_permute_fusion": True}
        found |= {} if "router" in job.unfused else {"moe_router_fusion": True}
    if loss_of(job) == "fused":
        found |= {"cross_entropy_loss_fusion": True, "cross_entropy_fusion_impl": loss}
    return found


def _recomputation(job: TrainingJob, arch: Transformer) -> dict[str, Any]:
    """Fields of TransformerConfig for what is computed again or lies in host memory."""
    layout = job.layout
    if layout.recompute == "selective":
        names = list(layout.recompute_modules)
        return {"recompute_granularity": "selective", "recompute_modules": names}
    if layout.recompute == "full":
        return {"recompute_granularity": "full", "recompute_method": "uniform", "recompute_num_layers": 1}
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


def _sharding(zero: int, overlapped: bool) -> list[str]:
    lines = ["--use-distributed-optimizer"] if zero else []
    if zero >= 2:
        lines += ["--use-megatron-fsdp", f"--data-parallel-sharding-strategy {STRATEGIES[zero]}"]
        lines += ["--no-gradient-accumulation-fusion", "--ckpt-format fsdp_dtensor"]
    if overlapped:
        lines.append("--overlap-grad-reduce")
        if zero:
            lines.append("--overlap-param-gather")
    return lines


def _takes_no_turns(job: TrainingJob) -> str:
    """Why Megatron refuses overlap_moe_expert_parallel_comm here; '' where it takes it.

    Source: TransformerConfig.__post_init__.
    """
    layout = job.layout
    if layout.pipeline > 1 and layout.virtual_pipeline == 1:
        return "needs virtual stages beside a pipeline"
    if layout.recompute == "full" or (layout.recompute == "selective" and "moe" in layout.recompute_modules):
        return "allows no recomputation of whole layers or experts"
    return ""


def _unsaid(job: TrainingJob, arch: Transformer, data: int) -> list[str]:
    """What Megatron has no argument for, or refuses, as comments."""
    layout, name = job.layout, schedule_name(job.layout)
    found = []
    if name not in ("1f1b", "interleaved"):
        plain = "interleaved 1F1B" if layout.virtual_pipeline > 1 else "1F1B"
        found.append(f"schedule {name}: not in Megatron-LM; without it, {plain} runs")
    pieces = layout.pipeline * layout.virtual_pipeline
    if name not in FOLDED and arch.layers % pieces:
        sizes = ", ".join(map(str, layers_per_piece(arch.layers, pieces, layout)))
        found.append(f"uneven stages of {sizes} layers: see --pipeline-model-parallel-layout")
    if layout.placement != "packed":
        found.append(f"placement {layout.placement}: order the hosts accordingly")
    if layout.shard is not None and layout.shard < data * layout.context:
        found.append(
            f"parameters sharded over {layout.shard} ranks only (HSDP): see "
            "--num-distributed-optimizer-instances"
        )
    if layout.zero == 3 and not layout.reshard:
        found.append("parameters kept until the backward pass (reshard: false): Megatron-FSDP drops them")
    if job.dtype == "fp8_rowwise":
        found.append("fp8 with a scale per row: Transformer Engine has none; without it, 16 bits")
    if "tp_only_amax_red" in _precision(job):
        found.append("fp8 maxima over tensor-parallel ranks alone: a field (tp_only_amax_red), no argument")
    if "attention" in job.dtype_also:
        found.append("attention in 8 bits: a field (fp8_dot_product_attention), no argument")
    if job.sample_length is not None:
        found.append(f"samples of {job.sample_length} tokens are packed by the data set")
    if job.expert_nodes is not None and arch.is_moe:
        found.append(
            f"a token's experts on at most {job.expert_nodes} servers: see --moe-router-num-groups and "
            "--moe-router-group-topk"
        )
    if arch.is_moe and layout.expert > 1 and job.overlap.ep and (why := _takes_no_turns(job)):
        found.append(f"hidden expert all-to-all: Megatron's overlap_moe_expert_parallel_comm {why}")
    if "activations" in layout.offload and (layout.pipeline > 1 or layout.recompute != "none"):
        found.append(
            "offloaded activations: Megatron's cpu_offloading allows no pipeline and no recomputation"
        )
    if job.overlap.tp and layout.tensor > 1 and not layout.sequence_parallel:
        found.append("overlapped tensor parallelism: Megatron's tp_comm_overlap needs sequence parallelism")
    return [f"# {sentence}" for sentence in found]
