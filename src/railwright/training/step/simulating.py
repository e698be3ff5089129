"""One training step: placement, memory, passes, pipeline, data parallelism, and what each second went to.

The step is the steady state: parameter all-gathers that the distributed optimizer leaves over run beside the
first forward passes of the step.  Every data-parallel replica does the same, so one GPU per stage stands for
all; gradients are complete on all stages before any optimizer starts (the gradient norm is global).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine, may_refuse
from railwright.compute import kernel_time, profile_of
from railwright.errors import PlanError
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import Layer, kind_of
from railwright.spec.training import TrainingJob
from railwright.training.checks.feed import fed, feed_of
from railwright.training.checks.fitting import check_memory
from railwright.training.checks.plan import check
from railwright.training.checks.plan_warnings import warnings_of
from railwright.training.demand.model_flops import job_flops_per_token
from railwright.training.demand.throughput import above_published
from railwright.training.lanes.result import Memory, StepResult, launch_share
from railwright.training.lanes.timeline import Timeline
from railwright.training.layers.communication import Predict, Prices, stage_size
from railwright.training.layers.cost_model import CostModel
from railwright.training.layers.costs import KernelTime
from railwright.training.layers.stages import StageShape, shapes_of
from railwright.training.layers.weight_casts import made_seconds
from railwright.training.layout.pipeline import Placed, compose
from railwright.training.layout.placement import place
from railwright.training.layout.schedule import finishing_of, orders_of, route_of
from railwright.training.layout.sizes import job_gpus, microbatches
from railwright.training.memory.host_memory import check_host, host_memory
from railwright.training.memory.peak import peak_memory
from railwright.training.optimizer.packed import buckets_of
from railwright.training.passes.offload import layer_copies
from railwright.training.passes.work import Work
from railwright.training.software.constants import ErrorBand, error_band, family_of
from railwright.training.software.eras import (
    Pace,
    attention_kernels,
    era_of,
    hides_sends,
    pace_alone,
    pace_of,
    paced,
)
from railwright.training.software.formats import job_peak
from railwright.training.step.breakdown import critical, shares, used
from railwright.training.step.endings import Ending, endings_of
from railwright.training.step.events import MAX_EVENTS, timeline
from railwright.training.step.shards import Units, units_of
from railwright.training.step.stage import DataParallel, PassBook, Stage
from railwright.units import HOUR

NONE_SLOWER: Mapping[int, float] = MappingProxyType({})


def simulate(
    job: TrainingJob,
    arch: Transformer,
    machine: Machine,
    *,
    predict: Predict | None = None,
    kernel: KernelTime | None = None,
    pace: Pace | None = None,
    must_fit: bool = True,
    most_events: int = MAX_EVENTS,
    end_events: int = 0,
    stage: int | None = None,
    slower: Mapping[int, float] = NONE_SLOWER,
) -> StepResult:
    """Predict one training step of a job on a machine.

    predict  how one collective is priced; default: the network's, `collectives.predict`
    kernel   how one operator is timed [s]; default: `compute.kernel_time` on the machine's GPU, at `pace`
    pace     how much slower a step is than isolated kernels; default: that of the job's era on this GPU, with
             the wait for the slowest of the job's GPUs
    must_fit  False: also a job that needs more memory than a GPU has by our model (a run known to fit)
    most_events  events of passes that the timeline may carry before it has whole passes
    end_events   how many it then has inside passes near both ends of the step
    stage    whose shares and collectives are told; default: that of the stage that waits least for others
    slower   stage -> times as long as others' that products and attention take of a GPU there; the others of
             its stage and replica wait for it in every pass, other replicas where gradients meet

    Raises PlanError where the layout is impossible or the model does not fit, with what would work.
    Model and sources: docs/training.md.
    """
    fabric = machine.network.fabric
    doubtful = check(job, arch, fabric)
    groups = place(job, fabric)
    memory = _memory(job, arch, machine, must_fit, predict)
    peak = job_peak(machine.gpu, job.dtype)
    pace = pace or pace_of(job, machine.gpu, job_gpus(job, fabric))
    costs = CostModel(
        Prices(machine, groups, predict) if predict else Prices.shared(machine, groups, network_predict),
        kernel or kernel_timer(machine, pace, attention_kernels(job, machine.gpu)),
        pace,
    )
    done = _placed(job, arch, costs, slower)
    chosen = critical(done.stages, done.placed, done.endings, done.step_time) if stage is None else stage
    own = done.stages[chosen], done.placed[chosen], done.endings[chosen]
    parts = shares(*own, done.step_time, done.hidden)
    gpus, tokens = job_gpus(job, fabric), job.global_batch * job.sequence
    flops = job_flops_per_token(job, arch) * tokens
    mfu = flops / (done.step_time * gpus * peak)
    band, fast = _expected(job, arch, machine, mfu, launch_share(parts, done.step_time))
    step = StepResult(
        step_time=done.step_time,
        tokens=tokens,
        tokens_per_second=tokens / done.step_time,
        tokens_per_second_per_gpu=tokens / done.step_time / gpus,
        model_flops=flops,
        mfu=mfu,
        shares=parts,
        memory=memory,
        collectives=used(*own, costs.prices),
        timeline=done.timeline(most_events, end_events),
        tokens_total=job.tokens,
        time_to_train=job.tokens / tokens * done.step_time,
        gpu_hours=job.tokens / tokens * done.step_time * gpus / HOUR,
        error_low=band.low,
        error_high=band.high,
        error_source=band.source,
        warnings=(*warnings_of(job, arch, machine, doubtful, memory.host, groups), *fast),
        stage=chosen,
    )
    return fed(step, feed_of(job, arch, groups))


def _expected(
    job: TrainingJob, arch: Transformer, machine: Machine, mfu: float, launches: float
) -> tuple[ErrorBand, tuple[str, ...]]:
    """How far the step may be off, and a warning where it is faster than what is published.

    launches  share of the step that waits for the host's launches
    """
    gpu, fitted = machine.gpu, pace_alone(job, machine.gpu).records > 0
    family = family_of(kind_of(arch), gpu.name, job.dtype)
    band = error_band(family, era_of(job).framework, fitted, launches)
    fast = "" if fitted or job.lora else above_published(arch, gpu, job.dtype, mfu, job.sequence)
    return band, (fast,) if fast else ()


def _memory(
    job: TrainingJob, arch: Transformer, machine: Machine, must_fit: bool, predict: Predict | None
) -> Memory:
    """Peak memory of GPUs and hosts; `must_fit`: PlanError where it is more than they have."""
    fabric, hbm, server = machine.network.fabric, machine.gpu.hbm_bytes, machine.server

    def uncarried(other: TrainingJob) -> str:
        try:
            if may_refuse(machine):
                simulate(other, arch, machine, predict=predict, must_fit=False, most_events=0)
        except PlanError as no:
            return str(no)
        return ""

    if must_fit:
        memory = check_memory(job, arch, fabric, hbm, server, uncarried)
        return replace(memory, host=check_host(job, arch, fabric, server, hbm))
    memory = peak_memory(job, arch, fabric, hbm)
    return replace(memory, host=host_memory(job, arch, fabric, server))


@dataclass(frozen=True)
class Done:
    """All stages of a step placed in time.

    hidden  whether they compute while they send
    """

    stages: Sequence[Stage]
    placed: Sequence[Sequence[Placed]]
    endings: Sequence[Ending]
    hidden: bool

    @property
    def step_time(self) -> float:
        """When the last stage ends. [s]"""
        return max(e.end for e in self.endings)

    def timeline(self, most_events: int, end_events: int) -> Timeline:
        """Its events; `most_events` and `end_events` as in `simulate`."""
        return timeline(
            self.stages, self.placed, self.endings, self.step_time, self.hidden, most_events, end_events
        )


def _placed(job: TrainingJob, arch: Transformer, costs: CostModel, slower: Mapping[int, float]) -> Done:
    """Every pass of every stage, and what follows the last ones."""
    prices = costs.prices
    copies = layer_copies(job, arch, prices.machine)

    def book_at(kernel: KernelTime) -> PassBook:
        return PassBook(Work(job, arch, prices, kernel, costs.pace, copies))

    book = book_at(costs.kernel)
    books = {s: book_at(slowed(costs.kernel, factor)) for s, factor in slower.items()}
    stages, send = stages_of(job, arch, prices, lambda stage: books.get(stage, book))
    hidden, route = hides_sends(job), route_of(job.layout)
    placed = compose(
        tuple(s.order for s in stages),
        route.chunks,
        microbatches(job, prices.groups.sizes.data),
        lambda stage, unit, start: stages[stage].run(unit, start),
        send,
        blocking=not hidden,
        route=route,
        early=lambda stage, unit: stages[stage].early(unit),
    )
    finish = [p[-1].end + (0.0 if hidden else p[-1].sent) for p in placed]
    return Done(stages, placed, endings_of(job, arch, costs, stages, finish), hidden)


def kernel_timer(machine: Machine, pace: Pace, flash: str = "") -> KernelTime:
    """Times of operators in a step at an era's pace and with its attention kernel. [s]"""
    profile = paced(profile_of(machine.gpu, flash), pace)

    def timed(operator: Operator) -> float:
        return kernel_time(operator, machine.gpu, profile) + pace.gap * operator.launches

    return timed


