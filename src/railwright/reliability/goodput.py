"""`goodput`: one study in, everything about its first job's failures out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Catalog
from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model import load_model
from railwright.reliability import closed, montecarlo
from railwright.reliability.checkpointing import (
    PUBLISHED,
    beyond_memory,
    checkpoint_size,
    checkpoint_times,
    spoiled,
    written_at,
)
from railwright.reliability.constants import DAY, HOUR, YEAR, constant, restart_time
from railwright.reliability.fabric_faults import Mending, network_faults, step_time
from railwright.reliability.formulas import (
    ettr_meta,
    ettr_renewal,
    ratio_of_mtbf,
    ratio_survival,
    ratio_up,
)
from railwright.reliability.lemons import worst_tenth
from railwright.reliability.parts import Stock, age_factor, components, stalls, stock
from railwright.reliability.published import contradictions
from railwright.reliability.replay import Spares, Trace, read_trace, shortage, spares, stepfun
from railwright.reliability.result import (
    CheckpointTimes,
    Component,
    Definition,
    Forecast,
    Goodput,
    NetworkFaults,
    RecoveryTimes,
)
from railwright.reliability.tornado import tornado
from railwright.reliability.words import answer
from railwright.spec.reliability import Reliability
from railwright.spec.study import Study
from railwright.training.sizes import Sizes
from railwright.units import show_rate, show_time

Tell = Callable[[str], None]
SOFTWARE = ("software",)
"""Components after which nobody looks for a server."""

MOST_INTERRUPTIONS = 40_000
"""Interruptions of one Monte Carlo run before it is given up as unfinished."""


def goodput(
    study: Study,
    machine: Machine,
    catalog: Catalog,
    tell: Tell = lambda what: None,
    network: bool = True,
) -> Goodput:
    """MTTI, training-time ratio, goodput, wall time, checkpoints, spares and what each assumption is worth.

    machine  of the study, faults applied
    tell     called with what is being worked on
    network  simulate the step under failed network elements (a few steps of the job)

    Raises what `basis_of` does; the reliability section may be left out altogether.
    """
    tell("parts of the job, checkpoints")
    basis = basis_of(study, machine, catalog)
    asked, job, held, parts = basis.asked, study.jobs[0], basis.held, basis.parts
    saved, recovery, replicas, trace = basis.saved, basis.recovery, basis.replicas, basis.trace
    arch, mtti = load_model(job.model), basis.figures.mtti
    ideal = job.tokens / (job.global_batch * job.sequence) * step_time(job, arch, machine)
    _refuse_standstill(job.name, held, _within(basis.figures, ideal), saved)
    tell("spares")
    out_rate = sum(p.per_1000_node_days * p.servers for p in parts)
    wanted = tuple(spares(trace, held.nodes, out_rate, share) for share in (0.99, 0.999))
    # A rack-scale server is several of the nodes that fail and are swapped one by one.
    nodes_each = held.nodes / held.servers
    enough = math.ceil(wanted[0].replayed / nodes_each)
    beyond = study.cluster.servers - held.servers - len(machine.network.fabric.lost)
    # What the cluster has beyond that is free for other work, and no cost of this run.
    kept = min(beyond, max(enough, 1)) if beyond else enough
    kept = kept if asked.spares is None else asked.spares
    mending = Mending(constant("repair_mean").value, recovery.hardware - recovery.detect, kept)
    by_name, spines = {p.name: p for p in parts}, study.cluster.compute.spare_spines
    found = network_faults(job, arch, machine, by_name, spines, mending, tell) if network else None
    figures = _within(closed_figures(asked, held, parts, saved, recovery, found, replicas), ideal)
    tell("Monte Carlo")
    length = ideal / closed.ettr(figures)

    def waits_with(servers: int) -> NDArray[np.float64]:
        nodes = int(servers * nodes_each)
        short, missing = shortage(trace, held.nodes, out_rate, nodes, length, asked.samples, asked.seed)
        return np.minimum(missing / replicas, 1.0) if asked.elastic else short

    waits = waits_with(kept)
    covered = replace(figures, waiting=float((waits if kept == enough else waits_with(enough)).mean()))
    figures = replace(figures, waiting=float(waits.mean()))
    forecast = _forecast(asked, held, parts, saved, recovery, figures, kept, ideal, waits)
    swings = tornado(asked, held, parts, saved, recovery, figures)
    result = Goodput(
        job=job.name, gpus=held.gpus, servers=held.servers, nodes=held.nodes, rates=asked.rates, answer=(),
        per_1000_node_days=sum(p.per_1000_node_days for p in parts if p.stops),
        mtti=mtti, mtti_low=_mtti(parts, "high"), mtti_high=_mtti(parts, "low"), components=parts,
        recovery=replace(recovery, mean=figures.recovery), checkpoint=saved,
        definitions=definitions(held.nodes, figures, parts),
        ettr=closed.ettr(figures), goodput=closed.goodput(figures), losses=closed.losses(figures),
        forecast=forecast, spares=kept, wanted=wanted,
        enough=(enough, closed.goodput(covered)),
        target=(asked.target, closed.longest_recovery(figures, asked.target)),
        network=found, tornado=swings, lemons=worst_tenth(held.nodes, out_rate),
        contradictions=contradictions(held.gpus, asked.rates),
        notes=_notes(asked, study, machine.gpu.name, saved, wanted, (kept, enough), beyond),
    )  # fmt: skip
    return replace(result, answer=answer(result))


@dataclass(frozen=True)
class Basis:
    """What goodput starts from, nothing simulated yet.

    held      what the job stands on
    parts     what breaks of it
    saved     its checkpoints
    replicas  data-parallel ones
    figures   of the closed form, on a sound fabric with servers at hand
    trace     on which spares are counted
    """

    asked: Reliability
    held: Stock
    parts: tuple[Component, ...]
    saved: CheckpointTimes
    recovery: RecoveryTimes
    replicas: int
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
    parts = components(held, asked)
    bandwidth = written_at(asked.checkpoint, study.cluster, catalog, held)
    size = asked.checkpoint.size or checkpoint_size(job, load_model(job.model))
    saved = checkpoint_times(asked.checkpoint, size, bandwidth, machine, held.gpus, _mtti(parts, "rate"))
    recovery = recovery_times(asked, saved, parts, held.gpus)
    replicas = Sizes.of(job, fabric).replicas
    figures = closed_figures(asked, held, parts, saved, recovery, None, replicas)
    # How long the run is takes a step to say, so an interval beyond its end is not held against it here.
    _refuse_standstill(job.name, held, _within(figures, figures.mtti), saved)
    trace = stepfun() if asked.trace is None else read_trace(asked.trace)
    return Basis(asked, held, parts, saved, recovery, replicas, figures, trace)


def _within(figures: closed.Figures, run: float) -> closed.Figures:
    """The same for a run that ends before its next checkpoint: it loses no more than itself."""
    interval = min(figures.interval, run)
    return replace(figures, interval=interval, stored=max(min(figures.stored, run), interval))


def _refuse_standstill(job: str, held: Stock, figures: closed.Figures, saved: CheckpointTimes) -> None:
    """Raise PlanError for a job that loses its work faster than it gets on."""
    if closed.ettr(figures) > 0:
        return
    deep = saved.storage_every > 1
    also = f" ({show_time(figures.stored)} to storage)" if deep else ""
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
    network: NetworkFaults | None,
    replicas: int,
) -> closed.Figures:
    """What the closed form needs, from the parts."""
    mtti = _mtti(parts, "rate")
    figures = closed.Figures(
        mtti=mtti, recovery=recovery.mean, block=saved.block, lag=saved.lag, interval=saved.interval,
        spoiled=sum(p.share * spoiled(p, saved) for p in parts),
        severe=sum(p.share for p in parts if beyond_memory(p, saved)),
        stored=saved.storage_every * saved.interval, stored_lag=saved.storage_load,
        reload=max(saved.storage_load - saved.load, 0.0),
        degraded=network.degraded if network else 0.0,
        stalled=stalls(asked.flaps, held.units["link"]) if asked.flaps else 0.0,
    )  # fmt: skip
    if not asked.elastic:
        return figures
    if replicas < 2:
        raise PlanError(
            "reliability.elastic: the job has one data-parallel replica, so none is left when it is lost; "
            "give it more GPUs, or set elastic to false"
        )
    # Survivors notice and rebuild their communicators; the replica is back after a whole recovery.
    return replace(
        figures, elastic=1 / replicas, out=recovery.hardware, recovery=recovery.detect + recovery.restart
    )


def definitions(nodes: float, figures: closed.Figures, parts: Sequence[Component]) -> tuple[Definition, ...]:
    """Each published meaning of effective training time, with this job's figures."""
    m, r, c, t = figures.mtti, figures.recovery, figures.block, figures.interval
    rate = sum(p.per_1000_node_days for p in parts if p.stops)
    daly = ettr_renewal(m, r, c, t)
    meta = ettr_meta(nodes, rate, r, c, t)
    mega = closed.ettr(figures)
    rows = (
        ("ETTR, renewal (Daly)", daly, "tau / (M e^(R/M) (e^((tau+C)/M) - 1))", "Daly 2006"),
        ("E[ETTR], Meta RSC", meta, "(1 - N r (R + tau/2)) / (1 + C/tau)", "arXiv 2410.21680"),
        ("availability", ratio_up(m, r), "M / (M + R)", "usual"),
        ("FT-HSDP's ratio", ratio_of_mtbf(m, r), "(M - R) / M", "arXiv 2602.00277"),
        ("survival", ratio_survival(m, r), "exp(-R/M)", "renewal without checkpoints"),
        ("MegaScale's rate", mega, "iterations x step time / wall time", "arXiv 2402.15627"),
    )
    return tuple(Definition(*row) for row in rows)


