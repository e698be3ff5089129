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
from railwright.collectives.machine import Machine
from railwright.compute import kernel_time, profile_of
from railwright.model.architecture import Operator, Transformer
from railwright.model.pattern import kind_of
from railwright.spec.training import TrainingJob
from railwright.training.breakdown import Ending, critical, shares, used
from railwright.training.buckets import buckets_of
from railwright.training.communication import Predict, Prices, gradient_bytes, stage_size
from railwright.training.constants import error_band, family_of
from railwright.training.costs import KernelTime
from railwright.training.demand import above_published
from railwright.training.eras import Pace, era_of, hides_sends, pace_alone, pace_of, paced
from railwright.training.events import MAX_EVENTS, timeline
from railwright.training.feed import fed, feed_of
from railwright.training.fitting import check_memory
from railwright.training.formats import job_peak
from railwright.training.host_memory import check_host, host_memory, tensors_of
from railwright.training.hosted import updates_on_host
from railwright.training.lanes import Task
from railwright.training.memory import peak_memory
from railwright.training.model_flops import job_flops_per_token
from railwright.training.offload import ON_GPU, layer_copies, update_on_host
from railwright.training.pipeline import Placed, compose
from railwright.training.placement import place
from railwright.training.plan import check
from railwright.training.plan_warnings import warnings_of
from railwright.training.result import Memory, StepResult, launch_share
from railwright.training.schedule import finishing_of, orders_of, route_of, schedule_name
from railwright.training.shards import Units, units_of
from railwright.training.sizes import job_gpus, microbatches
from railwright.training.stage import DataParallel, PassBook, Stage
from railwright.training.stages import StageShape, stage_shapes, tied_parameters
from railwright.training.timeline import Timeline
from railwright.training.update import NOTHING, update_on_gpu
from railwright.training.work import Work

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
    memory = _memory(job, arch, machine, must_fit)
    groups = place(job, fabric)
    peak = job_peak(machine.gpu, job.dtype)
    prices = Prices(machine, groups, predict) if predict else Prices.shared(machine, groups, network_predict)
    pace = pace or pace_of(job, machine.gpu, job_gpus(job, fabric))
    timed = kernel or kernel_timer(machine, pace, era_of(job).flash)
    done = _placed(job, arch, prices, timed, pace, slower)
    step_time = done.step_time
    chosen = critical(done.stages, done.placed, done.endings, step_time) if stage is None else stage
    own = done.stages[chosen].stage, done.placed[chosen], done.endings[chosen]
    parts = shares(*own, step_time, done.hidden)
    gpus = job_gpus(job, fabric)
    tokens = job.global_batch * job.sequence
    flops = job_flops_per_token(job, arch) * tokens
    mfu = flops / (step_time * gpus * peak)
    gpu, fitted = machine.gpu.name, pace_alone(job, machine.gpu).records > 0
    family, framework = family_of(kind_of(arch), gpu, job.dtype), era_of(job).framework
    band = error_band(family, framework, fitted, launch_share(parts, step_time))
    fast = "" if fitted or job.lora else above_published(arch, machine.gpu, job.dtype, mfu, job.sequence)
    step = StepResult(
        step_time=step_time,
        tokens=tokens,
        tokens_per_second=tokens / step_time,
        tokens_per_second_per_gpu=tokens / step_time / gpus,
        model_flops=flops,
        mfu=mfu,
        shares=parts,
        memory=memory,
        collectives=used(*own, prices),
        timeline=done.timeline(most_events, end_events),
        tokens_total=job.tokens,
        time_to_train=job.tokens / tokens * step_time,
        gpu_hours=job.tokens / tokens * step_time * gpus / 3600.0,
        error_low=band.low,
        error_high=band.high,
        error_source=band.source,
        warnings=(
            *warnings_of(job, arch, machine, doubtful, memory.host, groups),
            *filter(None, (fast,)),
        ),
        stage=chosen,
    )
    return fed(step, feed_of(job, arch, groups))


def _memory(job: TrainingJob, arch: Transformer, machine: Machine, must_fit: bool) -> Memory:
    """Peak memory of GPUs and hosts; `must_fit`: PlanError where it is more than they have."""
    fabric, hbm, server = machine.network.fabric, machine.gpu.hbm_bytes, machine.server
    if must_fit:
        memory = check_memory(job, arch, fabric, hbm, server)
        return replace(memory, host=check_host(job, arch, fabric, server, hbm))
    memory = peak_memory(job, arch, fabric, hbm)
    return replace(memory, host=host_memory(job, arch, fabric, server))


@dataclass(frozen=True)
class Staged:
    """A stage's shape and the state it was run through."""

    shape: StageShape
    stage: Stage


@dataclass(frozen=True)
class Done:
    """All stages of a step placed in time.

    hidden  whether they compute while they send
    """

    stages: Sequence[Staged]
    placed: Sequence[Sequence[Placed]]
    endings: Sequence[Ending]
    hidden: bool

    @property
    def step_time(self) -> float:
        """When the last stage ends. [s]"""
        return max(e.end for e in self.endings)

    def timeline(self, most_events: int, end_events: int) -> Timeline:
        """Its events; `most_events` and `end_events` as in `simulate`."""
        stages, shapes = [s.stage for s in self.stages], [s.shape for s in self.stages]
        return timeline(
            stages, shapes, self.placed, self.endings, self.step_time, self.hidden, most_events, end_events
        )


