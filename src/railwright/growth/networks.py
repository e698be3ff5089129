"""What each network makes of a job over several servers: how long GPUs wait for it."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server
from railwright.collectives import Machine
from railwright.growth.asking import Ask
from railwright.growth.fitting import fitting_jobs, layout_words
from railwright.growth.machines import networked
from railwright.growth.pace import steps_of
from railwright.growth.parts import Speed, constant, saved_bytes, speeds
from railwright.growth.result import NetworkRow
from railwright.model import count_parameters
from railwright.model.shape.architecture import Transformer
from railwright.serving.engine.exchange import Place, hop_seconds
from railwright.serving.engine.profiles import engine_of
from railwright.serving.engine.step import step_parts
from railwright.serving.kernels.constants import kernels_of
from railwright.spec.serving import ServingJob
from railwright.spec.training import Layout, TrainingJob
from railwright.training import StepResult, simulate
from railwright.training.lanes.result import COMMUNICATION


def training_rows(
    ask: Ask,
    arch: Transformer,
    server: Server,
    servers: int,
    catalog: Catalog,
    known: Sequence[tuple[TrainingJob, StepResult]] = (),
) -> tuple[tuple[NetworkRow, ...], str]:
    """The job over so many servers on every network; and why there is no row, where there is none.

    The short list: of each pipeline depth and sharding the fastest on the fastest network; on every network
    the fastest of them is taken, since a slow network asks for another layout than a fast one.
    known  the job's layouts on the fastest network, where they have been simulated already
    """
    gpus = servers * server.gpus
    best = speeds()[-1]
    if not known:
        reference = networked(server, servers, best, catalog)
        known = steps_of(fitting_jobs(ask, arch, reference, gpus), arch, reference)
    listed = short_list(known)
    if not listed:
        return (), f"{ask.model} does not fit {servers} {server.name} for {ask.task} in any layout tried"
    bubbles = {job.layout: step.exposed("bubble") for job, step in listed}
    most = {job.layout: step.tokens_per_second for job, step in listed}
    found = [(best, *listed[0])]
    for speed in reversed(speeds()[:-1]):
        machine = networked(server, servers, speed, catalog)
        found.append((speed, *_fastest_of([job for job, _ in listed], arch, machine, most)))
    found.reverse()
    top = max(step.tokens_per_second for _, _, step in found)
    rows = []
    for speed, job, step in found:
        longer = max(step.exposed("bubble") - bubbles[job.layout], 0.0) / step.step_time
        share = exposed_between(job, step, server.gpus) + longer
        relative = step.tokens_per_second / top
        rows.append(_row(ask, arch, speed, servers, catalog, share, relative, layout_words(job)))
    return tuple(rows), ""


def short_list(steps: Sequence[tuple[TrainingJob, StepResult]]) -> list[tuple[TrainingJob, StepResult]]:
    """Of every pipeline depth and sharding the fastest.  steps: fastest first."""
    found: dict[tuple[int, int], tuple[TrainingJob, StepResult]] = {}
    for job, step in steps:
        found.setdefault((job.layout.pipeline, job.layout.zero), (job, step))
    return list(found.values())


def exposed_between(job: TrainingJob, step: StepResult, each: int) -> float:
    """Exposed communication of groups that leave a server, over the step; tensor groups never do here, and
    expert groups only where they are wider than a server."""
    inside = {"tp"}
    if job.layout.expert * job.layout.expert_cut <= each:
        inside.add("ep")
    return step.exposed(*(kind for kind in COMMUNICATION if kind not in inside)) / step.step_time


def _fastest_of(
    jobs: Sequence[TrainingJob], arch: Transformer, machine: Machine, most: dict[Layout, float]
) -> tuple[TrainingJob, StepResult]:
    """The fastest job on a machine whose network is slower than those before it.

    most  tokens a second of each layout on a faster network, which it cannot pass here; brought up to date
    """
    found: tuple[TrainingJob, StepResult] | None = None
    for job in sorted(jobs, key=lambda one: -most[one.layout]):
        if found is not None and most[job.layout] <= found[1].tokens_per_second:
            break
        step = simulate(job, arch, machine, most_events=0)
        most[job.layout] = step.tokens_per_second
        if found is None or step.tokens_per_second > found[1].tokens_per_second:
            found = (job, step)
    assert found is not None
    return found


def serving_rows(
    ask: Ask, arch: Transformer, job: ServingJob, server: Server, catalog: Catalog
) -> tuple[NetworkRow, ...]:
    """A replica over its servers on every network: what passing activations on adds to a decode step.

    A replica inside one server sends nothing to another: what is left is loading its weights.
    """
    servers = -(-job.layout.gpus // server.gpus)
    steps: list[tuple[Speed, float, float]] = []
    for speed in speeds():
        if servers == 1:
            steps.append((speed, 0.0, 1.0))
            continue
        machine = networked(server, servers, speed, catalog)
        batch = int(constant("serving_batch"))
        own = step_parts(job, arch, machine, decoding=batch, context=ask.sequence).total
        engine = engine_of(job)
        place = Place(machine, engine, kernels_of(machine.gpu, engine.kernels), 0)
        hops = (job.layout.pipeline - 1) * hop_seconds(place, job.layout, batch * arch.hidden * 2.0)
        # one token crosses every stage, so a request waits for all stages' work and all hops
        steps.append((speed, hops, own * job.layout.pipeline))
    shares = [(speed, hops / (hops + own), 1.0 / (hops + own)) for speed, hops, own in steps]
    top = max(rate for _, _, rate in shares)
    return tuple(
        _row(ask, arch, speed, servers, catalog, share, rate / top, layout_words(job))
        for speed, share, rate in shares
    )


def saving_time(ask: Ask, arch: Transformer, speed: Speed, servers: int, catalog: Catalog) -> float:
    """One checkpoint or one load of the weights, each server its share of it. [s]"""
    size = count_parameters(arch).total * saved_bytes(ask.task)
    return size / servers / rate_of(speed, catalog)


def rate_of(speed: Speed, catalog: Catalog) -> float:
    """What a server sends in all. [byte/s]"""
    nic = find(catalog.nics, speed.nic)
    return nic.rate * nic.ports * speed.nics


def data_speed(ask: Ask, arch: Transformer, servers: int, catalog: Catalog) -> Speed:
    """Slowest network on which what a job on so many servers saves or loads every hour passes in its share
    of it."""
    bound = constant("network_share") * constant("save_interval")
    for speed in speeds():
        if saving_time(ask, arch, speed, servers, catalog) <= bound:
            return speed
    return speeds()[-1]


def slowest_enough(rows: Sequence[NetworkRow]) -> NetworkRow | None:
    """The slowest network from which on all keep exposed communication within its share; None without."""
    found = None
    for row in reversed(rows):
        if not row.enough:
            break
        found = row
    return found


def _row(
    ask: Ask,
    arch: Transformer,
    speed: Speed,
    servers: int,
    catalog: Catalog,
    exposed: float,
    relative: float,
    layout: str,
) -> NetworkRow:
    most = constant("network_share")
    return NetworkRow(
        speed.name,
        rate_of(speed, catalog),
        exposed,
        relative,
        layout,
        saving_time(ask, arch, speed, servers, catalog),
        exposed <= most and relative >= 1.0 - most,
    )