def _mtti(parts: Sequence[Component], which: str) -> float:
    per_year = sum(getattr(p, which) * p.units for p in parts if p.stops)
    return YEAR / per_year if per_year else math.inf


def _forecast(
    asked: Reliability, held: Stock, parts: Sequence[Component], saved: CheckpointTimes,
    recovery: RecoveryTimes, figures: closed.Figures, kept: int, ideal: float,
    waits: NDArray[np.float64],
) -> Forecast:  # fmt: skip
    elastic = figures.elastic is not None
    faults = tuple(
        montecarlo.Fault(
            p.share,
            figures.recovery if elastic else recovery.software if p.name in SOFTWARE else recovery.hardware,
            spoiled(p, saved),
            0.0 if not elastic and beyond_memory(p, saved) else 1.0,
        )
        for p in parts
        if p.stops and p.share
    )
    diagnose = constant("diagnose")
    process = montecarlo.Process(
        mtti=figures.mtti, faults=faults, block=saved.block, interval=saved.interval, lag=saved.lag,
        shape=constant("gap_shape").value,
        # The published range of the diagnosis is taken as its p10 and p90.
        spread=math.log(diagnose.high / diagnose.low) / (2 * 1.2816),
        varies=0.0 if elastic else recovery.diagnose / recovery.hardware,
        storage_every=saved.storage_every, stored_lag=saved.storage_load, reload=figures.reload,
        elastic=figures.elastic, out=figures.out,
    )  # fmt: skip
    pace = (1 - figures.degraded) * (1 - figures.stalled)
    work = ideal / pace
    horizon = min(50 * work, MOST_INTERRUPTIONS * figures.mtti)
    runs = montecarlo.simulate(process, horizon, work, asked.samples, asked.seed)
    # Every sample meets its own window of the trace, short of servers for a share of its time.
    lived = 1 - waits
    ends = ~np.isnan(runs.finished) & (lived > 0)
    ended = runs.finished[ends] / lived[ends]
    wall: tuple[float, ...] = (math.inf,) * 5
    if len(ended):
        wall = (*(float(v) for v in np.percentile(ended, (10, 50, 90, 99))), float(ended.mean()))
    per_server = held.gpus / held.servers
    hours = tuple(w / HOUR * (held.gpus + kept * per_server) for w in wall)
    ratio = runs.ettr * pace * lived
    return Forecast(
        samples=asked.samples, ideal=ideal, finished=len(ended) / asked.samples,
        wall=wall, gpu_hours=hours,  # type: ignore[arg-type]
        ettr=(*(float(v) for v in np.percentile(ratio, (10, 50, 90))), float(ratio.mean())),  # type: ignore[arg-type]
        interruptions=float(runs.interruptions.mean()),
        waiting=float(waits.mean()),
    )  # fmt: skip


