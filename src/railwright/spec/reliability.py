"""The part of a study file about failures: how often, what follows, and how the run protects itself."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from railwright.spec.quantity import Bandwidth, Duration, Size
from railwright.spec.section import Section

Positive = Annotated[float, Field(gt=0)]


class Recovery(Section):
    """From an interruption to the next useful step; what is left out takes its published default."""

    detect: Duration | None = Field(
        default=None, description="until the job is known to be dead, e.g. '60 s'"
    )
    diagnose: Duration | None = Field(
        default=None, description="until the guilty machine is known, e.g. '5 min'"
    )
    reschedule: Duration | None = Field(
        default=None, description="until a hot spare has taken its place, e.g. '1 min'"
    )
    restart: Duration | None = Field(
        default=None, description="processes and communicators up again, without loading, e.g. '200 s'"
    )
    warmup: Duration | None = Field(
        default=None, description="until steps take their usual time again, as lost time, e.g. '60 s'"
    )


class Checkpoint(Section):
    """How the state of the job is kept."""

    kind: Literal["blocking", "async", "memory", "two-level"] = Field(
        default="async",
        description="blocking: training waits for storage; async: for the copy to host memory only; "
        "memory: kept in another server's memory; two-level: memory often, storage beside it",
    )
    interval: Duration | None = Field(
        default=None, description="training between two checkpoints, e.g. '15 min'; default: the best"
    )
    storage_interval: Duration | None = Field(
        default=None,
        description="memory, two-level: training between two that reach storage; default: a day; as often as "
        "storage takes them",
    )
    size: Size | None = Field(default=None, description="of one checkpoint; default: weights and optimizer")
    block: Duration | None = Field(
        default=None, description="what one checkpoint keeps the job from training; default: computed"
    )
    bandwidth: Bandwidth | None = Field(
        default=None,
        description="to storage, all servers together; default: what the storage network carries",
    )


class Flaps(Section):
    """Links that go down and come back by themselves."""

    per_link_day: Positive = Field(description="flaps of one link in a day, e.g. 0.01")
    median: Duration = Field(description="half of them are shorter, e.g. '2 s'")
    p99: Duration = Field(description="one in a hundred is longer, e.g. '60 s'")


class FaultTrace(Section):
    """Your own record of node faults, on which spares are counted."""

    file: str = Field(
        description="CSV with start_day, end_day, node, level, kind (relative to this file), one fault a line"
    )
    nodes: Annotated[int, Field(gt=0)] = Field(description="nodes that were watched, e.g. 400")
    days: Positive = Field(description="days they were watched, e.g. 348")


class Reliability(Section):
    """Failures and recovery of the first job, for `railwright goodput`."""

    rates: str = Field(
        default="pooled",
        description="whose failure rates: pooled over all published fleets, or one of them: llama3-2024, "
        "ft-hsdp-2025, stepfun-2025",
    )
    interruptions: Positive | None = Field(
        default=None,
        description="your own: interruptions of jobs per 1,000 days of an eight-GPU node; "
        "scales every component",
    )
    factors: dict[str, Annotated[float, Field(ge=0)]] = Field(
        default={}, description="component -> times its rate, e.g. {gpu: 1.5, link: 0.5}"
    )
    age: Duration | None = Field(
        default=None, description="time in service, e.g. '90 d'; default: as old as the published fleets"
    )
    correlated: Annotated[float, Field(ge=1)] = Field(
        default=1.0,
        description="interruptions over those that independent parts would have; 100k GPUs reported 2.8",
    )
    servers_per_feed: Annotated[int, Field(gt=0)] | None = Field(
        default=None, description="servers that one power feed carries; default: feeds are redundant"
    )
    trace: FaultTrace | None = Field(
        default=None, description="node faults that are replayed for the spares; default: StepFun's 400 nodes"
    )
    flaps: Flaps | None = Field(default=None, description="link flaps; default: only those in the rates")
    recovery: Recovery = Recovery()
    checkpoint: Checkpoint = Checkpoint()
    spares: Annotated[int, Field(ge=0)] | None = Field(
        default=None,
        description="hot-spare servers; default: as many as 99 % of the time takes, of those that the "
        "cluster has beyond the job where it has any",
    )
    elastic: bool = Field(
        default=False,
        description="data-parallel replicas of a lost server are left out and the others go on, until they "
        "come back",
    )
    target: Annotated[float, Field(gt=0, lt=1)] = Field(
        default=0.9, description="training-time ratio that the report says how to reach"
    )
    samples: Annotated[int, Field(ge=10)] = Field(default=1000, description="Monte Carlo runs")
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="of the Monte Carlo runs")
