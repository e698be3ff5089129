"""What PyTorch's caching allocator holds of a GPU: a job's tensors come and go on it for two steps.

`peak` adds up the tensors of the fullest moment.  A GPU also holds the holes between tensors: what was
freed and is too small, or too far apart, for what comes next.  They follow from the order in which tensors
come and go: weights that were copied into buffers, moments that the first step makes where activations were,
rows of experts whose number changes, activations of other sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt
from statistics import NormalDist

from railwright.fabric.graph import Fabric
from railwright.model.operators.kernels import ELEMENT
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, is_routed
from railwright.model.tensors.activations import Recompute
from railwright.model.tensors.layer import layer_tensors
from railwright.model.tensors.tensor_lists import with_received
from railwright.spec.training import TrainingJob
from railwright.training.lanes.result import Memory
from railwright.training.layers.along_sequence import copies_rows
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layers.cut import cut_in_memory
from railwright.training.layers.gathers import gathered_whole
from railwright.training.layers.lora_kept import is_needed, with_adapters_kept
from railwright.training.layers.one_copy import weighs_one_byte
from railwright.training.layers.stages import StageShape, shapes_of
from railwright.training.layout.route import Unit
from railwright.training.layout.schedule import order_name, route_of, schedule
from railwright.training.layout.sizes import Sizes, data_parallel, microbatches, tokens_of
from railwright.training.memory.activations import layer_kept_parts, scores_once
from railwright.training.memory.allocator import Requests, play
from railwright.training.memory.peak import SYSTEM
from railwright.training.memory.replay import Plans, Replay, layers_of
from railwright.training.memory.replay_deepspeed import DeepSpeedReplay
from railwright.training.memory.replay_sharded import ShardedReplay
from railwright.training.memory.stage_weights import widened
from railwright.training.memory.tape import LayerPlan
from railwright.training.memory.units import copies_out, makes_gradients
from railwright.training.software.deepspeed import runs_engine
from railwright.training.software.eras import era_of
from railwright.training.software.nf4 import is_nf4, with_widened
from railwright.units import GIB

STEPS = 2
"""The second step's passes find the optimizer's states where the first one's tensors were."""

ROUTINGS = 7
"""Numbers of rows that experts receive in turn: the middles of equal parts of their distribution."""


@dataclass(frozen=True)
class Reserved:
    """What the allocator holds of the fullest GPU, with as much memory as it wants. [byte]

    stage     whose GPU that is
    reserved  in segments
    holes     of them, what no tensor has when tensors take most
    growing   most of any GPU in segments that grow
    system    beside it: CUDA context and NCCL buffers
    retries   times in a step that memory ends and unused segments go back, on the GPU where most often; of
              segments that grow, whose unused pages go back wherever they lie, 1 stands for at least once
    short     what is missing even then, on the GPU where most is
    """

    stage: int
    reserved: int
    holes: int
    growing: int
    system: float
    retries: int
    short: float


@dataclass(frozen=True)
class Cached:
    """Bytes of one GPU of a stage.

    allocated  most in tensors
    reserved   most in segments of the allocator
    second     in segments at the end of the second step's passes, before its optimizer step
    retries    times in the second step that memory ended and unused segments went back
    """

    allocated: int
    reserved: int
    second: int
    retries: int


def requests_of(job: TrainingJob, arch: Transformer, fabric: Fabric, stage: int) -> Requests:
    """What one GPU of a stage asks of its allocator in `STEPS` steps; the job must have passed `plan.check`.

    Marks: before every step, and behind its passes.
    """
    ranks = Sizes.of(job, fabric).replicas
    order, shape = _order(job, fabric, stage), shapes_of(job, arch)[stage]
    plans = _stage_plans(job, arch, shape, ranks)
    kind = DeepSpeedReplay if runs_engine(job) else ShardedReplay if copies_out(job) else Replay
    asked = Requests()
    replay = kind(job, arch, shape, ranks, weighs_one_byte(job, fabric.generation), plans, asked)
    replay.start()
    for step in range(STEPS):
        asked.mark()
        replay.begin(_microbatches(job, fabric)[1])
        for unit in order:
            replay.run(unit)
        asked.mark()
        replay.update(step)
    return asked


