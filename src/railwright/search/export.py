"""A layout as the arguments of real frameworks: Megatron-LM, NeMo, torchtitan, and a study of our own.

What a framework has no setting for is said in a comment rather than left out.
Sources, read 2026-11-22: Megatron-LM d98e8a6, megatron/training/arguments.py and megatron/core's
ModelParallelConfig, TransformerConfig and DistributedDataParallelConfig, whose fields are arguments; NeMo 2,
nemo/lightning/pytorch/strategies/megatron_strategy.py (MegatronStrategy), and Megatron-Bridge 067f987, whose
providers take the same fields; torchtitan e347b1e, torchtitan/config/job_config.py (TOML files; later
versions are configured in Python).  tests/formula/test_search_exports.py holds every name to those files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from railwright.errors import RailwrightError
from railwright.model.architecture import Transformer
from railwright.search.result import Candidate
from railwright.training.schedule import schedule_name
from railwright.training.stages import layers_per_piece


def export(candidate: Candidate, arch: Transformer, data: int, form: str) -> str:
    """The candidate's layout in one of `FORMS`.

    data  data-parallel size of its layout
    Raises RailwrightError for a form that is not known.
    """
    if form not in FORMS:
        raise RailwrightError(f"there is no export '{form}'; choose one of {', '.join(FORMS)}")
    return FORMS[form](candidate, arch, data)


def megatron(candidate: Candidate, arch: Transformer, data: int) -> str:
    """Command-line arguments of Megatron-LM's pretrain_gpt.py."""
    job = candidate.job
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
    if layout.context > 1:
        lines.append(f"--cp-comm-type {CONTEXT_KINDS[layout.context_kind]}")
    if arch.is_moe:
        lines.append(f"--expert-model-parallel-size {layout.expert}")
        lines.append(f"--expert-tensor-parallel-size {layout.expert_tensor or layout.tensor}")
        if layout.expert > 1:
            lines.append("--moe-token-dispatcher-type alltoall")
            if overlap.ep:
                lines.append("--overlap-moe-expert-parallel-comm")
        if job.expert_capacity is not None:
            lines.append(f"--moe-expert-capacity-factor {job.expert_capacity:g}")
            lines.append("--moe-pad-expert-input-to-capacity")
    if layout.sequence_parallel and layout.tensor > 1:
        lines.append("--sequence-parallel")
    if overlap.tp and layout.tensor > 1 and layout.sequence_parallel:
        lines.append("--tp-comm-overlap")
    lines += _sharding(layout.zero, overlap.dp)
    if layout.recompute == "selective":
        lines.append("--recompute-granularity selective")
        lines.append(f"--recompute-modules {' '.join(layout.recompute_modules)}")
    elif layout.recompute == "full":
        lines.append("--recompute-granularity full")
        lines.append("--recompute-method uniform")
        lines.append("--recompute-num-layers 1")
    if "optimizer" in layout.offload:
        lines += ["--optimizer-cpu-offload", "--use-precision-aware-optimizer"]
    if "activations" in layout.offload and _offloads(candidate):
        count = min(layout.offload_layers or arch.layers, arch.layers - 1)
        lines += ["--cpu-offloading", f"--cpu-offloading-num-layers {count}"]
    lines += {
        "bf16": ["--bf16"],
        "fp16": ["--fp16"],
        "fp8": ["--bf16", "--fp8-format hybrid"],
        "fp8_rowwise": ["--bf16"],
        "mxfp8": ["--bf16", "--fp8-format e4m3", "--fp8-recipe mxfp8"],
        "nvfp4": ["--bf16", "--fp4-format e2m1"],
    }[job.dtype]
    head = _head(candidate, "Megatron-LM, arguments of pretrain_gpt.py (megatron/training/arguments.py)")
    return "\n".join([*head, *_unsaid(candidate, arch), *lines]) + "\n"


