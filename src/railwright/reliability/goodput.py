"""`goodput`: one study in, everything about its first job's failures out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Catalog
from railwright.collectives.machine import Machine
from railwright.model import load_model
from railwright.reliability import closed, montecarlo
from railwright.reliability.basis import (
    SOFTWARE,
    Basis,
    basis_of,
    mtti_of,
    refuse_standstill,
    within,
)
from railwright.reliability.checkpointing import beyond_memory, spoiled
from railwright.reliability.constants import constant
from railwright.reliability.fabric_faults import Mending, Step, network_faults, step_of
from railwright.reliability.formulas import (
    ettr_meta,
    ettr_renewal,
    ratio_of_mtbf,
    ratio_survival,
    ratio_up,
)
from railwright.reliability.lemons import worst_tenth
from railwright.reliability.notes import Kept, notes
from railwright.reliability.published import contradictions
from railwright.reliability.replay import shortage, spares
from railwright.reliability.result import (
    Component,
    Definition,
    Forecast,
    Goodput,
)
from railwright.reliability.tornado import tornado
from railwright.reliability.words import answer
from railwright.spec.study import Study
from railwright.units import HOUR

Tell = Callable[[str], None]
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
    saved, recovery = basis.saved, basis.recovery
    arch, mtti = load_model(job.model), basis.figures.mtti
    step = step_of(job, arch, machine)
    ideal = job.tokens / (job.global_batch * job.sequence) * step.time
    refuse_standstill(job.name, held, within(basis.figures, ideal), saved)
    tell("spares")
    kept = _kept(basis, study.cluster.servers - held.servers - len(machine.network.fabric.lost))
    mending = Mending(constant("repair_mean").value, recovery.hardware - recovery.detect, kept.servers)
    by_name, spines = {p.name: p for p in parts}, study.cluster.compute.spare_spines
    crosses = network and held.servers > 1
    found = network_faults(job, arch, machine, by_name, spines, mending, tell) if crosses else None
    figures = within(replace(basis.figures, degraded=found.degraded if found else 0.0), ideal)
    tell("Monte Carlo")
    length = ideal / closed.ettr(figures)
    waits = _waits(basis, kept.servers, length)
    waits_with_enough = waits if kept.servers == kept.enough else _waits(basis, kept.enough, length)
    covered = replace(figures, waiting=float(waits_with_enough.mean()))
    figures = replace(figures, waiting=float(waits.mean()))
    forecast = _forecast(basis, figures, kept.servers, ideal, waits, step)
    swings = tornado(basis, figures)
    result = Goodput(
        job=job.name, gpus=held.gpus, servers=held.servers, nodes=held.nodes, rates=asked.rates, answer=(),
        per_1000_node_days=sum(p.per_1000_node_days for p in parts if p.stops),
        mtti=mtti, mtti_low=mtti_of(parts, "high"), mtti_high=mtti_of(parts, "low"), components=parts,
        recovery=replace(recovery, mean=figures.recovery), checkpoint=saved,
        definitions=definitions(held.nodes, figures, parts),
        ettr=closed.ettr(figures), goodput=closed.goodput(figures), losses=closed.losses(figures),
        forecast=forecast, spares=kept.servers, wanted=kept.wanted,
        enough=(kept.enough, closed.goodput(covered)),
        target=(asked.target, closed.longest_recovery(figures, asked.target)),
        network=found, tornado=swings, lemons=worst_tenth(held.nodes, _out_rate(parts)),
        contradictions=contradictions(held.gpus, asked.rates),
        notes=notes(study, machine.gpu.name, saved, kept, networked=held.servers > 1),
    )  # fmt: skip
    return replace(result, answer=answer(result))


def definitions(nodes: float, figures: closed.Figures, parts: Sequence[Component]) -> tuple[Definition, ...]:
    """Each published meaning of effective training time, with this job's figures."""
    m, r, c, t = figures.mtti, figures.recovery, figures.saving.block, figures.saving.interval
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