def held_of(asked: Requests, capacity: float = inf, expandable: bool = False) -> Cached:
    """What the allocator holds of a GPU that asks for this (`requests_of`).

    capacity    bytes that the allocator can have of a GPU
    expandable  segments that grow (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)
    """
    played = play(asked, capacity, expandable)
    *_, before, second, end = played.moments
    return Cached(played.most_allocated, played.most_reserved, second.reserved, end.retries - before.retries)


def cached(
    job: TrainingJob,
    arch: Transformer,
    fabric: Fabric,
    stage: int,
    capacity: float = inf,
    expandable: bool | None = None,
) -> Cached | None:
    """Replay two steps of one stage on the allocator (`requests_of`, `held_of`).

    expandable  default: what the job's era does

    None where the era is not PyTorch's.
    """
    allocator = era_of(job).allocator
    if allocator == "jax":
        return None
    growing = allocator == "growing" if expandable is None else expandable
    return held_of(requests_of(job, arch, fabric, stage), capacity, growing)


def reserved(
    job: TrainingJob,
    arch: Transformer,
    fabric: Fabric,
    memory: Memory,
    stages: Sequence[int] | None = None,
) -> Reserved | None:
    """What the allocator holds of the GPU where it holds most; None where the era is not PyTorch's.

    memory  `peak_memory` of the job
    stages  that are looked at; default: all
    Source of what goes back: CUDACachingAllocator.cpp, release_cached_blocks (unmap_block).
    """
    allocator = era_of(job).allocator
    if allocator == "jax":
        return None
    looked = range(job.layout.pipeline) if stages is None else stages
    # stages that hold and run the same are replayed once: all of GPipe's but the ends
    alike = {stage: _alike(job, arch, fabric, stage) for stage in looked}
    first = {key: stage for stage, key in reversed(alike.items())}
    asked = {stage: requests_of(job, arch, fabric, stage) for stage in first.values()}
    found = {stage: held_of(one, expandable=allocator == "growing") for stage, one in asked.items()}
    most, stage = max((found[first[key]].reserved, stage) for stage, key in alike.items())
    fullest = first[alike[stage]]
    system = memory.parts[SYSTEM]
    room = memory.capacity - system
    full = [stage for stage, one in found.items() if one.reserved > room]
    grown = [held_of(asked[s], expandable=True) for s in (asked if full else (fullest,))]
    if allocator == "growing":
        retries, short = int(bool(full)), max((found[s].allocated - room for s in full), default=0.0)
    else:
        again = [held_of(asked[s], room) for s in full]
        retries = max((one.retries for one in again), default=0)
        short = max((one.reserved - room for one in again), default=0.0)
    return Reserved(
        stage=stage,
        reserved=most,
        holes=most - found[fullest].allocated,
        growing=max(one.reserved for one in grown),
        system=system,
        retries=retries,
        short=max(short, 0.0),
    )


def relies_on_growth(held: Reserved, capacity: float) -> bool:
    """Whether a job fits, or does not wait for memory, with segments that grow only.

    capacity  of the GPU [byte]
    """
    return held.reserved + held.system > capacity >= held.growing + held.system


def is_held(held: Reserved | None, capacity: float) -> bool:
    """Whether the allocator has room for tensors and holes, unused segments given back or with segments that
    grow; also where it is not PyTorch's and nothing is known of holes.

    capacity  of the GPU [byte]
    """
    return held is None or not held.short or relies_on_growth(held, capacity)


def crowded(held: Reserved, capacity: float) -> str:
    """A warning where tensors fit into a GPU and the holes between them do not; '' where all does.

    capacity  of the GPU [byte]
    """
    total = held.reserved + held.system
    if total <= capacity:
        return ""
    text = (
        f"tensors fit, but PyTorch's allocator wants {total / GIB:.1f} GiB of the {capacity / GIB:.1f} GiB "
        f"of a GPU of stage {held.stage}, {held.holes / GIB:.1f} GiB of them for holes between tensors: "
    )
    if held.short:
        text += f"{held.short / GIB:.1f} GiB are missing by this replay, which is good to some 5 %"
    else:
        text += f"memory ends {_often(held.retries)}, and the GPU waits while unused segments go back"
    if held.growing < held.reserved:
        text += (
            f". With PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True it wants "
            f"{(held.growing + held.system) / GIB:.1f} GiB"
        )
    return text + "."


def _often(retries: int) -> str:
    return {0: "in the first step", 1: "once a step"}.get(retries, f"{retries} times a step")


