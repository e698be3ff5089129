"""The predicted step by the shares that a profile has: what its GPU computes, waits for and sends.

The passes' compute is told apart by running the prediction on a free network with one kind of kernel at a
time; what communication beside it slows down is shared out in proportion.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.model.shape.architecture import Operator, Transformer
from railwright.spec.training import TrainingJob
from railwright.traces.intervals import both, length, union
from railwright.traffic.demand import Communicator
from railwright.training import StepResult, simulate
from railwright.training.lanes.result import ADAM
from railwright.training.layout.sizes import job_gpus
from railwright.training.software.eras import attention_kernels, pace_of
from railwright.training.step.simulating import kernel_timer

COMPUTE = {
    "gemm": "matrix products",
    "attention": "attention",
    "memory": "memory-bound kernels",
    "optimizer": "optimizer",
}
OTHER = "other communication"
IDLE = "waiting (host, pipeline)"
COPY = "copies from and to the host"
_KERNELS = {"gemm": ("gemm", "grouped_gemm"), "attention": ("attention",), "memory": ("memory", "scan")}


def expected(step: StepResult, job: TrainingJob, arch: Transformer, machine: Machine) -> dict[str, float]:
    """Exposed seconds of a predicted step by the labels of the table."""
    found: dict[str, float] = defaultdict(float)
    compute = 0.0
    for share in step.shares:
        if share.kind == "compute":
            compute = share.exposed
        elif share.kind in ("bubble", "host", "data", ADAM):
            found[IDLE] += share.exposed
        elif share.kind == "copy":
            found[COPY] += share.exposed
        else:
            found[label_of(share.kind)] += share.exposed
    for label, seconds in _seen_on_gpu(step).items():
        found[label] += seconds
    return found | _computing(step, compute, job, arch, machine)


def label_of(kind: str) -> str:
    return f"{kind} communication" if kind else OTHER


def _seen_on_gpu(step: StepResult) -> dict[str, float]:
    """What a profile's shares have more than a prediction's [s]: an instant of the host's, or of a copy's, is
    data-parallel work's on the GPU while that runs, and one of the host's a copy's.

    Nothing is known inside whole passes (`Timeline.coarse`).
    """
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for event in step.timeline.events:
        if event.rank == step.stage:
            lane = event.lane if event.lane in ("host", "dp", "copy") else "inner"
            spans[lane].append((event.start, event.end))
    host, dp, copy, inner = (union(spans[lane]) for lane in ("host", "dp", "copy", "inner"))

    def outside(some: list[tuple[float, float]]) -> float:
        return length(some) - length(both(some, inner))

    gradients = outside(both(host, dp))
    copies = outside(both(host, union([*dp, *copy]))) - gradients
    together = both(copy, dp)
    copied = outside(together) - outside(both(together, host))
    more = {label_of("dp"): gradients + copied, COPY: copies - copied, IDLE: -gradients - copies}
    # below a nanosecond it is what sums leave
    return {label: seconds for label, seconds in more.items() if abs(seconds) > 1e-9}


def _computing(
    step: StepResult, seconds: float, job: TrainingJob, arch: Transformer, machine: Machine
) -> dict[str, float]:
    """What the compute of a step's stage is of: its optimizer takes what the timeline says, and its passes
    are shared out as their kernels are alone. [s]

    seconds  of it all [s]
    """
    updated = _updating(step)
    alone = {name: _alone(step.stage, job, arch, machine, kinds) for name, kinds in _KERNELS.items()}
    whole = sum(alone.values())
    passes = {COMPUTE[name]: (seconds - updated) * one / whole for name, one in alone.items() if whole}
    return {**passes, COMPUTE["optimizer"]: updated}


def _updating(step: StepResult) -> float:
    """How long the stage's GPU computes its optimizer. [s]"""
    kind = step.stage, "compute", "optimizer"
    return sum(e.end - e.start for e in step.timeline.events if (e.rank, e.lane, e.kind) == kind)


def _alone(
    stage: int, job: TrainingJob, arch: Transformer, machine: Machine, kinds: tuple[str, ...]
) -> float:
    """How long a stage computes in its passes with kernels of some kinds only, on a free network. [s]"""
    pace = pace_of(job, machine.gpu, job_gpus(job, machine.network.fabric))
    bare = replace(pace, gap=0.0, step=0.0)
    timed = kernel_timer(machine, bare, attention_kernels(job))

    def kernel(operator: Operator) -> float:
        return timed(operator) if operator.kind in kinds else 0.0

    def free(m: Machine, op: Op, size: float, groups: Sequence[Communicator]) -> CollectivePrediction:
        ranks = len(groups[0])
        return CollectivePrediction(
            op, size, ranks, len(groups), 0.0, 0.0, 0.0, "none", "none", (), None, 1.0, 1.0
        )

    alone = simulate(job, arch, machine, predict=free, kernel=kernel, pace=bare, most_events=0, stage=stage)
    return next(share.busy for share in alone.shares if share.kind == "compute") - _updating(alone)