def nemo(candidate: Candidate, arch: Transformer, data: int) -> str:
    """Keyword arguments of NeMo's MegatronStrategy and what goes into its DDP and model configurations."""
    job = candidate.job
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
    model: dict[str, Any] = {
        "recompute_granularity": None if layout.recompute == "none" else layout.recompute
    }
    if layout.recompute == "full":
        model |= {"recompute_method": "uniform", "recompute_num_layers": 1}
    if layout.recompute == "selective":
        model["recompute_modules"] = list(layout.recompute_modules)
    if layout.context > 1:
        model["cp_comm_type"] = CONTEXT_KINDS[layout.context_kind]
    model["tp_comm_overlap"] = overlap.tp and layout.tensor > 1 and layout.sequence_parallel
    data_module = {
        "micro_batch_size": job.micro_batch,
        "global_batch_size": job.global_batch,
        "seq_length": job.sequence,
    }
    parts = [
        ("MegatronStrategy (nemo/lightning/pytorch/strategies/megatron_strategy.py)", "strategy", strategy),
        ("its ddp=DistributedDataParallelConfig (megatron/core/distributed)", "ddp", ddp),
        ("the model's TransformerConfig (megatron/core/transformer)", "model", model),
        ("the data module", "data", data_module),
    ]
    lines = [*_head(candidate, "NeMo 2"), *_unsaid(candidate, arch)]
    for what, name, values in parts:
        lines.append(f"# {what}")
        lines.append(f"{name} = dict(")
        lines += [f"    {key}={value!r}," for key, value in values.items()]
        lines.append(")")
    return "\n".join(lines) + "\n"


def torchtitan(candidate: Candidate, arch: Transformer, data: int) -> str:
    """Sections of a torchtitan TOML file."""
    job = candidate.job
    layout = job.layout
    shard = (layout.shard or data) if layout.zero else 1
    parallelism: dict[str, Any] = {
        "data_parallel_replicate_degree": data // shard,
        "data_parallel_shard_degree": shard,
        "tensor_parallel_degree": layout.tensor,
        "enable_async_tensor_parallel": job.overlap.tp and layout.tensor > 1,
        "context_parallel_degree": layout.context,
        "pipeline_parallel_degree": layout.pipeline,
    }
    notes: list[str] = []
    if job.sample_length is not None:
        notes.append(
            f"# samples of {job.sample_length} tokens: torchtitan needs attention that masks borders"
        )
    if layout.zero in (1, 2):
        notes.append(
            "# torchtitan shards parameters, gradients and optimizer states together: zero 3 with "
            'fsdp_reshard_after_forward "never" is the nearest to zero 1 and 2'
        )
        parallelism["fsdp_reshard_after_forward"] = "never"
    elif layout.zero == 3:
        parallelism["fsdp_reshard_after_forward"] = "always" if layout.reshard else "never"
    if layout.context > 1:
        methods = {"all-gather": "allgather", "ring": "alltoall"}
        if layout.context_kind in methods:
            parallelism["context_parallel_rotate_method"] = methods[layout.context_kind]
        else:
            notes.append("# torchtitan has no context parallelism over heads (Ulysses); its default is used")
    if layout.pipeline > 1:
        name = schedule_name(layout)
        known = {"1f1b": "1F1B", "interleaved": "Interleaved1F1B", "gpipe": "GPipe"}
        if name in known:
            parallelism["pipeline_parallel_schedule"] = known[name]
        else:
            notes.append(f"# torchtitan has no schedule {name}; its zero-bubble one has two stages per rank")
            parallelism["pipeline_parallel_schedule"] = "InterleavedZeroBubble"
        sizes = set(layers_per_piece(arch.layers, layout.pipeline * layout.virtual_pipeline, layout))
        if len(sizes) == 1:
            parallelism["pipeline_parallel_layers_per_stage"] = sizes.pop()
        else:
            notes.append("# stages are uneven: give module_fqns_per_model_part yourself")
        parallelism["pipeline_parallel_microbatch_size"] = job.micro_batch
    if arch.is_moe:
        parallelism["expert_parallel_degree"] = layout.expert
        parallelism["expert_tensor_parallel_degree"] = layout.expert_tensor or layout.tensor
    count = job.global_batch // (data * job.micro_batch)
    training: dict[str, Any] = {
        "local_batch_size": job.micro_batch * (count if layout.pipeline > 1 else 1),
        "global_batch_size": job.global_batch,
        "seq_len": job.sequence,
    }
    checkpoint: dict[str, Any] = {"mode": layout.recompute}
    if layout.recompute == "selective":
        checkpoint["selective_ac_option"] = "op"
    float8: dict[str, dict[str, Any]] = {
        "fp8": {"enable_fsdp_float8_all_gather": True},
        "fp8_rowwise": {"recipe_name": "rowwise"},
    }
    sections: list[tuple[str, Mapping[str, Any]]] = []
    if job.dtype in float8:
        sections = [
            ("model", {"converters": ["quantize.linear.float8"]}),
            ("quantize.linear.float8", float8[job.dtype]),
        ]
    lines = [*_head(candidate, "torchtitan 0.2, TOML (torchtitan/config/job_config.py)"), *notes]
    for name, values in (
        ("training", training),
        ("parallelism", parallelism),
        ("activation_checkpoint", checkpoint),
        *sections,
    ):
        lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


