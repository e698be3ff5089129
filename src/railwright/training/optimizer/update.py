"""The optimizer's step on the GPU, whichever optimizer it is."""

from __future__ import annotations

from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import Prices, gradient_bytes
from railwright.training.layers.costs import KernelTime
from railwright.training.layers.stages import StageShape
from railwright.training.optimizer.adam import adam_types
from railwright.training.optimizer.apex import padding
from railwright.training.optimizer.muon import Update, launching, matrix_groups, muon_update, weights_of
from railwright.training.software.deepspeed import update_operators
from railwright.training.software.eras import Pace, era_of
from railwright.training.software.host import cpu_factor

NOTHING = Update(0.0)
"""No GPU updates anything by Muon."""


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
    rest = shape.trained_shard(over, expert_over)
    muon = NOTHING
    if job.optimizer == "muon":
        groups = matrix_groups(arch, job.layout, shape, over, expert_over)
        host = launching(job.muon.steps, cpu_factor(prices.machine.gpu), pace.host)
        muon = muon_update(job, groups, prices, timed, host)
        every = weights_of(groups)
        rest -= every.dense / over + every.expert / expert_over
    adam = update_operators(job, max(rest, 0.0), prices.groups.sizes.replicas, adam_types(job))
    zeroed = zeroing(job, shape, prices, timed)
    return Update(muon.compute + sum(timed(op) for op in adam) + zeroed, muon.exchanged)


def zeroing(job: TrainingJob, shape: StageShape, prices: Prices, timed: KernelTime) -> float:
    """How long sums of gradients, or shards of them, take to be set to zero for the next step: Megatron's
    buffers, which are on the GPU wherever the optimizer runs. [s]

    Only of the stage that begins a step: others do it while they wait for their first microbatch.
    Sources: Megatron-LM, training/training.py, train_step (zero_grad_buffer); Apex,
    distributed_fused_adam.py, zero_grad.
    """
    first = any(chunk.embedding for chunk in shape.chunks)
    if not (first and era_of(job).megatron_alone):
        return 0.0
    layout, sizes = job.layout, prices.groups.sizes
    over = sizes.over(layout.zero) if layout.zero >= 2 and layout.reduce_each else (1, 1)
    size = gradient_bytes(job) * (shape.trained_shard(*over) + padding(job, shape, sizes))
    return timed(Operator("gradients zeroed", "memory", 0.0, size, "fp32", phase="optimizer"))