def _kept(basis: Basis, beyond: int) -> Kept:
    """The spare servers of a job, and those that it should have.

    beyond  servers that the study's cluster has beyond the job's
    """
    held, rate = basis.held, _out_rate(basis.parts)
    wanted = tuple(spares(basis.trace, held.nodes, rate, share) for share in (0.99, 0.999))
    enough = math.ceil(wanted[0].replayed / _nodes_each(basis))
    # What the cluster has beyond that is free for other work, and no cost of this run.
    kept = min(beyond, max(enough, 1)) if beyond else enough
    kept = kept if basis.asked.spares is None else basis.asked.spares
    return Kept(kept, enough, wanted, beyond)


def _waits(basis: Basis, servers: int, length: float) -> NDArray[np.float64]:
    """(S,) share of the time that servers are missing, of every sample, with so many to spare.

    length  of the run if it never waited [s]
    """
    held, asked = basis.held, basis.asked
    nodes, rate = int(servers * _nodes_each(basis)), _out_rate(basis.parts)
    short, missing = shortage(basis.trace, held.nodes, rate, nodes, length, asked.samples, asked.seed)
    elastic = basis.figures.elastic
    return np.minimum(missing * elastic.share, 1.0) if elastic is not None else short


def _out_rate(parts: Sequence[Component]) -> float:
    """Servers that failures take out of service, per 1,000 node-days."""
    return sum(p.per_1000_node_days * p.servers for p in parts)


def _nodes_each(basis: Basis) -> float:
    """Nodes of one server: a rack-scale one is several, which fail and are swapped one by one."""
    return basis.held.nodes / basis.held.servers


def _forecast(
    basis: Basis, figures: closed.Figures, kept: int, ideal: float, waits: NDArray[np.float64], step: Step
) -> Forecast:
    """Wall time and ratios of the run, sample by sample.

    kept   spare servers
    ideal  time of the run without failures [s]
    waits  (S,) share of the time that servers are missing, of every sample
    step   whose range widens that of the run
    """
    asked, held, parts, saved, recovery = basis.asked, basis.held, basis.parts, basis.saved, basis.recovery
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
        mtti=figures.mtti,
        faults=faults,
        # Not those of `figures`, which are cut to the run: its end comes by itself here.
        saving=basis.figures.saving,
        shape=constant("gap_shape").value,
        # The published range of the diagnosis is taken as its p10 and p90.
        spread=math.log(diagnose.high / diagnose.low) / (2 * 1.2816),
        varies=0.0 if elastic else recovery.diagnose / recovery.hardware,
        elastic=figures.elastic,
    )
    pace = (1 - figures.degraded) * (1 - figures.stalled)
    work = ideal / pace
    horizon = min(50 * work, MOST_INTERRUPTIONS * figures.mtti)
    runs = montecarlo.simulate(process, horizon, work, asked.samples, asked.seed)
    # Every sample meets its own window of the trace, short of servers for a share of its time.
    lived = 1 - waits
    ends = ~np.isnan(runs.finished) & (lived > 0)
    ended = runs.finished[ends] / lived[ends]
    wall = _percentiles(ended)
    # A run of longer steps is interrupted as often in a day, so that all of it takes as much longer.
    measured = _percentiles(montecarlo.within_band(ended, step.low, step.high))
    per_server = held.gpus / held.servers
    hours = tuple(w / HOUR * (held.gpus + kept * per_server) for w in wall)
    ratio = runs.ettr * pace * lived
    return Forecast(
        samples=asked.samples, ideal=ideal, finished=len(ended) / asked.samples,
        wall=wall, wall_measured=measured, band=(step.low, step.high),
        gpu_hours=hours,  # type: ignore[arg-type]
        ettr=(*(float(v) for v in np.percentile(ratio, (10, 50, 90))), float(ratio.mean())),  # type: ignore[arg-type]
        interruptions=float(runs.interruptions.mean()),
        waiting=float(waits.mean()),
    )  # fmt: skip


def _percentiles(wall: NDArray[np.float64]) -> tuple[float, float, float, float, float]:
    """(p10, p50, p90, p99, mean) of the samples that end; infinite where none does."""
    if not len(wall):
        return (math.inf,) * 5
    p10, p50, p90, p99 = (float(v) for v in np.percentile(wall, (10, 50, 90, 99)))
    return p10, p50, p90, p99, float(wall.mean())
