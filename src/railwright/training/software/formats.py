"""Number formats that a job asks for and its kernels must take."""

from __future__ import annotations

from typing import Literal, get_args

from railwright.catalog.parts import Gpu
from railwright.compute.time import peak_rate
from railwright.errors import PlanError
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of

DTYPES: tuple[str, ...] = get_args(TrainingJob.model_fields["dtype"].annotation)
"""Number formats that a training job may ask for."""


def master_of(job: TrainingJob) -> Literal["fp32", "remainder", "none"]:
    """How a job's master weights are kept: shards that are the fp32 weights themselves leave no remainder."""
    return "fp32" if has_fp32_shards(job) else job.master


def has_masters(job: TrainingJob) -> bool:
    """Whether any weights are kept in more than 16 bits; else gradients and moments have 16 too.

    PyTorch updates a parameter in the type that it was loaded in, FSDP its shards, and torch.optim.AdamW
    makes its moments like the parameter (torch/optim/adamw.py, zeros_like).
    Sources: torchtune, recipes/full_finetune_distributed.py (dtype: bf16 loads the model so, and its FSDP2
    has no MixedPrecisionPolicy) and full_finetune_single_device.py; torchtitan, config/job_config.py,
    training.dtype.
    """
    return job.master != "none"


def moments_of(job: TrainingJob) -> Literal["fp32", "bf16", "fp8"]:
    """The type of Adam's moments."""
    return "bf16" if job.moment_dtype == "fp32" and not has_masters(job) else job.moment_dtype


def job_peak(gpu: Gpu, dtype: str, allowed: tuple[str, ...] = DTYPES) -> float:
    """Dense peak of a GPU in the number format of a job. [flop/s]

    allowed  formats that a job of its kind may ask for
    Raises PlanError where the GPU has none, with those of `allowed` that it has.
    """
    if _has(gpu, dtype):
        return peak_rate(gpu, dtype)
    have = ", ".join(one for one in allowed if _has(gpu, one))
    raise PlanError(f"{gpu.name} has no {dtype} tensor cores; dtypes of a job that it has: {have}.")


def _has(gpu: Gpu, dtype: str) -> bool:
    try:
        return peak_rate(gpu, dtype) > 0
    except PlanError:
        return False


def amax_over(job: TrainingJob) -> Literal["stage", "tensor", "none"]:
    """The ranks that agree on maxima of fp8 tensors (`lockstep`): as the job says, else as its era does; none
    without fp8."""
    if job.dtype != "fp8":
        return "none"
    return job.amax_over or era_of(job).amax_over


def scales_at_once(job: TrainingJob) -> bool:
    """Whether a job multiplies in fp8 with scales that are not delayed."""
    return job.dtype in ("mxfp8", "fp8_block") or (job.dtype == "fp8" and amax_over(job) == "none")


def updates_wide_on_host(job: TrainingJob) -> bool:
    """Whether an optimizer on the host wants Megatron's weights in 16 bits: unless scaling is delayed.

    Source: Megatron-LM d98e8a6, megatron/training/arguments.py, validate_args (optimizer_cpu_offload).
    """
    return "optimizer" in job.layout.offload and scales_at_once(job)


def has_fp32_shards(job: TrainingJob) -> bool:
    """Whether a job's shards of the parameters are its fp32 master weights (PyTorch FSDP, mixed precision).

    Those of weights that LoRA froze may have another type (`frozen_bytes`).
    """
    return is_sharded_by_pytorch(job) and has_masters(job)


def is_sharded_by_pytorch(job: TrainingJob) -> bool:
    """Whether PyTorch's FSDP shards a job's parameters, in the type that they were loaded in."""
    return job.layout.zero == 3 and era_of(job).fp32_shards


def frozen_bytes(job: TrainingJob) -> float:
    """Bytes of a weight that LoRA froze, of embedding or head, in a shard of fp32 ones (`has_fp32_shards`);
    those of layers are the same, or NF4's (`nf4.stored_bytes`).

    FSDP shards a parameter in the type it was loaded in, whether it trains or not, and gathers it in that of
    its products (torch/distributed/fsdp/_fully_shard/_fsdp_param.py, init_dtype_attrs, all_gather_inputs).
    Our eras load all of them in fp32 (llm-foundry, models/consts.py, _MASTER_WEIGHTS_PRECISION; torchtitan,
    components/lora.py, whose adapters have the type of the weights, float32 by default: config,
    training.dtype).  `Lora.frozen_dtype` bf16 is torchtune's (recipes/configs/llama3_1/70B_lora.yaml, dtype),
    and Hugging Face's Trainer's over a model loaded in bf16: Accelerate makes fp32 of weights that train
    (accelerator.py, prepare_model; of FSDP2 in utils/fsdp_utils.py, where older releases did so of all).
    DeepSpeed's ZeRO engine holds all weights in 16 bits.
    """
    narrow = job.lora is not None and job.lora.frozen_dtype in ("bf16", "nf4")
    return 2.0 if narrow or era_of(job).zero_engine else 4.0


def _check_narrow(job: TrainingJob) -> None:
    """Raise PlanError where weights cannot do without master weights."""
    if not era_of(job).fp32_shards:
        raise PlanError(
            f"{job.name}: master none is of PyTorch's own optimizers (software fsdp-2023 to fsdp-2026, "
            f"sharded or not); software {job.software} keeps master weights. Set master to fp32, or software "
            "to one of those."
        )
    if job.dtype == "fp16":
        raise PlanError(
            f"{job.name}: master none in dtype fp16: updates of fp16 weights below 6e-8 are lost. Set dtype "
            "to bf16, or master to fp32."
        )
    if set(job.layout.offload) & {"optimizer", "weights"}:
        raise PlanError(
            f"{job.name}: master none beside layout.offload {' and '.join(job.layout.offload)}: Adam on the "
            "host is predicted in fp32 alone. Set master to fp32, or leave the offload out."
        )


def check_formats(job: TrainingJob) -> None:
    """Raise PlanError where what `dtype_also` names cannot be multiplied in `dtype`, where weights in
    `dtype` are not the upper halves of their master weights, or where they cannot do without these."""
    if job.master == "remainder" and job.dtype == "fp16":
        raise PlanError(
            f"{job.name}: master remainder keeps the lower 16 bits of an fp32 master weight, of which a bf16 "
            "weight is the upper 16; one in fp16 is not. Set dtype to bf16, or master to fp32."
        )
    if not has_masters(job):
        _check_narrow(job)
    if "head" in job.dtype_also and job.dtype != "mxfp8":
        raise PlanError(
            f"{job.name}: dtype_also names head, which only dtype mxfp8 multiplies in 8 bits; dtype is "
            f"{job.dtype}. Leave head out of dtype_also, or set dtype to mxfp8."
        )
    if "attention" in job.dtype_also and job.dtype not in ("fp8", "mxfp8"):
        raise PlanError(
            f"{job.name}: dtype_also names attention, which only dtype fp8 and mxfp8 multiply in 8 bits; "
            f"dtype is {job.dtype}. Leave attention out of dtype_also, or set dtype to fp8 or mxfp8."
        )