def _notes(
    asked: Reliability, study: Study, gpu: str, saved: CheckpointTimes, wanted: Sequence[Spares],
    spare: tuple[int, int], beyond: int,
) -> tuple[str, ...]:  # fmt: skip
    notes = []
    if study.reliability is None:
        notes.append("The study has no reliability section: every figure is a published default.")
    if asked.rates == "pooled" and asked.interruptions is None:
        notes.append(
            "Rates are pooled over published fleets; each of Meta's two predicted from the others is "
            "off by a third (docs/reliability/goodput.md). Your own count is better: "
            "reliability.interruptions."
        )
    if not gpu.startswith(("h100", "h800", "h200")):
        notes.append(
            f"No public fleet of {gpu} gives its failures by cause: the rates are those of H100 and kin."
        )
    if asked.age is not None:
        notes.append(
            f"At {asked.age / DAY:.0f} days in service rates are {age_factor(asked.age):.2f} times those of "
            "the published fleets; published growth disagrees (exponent 0.55 to 1.14)."
        )
    if (
        study.cluster.storage is not None
        and not study.cluster.storage.hosts
        and asked.checkpoint.bandwidth is None
    ):
        notes.append("The storage network has no hosts: storage itself is taken to keep up with all servers.")
    if saved.limit == PUBLISHED:
        known = constant("written_bandwidth")
        notes.append(
            f"The study has no storage network: checkpoints are written at {show_rate(known.value)}, of the "
            f"{show_rate(known.low)} to {show_rate(known.high)} of published jobs. Your own is better: "
            "cluster.storage with its hosts, or reliability.checkpoint.bandwidth."
        )
    if saved.lag and asked.checkpoint.interval is None and saved.interval <= saved.lag * (1 + 1e-9):
        notes.append(
            "Checkpoints follow each other without a pause: storage, not the cost, sets the interval."
        )
    if asked.flaps is None:
        notes.append(
            "Link flaps count only where they ended a job; give reliability.flaps for the stalls too."
        )
    if saved.bandwidth > constant("written_bandwidth").high and asked.checkpoint.bandwidth is None:
        notes.append(
            "Checkpoints are written as fast as the storage network carries; published jobs write at 50 to "
            "200 GB/s."
        )
    low, _ = wanted
    kept, enough = spare
    if kept < enough:
        notes.append(f"Spare servers: {kept}, fewer than the {enough} that 99 % of the time ask for.")
    elif asked.spares is None and not beyond:
        notes.append(f"Spare servers: {kept}, assumed beside the study's cluster, which has none to spare.")
    elif asked.spares is None and kept < beyond:
        notes.append(
            f"Spare servers: {kept} of the {beyond} that the cluster has beyond the job, for 99 % of the "
            "time; the others are free for other work, unless reliability.spares keeps them."
        )
    notes.append(
        f"Spare nodes: independent failures would ask for {low.independent} at 99 %, the replayed trace for "
        f"{low.replayed}, and a cluster that fails together like the trace's own for {low.scaled}."
    )
    return tuple(notes)