WRITTEN = {
    "name", "model", "gpus", "sequence", "global_batch", "micro_batch", "tokens", "dtype", "software",
    "layout", "overlap",
}  # fmt: skip
"""Fields of a job that `study` writes by itself; all others follow where they are not the default."""


def study(candidate: Candidate, arch: Transformer, data: int) -> str:
    """The job of a study, with this layout."""
    job = candidate.job
    lines = [
        *_head(candidate, "railwright"),
        "jobs:",
        f"  - name: {_plain(job.name)}",
        f"    model: {job.model}",
    ]
    if job.gpus is not None:
        lines.append(f"    gpus: {job.gpus}")
    lines += [
        f"    sequence: {job.sequence}",
        f"    global_batch: {job.global_batch}",
        f"    micro_batch: {job.micro_batch}",
        f"    tokens: {job.tokens!r}",
        f"    dtype: {job.dtype}",
        f"    software: {job.software}",
    ]
    for name, part in (("layout", job.layout), ("overlap", job.overlap)):
        changed = part.model_dump(exclude_defaults=True)
        if changed:
            lines += [f"    {name}:", *(f"      {key}: {_yaml(value)}" for key, value in changed.items())]
    rest = job.model_dump(exclude_defaults=True, exclude=WRITTEN)
    lines += [f"    {key}: {_yaml(value)}" for key, value in sorted(rest.items())]
    return "\n".join(lines) + "\n"


FORMS: dict[str, Callable[[Candidate, Transformer, int], str]] = {
    "megatron": megatron,
    "nemo": nemo,
    "torchtitan": torchtitan,
    "study": study,
}

CONTEXT_KINDS = {"ring": "p2p", "all-to-all": "a2a", "all-gather": "all_gather"}
"""Megatron's names of them (TransformerConfig.cp_comm_type, which the command line's value becomes)."""

STRATEGIES = {2: "optim_grads", 3: "optim_grads_params"}
"""Megatron-FSDP's names of ZeRO-2 and ZeRO-3 (--data-parallel-sharding-strategy)."""


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


def _unsaid(candidate: Candidate, arch: Transformer) -> list[str]:
    """What Megatron has no argument for."""
    layout = candidate.job.layout
    found = []
    name = schedule_name(layout)
    if name in ("zb-h1", "dualpipe", "gpipe"):
        found.append(f"# schedule {name}: not in Megatron-LM; without it, 1F1B runs")
    pieces = layout.pipeline * layout.virtual_pipeline
    if name != "dualpipe" and arch.layers % pieces:
        sizes = layers_per_piece(arch.layers, pieces, layout)
        found.append(
            f"# uneven stages of {', '.join(map(str, sizes))} layers: see --pipeline-model-parallel-layout"
        )
    if layout.placement != "packed":
        found.append(f"# placement {layout.placement}: order the hosts accordingly")
    if candidate.job.dtype == "fp8_rowwise":
        found.append("# fp8 with a scale per row: Transformer Engine has none; without it, 16 bits")
    if candidate.job.sample_length is not None:
        found.append(f"# samples of {candidate.job.sample_length} tokens are packed by the data set")
    if "activations" in layout.offload and not _offloads(candidate):
        found.append(
            "# offloaded activations: Megatron's cpu_offloading allows no pipeline and no recomputation"
        )
    if candidate.job.overlap.tp and layout.tensor > 1 and not layout.sequence_parallel:
        found.append("# overlapped tensor parallelism: Megatron's tp_comm_overlap needs sequence parallelism")
    return found


def _offloads(candidate: Candidate) -> bool:
    """Whether Megatron's cpu_offloading takes this layout (TransformerConfig.__post_init__)."""
    layout = candidate.job.layout
    return layout.pipeline == 1 and layout.recompute == "none"


def _head(candidate: Candidate, what: str) -> list[str]:
    return [
        f"# {what}; written by railwright search",
        f"# predicted: {candidate.time:.4g} s a step, {candidate.memory / 2**30:.1f} GiB on the fullest GPU",
    ]


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def _yaml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{', '.join(_yaml(v) for v in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{k}: {_yaml(v)}' for k, v in value.items())}}}"
    return str(value)


def _plain(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() else f'"{text}"'
