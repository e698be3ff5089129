"""A layout as sections of a torchtitan TOML file.

Source, read 2026-11-22: torchtitan e347b1e, torchtitan/config/job_config.py (later versions: in Python).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd
from typing import Any

from railwright.model.operators.eager import Loss
from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts, backend, router_groups, sends_one_copy, unequal
from railwright.search.exports.later_torchtitan import of_later
from railwright.search.exports.placed import placed_by
from railwright.spec.dataset import Data
from railwright.spec.training import Layout, TrainingJob
from railwright.training.layers.communication import gradient_type
from railwright.training.layers.shared import hides_behind_shared
from railwright.training.layers.stages import layers_per_piece
from railwright.training.layers.unhidden import gathers_late
from railwright.training.layout.schedule import route_of, schedule_name
from railwright.training.layout.sizes import microbatches
from railwright.training.software.chunked_loss import chunks_told
from railwright.training.software.dropout import attention_dropout, hidden_dropout
from railwright.training.software.eras import era_of, loss_of
from railwright.training.software.formats import amax_over, has_masters, moments_of
from railwright.training.software.nf4 import is_nf4

LINEAR: dict[str, dict[str, dict[str, Any]]] = {
    "fp8": {"quantize.linear.float8": {"enable_fsdp_float8_all_gather": True}},
    "fp8_rowwise": {"quantize.linear.float8": {"recipe_name": "rowwise"}},
    "mxfp8": {"quantize.linear.mx": {"recipe_name": "mxfp8_cublas"}},
}
"""Converters of linear layers, and their settings, by number format."""

GROUPED: dict[str, dict[str, dict[str, Any]]] = {
    "fp8": {"quantize.grouped_mm.float8": {"fqns": ["experts"]}},
    "fp8_rowwise": {"quantize.grouped_mm.float8": {"fqns": ["experts"]}},
    "mxfp8": {"quantize.grouped_mm.mx": {"recipe_name": "mxfp8", "fqns": ["experts"]}},
}
"""Those of experts."""

TRAINED = ("bf16", *LINEAR)
"""Number formats that it trains in: config/job_config.py has "bfloat16" and "float32" of
mixed_precision_param, and its converters are those of LINEAR."""

SCHEDULES = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}
"""Names of torch.distributed.pipelining's schedules.  ZB-H1 with virtual stages is InterleavedZeroBubble,
which wants two stages per rank."""

COMPILED: tuple[Loss, ...] = ("fused", "compiled")
"""Losses in as few kernels as torchtitan's compiled one has; any other is predicted as not compiled."""


