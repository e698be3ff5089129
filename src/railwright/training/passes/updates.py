"""A stage's optimizer step, wherever it runs."""

from __future__ import annotations

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import Prices
from railwright.training.layers.costs import KernelTime
from railwright.training.layers.stages import StageShape
from railwright.training.memory.host_memory import tensors_of
from railwright.training.optimizer.muon import Update
from railwright.training.optimizer.update import update_on_gpu, zeroing
from railwright.training.passes.offload import ON_GPU, HostUpdate, update_on_host
from railwright.training.software.eras import Pace
from railwright.training.software.hosted import updates_on_host


def stage_update(
    job: TrainingJob,
    arch: Transformer,
    shape: StageShape,
    prices: Prices,
    timed: KernelTime,
    pace: Pace,
    over: int,
    expert_over: int,
) -> tuple[HostUpdate, Update]:
    """What a stage's optimizer takes on the host and on the GPU, where sums of gradients are set to zero in
    either case.

    over, expert_over  ranks among which states of dense and expert parameters are divided
    """
    if not updates_on_host(job):
        return ON_GPU, update_on_gpu(job, arch, shape, prices, timed, pace, over, expert_over)
    held = shape.trained_shard(over, expert_over)
    tensors = tensors_of(job, arch, shape, held)
    on_host = update_on_host(job, held, prices.groups.grid.size, prices.machine, tensors)
    return on_host, Update(zeroing(job, shape, prices, timed))
