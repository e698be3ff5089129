"""The optimizer's step on the GPU, whichever optimizer it is."""

from __future__ import annotations

from railwright.model.adam import AdamTypes
from railwright.model.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.communication import Prices, gradient_bytes
from railwright.training.costs import KernelTime
from railwright.training.deepspeed import runs_fp16_optimizer, update_operators
from railwright.training.eras import Pace, era_of
from railwright.training.formats import has_fp32_shards, master_of
from railwright.training.host import cpu_factor
from railwright.training.muon import Update, held, launching, muon_update, weights_of
from railwright.training.stages import StageShape

NOTHING = Update(0.0)
"""No GPU updates anything."""


def update_on_gpu(
    job: TrainingJob,
    arch: Transformer,
    shape: StageShape,
    prices: Prices,
    timed: KernelTime,
    pace: Pace,
    over: int,
    expert_over: int,
) -> Update:
    """The longest update of a GPU of a stage.

    over, expert_over  ranks among which states of dense and expert parameters are divided
    """
    rest = shape.trained_dense_total / over + shape.trained_expert_total / expert_over
    muon = NOTHING
    if job.optimizer == "muon":
        groups = held(arch, job.layout, shape, over, expert_over)
        host = launching(job.muon.steps, cpu_factor(prices.machine.gpu), pace.host)
        muon = muon_update(job, groups, prices, timed, host)
        every = weights_of(groups)
        rest -= every.dense / over + every.expert / expert_over
    adam = update_operators(job, max(rest, 0.0), prices.groups.sizes.replicas, adam_types(job))
    return Update(muon.compute + sum(timed(op) for op in adam), muon.exchanged)


def is_precision_aware(job: TrainingJob) -> bool:
    """Whether a job's optimizer takes states and gradients in the types they are kept in (Megatron-LM,
    --use-precision-aware-optimizer), without a copy in fp32."""
    return job.moment_dtype != "fp32" or master_of(job) == "remainder"


def adam_types(job: TrainingJob) -> AdamTypes:
    """What a job's Adam reads and writes.

    PyTorch's FSDP updates its fp32 shards in place, always clipped.  Precision-aware optimizers write weights
    themselves; others leave that to a copy, in fp8 with a scale per tensor to a cast (fp8_param_gather).
    FP16_Optimizer's copies are counted by themselves, that of masters too (`deepspeed.FP16_STEP_BYTES`).
    """
    if runs_fp16_optimizer(job):
        return AdamTypes(apart=False)
    gradient, moment = gradient_bytes(job), job.moment_dtype
    if has_fp32_shards(job):
        return AdamTypes(gradient, master="weights", moment=moment, clipped=True)
    aware = is_precision_aware(job)
    casts = job.dtype == "fp8" and era_of(job).framework == "megatron"
    return AdamTypes(gradient, not aware, master_of(job), moment, 1.0 if casts else 2.0, not aware)