def torchtitan(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """Sections of a torchtitan TOML file."""
    layout, data = job.layout, hosts.data
    count = microbatches(job, data)
    training: dict[str, Any] = {
        "local_batch_size": job.micro_batch * (count if layout.pipeline > 1 else 1),
        "global_batch_size": job.global_batch,
        "seq_len": job.sequence,
    }
    if {"optimizer", "weights"} & set(layout.offload):
        training["enable_cpu_offload"] = True
    if not has_masters(job):
        training["dtype"] = "bfloat16"
    # asynchronous tensor parallelism must be compiled, and the loss is where it is predicted so (eras.yaml)
    parts = ["model", "loss"] if loss_of(job) in COMPILED else ["model"]
    checkpoint: dict[str, Any] = {"mode": layout.recompute}
    if layout.recompute == "selective":
        checkpoint["selective_ac_option"] = "op"
    quantized = LINEAR.get(job.dtype, {}) | (GROUPED.get(job.dtype, {}) if arch.is_moe else {})
    sections: list[tuple[str, Mapping[str, Any]]] = [
        ("training", training),
        ("parallelism", _parallelism(job, arch, data)),
        ("activation_checkpoint", checkpoint),
        ("compile", {"enable": True, "components": parts}),
    ]
    if job.data.workers != Data().workers:
        sections.append(("training.dataloader", {"num_workers": job.data.workers}))
    if quantized:
        sections += [("model", {"converters": list(quantized)}), *quantized.items()]
    lines = _unsaid(job, arch, hosts)
    for name, values in sections:
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return lines


def _parallelism(job: TrainingJob, arch: Transformer, data: int) -> dict[str, Any]:
    layout = job.layout
    shard = _sharded_over(layout, data)
    found: dict[str, Any] = {
        "data_parallel_replicate_degree": data // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": layout.tensor,
        "enable_async_tensor_parallel": job.overlap.tp and layout.tensor > 1,
        "context_parallel_degree": layout.context,
        "pipeline_parallel_degree": layout.pipeline,
    }
    if layout.zero:
        found["fsdp_reshard_after_forward"] = "always" if layout.zero == 3 and layout.reshard else "never"
    methods = {"all-gather": "allgather", "ring": "alltoall"}
    if layout.context > 1 and layout.context_kind in methods:
        found["context_parallel_rotate_method"] = methods[layout.context_kind]
    if layout.pipeline > 1:
        schedule = SCHEDULES.get(schedule_name(layout), "InterleavedZeroBubble")
        found["pipeline_parallel_schedule"] = schedule
        found |= _stages(_sizes(job, arch))
        found["pipeline_parallel_microbatch_size"] = job.micro_batch
    if arch.is_moe:
        found["expert_parallel_degree"] = layout.expert
        found["expert_tensor_parallel_degree"] = layout.expert_cut
    if sends_one_copy(job, arch):
        found["expert_parallel_comm_backend"] = "deepep"
    return found


def _sharded_over(layout: Layout, data: int) -> int:
    """Data-parallel ranks that share parameters; their context-parallel ranks share these with them.

    Source: torchtitan/distributed/parallel_dims.py (the mesh dp_shard_cp).
    """
    if not layout.zero:
        return 1
    return data if layout.shard is None else gcd(data, max(layout.shard // layout.context, 1))


def _sizes(job: TrainingJob, arch: Transformer) -> tuple[int, ...]:
    """How many layers each piece of the model has, in its order."""
    layout = job.layout
    return layers_per_piece(arch.layers, route_of(layout).model_pieces, layout, arch.mtp_layers)


def _stages(sizes: tuple[int, ...]) -> dict[str, Any]:
    """Settings that cut the model into pieces of these sizes.

    Without the two that say how many layers embedding and output stand for, torchtitan counts one each, and
    finds another number of stages.  It has no setting for other uneven pieces than its own: all modules of
    each are named.
    Source: torchtitan/distributed/pipeline_parallel.py, pipeline_llm and generate_llm_fqn_per_model_part.
    """
    if len(set(sizes)) == 1:
        return {
            "pipeline_parallel_layers_per_stage": sizes[0],
            "pipeline_parallel_first_stage_less_layers": 0,
            "pipeline_parallel_last_stage_less_layers": 0,
        }
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    parts = [[f"layers.{k}" for k in range(end - n, end)] for n, end in zip(sizes, ends, strict=True)]
    parts[0].insert(0, "tok_embeddings")
    parts[-1] += ["norm", "output"]
    return {"module_fqns_per_model_part": parts}


def _unsaid(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """What torchtitan has no setting for, as comments."""
    found = [
        *_of_groups(job),
        *_of_the_model(arch),
        *_of_overlap(job, arch),
        *placed_by(job),
        *_of_memory(job),
        *_of_formats(job),
        *_exchanged(job, arch, hosts),
        *_unset(job, arch),
        *of_later(job, arch),
    ]
    return [f"# {sentence}" for sentence in found]


def _of_groups(job: TrainingJob) -> list[str]:
    """Samples, shards, sequences and stages that torchtitan does not cut so."""
    layout, name, found = job.layout, schedule_name(job.layout), []
    if job.sample_length is not None:
        found.append(f"samples of {job.sample_length} tokens: torchtitan needs attention that masks borders")
    if layout.zero in (1, 2):
        found.append(
            "torchtitan shards parameters, gradients and optimizer states together: zero 3 with "
            'fsdp_reshard_after_forward "never" is the nearest to zero 1 and 2'
        )
    if layout.shard is not None and layout.shard % layout.context:
        found.append(
            f"parameters sharded over {layout.shard} ranks: torchtitan shards them over all "
            f"{layout.context} context ranks, or multiples of these"
        )
    if layout.context > 1 and layout.context_kind == "all-to-all":
        found.append("torchtitan has no context parallelism over heads (Ulysses); its default is used")
    if layout.pipeline > 1 and name not in SCHEDULES and layout.virtual_pipeline == 1:
        found.append(f"torchtitan has no schedule {name}; its zero-bubble one has two stages per rank")
    return found


def _of_the_model(arch: Transformer) -> list[str]:
    """Parts of a model that torchtitan's own models have not."""
    found = []
    if arch.index_topk:
        found.append(
            "attention to chosen keys: torchtitan's transformers backend, without tensor parallelism"
        )
    if arch.attention_gate:
        found.append(
            "gates on attention's outputs: not in torchtitan's own models, in its transformers backend"
        )
    if arch.mtp_layers:
        found.append(f"{arch.mtp_layers} multi-token-prediction layers are predicted: torchtitan has none")
    return found


def _of_overlap(job: TrainingJob, arch: Transformer) -> list[str]:
    """Communication that torchtitan always hides, or never."""
    layout, found = job.layout, []
    if layout.tensor > 1 and not layout.sequence_parallel:
        found.append("torchtitan splits norms and residuals too wherever it has tensor parallelism")
    if not (job.overlap.dp and (job.overlap.gather or layout.zero not in (1, 2))) or gathers_late(job):
        found.append("torchtitan hides the communication of data parallelism; it has no switch for it")
    if arch.is_moe and layout.expert > 1 and job.overlap.ep:
        found.append("hidden expert all-to-all: torchtitan has no setting for it")
    if hides_behind_shared(job, arch):
        found.append("expert all-to-all behind shared experts: torchtitan has no setting for it")
    return found


def _of_memory(job: TrainingJob) -> list[str]:
    """What is computed again or lies on the host otherwise in torchtitan."""
    layout, found = job.layout, []
    if layout.recompute == "selective" and layout.recompute_modules != ("ops",):
        parts = ", ".join(layout.recompute_modules)
        found.append(f"recomputation of {parts}: torchtitan chooses by operators ('op') instead")
    if layout.recompute == "full" and layout.recompute_layers is not None:
        found.append(
            f"recomputation of the first {layout.recompute_layers} layers of each stage: torchtitan computes "
            "all again ('full'), or every n-th (selective_ac_option)"
        )
    if "optimizer" in layout.offload and "weights" not in layout.offload:
        found.append("torchtitan's enable_cpu_offload takes parameters and gradients to the host too")
    if job.overlap.offload and layout.offload:
        found.append("copies beside an offloaded optimizer's update: torchtitan has no setting for them")
    if "activations" in layout.offload:
        kept = f" (of {layout.offload_layers} layers)" if layout.offload_layers else ""
        found.append(f"offloaded activations{kept}: torchtitan has no setting for them")
    return found


def _of_formats(job: TrainingJob) -> list[str]:
    """Number formats that torchtitan does not send or multiply in."""
    found = []
    if job.dispatch_dtype == "fp8":
        found.append("tokens dispatched in 8 bits: torchtitan sends them in 16")
    if job.dtype not in TRAINED:
        found.append(f"{job.dtype}: torchtitan has no training in it; without it, bf16")
    if job.dtype == "fp8" and job.layout.tensor > 1:
        # parallelize.py of each model, v0.2.0 to v0.2.2: enable_float8_linear = "float8" in converters, which
        # are called quantize.linear.float8 since
        found.append(
            "what tensor-parallel ranks gather is predicted in 8 bits: 0.2 looks for the converter under its "
            "older name, float8, and gathers 16 bits; 0.1 gathers 8"
        )
    if job.dtype_also:
        found.append(f"{' and '.join(job.dtype_also)} in {job.dtype}: torchtitan multiplies them in 16 bits")
    if job.activation_input_dtype == "fp8":
        found.append("SwiGLU's input kept in fp8: torchtitan keeps it in 16 bits")
    return found


def _exchanged(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """What expert_parallel_comm_backend "deepep" wants beside itself.

    Source: models/llama4/infra/parallelize.py and models/deepseek_v3/infra/parallelize.py, which alone read
    it; models/moe/moe.py, MoEArgs.
    """
    if not sends_one_copy(job, arch):
        return []
    if hosts.apart:
        return [unequal(job, arch, hosts)]
    found = [
        "DeepEP must be installed; torchtitan's llama4 and deepseek_v3 run with it, its other models not"
    ]
    if backend(job, hosts) != "deepep":
        found.append("DeepEP takes eight ranks of an expert group as one server's, and no racks of NVLink")
    if groups := router_groups(job, arch, hosts):
        found.append(
            f"a token's experts on at most {groups[1]} servers: num_expert_groups {groups[0]} and "
            f"num_limited_groups {groups[1]} of the model's MoEArgs"
        )
    if why := unequal(job, arch, hosts):
        found.append(why)
    return found


def _unset(job: TrainingJob, arch: Transformer) -> list[str]:
    """What the job sets of number formats, kernels and overlaps, and torchtitan does not."""
    layout, overlap, found = job.layout, job.overlap, []
    if arch.is_moe and layout.expert_tensor not in (None, 1, layout.tensor):
        found.append(
            f"experts cut into {layout.expert_tensor}: torchtitan takes 1 or the tensor-parallel degree"
        )
    if arch.is_moe and layout.tensor > 1 and layout.expert == 1 and layout.expert_tensor == 1:
        found.append(
            "experts that are not cut: without expert parallelism torchtitan cuts them as it does the rest, "
            "whatever expert_tensor_parallel_degree says"
        )
    if job.optimizer != "adam":
        how = f"{job.muon.steps} steps, tensor-parallel ranks {job.muon.tp_mode}"
        found.append(f"optimizer {job.optimizer} ({how}): torchtitan has Adam and AdamW")
    if job.moment_dtype != "fp32" and (has_masters(job) or job.moment_dtype != moments_of(job)):
        found.append(f"moments in {job.moment_dtype}: torchtitan's AdamW keeps the type of its parameters")
    if job.ddp_bucket is not None:
        found.append("buckets of gradients (ddp_bucket): FSDP2 reduces each layer alone")
    if job.apex_bucket is not None:
        found.append(
            "Apex's distributed optimizer (apex_bucket): torchtitan shards weights with their states"
        )
    if job.master == "remainder":
        found.append("master weights as remainders: torchtitan keeps its parameters in fp32")
    if gradient_type(job) != "fp32" and (job.gradient_dtype or not has_masters(job)):
        found.append(f"gradients in {gradient_type(job)}: torchtitan reduces in fp32 only")
    if job.lora:
        four = ", beside frozen weights in 4 bits" if is_nf4(job) else ""
        found.append(f"adapters of rank {job.lora.rank} (lora){four}: torchtitan trains all weights")
    if job.fp8_param_gather is False:
        found.append("16 bits beside weights in 8 (fp8_param_gather): its shards are the fp32 weights")
    if (job.attention_backend or era_of(job).flash) not in ("fused", ""):
        # models/attention.py at v0.2.0 to v0.2.2: CUDNN_ATTENTION, FLASH_ATTENTION, ... with set_priority
        found.append(
            "FlashAttention-2 is predicted: torchtitan asks PyTorch for cuDNN's attention first, another "
            "kernel on H100 and B200 (software fsdp-2026)"
        )
    if hidden_dropout(job) or attention_dropout(job):
        found.append("dropout: torchtitan's models have none")
    if job.chunked_loss:
        found.append(f"head and loss in chunks ({chunks_told(job)}): this version takes all logits at once")
    if job.expert_capacity is not None and arch.is_moe:
        found.append(f"expert capacity of {job.expert_capacity:g}: torchtitan drops no token")
    if job.cuda_graphs:
        found.append(f"CUDA graphs of {', '.join(job.cuda_graphs)}: torchtitan has no setting for them")
    if eager := [name for name in job.unfused if name not in ("loss", "rotary")]:
        found.append(f"unfused {' and '.join(eager)}: torch.compile fuses what it can of the model")
    if "rotary" in job.unfused:
        found.append(
            "unfused rotary: so torchtitan turns Llama's and DeepSeek's, as complex numbers, no others"
        )
    if amax_over(job) != "none":
        found.append(f"fp8 maxima of a {amax_over(job)}: torchao scales each tensor by its current maximum")
    if layout.zero >= 2 and not layout.reduce_each:
        found.append("gradients reduced once per step (reduce_each: false): pipelines alone do so")
    if layout.zero == 3 and overlap.prefetch != 1:
        found.append(f"parameters gathered {overlap.prefetch} layers ahead: FSDP2 gathers one ahead")
    if layout.pipeline > 1 and not overlap.pp:
        found.append("pipeline sends that are not hidden: torchtitan has no switch for it")
    if layout.context > 1 and layout.context_kind == "ring" and not overlap.cp:
        found.append("a ring of keys and values that is not hidden: torchtitan has no switch for it")
    return found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
