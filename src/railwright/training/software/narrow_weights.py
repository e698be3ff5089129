"""Weights that Megatron keeps in 8 bits alone, as they are predicted, and where it keeps 16 bits beside them.

Without its argument for it (`fp8_param_gather`) every weight has 16 bits and, cached over a step, its copies
in 8: three or four bytes instead of one or two.
Sources, at Megatron-LM d98e8a6: megatron/training/arguments.py, validate_args (fp8_param_gather) and
core/optimizer/optimizer_config.py (reuse_grad_buf_for_mxfp8_param_ag); Megatron-Bridge 067f987, training/
mixed_precision.py and config.py, which have both in their recipes (`training.memory.states`, WEIGHT_BYTES).
"""

from __future__ import annotations

from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of
from railwright.training.software.formats import updates_wide_on_host

FORMATS = ("fp8", "mxfp8")
"""Number formats whose weights Megatron's recipes keep without 16 bits beside them."""


def has_narrow(job: TrainingJob) -> bool:
    """Whether a job's weights have copies in 8 bits from step to step; ZeRO-3's shards count as 16."""
    return job.dtype in FORMATS and job.layout.zero < 3


def refuses_narrow(job: TrainingJob) -> bool:
    """Whether a job keeps 16 bits beside them by its own choice."""
    return has_narrow(job) and job.fp8_param_gather is False and era_of(job).megatron_alone


def asks_for_narrow(job: TrainingJob) -> bool:
    """Whether a job's weights are to be kept in 8 bits alone, as recipes do."""
    return has_narrow(job) and not refuses_narrow(job)


def widened(job: TrainingJob, copies: int) -> str:
    """Why Megatron keeps weights in 16 bits too beside those in 8; '' where it does not.

    copies  ranks with the same weights, of experts or of the rest; one has the distributed optimizer for
            nothing
    """
    if not asks_for_narrow(job):
        return ""
    if job.layout.zero == 0 and copies > 1 and not job.lora:  # nobody updates frozen ones
        return "without the distributed optimizer"
    if updates_wide_on_host(job):
        return "beside an offloaded optimizer, unless scaling is delayed"
    return ""


def keeps_wide(job: TrainingJob, copies: int) -> bool:
    """Whether a job's weights have 16 bits beside those in 8; `copies` as in `widened`."""
    return refuses_narrow(job) or (era_of(job).megatron_alone and bool(widened(job, copies)))


def gathers_narrow(job: TrainingJob, copies: int) -> bool:
    """Whether Megatron is to keep, and to gather, weights in 8 bits: fp8_param_gather."""
    return asks_for_narrow(job) and not widened(job, copies)


def shares_gradients_buffer(job: TrainingJob, copies: int) -> bool:
    """Whether 16 bits of MXFP8's weights are gathered in the buffer of the gradients; Megatron-FSDP has other
    buffers."""
    return job.dtype == "mxfp8" and job.layout.zero < 2 and gathers_narrow(job, copies)


def of_weights(job: TrainingJob, copies: int) -> list[str]:
    """That weights have 16 bits beside those in 8, which a distributed optimizer on the GPU would save; or
    that a choice does nothing."""
    if job.fp8_param_gather is not None and not (has_narrow(job) and era_of(job).megatron_alone):
        return [
            "fp8_param_gather does nothing: only under Megatron's eras, in dtype fp8 and mxfp8 and below "
            "zero: 3, are weights kept in 8 bits."
        ]
    if not keeps_wide(job, copies) or refuses_narrow(job):
        return []
    instead = " Set layout.zero to 1." if job.layout.zero == 0 else ""
    return [
        f"weights have 16 bits beside those in {job.dtype}, as Megatron-LM keeps them "
        f"{widened(job, copies)}: 2 bytes a weight more on each GPU.{instead}"
    ]
