"""The growth path: every step of the ladder under this load, and the one that fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Gpu, Server
from railwright.errors import PlanError
from railwright.growth.asking import LARGEST, Ask, check
from railwright.growth.fitting import (
    fitting_jobs,
    layout_words,
    serving_fit,
    short_of_memory,
    sizes,
)
from railwright.growth.machines import networked
from railwright.growth.networks import data_speed, serving_rows, slowest_enough, training_rows
from railwright.growth.pace import predicted, predicted_serving, published, steps_of
from railwright.growth.parts import Reuse, Speed, Step, constant, reuses, speeds, steps
from railwright.growth.result import Fit, Growth, NetworkRow, Pace, Rung
from railwright.growth.supply import Prices, bill, hourly, outlet_of, rack_machines
from railwright.growth.waiting import most_load, places, wait_share
from railwright.growth.words import answered
from railwright.model.shape.architecture import Transformer
from railwright.ranges import Range
from railwright.spec.serving import ServingJob
from railwright.spec.training import TrainingJob
from railwright.training import StepResult
from railwright.units import HOUR

_Steps = list[tuple[TrainingJob, StepResult]]
FEWEST = 1e-6
"""Loads and years below which nothing is said."""


@dataclass(frozen=True)
class _Kind:
    """One kind of machine: how the job lies on it (None: it does not), its pace there, the layouts tried."""

    server: Server
    gpu: Gpu
    fit: Fit | None
    pace: Pace | None
    why: str
    tried: tuple[tuple[TrainingJob, StepResult], ...] = ()


def grow(
    ask: Ask,
    arch: Transformer,
    catalog: Catalog,
    prices: Prices,
    progress: Callable[[str], None] | None = None,
) -> Growth:
    """From people and jobs to equipment.

    prices  item -> price of the price book (`cost.price_book()`)
    Raises RailwrightError for figures that make no sense, PlanError where no step holds the model.
    """
    check(ask)
    tell = progress or (lambda _: None)
    ladder = steps()
    tell("memory")
    kinds = {
        name: _kind(name, ladder, ask, arch, catalog) for name in dict.fromkeys(s.server for s in ladder)
    }
    last = kinds[ladder[-1].server]
    if last.fit is None:
        raise PlanError(
            f"{last.why}; take a smaller model, a lighter task or a shorter sequence, or write a study "
            "(railwright init)"
        )
    tell("networks")
    each = last.server.gpus
    servers = max(1 if ask.task == "inference" else 2, -(-last.fit.group // each))
    rows, why_none = _networks(ask, arch, last, servers, catalog)
    enough = slowest_enough(rows)
    tell("steps")
    rungs: list[Rung] = []
    due: float | None = 0.0
    for step in ladder:
        kind = kinds[step.server]
        machines = _machines(step, kind, ask, due, rungs)
        rung = _rung(step, kind, machines, ask, arch, enough, rows, catalog, prices)
        rungs.append(rung)
        if rung.fit is not None:
            due = None if math.isinf(rung.outgrown) else rung.outgrown
    now = next(i for i, rung in enumerate(rungs) if rung.works)
    spans = last.fit.group > each
    result = Growth(
        ask, tuple(rungs), now, spans, (servers * each, servers), rows, why_none,
        _reused(enough, rungs, catalog), arch.max_positions or 0,
    )  # fmt: skip
    return answered(result)


def _kind(name: str, ladder: tuple[Step, ...], ask: Ask, arch: Transformer, catalog: Catalog) -> _Kind:
    """A job on one kind of machine, on as many of them as its largest step has."""
    server = find(catalog.servers, name)
    gpu = find(catalog.gpus, server.gpu)
    counts = [step.machines for step in ladder if step.server == name]
    most = LARGEST if 0 in counts else max(counts) * server.gpus
    find_fit = _serving_fit if ask.task == "inference" else _training_fit
    found = find_fit(ask, arch, server, gpu, most, catalog)
    if found is None:
        return _Kind(server, gpu, None, None, short_of_memory(ask, server, gpu, most))
    fit, ours, tried = found
    return _Kind(server, gpu, fit, published(ask, arch, gpu.name, fit.gpus) or ours, "", tuple(tried))


def _training_fit(
    ask: Ask, arch: Transformer, server: Server, gpu: Gpu, most: int, catalog: Catalog
) -> tuple[Fit, Pace | None, _Steps] | None:
    """The fewest GPUs from those asked for, in the fastest layout that fits, and our pace."""
    for gpus in sizes(ask.job_gpus, server.gpus, most):
        machine = networked(server, -(-gpus // server.gpus), speeds()[-1], catalog)
        jobs = fitting_jobs(ask, arch, machine, gpus)
        found = steps_of(jobs, arch, machine)
        if found:
            job, step = found[0]
            fit = Fit(gpus, layout_words(job), step.memory.total, gpu.hbm_bytes, job)
            return fit, predicted(step), found
    return None


def _serving_fit(
    ask: Ask, arch: Transformer, server: Server, gpu: Gpu, most: int, catalog: Catalog
) -> tuple[Fit, Pace | None, _Steps] | None:
    """Replicas for the GPUs asked for, and our pace; none on GPUs that no serving kernel was measured on."""
    fit = serving_fit(ask, arch, server, gpu, most)
    if fit is None:
        return None
    assert isinstance(fit.job, ServingJob)
    machine = networked(server, -(-fit.gpus // server.gpus), speeds()[-1], catalog)
    try:
        return fit, predicted_serving(fit.job, arch, machine), []
    except PlanError:
        return fit, None, []


def _networks(
    ask: Ask, arch: Transformer, kind: _Kind, servers: int, catalog: Catalog
) -> tuple[tuple[NetworkRow, ...], str]:
    assert kind.fit is not None
    job: TrainingJob | ServingJob = kind.fit.job
    if isinstance(job, ServingJob):
        return serving_rows(ask, arch, job, kind.server, catalog), ""
    known = kind.tried if kind.fit.gpus == servers * kind.server.gpus else ()
    return training_rows(ask, arch, kind.server, servers, catalog, known)


def _machines(step: Step, kind: _Kind, ask: Ask, due: float | None, before: list[Rung]) -> int:
    """Machines of a step: as the ladder says, as a rack's air cools, or as the load and the job ask for."""
    if step.machines:
        return step.machines
    if step.name != "cluster":
        return rack_machines(kind.server)
    assert kind.fit is not None
    least = max((r.machines for r in before if r.server == kind.server.name), default=0) + 1
    load = ask.load
    if ask.growth > 0 and due is not None:
        load *= (1.0 + ask.growth) ** (due + constant("ahead"))
    return max(least, _enough(load / kind.fit.gpus, kind.server.gpus, kind.fit.gpus))


