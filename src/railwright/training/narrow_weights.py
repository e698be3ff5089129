"""Weights that Megatron keeps in 8 bits alone, as they are predicted, and where it keeps 16 bits beside them.

Without its argument for it every weight has 16 bits and, cached over a step, its copies in 8, three or four
bytes where one or two are predicted, and 16 bits are gathered.
Sources, at Megatron-LM d98e8a6: megatron/training/arguments.py, validate_args (fp8_param_gather) and
core/optimizer/optimizer_config.py (reuse_grad_buf_for_mxfp8_param_ag); Megatron-Bridge 067f987, training/
mixed_precision.py and config.py, which have both in their recipes (`training.states`, WEIGHT_BYTES).
"""

from __future__ import annotations

from railwright.spec.training import TrainingJob
from railwright.training.adam import scales_at_once
from railwright.training.eras import era_of

FORMATS = ("fp8", "mxfp8")
"""Number formats whose weights are predicted without 16 bits beside them."""


def asks_for_narrow(job: TrainingJob) -> bool:
    """Whether a job's weights are predicted in 8 bits alone; ZeRO-3's shards have 16."""
    return job.dtype in FORMATS and job.layout.zero < 3


def widened(job: TrainingJob, copies: int) -> str:
    """Where Megatron keeps weights in 16 bits too although they are predicted in 8; '' where it does not.

    copies  ranks with the same weights, of experts or of the rest; one has the distributed optimizer for
            nothing
    """
    if not asks_for_narrow(job):
        return ""
    if job.layout.zero == 0 and copies > 1 and not job.lora:  # nobody updates frozen ones
        return "without the distributed optimizer"
    if "optimizer" in job.layout.offload and scales_at_once(job):
        return "beside an offloaded optimizer, unless scaling is delayed"
    return ""


def gathers_narrow(job: TrainingJob, copies: int) -> bool:
    """Whether Megatron is to keep, and to gather, weights in 8 bits: fp8_param_gather."""
    return asks_for_narrow(job) and not widened(job, copies)


def shares_gradients_buffer(job: TrainingJob, copies: int) -> bool:
    """Whether 16 bits of MXFP8's weights are gathered in the buffer of the gradients; Megatron-FSDP has other
    buffers."""
    return job.dtype == "mxfp8" and job.layout.zero < 2 and gathers_narrow(job, copies)


def of_weights(job: TrainingJob, copies: int) -> list[str]:
    """That weights are predicted in 8 bits alone where Megatron-LM keeps 16 bits too; nothing elsewhere."""
    era = era_of(job)
    if era.framework != "megatron" or era.deepspeed or not (why := widened(job, copies)):
        return []
    instead = " Set layout.zero to 1." if job.layout.zero == 0 else ""
    return [
        f"dtype {job.dtype} is predicted with weights in 8 bits alone, but Megatron-LM keeps 16 bits beside "
        f"them {why}: 2 bytes a weight more on each GPU.{instead}"
    ]
