"""In which types a job's Adam reads and writes, by the optimizer that its software runs."""

from __future__ import annotations

from dataclasses import replace

from railwright.model.operators.adam import BY_ADAM, CAST, COPIED, AdamTypes, Moment
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes, keeps_narrow_weights
from railwright.training.optimizer.apex import casts_shards
from railwright.training.software.deepspeed import runs_fp16_optimizer
from railwright.training.software.eras import era_of
from railwright.training.software.formats import (
    amax_over,
    has_fp32_shards,
    has_masters,
    master_of,
    moments_of,
    scales_at_once,
)
from railwright.training.software.hosted import updates_on_host


def reads_as_kept(job: TrainingJob) -> bool:
    """Whether Adam's kernel reads gradients in the type they were reduced in and writes weights itself:
    precision-aware optimizers do, but for fp8 weights whose scale is found at once, and Apex's.

    Sources: Megatron-LM (d98e8a64), core/optimizer/optimizer_config.py,
    use_precision_aware_optimizer_no_fp8_or_ds_fp8; Apex, distributed_fused_adam.py, _local_step.
    """
    if job.apex_bucket is not None or not has_masters(job):
        return True
    aware = job.moment_dtype != "fp32" or master_of(job) == "remainder"
    return aware and not (master_of(job) == "fp32" and _scaled_at_once(job))


def widens_moments(job: TrainingJob) -> bool:
    """Whether Adam makes fp32 copies of all moments that it updates at once, and casts them back: Transformer
    Engine's does of those in 8 bits, and of those in 16 bits before it read them (`Era.reads_bf16_moments`).

    Apex's reads whatever type they have.
    Sources: Transformer Engine, pytorch/optimizers/fused_adam.py, step (unscaled_lists), get_unscaled_state;
    Apex 0145d69d, contrib/csrc/optimizers/multi_tensor_distopt_adam_kernel.cu, DistAdamFunctor (T m[ILP]).
    """
    era = era_of(job)
    reads = era.reads_bf16_moments or job.apex_bucket is not None
    kept = job.moment_dtype == "fp32" or (job.moment_dtype == "bf16" and reads)
    return era.megatron_alone and job.optimizer == "adam" and not kept


def runs_listed(job: TrainingJob) -> bool:
    """Whether PyTorch's AdamW updates a job's weights operation by operation, each over the list of all
    (`foreach`, what it does on GPUs unless fused is asked for).

    Hugging Face's Trainer asks so with adamw_torch, its default before PyTorch 2.8, under DeepSpeed too where
    its configuration names no optimizer; narrower moments are other optimizers'.
    Sources: PyTorch 2.13, optim/adam.py (_default_to_fused_or_foreach, _multi_tensor_adam); transformers,
    training_args.py (default_optim).
    """
    era = era_of(job)
    asked = "optimizer" in job.unfused and job.optimizer == "adam" and job.moment_dtype == "fp32"
    return asked and (era.fp32_shards or era.zero_engine) and not updates_on_host(job)


def adam_types(job: TrainingJob) -> AdamTypes:
    """What a job's Adam reads and writes.

    PyTorch's FSDP updates its shards in place, always clipped.  Elsewhere Adam's kernel writes weights
    itself (`reads_as_kept`), or a copy or cast of masters does (fp8_param_gather; Apex's of fp8).
    FP16_Optimizer's copies are counted by themselves, that of masters too (`deepspeed.FP16_STEP_BYTES`).
    """
    types = _types(job)
    return replace(types, listed=True) if runs_listed(job) else types


def _types(job: TrainingJob) -> AdamTypes:
    if runs_fp16_optimizer(job):
        return AdamTypes(weight=BY_ADAM["16 bits"])
    gradient, moment = gradient_bytes(job), _moment(job)
    if not has_masters(job):
        return AdamTypes(2.0, widened=False, master="none", moment=moment, clipped=True)
    if has_fp32_shards(job):
        return AdamTypes(gradient, master="weights", moment=moment, clipped=True)
    narrow = keeps_narrow_weights(job)
    if casts_shards(job):
        weight = CAST["apex"]
    elif reads_as_kept(job):
        weight = BY_ADAM["fp8" if narrow and amax_over(job) != "none" else "16 bits"]
    else:
        weight = CAST["current" if amax_over(job) == "none" else "delayed"] if narrow else COPIED
    clipped = era_of(job).zero_engine  # unscale_and_clip_grads, whose loss scale is 1 in bf16
    return AdamTypes(gradient, not reads_as_kept(job), master_of(job), moment, weight, clipped)


def _moment(job: TrainingJob) -> Moment:
    """How a job's moments are kept and read."""
    if job.moment_dtype == "bf16" and widens_moments(job):
        return "bf16, widened"
    return moments_of(job)


def _scaled_at_once(job: TrainingJob) -> bool:
    """Whether Megatron-LM's weights are in fp8 with scales that are not delayed."""
    return era_of(job).megatron_alone and scales_at_once(job)
