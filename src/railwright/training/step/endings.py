"""What follows the last passes of a step: gradients that two stages hold, the optimizer, parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task
from railwright.training.layers.communication import Prices, gradient_bytes
from railwright.training.layers.cost_model import CostModel
from railwright.training.layers.stages import tied_parameters
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.schedule import schedule_name
from railwright.training.optimizer.muon import Exchanged, exchange_time
from railwright.training.passes.offload import ON_GPU, HostUpdate
from railwright.training.passes.updates import stage_update
from railwright.training.step.stage import Stage


@dataclass(frozen=True)
class Ending:
    """What follows the last pass of a stage [s, since the step's start].

    finish     last pass (and its blocking send) over
    reduced    own gradient reductions over
    tied_start, ready   adding up gradients of what another stage holds too, both `reduced` where nothing is
    barrier    all stages' gradients complete
    optimizer  its length
    end        parameters gathered, where that is not overlapped with the next step
    host       of `optimizer`, what is copied to and from host memory and updated there
    exchanged  of `optimizer`, what tensor-parallel ranks send each other of the momentum (Muon)
    """

    finish: float
    reduced: float
    tied_start: float
    ready: float
    barrier: float
    optimizer: float
    end: float
    host: HostUpdate = ON_GPU
    exchanged: tuple[Exchanged, ...] = ()

    @property
    def on_gpu(self) -> float:
        """What the GPU itself computes of the optimizer. [s]"""
        return self.optimizer - self.host.seconds - exchange_time(self.exchanged)


def endings_of(
    job: TrainingJob, arch: Transformer, costs: CostModel, stages: Sequence[Stage], finish: Sequence[float]
) -> list[Ending]:
    """Gradients, tied embedding, optimizer, parameters: what follows the last pass on every stage.

    finish  of each stage, when its last pass (and its blocking send) is over [s]
    """
    reduced = [s.after_passes(f) for s, f in zip(stages, finish, strict=True)]
    starts, ready = _held_twice(job, arch, costs.prices, stages, reduced)
    barrier = max(ready)
    over = costs.prices.groups.sizes.over(job.layout.zero)
    endings = []
    for s, one in enumerate(stages):
        host, own = stage_update(job, arch, one.shape, costs.prices, costs.kernel, costs.pace, *over)
        optimizer = host.seconds + own.seconds + costs.pace.step
        endings.append(
            Ending(
                finish=finish[s],
                reduced=reduced[s],
                tied_start=starts[s],
                ready=ready[s],
                barrier=barrier,
                optimizer=optimizer,
                end=one.gather(barrier + optimizer),
                host=host,
                exchanged=own.exchanged,
            )
        )
    return endings


def _held_twice(
    job: TrainingJob, arch: Transformer, prices: Prices, stages: Sequence[Stage], reduced: Sequence[float]
) -> tuple[list[float], list[float]]:
    """When each stage begins to add up gradients of parameters that another one holds too, and when it has
    all of its gradients; both `reduced` where it shares none. [s]

    Those are DualPipe's other copy of its layers, and a tied embedding.
    """
    starts, ready, last = list(reduced), list(reduced), len(stages) - 1

    def added_up(pair: tuple[int, int], name: str, size: float, group: GroupKind) -> float:
        task = Task("dp", name, "all_reduce", prices.time("dp", name, "all_reduce", size, group), size=size)
        start = max(ready[s] for s in pair)
        for s in pair:
            ready[s] = stages[s].exchange([task], start)
        return start

    each = gradient_bytes(job)
    if schedule_name(job.layout) == "dualpipe":
        over = prices.groups.sizes.over(job.layout.zero)
        sizes = [each * one.shape.trained_shard(*over) for one in stages]
        for s in range(len(stages) // 2):
            pair = s, last - s
            start = added_up(pair, "gradients of the other copy", max(sizes[i] for i in pair), "mirror")
            starts[s] = starts[last - s] = start
    if not job.lora and (tied := each * tied_parameters(arch, job.layout)):
        own = [s for s in (0, last) if ready[s] == reduced[s]]
        start = added_up((0, last), "tied embedding gradients", tied, "embedding")
        for s in own:
            starts[s] = start
    return starts, ready