def slowed(timed: KernelTime, factor: float) -> KernelTime:
    """Times of operators on a GPU whose clock is lower: products and attention take `factor` times as long,
    while what memory limits does not. [s]"""
    return lambda operator: timed(operator) * (1.0 if operator.kind == "memory" else factor)


def stages_of(
    job: TrainingJob, arch: Transformer, prices: Prices, book_of: Callable[[int], PassBook]
) -> tuple[list[Stage], float]:
    """All stages before their first pass, and one transfer between neighbours. [s]

    book_of  stage -> tasks of its passes
    """
    layout = job.layout
    sizes = prices.groups.sizes
    count = microbatches(job, sizes.data)
    exchange = DataParallel.of(job)
    chunks, orders = route_of(layout).chunks, orders_of(job, count)
    finishes = finishing_of(job, count)
    found = []
    narrow: dict[PassBook, Mapping[Layer, float]] = {}
    shapes = shapes_of(job, arch)
    for s, (shape, order, finish) in enumerate(zip(shapes, orders, finishes, strict=True)):
        buckets = buckets_of(job, shape, sizes)
        units = {c: sharded_units(job, shape, c, prices) for c in range(chunks)} if layout.zero == 3 else {}
        book = book_of(s)
        if book not in narrow:
            narrow[book] = made_seconds(job, arch, prices.machine.gpu, sizes.copies, book.work.kernel_time)
        found.append(Stage(shape, buckets, book, prices, exchange, order, finish, units, narrow[book]))
    send = 0.0
    if layout.pipeline > 1:
        send = prices.time("pp", "pp send", "sendrecv", stage_size(job, arch), "pp")
    return found, send


def sharded_units(job: TrainingJob, shape: StageShape, c: int, prices: Prices) -> Units:
    """The parts of a chunk whose parameters are sharded."""
    chunk, whole = shape.chunks[c], job.lora is None
    held = dict(enumerate(zip(shape.dense[c], shape.expert[c], strict=True)))
    trained = dict(enumerate(zip(shape.trained_dense[c], shape.trained_expert[c], strict=True)))
    for unit, present, size in ((-1, chunk.embedding, shape.embedding), (len(held), chunk.head, shape.head)):
        if present:
            held[unit] = (size, 0.0)
            trained[unit] = (size if whole else 0.0, 0.0)
    return units_of(job, chunk, held, trained, prices)
