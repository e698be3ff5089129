"""The growth path: every step of the ladder under this load, and the one that fits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Gpu, Server
from railwright.cost.prices import Book
from railwright.errors import PlanError
from railwright.growth.asking import LARGEST, Ask, check, check_load
from railwright.growth.fitting import (
    answer_tokens,
    fitting_jobs,
    layout_words,
    serving_fits,
    short_of_memory,
    sizes,
)
from railwright.growth.machines import networked
from railwright.growth.networks import data_speed, serving_rows, slowest_enough, training_rows
from railwright.growth.pace import predicted, predicted_serving, published, steps_of
from railwright.growth.parts import Reuse, Speed, Step, constant, reuses, speeds, steps
from railwright.growth.result import Fit, Growth, NetworkRow, Pace, Rung
from railwright.growth.supply import bill, hourly, monthly, outlet_of, rack_machines, rent
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
    """One kind of machine: how the job lies on it (None: it does not), its pace there, the layouts tried.

    load  GPUs busy on average today
    """

    server: Server
    gpu: Gpu
    fit: Fit | None
    pace: Pace | None
    why: str
    load: float = 0.0
    tried: tuple[tuple[TrainingJob, StepResult], ...] = ()


def grow(
    ask: Ask,
    arch: Transformer,
    catalog: Catalog,
    prices: Book,
    progress: Callable[[str], None] | None = None,
) -> Growth:
    """From people and jobs to equipment.

    prices  the price book (`cost.price_book()`)
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
    pace = published(ask, arch, gpu.name, fit.gpus) or ours
    if pace is None and ask.rate is not None:
        why = f"no serving kernel was measured on {gpu.name}, so nobody knows what a rate of requests takes"
        return _Kind(server, gpu, None, None, why)
    load = ask.load(pace.rate.middle if pace else 1.0, answer_tokens(ask))
    check_load(ask, load)
    return _Kind(server, gpu, fit, pace, "", load, tuple(tried))


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
            return fit, predicted(job, step), found
    return None


def _serving_fit(
    ask: Ask, arch: Transformer, server: Server, gpu: Gpu, most: int, catalog: Catalog
) -> tuple[Fit, Pace | None, _Steps] | None:
    """The replica that answers most on each of its GPUs, and our pace; the smallest, without a pace, on GPUs
    that no serving kernel was measured on.

    The fewest GPUs that hold one request leave keys and values no room, and so decode for a few at a time.
    """
    found: list[tuple[Fit, Pace | None]] = []
    for fit in serving_fits(ask, arch, server, gpu, most):
        assert isinstance(fit.job, ServingJob)
        machine = networked(server, -(-fit.gpus // server.gpus), speeds()[-1], catalog)
        try:
            found.append((fit, predicted_serving(fit.job, arch, machine)))
        except PlanError:
            found.append((fit, None))
    if not found:
        return None
    fit, pace = max(found, key=lambda one: one[1].rate.middle if one[1] else 0.0)
    return fit, pace, []


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
    load = kind.load
    if ask.growth > 0 and due is not None:
        load *= (1.0 + ask.growth) ** (due + constant("ahead"))
    return max(least, _enough(ask, load, kind.server.gpus, kind.fit.gpus))


def _enough(ask: Ask, load: float, each: int, job: int) -> int:
    """The fewest machines that carry a load of so many busy GPUs."""
    low, high = 0, 1
    while _carried(ask, places(high, each, job), job) < load:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        if _carried(ask, places(middle, each, job), job) < load:
            low = middle
        else:
            high = middle
    return high


def _carried(ask: Ask, slots: int, job: int) -> float:
    """GPUs busy on average that jobs on so many slots may make: by their wait, of a rate of requests by how
    busy replicas may be."""
    if ask.rate is not None:
        return constant("service_share") * slots * job
    return most_load(slots, constant("wait_share")) * job


def _rung(
    step: Step,
    kind: _Kind,
    machines: int,
    ask: Ask,
    arch: Transformer,
    enough: NetworkRow | None,
    rows: tuple[NetworkRow, ...],
    catalog: Catalog,
    prices: Book,
) -> Rung:
    """One step with everything known of it."""
    server, gpus = kind.server, machines * kind.server.gpus
    fit = kind.fit if kind.fit is not None and kind.fit.gpus <= gpus else None
    refused = "" if fit else (kind.why or short_of_memory(ask, server, kind.gpu, gpus))
    slots = places(machines, server.gpus, fit.gpus) if fit else 0
    most = _carried(ask, slots, fit.gpus) if fit else 0.0
    wait = _wait(ask, slots, kind.load, fit) if fit else math.inf
    data = data_speed(ask, arch, -(-fit.group // server.gpus) if fit else 1, catalog)
    crossing = fit is not None and fit.group > server.gpus
    needed = _wider(data, enough, rows) if crossing else data.name
    jobs = next((s for s in speeds() if s.name == needed), speeds()[-1])
    bought = bill(server, machines, jobs, data, catalog, prices)
    outlet, office = outlet_of(server.power_max)
    pace = kind.pace if fit else None
    full = most if ask.rate is None or not fit else float(slots * fit.gpus)
    hour = hourly(bought.bought, full, office, prices) if fit and full > FEWEST else None
    used = _used(ask, kind.load, fit) if fit else math.inf
    month = monthly(bought.bought, used, office, prices) if used <= gpus else None
    seconds = run = None
    if fit and pace and ask.tokens:
        rate = pace.rate.times(fit.gpus)
        seconds = rate.under(ask.tokens)
        if hour:
            hours = seconds.times(fit.gpus / HOUR)
            run = Range(hours.low * hour.low, hours.middle * hour.middle, hours.high * hour.high)
    outgrown = _years(ask, kind.load, most) if fit else 0.0
    return Rung(
        step.name, step.title, server.name, machines, gpus, kind.gpu.name, fit, refused, slots, kind.load,
        used, wait, most, outgrown, data.name, needed, bought.bought.power, outlet, office, pace,
        bought.price, bought.unread, hour, month, rent(bought.bought, office, prices), run, seconds,
    )  # fmt: skip


def _used(ask: Ask, load: float, fit: Fit) -> float:
    """GPUs that somebody has to have for the load: those busy, of a rate of requests whole replicas."""
    if ask.rate is None:
        return load
    return math.ceil(load / (constant("service_share") * fit.gpus)) * fit.gpus


def _wait(ask: Ask, slots: int, load: float, fit: Fit) -> float:
    """Mean wait over mean length of jobs; of a rate of requests 0 where the step carries it."""
    if ask.rate is not None:
        return 0.0 if load <= _carried(ask, slots, fit.gpus) else math.inf
    return wait_share(slots, load / fit.gpus)


def _wider(data: Speed, enough: NetworkRow | None, rows: tuple[NetworkRow, ...]) -> str:
    """The network of jobs that cross servers, never slower than data asks for; '' where none is enough."""
    if enough is None:
        return ""
    order = [row.name for row in rows]
    return max(data.name, enough.name, key=order.index)


def _years(ask: Ask, load: float, most: float) -> float:
    """Years until the load passes `most`: 0 if it has, infinite if it never does."""
    if load > most:
        return 0.0
    if ask.growth <= 0:
        return math.inf
    return max(math.log(most / load) / math.log1p(ask.growth), FEWEST)


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
