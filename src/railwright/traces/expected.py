"""The predicted step by the shares that a profile has: what its GPU computes, waits for and sends.

A profile of the GPU sees no waits and no host: of an instant in which the prediction's stage waits for
another one (a bubble), for its host or for the slowest of its ranks, gradients, parameters or copies that run
then have it, else nobody.  So shares are read off the timeline as a profile's are.

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
from railwright.traces.intervals import length, union
from railwright.traffic.demand import Communicator
from railwright.training import StepResult, simulate
from railwright.training.lanes.tasks import LANES
from railwright.training.lanes.timeline import Event
from railwright.training.layout.sizes import job_gpus
from railwright.training.passes.lockstep import WAIT
from railwright.training.software.eras import attention_kernels, pace_of
from railwright.training.step.simulating import kernel_timer

COMPUTE = {
    "gemm": "matrix products",
    "attention": "attention",
    "memory": "memory-bound kernels",
    "optimizer": "optimizer",
}
OTHER = "other communication"
IDLE = "waiting (host, pipeline, other ranks)"
COPY = "copies from and to the host"
_SEEN = (*(lane for lane in LANES if lane not in ("host", "copy")), "copy")
"""Lanes that a GPU's profile has, in the order in which an instant is theirs (`measured.ORDER`)."""
_KERNELS = {"gemm": ("gemm", "grouped_gemm"), "attention": ("attention",), "memory": ("memory", "scan")}


def expected(step: StepResult, job: TrainingJob, arch: Transformer, machine: Machine) -> dict[str, float]:
    """Seconds of a predicted step by the labels of the table; they add up to it.

    Of a timeline with whole passes these must say what is inside them (`simulate`'s end_events).
    """
    seen = _seen_on_gpu(step)
    found = {label_of(lane): seen[lane] for lane in seen if lane not in ("compute", "copy")}
    found[COPY] = seen.get("copy", 0.0)
    found |= _computing(step, seen.get("compute", 0.0), job, arch, machine)
    return {**found, IDLE: max(0.0, step.step_time - sum(seen.values()))}


def label_of(kind: str) -> str:
    """The row of the table that communication of a lane is in; '' for what is not known."""
    return f"{kind} communication" if kind else OTHER


def _seen_on_gpu(step: StepResult) -> dict[str, float]:
    """What each lane of the step's stage has on its GPU [s]: instants in which none before it runs.

    Whole passes say themselves what is inside; nothing is known there of what runs beside their host, and
    ranks that they wait for are in their compute.
    """
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    found: dict[str, float] = defaultdict(float)
    whole: list[tuple[float, float]] = []
    for event in step.timeline.events:
        if event.rank != step.stage:
            continue
        if event.inside:
            whole.append((event.start, event.end))
            for share in event.inside:
                if share.kind in _SEEN:
                    found[share.kind] += share.exposed
        elif (lane := _kernels_of(event)) in _SEEN:
            spans[lane].append((event.start, event.end))
    taken = union(whole)
    for lane in _SEEN:
        before, taken = length(taken), union([*taken, *spans[lane]])
        found[lane] += length(taken) - before
    # below a nanosecond it is what sums leave
    return {lane: seconds for lane, seconds in found.items() if seconds > 1e-9}


def _kernels_of(event: Event) -> str:
    """The lane whose kernels a profile has while an event runs; '' where it has none.

    A receive runs from when a message is waited for, and while a stage waits for the work of another or for
    ranks that end a pass later than itself, its GPU does nothing of its own.
    """
    if event.kind == "transfer":
        return "pp"
    return "" if event.kind in ("bubble", WAIT) else event.lane


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
    timed = kernel_timer(machine, bare, attention_kernels(job, machine.gpu))

    def kernel(operator: Operator) -> float:
        return timed(operator) if operator.kind in kinds else 0.0

    def free(m: Machine, op: Op, size: float, groups: Sequence[Communicator]) -> CollectivePrediction:
        ranks = len(groups[0])
        return CollectivePrediction(
            op, size, ranks, len(groups), 0.0, 0.0, 0.0, "none", "none", (), None, 1.0, 1.0
        )

    alone = simulate(job, arch, machine, predict=free, kernel=kernel, pace=bare, most_events=0, stage=stage)
    return next(share.busy for share in alone.shares if share.kind == "compute") - _updating(alone)
