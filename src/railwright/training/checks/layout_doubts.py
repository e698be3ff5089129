"""What is doubtful of a layout that can work: sizes that do not go together, or cost more than they need.

`plan` refuses layouts that cannot work; `doubts` tells settings that do nothing.
"""

from __future__ import annotations

from railwright.compute.profile import flash_is_known
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.doubts import doubts
from railwright.training.checks.gpus import of_servers
from railwright.training.layers.packing import packing_warnings
from railwright.training.layout.sizes import Sizes, domain_of, job_gpus, microbatches
from railwright.training.software.eras import chooses_attention
from railwright.training.software.formats import has_fp32_shards

SHORTEST = 512
"""Tokens of the shortest sequence of a published step (measure/data/training.csv; a test holds it)."""


def layout_doubts(job: TrainingJob, arch: Transformer, fabric: Fabric) -> tuple[str, ...]:
    """All warnings about a layout that `plan.refuse` has let through, without the job's name."""
    sizes = Sizes.of(job, fabric)
    return (
        *arch.notes,
        *of_servers(job, fabric),
        *_over_servers(job, fabric),
        *_of_context(job, arch),
        *_of_sharding(job, sizes),
        *_of_model(job, arch),
        *_of_swapped(job),
        *packing_warnings(job),
        *doubts(job, arch, microbatches(job, sizes.data)),
        *_of_padding(job),
        *_of_attention(job, fabric.generation),
        *_straddling_experts(job, fabric, sizes),
    )


def _over_servers(job: TrainingJob, fabric: Fabric) -> list[str]:
    """Tensor parallelism over several servers."""
    tensor, domain = job.layout.tensor, domain_of(job, fabric)
    if tensor <= domain:
        return []
    return [
        f"tensor parallelism of {tensor} spans {tensor // domain} servers of "
        f"{domain} GPUs; its collectives cross the network in every layer."
    ]


def _of_context(job: TrainingJob, arch: Transformer) -> list[str]:
    """Context parallelism that pads, or that Transformer Engine does not run so."""
    context, kind, found = job.layout.context, job.layout.context_kind, []
    if context == 1:
        return []
    if job.sequence % (2 * context):
        found.append(
            f"sequences of {job.sequence} tokens are not a multiple of 2 x context = "
            f"{2 * context}; frameworks pad them."
        )
    sinks = arch.attention_sinks or arch.window_sinks
    windows = arch.sliding_window and not arch.window_chunked and kind == "ring"
    if windows or (sinks and kind != "all-to-all"):
        what, kinds = ("sinks", "all-to-all") if sinks else ("windows", "all-to-all or all-gather")
        found.append(
            f"Transformer Engine splits attention with {what} over context ranks only with context_kind "
            f"{kinds}; {kind} is predicted all the same."
        )
    return found


def _of_attention(job: TrainingJob, generation: str) -> list[str]:
    """A kernel for attention that is asked for where none runs, or where nothing is published of it."""
    backend = job.attention_backend
    if backend is None:
        return []
    if not chooses_attention(job):
        return [f"attention_backend does nothing: software {job.software} has one kernel for attention."]
    if backend == "flash" and not flash_is_known(generation):
        return [
            "attention_backend flash is predicted as the usual kernel: nothing published is known of "
            f"FlashAttention 2 on {generation}."
        ]
    return []


def _of_sharding(job: TrainingJob, sizes: Sizes) -> list[str]:
    """ZeRO that shares nothing out, or that exchanges more often than it need."""
    layout, found = job.layout, []
    if layout.zero < 2:
        return []
    if sizes.copies == 1 and not has_fp32_shards(job):
        found.append(f"zero: {layout.zero} shares nothing out: no two ranks hold the same parameters.")
    again = layout.reduce_each or (layout.zero == 3 and not layout.gathers_once)
    if layout.pipeline > 1 and sizes.copies > 1 and again:
        found.append(
            f"zero: {layout.zero} with {layout.pipeline} pipeline stages exchanges "
            "parameters or gradients in every microbatch; zero: 1 does so once per step."
        )
    return found


def _of_model(job: TrainingJob, arch: Transformer) -> list[str]:
    """What a model is not made for, or what is counted of it otherwise than a reader may think."""
    tensor, found = job.layout.tensor, []
    if arch.max_positions and job.sequence > arch.max_positions:
        found.append(
            f"sequences of {job.sequence} tokens are longer than the {arch.max_positions} "
            f"positions {arch.name} was made for."
        )
    if arch.attention == "gqa" and tensor > arch.kv_heads:
        found.append(
            f"tensor parallelism of {tensor} is more than the {arch.kv_heads} key-value heads of "
            f"{arch.name}; each is kept on {tensor // arch.kv_heads} GPUs."
        )
    if arch.is_moe and tensor > 1 and not job.layout.sequence_parallel:
        found.append(
            "Megatron runs experts under tensor parallelism only with sequence_parallel; the "
            "expert layers are predicted as if each GPU routed its own 1/tensor of the tokens."
        )
    if arch.mtp_layers:
        found.append(
            f"multi-token prediction of {arch.name} (layers beyond its own: {arch.mtp_layers}) lies on the "
            "last stage, and counts in time and memory but not in model FLOPs."
        )
    return found


def _of_swapped(job: TrainingJob) -> list[str]:
    """A sequence so short, beside so large a batch, that the two were probably written for each other."""
    if not job.sequence < SHORTEST <= job.global_batch:
        return []
    return [
        f"sequence is {job.sequence} tokens and global_batch {job.global_batch:,} sequences; were they "
        f"swapped? No published step has sequences of fewer than {SHORTEST} tokens."
    ]


def _of_padding(job: TrainingJob) -> list[str]:
    """Sequences that tensor-parallel ranks cannot share evenly."""
    tensor = job.layout.tensor
    if not job.layout.sequence_parallel or job.sequence % tensor == 0:
        return []
    return [
        f"sequences of {job.sequence} tokens are not a multiple of layout.tensor = {tensor}; "
        "frameworks pad them."
    ]


def _straddling_experts(job: TrainingJob, fabric: Fabric, sizes: Sizes) -> list[str]:
    """Expert groups that would fit into a server and lie on two."""
    domain, block = domain_of(job, fabric), sizes.expert * sizes.expert_tensor
    apart = job.layout.placement == "expert-across"
    if not 1 < block <= domain or domain % block == 0 or job_gpus(job, fabric) <= domain or apart:
        return []
    return [
        f"expert groups of {block} GPUs do not divide the {domain} GPUs of a server, so some "
        f"straddle two; gpus_per_server {domain // block * block} keeps them inside."
    ]
