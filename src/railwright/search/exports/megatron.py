"""A layout as Megatron-LM's command line.

Sources, read 2026-11-22: Megatron-LM d98e8a6, megatron/training/arguments.py and megatron/core's
ModelParallelConfig, TransformerConfig, OptimizerConfig and DistributedDataParallelConfig, whose fields are
arguments but for a few that arguments.py excludes.
"""

from __future__ import annotations

from shlex import quote

from railwright.model.shape.architecture import Transformer
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.environment import connections
from railwright.search.exports.hybrid import hybrid_pattern
from railwright.search.exports.later import newer
from railwright.search.exports.megatron_words import COLLECTED_EVERY, keeps_remainders, narrow, unsaid
from railwright.search.exports.one_mlp import one_mlp
from railwright.search.exports.shape import shape
from railwright.search.exports.sharding import sharding
from railwright.search.exports.transformer_config import (
    communication,
    fusions,
    graphs,
    muon,
    optimizer_fields,
    precision,
    recomputation,
    stages,
)
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training.layers.graphs import graphed
from railwright.training.software.eras import loss_of

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

TOGETHER = ("--manual-gc", f"--manual-gc-interval {COLLECTED_EVERY}")
"""Python's garbage collected by all ranks in the same step: a rank that stops alone stops all, which is not
predicted."""


def megatron(job: TrainingJob, arch: Transformer, hosts: Hosts) -> list[str]:
    """Command-line arguments of Megatron-LM's pretrain_gpt.py."""
    layout, overlap = job.layout, job.overlap
    cut = stages(job, arch)
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
    elif layout.virtual_pipeline > 1 and "pipeline_model_parallel_layout" not in cut:
        lines.append(f"--num-virtual-stages-per-pipeline-rank {layout.virtual_pipeline}")
    if layout.pipeline > 1 and not overlap.pp:
        lines.append("--no-overlap-p2p-communication")
    if arch.is_moe:
        lines.append(f"--expert-model-parallel-size {layout.expert}")
        lines.append(f"--expert-tensor-parallel-size {layout.expert_cut}")
    if layout.sequence_parallel and layout.tensor > 1:
        lines.append("--sequence-parallel")
    fields = cut | communication(job, arch, hosts) | recomputation(job, arch) | precision(job)
    fields |= fusions(job, arch, loss="native") | one_mlp(job, arch, hosts) | graphs(job, arch)
    fields |= optimizer_fields(job) | muon(job)
    for name, value in fields.items():
        argument = _argument(name, arch)
        words = [] if isinstance(value, bool) else value if isinstance(value, list) else [str(value)]
        if argument:
            lines.append(" ".join([argument, *map(quote, words)]))
    if "step" in graphed(job, arch):
        lines.append("--no-check-for-nan-in-loss-and-grad")
    if "rotary" in job.unfused or arch.index_topk:
        lines.append("--no-rope-fusion")
    if job.attention_backend:
        lines.append(f"--attention-backend {job.attention_backend}")
    if job.data.workers != Data().workers:
        lines.append(f"--num-workers {job.data.workers}")
    lines += [*TOGETHER, *sharding(job, hosts, bool(optimizer_fields(job)))]
    lines = [*shape(job, arch), *lines]
    late = [f"# {sentence}" for sentence in newer(job, lines)]
    return [*unsaid(job, arch, hosts), *_of_the_script(job, arch), *late, *lines]


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
