"""What goodput starts from: parts, checkpoints and recovery of a job, and figures of the closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from railwright.catalog.parts import Catalog
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model import load_model
from railwright.reliability import closed
from railwright.reliability.checkpointing import (
    IN_MEMORY,
    beyond_memory,
    checkpoint_size,
    checkpoint_times,
    spoiled,
    written_at,
)
from railwright.reliability.constants import constant, restart_time
from railwright.reliability.parts import Stock, components, stalls, stock
from railwright.reliability.protection import Checkpoints, Elastic
from railwright.reliability.replay import Trace, read_trace, stepfun
from railwright.reliability.result import CheckpointTimes, Component, RecoveryTimes
from railwright.spec.reliability import Reliability
from railwright.spec.study import Study
from railwright.training.layout.sizes import Sizes
from railwright.units import YEAR, show_time

Rate = Literal["rate", "low", "high"]
"""Of a component: its own, and the ends of its range."""

SOFTWARE = ("software",)
"""Components after which nobody looks for a server."""


@dataclass(frozen=True)
class Basis:
    """What goodput starts from, nothing simulated yet.

    held      what the job stands on
    parts     what breaks of it
    saved     its checkpoints
    figures   of the closed form, on a sound fabric with servers at hand
    trace     on which spares are counted
    """

    asked: Reliability
    held: Stock
    parts: tuple[Component, ...]
    saved: CheckpointTimes
    recovery: RecoveryTimes
    figures: closed.Figures
    trace: Trace


def basis_of(study: Study, machine: Machine, catalog: Catalog) -> Basis:
    """What goodput starts from; everything that it may refuse is refused here.

    Raises PlanError where the study has no job, no way to write a checkpoint (`written_at`), or no time to
    train; RailwrightError for unknown names in the reliability section.
    """
    if not study.jobs:
        raise PlanError(
            "the study has no training job of a transformer, whose goodput this is; give it one under jobs:"
        )
    asked, job = study.reliability or Reliability(), study.jobs[0]
    fabric = machine.network.fabric
    held = stock(fabric, job, asked.servers_per_feed)
    if asked.checkpoint.kind in IN_MEMORY and held.alone:
        raise PlanError(
            f"checkpoints of kind {asked.checkpoint.kind} lie in the memory of another server of the job, "
            "and it has one; take kind async or blocking",
            "reliability.checkpoint",
        )
    parts = components(held, asked)
    bandwidth = written_at(asked.checkpoint, study.cluster, catalog, held)
    size = asked.checkpoint.size or checkpoint_size(job, load_model(job.model))
    saved = checkpoint_times(asked.checkpoint, size, bandwidth, machine, held.gpus, mtti_of(parts, "rate"))
    recovery = recovery_times(asked, saved, parts, held.gpus)
    replicas = Sizes.of(job, fabric).replicas
    figures = closed_figures(asked, held, parts, saved, recovery, replicas)
    # How long the run is takes a step to say, so an interval beyond its end is not held against it here.
    refuse_standstill(job.name, held, within(figures, figures.mtti), saved)
    trace = stepfun() if asked.trace is None else read_trace(asked.trace)
    return Basis(
        asked=asked,
        held=held,
        parts=parts,
        saved=saved,
        recovery=recovery,
        figures=figures,
        trace=trace,
    )


def within(figures: closed.Figures, run: float) -> closed.Figures:
    """The same for a run that ends before its next checkpoint: it loses no more than itself."""
    saving = figures.saving
    interval = min(saving.interval, run)
    capped = replace(saving, interval=interval, stored=max(min(saving.stored, run), interval))
    return replace(figures, saving=capped)


def refuse_standstill(job: str, held: Stock, figures: closed.Figures, saved: CheckpointTimes) -> None:
    """Raise PlanError for a job that loses its work faster than it gets on."""
    if closed.ettr(figures) > 0:
        return
    deep = saved.storage_every > 1
    also = f" ({show_time(figures.saving.stored)} to storage)" if deep else ""
    raise PlanError(
        f"{job} on {held.gpus:,} GPUs is interrupted every {show_time(figures.mtti)}, recovers in "
        f"{show_time(figures.recovery)} and saves its work every {show_time(saved.interval)}{also}: it never "
        "gets on; give it fewer interruptions, or a shorter "
        f"reliability.checkpoint.{'storage_interval' if deep else 'interval'}",
        "reliability",
    )


def recovery_times(
    asked: Reliability, saved: CheckpointTimes, parts: Sequence[Component], gpus: int
) -> RecoveryTimes:
    """The stages of a recovery, the study's or the published ones; a software failure skips two of them."""
    said = asked.recovery

    def stage(name: str, value: float | None) -> float:
        return constant(name).value if value is None else value

    times = RecoveryTimes(
        detect=stage("detect", said.detect),
        diagnose=stage("diagnose", said.diagnose),
        reschedule=stage("reschedule", said.reschedule),
        restart=restart_time(gpus) if said.restart is None else said.restart,
        load=saved.load,
        warmup=stage("warmup", said.warmup),
        mean=0.0,
    )
    mean = sum(p.share * (times.software if p.name in SOFTWARE else times.hardware) for p in parts)
    return replace(times, mean=mean)


def closed_figures(
    asked: Reliability,
    held: Stock,
    parts: Sequence[Component],
    saved: CheckpointTimes,
    recovery: RecoveryTimes,
    replicas: int,
) -> closed.Figures:
    """What the closed form needs, from the parts, on a sound fabric."""
    saving = Checkpoints(
        block=saved.block,
        interval=saved.interval,
        lag=saved.lag,
        stored=saved.storage_every * saved.interval,
        stored_lag=saved.storage_load,
        reload=max(saved.storage_load - saved.load, 0.0),
    )
    figures = closed.Figures(
        mtti=mtti_of(parts, "rate"),
        recovery=recovery.mean,
        saving=saving,
        spoiled=sum(p.share * spoiled(p, saved) for p in parts),
        severe=sum(p.share for p in parts if beyond_memory(p, saved)),
        stalled=stalls(asked.flaps, held.units["link"]) if asked.flaps else 0.0,
    )
    if not asked.elastic:
        return figures
    if replicas < 2 or held.alone:
        lies = "has one data-parallel replica" if replicas < 2 else "has all its replicas in one server"
        raise PlanError(
            f"reliability.elastic: the job {lies}, so none is left when it is lost; give it more GPUs, or "
            "set elastic to false"
        )
    # Survivors notice and rebuild their communicators; what is lost is back after a whole recovery.
    # What fails is a server, or one of the nodes of a rack, with all replicas that it holds.
    share = 1 / min(replicas, max(held.nodes, held.servers))
    elastic = Elastic(share, recovery.hardware)
    return replace(figures, elastic=elastic, recovery=recovery.detect + recovery.restart)


def mtti_of(parts: Sequence[Component], which: Rate) -> float:
    """Mean time to an interruption of the job at one of its components' rates. [s]"""
    per_year = sum(getattr(p, which) * p.units for p in parts if p.stops)
    return YEAR / per_year if per_year else math.inf