def _placed(
    job: TrainingJob,
    arch: Transformer,
    prices: Prices,
    timed: KernelTime,
    pace: Pace,
    slower: Mapping[int, float],
) -> Done:
    """Every pass of every stage, and what follows the last ones."""
    copies = layer_copies(job, arch, prices.machine)
    book = PassBook(Work(job, arch, prices, timed, pace, copies))
    books = {
        s: PassBook(Work(job, arch, prices, slowed(timed, factor), pace, copies))
        for s, factor in slower.items()
    }
    stages, send = stages_of(job, arch, prices, lambda stage: books.get(stage, book))
    hidden, route = hides_sends(job), route_of(job.layout)
    placed = compose(
        tuple(s.stage.order for s in stages),
        route.chunks,
        microbatches(job, prices.groups.sizes.data),
        lambda stage, unit, start: stages[stage].stage.run(unit, start),
        send,
        blocking=not hidden,
        route=route,
        early=lambda stage, unit: stages[stage].stage.early(unit),
    )
    finish = [p[-1].end + (0.0 if hidden else p[-1].sent) for p in placed]
    return Done(stages, placed, endings_of(job, arch, prices, timed, pace, stages, finish), hidden)


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
) -> tuple[list[Staged], float]:
    """All stages before their first pass, and one transfer between neighbours. [s]

    book_of  stage -> tasks of its passes
    """
    layout = job.layout
    sizes = prices.groups.sizes
    count = microbatches(job, sizes.data)
    exchange = DataParallel.of(job, gradient_bytes(job))
    chunks, orders = route_of(layout).chunks, orders_of(job, count)
    finishes = finishing_of(job, count)
    staged = []
    shapes = stage_shapes(arch, layout, job.lora)
    for s, (shape, order, finish) in enumerate(zip(shapes, orders, finishes, strict=True)):
        buckets = buckets_of(job, shape, sizes)
        units = {c: sharded_units(job, shape, c, prices) for c in range(chunks)} if layout.zero == 3 else {}
        staged.append(
            Staged(shape, Stage(shape.chunks, buckets, book_of(s), prices, exchange, order, finish, units))
        )
    send = 0.0
    if layout.pipeline > 1:
        send = prices.time("pp", "pp send", "sendrecv", stage_size(job, arch), "pp")
    return staged, send


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


def endings_of(
    job: TrainingJob,
    arch: Transformer,
    prices: Prices,
    timed: KernelTime,
    pace: Pace,
    staged: Sequence[Staged],
    finish: Sequence[float],
) -> list[Ending]:
    """Gradients, tied embedding, optimizer, parameters: what follows the last pass on every stage.

    finish  of each stage, when its last pass (and its blocking send) is over [s]
    """
    layout, sizes, each = job.layout, prices.groups.sizes, gradient_bytes(job)
    reduced = [s.stage.after_passes(f) for s, f in zip(staged, finish, strict=True)]
    tied = 0.0 if job.lora else tied_parameters(arch, layout) * each
    ready = list(reduced)
    starts = list(reduced)
    over, expert_over = sizes.over(layout.zero)
    held = [s.shape.trained_shard(over, expert_over) for s in staged]
    if schedule_name(layout) == "dualpipe":
        _mirror(prices, staged, [h * each for h in held], starts, ready)
    if tied:
        seconds = prices.time("dp", "tied embedding gradients", "all_reduce", tied, "embedding")
        task = Task("dp", "tied embedding gradients", "all_reduce", seconds, size=tied)
        start = max(ready[0], ready[-1])
        for s in (0, len(staged) - 1):
            starts[s] = start if ready[s] == reduced[s] else starts[s]
            ready[s] = staged[s].stage.exchange([task], start)
    barrier = max(ready)
    endings = []
    for s, one in enumerate(staged):
        if updates_on_host(job):
            tensors = tensors_of(job, arch, one.shape, held[s])
            ranks = prices.groups.grid.size
            host, own = update_on_host(job, held[s], ranks, prices.machine, tensors), NOTHING
        else:
            host = ON_GPU
            own = update_on_gpu(job, arch, one.shape, prices, timed, pace, over, expert_over)
        optimizer = host.seconds + own.seconds + pace.step
        end = one.stage.gather(barrier + optimizer)
        endings.append(
            Ending(
                finish=finish[s],
                reduced=reduced[s],
                tied_start=starts[s],
                ready=ready[s],
                barrier=barrier,
                optimizer=optimizer,
                end=end,
                host=host,
                exchanged=own.exchanged,
            )
        )
    return endings


def _mirror(
    prices: Prices, staged: Sequence[Staged], sizes: Sequence[float], starts: list[float], ready: list[float]
) -> None:
    """DualPipe: the two stages with the same layers add up their gradients, `sizes` on each GPU [byte]."""
    last = len(staged) - 1
    for s in range(len(staged) // 2):
        size, start = max(sizes[s], sizes[last - s]), max(ready[s], ready[last - s])
        seconds = prices.time("dp", "gradients of the other copy", "all_reduce", size, "mirror")
        task = Task("dp", "gradients of the other copy", "all_reduce", seconds, size=size)
        for one in (s, last - s):
            starts[one] = start
            ready[one] = staged[one].stage.exchange([task], start)
