"""What Megatron-LM and PyTorch leave exposed of what a job's `overlap` asks them to hide, and where."""

from __future__ import annotations

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import is_hybrid
from railwright.spec.training import TrainingJob
from railwright.training.layers.casts import JOINED
from railwright.training.layout.schedule import in_pairs
from railwright.training.software.eras import era_of

UNBUFFERED = {"fp8_block": "fp8 with scales per block", "nvfp4": "NVFP4"}
"""Number formats that user buffers do not gather: they take 16 bits, fp8 with a scale per tensor and MXFP8.
Source: Transformer Engine d0067d0, module/base.py, fill_userbuffers_buffer_for_all_gather, which raises for
others; Megatron-Bridge v0.2.1 to 067f987, whose scripts set tp_comm_overlap to False in NVFP4."""


def exposed_products(job: TrainingJob, arch: Transformer) -> list[str]:
    """Where products do not hide what tensor-parallel ranks exchange: Megatron has no tp_comm_overlap.

    Source: Megatron-LM, training/arguments.py, validate_args; core/extensions/transformer_engine.py,
    TELinear: a product whose buffer is not 'qkv', 'proj', 'fc1' or 'fc2' sets `tp_comm_overlap` of the
    configuration that all layers share to False, and those of latent attention are others (core/transformer/
    multi_latent_attention.py: q_down_proj, kv_down_proj, ...), so that only the first output projection, made
    before, hides anything.
    """
    where = {
        "without sequence parallelism": not job.layout.sequence_parallel,
        "beside latent attention": arch.attention == "mla",
        f"in {UNBUFFERED.get(job.dtype)}": job.dtype in UNBUFFERED,
    }
    return [words for words, applies in where.items() if applies]


def hides_products(job: TrainingJob, arch: Transformer) -> bool:
    """Whether products hide what tensor-parallel ranks exchange: tp_comm_overlap."""
    return job.overlap.tp and job.layout.tensor > 1 and not exposed_products(job, arch)


def sums_first(job: TrainingJob, arch: Transformer) -> tuple[str, ...]:
    """Column-parallel products for whose inputs' gradients no product hides the reduction, although
    `overlap.tp` asks for it: PyTorch's asynchronous tensor parallelism puts a reduction behind the one
    product that makes what is reduced, and these gradients are sums, of queries, keys and values, and of
    gate and up.

    Source: PyTorch 6b87787d, torch/_inductor/fx_passes/micro_pipeline_tp.py, fuse_matmul_reduce_scatter
    ("no producer matmul found"); torchtitan 0.2, models/llama3/infra/parallelize.py, apply_non_moe_tp
    (PrepareModuleInput gathers once in front of wq, wk and wv, and of w1 and w3).
    """
    if era_of(job).launcher != "inductor":
        return ()
    return tuple(name for name in JOINED if arch.gated or name == "qkv projection")


def casts_first(job: TrainingJob) -> bool:
    """Whether no product hides what tensor-parallel ranks gather, although `overlap.tp` asks for it: with
    scales per row torchao gathers 16 bits and casts what arrives (`gathers`), and PyTorch's asynchronous
    tensor parallelism hides a gather behind products that read it as it is.

    Source: as of `sums_first`, _find_consumer_matmuls.
    """
    return era_of(job).launcher == "inductor" and job.dtype == "fp8_rowwise"


def hides_parameters(job: TrainingJob) -> bool:
    """Whether parameters that are gathered once a step arrive beside its first passes.

    Those of ZeRO 1 and 2 do not where a job says so, and never in DeepSpeed's engine: behind the optimizer.
    Source: Megatron-LM, core/optimizer/distrib_optimizer.py, step_with_ready_grads (start_param_sync unless
    overlap_param_gather).
    """
    beside = job.overlap.gather and not era_of(job).zero_engine
    return job.overlap.dp and (beside or job.layout.zero == 3)


def gathers_late(job: TrainingJob) -> bool:
    """Whether of these, those of a chunk are gathered only as its first forward pass gets to them.

    Source: Megatron-LM 94c6b505, training/training.py (param_sync_func where align_param_gather),
    core/pipeline_parallel/schedules.py (which calls it for the first two chunks before any pass, and for a
    later one while that before it runs), core/distributed/distributed_data_parallel.py (else a module's
    forward hook dispatches its bucket and waits; a chunk is one bucket, but for the first stage's first).
    """
    layout = job.layout
    return not job.overlap.aligned and layout.zero in (1, 2) and layout.pipeline > 1 and hides_parameters(job)


def exposed_turns(job: TrainingJob, arch: Transformer) -> list[str]:
    """Where passes do not take turns, which hides what their experts exchange: Megatron has no
    overlap_moe_expert_parallel_comm.

    Beside `tp_comm_overlap` they could without `delay_wgrad_compute`; but they are predicted with it
    (`step.stage`: weight gradients of the last attention behind a pass's result), and Transformer Engine
    takes no weight gradient later whose product hides the sum of the input's.
    Source: Megatron-LM, TransformerConfig.__post_init__, core/pipeline_parallel/combined_1f1b.py
    (Megatron-FSDP, zero 2 and 3; it asks the model for `build_schedule_plan`, which core/models/gpt has and
    core/models/hybrid has not at d98e8a6, as pretrain_hybrid.py has no `return_schedule_plan`); Transformer
    Engine d0067d0, module/_common.py, WeightGradStore, and module/linear.py and layernorm_linear.py, backward
    ("Delayed weight grad computation is not supported with Userbuffers"); Megatron-LM, core/extensions/
    transformer_engine.py, TELayerNormColumnParallelLinear (ub_bulk_wgrad is tp_comm_bulk_wgrad, on unless it
    is told).
    """
    layout = job.layout
    modules = layout.recompute_modules if layout.recompute == "selective" else ()
    where = {
        "in a pipeline without virtual stages": layout.pipeline > 1 and layout.virtual_pipeline == 1,
        "in virtual stages beside zero 2 and 3": layout.zero >= 2 and layout.virtual_pipeline > 1,
        "where experts are computed again": layout.recompute == "full" or "moe" in modules,
        "beside several layers of multi-token prediction": arch.mtp_layers > 1,
        "in a model of pretrain_hybrid.py": is_hybrid(arch),
        "beside hidden tensor parallelism": hides_products(job, arch),
    }
    return [words for words, applies in where.items() if applies]


def of_megatron(job: TrainingJob, arch: Transformer) -> list[str]:
    """A sentence for each overlap that is predicted as a job asks for it, and that its software has not."""
    if era_of(job).framework != "megatron":
        return []
    found = []
    if job.overlap.tp and job.layout.tensor > 1 and (where := exposed_products(job, arch)):
        found.append(
            f"overlap.tp is predicted as asked, but Megatron-LM has no tp_comm_overlap {' or '.join(where)}."
        )
    # where passes do not run in pairs, `doubts` says that nothing is hidden
    if arch.is_moe and job.layout.expert > 1 and in_pairs(job) and (where := exposed_turns(job, arch)):
        found.append(
            "overlap.ep is predicted as asked, but Megatron-LM has no overlap_moe_expert_parallel_comm "
            f"{' or '.join(where)}."
        )
    return found