def _order(job: TrainingJob, fabric: Fabric, stage: int) -> tuple[Unit, ...]:
    """Passes of a stage that are replayed, in their order."""
    count, left_out = _microbatches(job, fabric)
    orders = schedule(job.layout.pipeline, route_of(job.layout).chunks, count - left_out, order_name(job))
    return orders[stage]


def _microbatches(job: TrainingJob, fabric: Fabric) -> tuple[int, int]:
    """Microbatches of a step, and how many of them are not replayed."""
    count, stages = microbatches(job, data_parallel(job, fabric)), job.layout.pipeline
    if order_name(job) == "gpipe":
        return count, 0
    # by then all passes are in flight that ever are; interleaved orders want a multiple of the stages
    return count, max(count - (3 * stages if stages > 1 else 3), 0)


def _alike(job: TrainingJob, arch: Transformer, fabric: Fabric, stage: int) -> tuple[object, ...]:
    """What a replay of a stage depends on: all but where in the model its layers are."""
    shape = shapes_of(job, arch)[stage]
    return _order(job, fabric, stage), replace(shape, first=())


def _stage_plans(job: TrainingJob, arch: Transformer, shape: StageShape, ranks: int = 0) -> Plans:
    """Plans of every layer of a stage, by its kind and whether `layout.recompute` is for it.

    ranks  that hold the same dense parameters
    """
    layers = {layer for chunk in shape.chunks for layer in layers_of(job, arch, chunk)}
    made = gradient_bytes(job) if makes_gradients(job, ranks) else 0.0
    return {layer: _plans(job, arch, *layer, made) for layer in layers}


def _plans(
    job: TrainingJob, arch: Transformer, kind: Layer, again: bool = True, made: float = 0.0
) -> list[LayerPlan]:
    """A layer's tensors, once for each number of rows that its experts receive.

    again  `layout.recompute` is for it
    made   bytes of a gradient that autograd makes anew in every step; 0: none is

    With balanced routing each row goes to one of `layout.expert` ranks by chance, so that their number at one
    of them has a binomial distribution; dropped to a capacity it is always the same.  Rows are those of
    `layout.expert_tensor` tensor ranks, each of which routes 1/tensor of a microbatch.
    """
    plan = _plan(job, arch, kind, job.layout.recompute if again else "none", made)
    ranks = job.layout.expert
    if not is_routed(kind) or ranks == 1 or job.expert_capacity is not None:
        return [plan]
    inside = job.layout.expert_cut / job.layout.tensor
    sent = ranks * tokens_of(job) * inside * arch.experts_per_token
    received = NormalDist(1.0, sqrt((ranks - 1) / sent))
    # 3 has no common factor with ROUTINGS: all of them, in no order of size
    parts = [((3 * i + 1) % ROUTINGS + 0.5) / ROUTINGS for i in range(ROUTINGS)]
    return [replace(plan, tensors=with_received(plan.tensors, received.inv_cdf(part))) for part in parts]


def _plan(job: TrainingJob, arch: Transformer, kind: Layer, recompute: Recompute, made: float) -> LayerPlan:
    layout, era = job.layout, era_of(job)
    kept = layer_kept_parts(job, arch, kind, recompute)
    # computed again by operators, attention keeps its output without the copy that the projection reads
    whole = {n: kept.get(n, size) for n, size in layer_kept_parts(job, arch, kind, "none").items()}
    tensors = layer_tensors(
        arch,
        kind,
        tokens_of(job),
        job.sequence,
        whole,
        cut_in_memory(job, kind),
        working=scores_once(job, arch),
        exchanged=layout.context > 1 and layout.context_kind == "all-to-all",
        stays=gathered_whole(job, arch, kind),
        copied=copies_rows(job),
    )
    groups = tensors.groups

    def needed(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(name for name in names if is_needed(job, arch, kind, groups.get(name, name)))

    tensors = replace(
        tensors, operators=tuple(replace(op, keeps=needed(op.keeps)) for op in tensors.operators)
    )
    if job.lora:
        tensors = with_adapters_kept(tensors, whole)
    if is_nf4(job):
        tensors = with_widened(tensors, widened(job, arch, kind))
    autograd = (era.sums_gradients or layout.zero == 3) and not job.lora
    return LayerPlan(
        tensors,
        kept,
        again=recompute == "full",
        gradient=ELEMENT if autograd else made,
        eager=not era.compiled_casts,
    )