def _enough(load: float, each: int, job: int) -> int:
    """The fewest machines on which the wait stays within its bound.  load: mean number of jobs at once."""
    bound = constant("wait_share")
    low, high = 0, 1
    while wait_share(places(high, each, job), load) > bound:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if wait_share(places(middle, each, job), load) > bound:
            low = middle
        else:
            high = middle
    return high


def _rung(
    step: Step,
    kind: _Kind,
    machines: int,
    ask: Ask,
    arch: Transformer,
    enough: NetworkRow | None,
    rows: tuple[NetworkRow, ...],
    catalog: Catalog,
    prices: Prices,
) -> Rung:
    """One step with everything known of it."""
    server, gpus = kind.server, machines * kind.server.gpus
    fit = kind.fit if kind.fit is not None and kind.fit.gpus <= gpus else None
    refused = "" if fit else (kind.why or short_of_memory(ask, server, kind.gpu, gpus))
    slots = places(machines, server.gpus, fit.gpus) if fit else 0
    most = most_load(slots, constant("wait_share")) * fit.gpus if fit else 0.0
    wait = wait_share(slots, ask.load / fit.gpus) if fit else math.inf
    data = data_speed(ask, arch, -(-fit.group // server.gpus) if fit else 1, catalog)
    crossing = fit is not None and fit.group > server.gpus
    needed = _wider(data, enough, rows) if crossing else data.name
    jobs = next((s for s in speeds() if s.name == needed), speeds()[-1])
    bought = bill(server, machines, jobs, data, catalog, prices)
    power = machines * server.power_max + bought.switch_power
    outlet, office = outlet_of(server.power_max)
    pace = kind.pace if fit else None
    hour = hourly(bought.price, power, most, prices) if fit and most > FEWEST else None
    seconds = run = None
    if fit and pace and ask.tokens:
        rate = pace.rate.times(fit.gpus)
        seconds = rate.under(ask.tokens)
        if hour:
            hours = seconds.times(fit.gpus / HOUR)
            run = Range(hours.low * hour.low, hours.middle * hour.middle, hours.high * hour.high)
    return Rung(
        step.name, step.title, server.name, machines, gpus, kind.gpu.name, fit, refused, slots, wait, most,
        _years(ask, most), data.name, needed, power, outlet, office, pace, bought.price, bought.unread, hour,
        run, seconds,
    )  # fmt: skip


def _wider(data: Speed, enough: NetworkRow | None, rows: tuple[NetworkRow, ...]) -> str:
    """The network of jobs that cross servers, never slower than data asks for; '' where none is enough."""
    if enough is None:
        return ""
    order = [row.name for row in rows]
    return max(data.name, enough.name, key=order.index)


def _years(ask: Ask, most: float) -> float:
    """Years until the load passes `most`: 0 if it has, infinite if it never does."""
    if ask.load > most:
        return 0.0
    if ask.growth <= 0:
        return math.inf
    return max(math.log(most / ask.load) / math.log1p(ask.growth), FEWEST)


def _reused(
    enough: NetworkRow | None, rungs: list[Rung], catalog: Catalog
) -> tuple[tuple[str, Reuse, bool], ...]:
    """(step, what becomes of its equipment, whether it can)."""
    found = []
    speed = next((s for s in speeds() if enough and s.name == enough.name), None)
    for rung in rungs:
        server = catalog.servers[rung.server]
        for reuse in reuses():
            if reuse.step != rung.name:
                continue
            can = True
            if reuse.needs == "nics":
                can = speed is None or server.nics >= speed.nics
            elif reuse.needs == "rack":
                can = server.rack_units > 0
            found.append((rung.title, reuse, can))
    return tuple(found)
