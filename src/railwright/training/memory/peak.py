"""Peak memory of every pipeline stage, part by part."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.result import Memory, StageMemory
from railwright.training.layers.one_copy import weighs_one_byte
from railwright.training.layers.stages import StageShape, shapes_of
from railwright.training.layout.in_flight import Held, held_sets, through_head
from railwright.training.layout.schedule import in_pairs, order_name, route_of, schedule
from railwright.training.layout.sizes import Sizes, data_parallel, microbatches
from railwright.training.memory.activations import (
    StageActivations,
    each_kept,
    stage_activations,
    stays_of_head,
)
from railwright.training.memory.chunk_activations import chunk_kept
from railwright.training.memory.moved import at_start
from railwright.training.memory.states import AT_STEP, IN_PASSES, cached_weights, state_parts, unit_waits
from railwright.training.memory.units import accumulates
from railwright.training.software.constants import constant
from railwright.training.software.deepspeed import OUTPUTS, communicators
from railwright.training.software.eras import era_of

SYSTEM = "CUDA context and NCCL buffers"
"""The part of the memory that no tensor of the job takes."""

BESIDE = "a layer of the forward pass beside"
"""The part that a pass needs which takes turns with a backward pass, layer by layer."""

START = "the start"
"""The moment before the first step at which weights move into the optimizer's buffers."""


Order = tuple[int, int, int, str]
"""Stages, chunks of each, microbatches, and the schedule that says in which order passes run."""


def peak_memory(job: TrainingJob, arch: Transformer, fabric: Fabric, capacity: float) -> Memory:
    """Peak memory of every stage, and the parts of the fullest; the job must have passed `plan.check`.

    capacity  of one GPU [byte]

    A stage is fullest in one of five moments: at the backward pass of a layer while it holds the most forward
    passes, at the head's, at the gradient of its embedding, at the optimizer's step, or before the first one,
    when its weights move into the optimizer's buffers.
    """
    layout, sizes = job.layout, Sizes.of(job, fabric)
    count = microbatches(job, sizes.data)
    order: Order = (layout.pipeline, route_of(layout).chunks, count, order_name(job))
    shapes = shapes_of(job, arch)
    system = system_bytes(job, sizes)
    one_copy = weighs_one_byte(job, fabric.generation)
    stages = tuple(
        _stage(
            job,
            arch,
            index,
            shape,
            moments=_moments(order, index, shape),
            states=state_parts(job, arch, shape, sizes.replicas, one_copy),
            cached=cached_weights(job, shape, sizes.replicas, one_copy),
            system=system,
            order=order,
            summed=accumulates(job, count, sizes.replicas),
        )
        for index, shape in enumerate(shapes)
    )
    fullest = max(stages, key=lambda s: s.total)
    return Memory(fullest.parts, fullest.total, capacity, stages, fullest.stage, _why(fullest, len(stages)))


def held_passes(job: TrainingJob, fabric: Fabric) -> tuple[tuple[Held, ...], ...]:
    """Forward passes that every stage holds of each of its chunks, at the moments it holds most."""
    count, layout = microbatches(job, data_parallel(job, fabric)), job.layout
    return _held(layout.pipeline, route_of(layout).chunks, count, order_name(job))


@lru_cache(maxsize=64)
def _held(stages: int, chunks: int, count: int, name: str) -> tuple[tuple[Held, ...], ...]:
    orders = schedule(stages, chunks, count, name)
    return tuple(held_sets(order, chunks, layered=name == "paired") for order in orders)


class Moments(NamedTuple):
    """Forward passes that a stage holds of each of its chunks when it holds most: whenever a layer's backward
    pass begins, when one leaves the head, and when one reaches the embedding; () without."""

    layers: tuple[Held, ...]
    head: tuple[Held, ...]
    embedding: tuple[Held, ...]


def _moments(order: Order, index: int, shape: StageShape) -> Moments:
    heads = [number for number, chunk in enumerate(shape.chunks) if chunk.head]
    embeddings = [number for number, chunk in enumerate(shape.chunks) if chunk.embedding]
    return Moments(
        _held(*order)[index],
        _held_at(*order, index, heads[0], None) if heads else (),
        _held_at(*order, index, None, embeddings[0]) if embeddings else (),
    )


@lru_cache(maxsize=128)
def _held_at(
    stages: int, chunks: int, count: int, name: str, index: int, head: int | None, embedding: int | None
) -> tuple[Held, ...]:
    order = schedule(stages, chunks, count, name)[index]
    return held_sets(order, chunks, head=head, embedding=embedding, layered=name == "paired")


def _stage(
    job: TrainingJob,
    arch: Transformer,
    index: int,
    shape: StageShape,
    moments: Moments,
    states: dict[str, float],
    cached: float,
    system: float,
    order: Order,
    summed: bool,
) -> StageMemory:
    """The fullest moment of one GPU of a stage; of its weights `cached` come with the first pass.

    summed  gradients are there before a backward pass (`accumulates`)
    """
    step = {name: states.pop(name, 0.0) for name in AT_STEP}
    tensors = stage_activations(job, arch, shape, unit_waits(job, states))
    held, at_head, out = _fullest(order, index, shape, moments, tensors)
    kept = {"activations": _bytes(held, tensors)}
    always = {**states, **tensors.always, SYSTEM: system}
    before = always if summed else always | {"gradients": 0.0}
    stays = stays_of_head(job, tensors)
    resting = {name: size for name, size in always.items() if name not in IN_PASSES}
    beside = {BESIDE: _beside(job, arch, shape)}
    found = {
        "a layer backward": max(
            _together(before, kept, tensors.layer_backward, beside, stays, out["layer"]),
            # the first layer's, which comes last
            _together(always, {"activations": tensors.first}, tensors.layer_backward, stays, out["all"]),
            key=lambda parts: sum(parts.values()),
        ),
        "optimizer step": _together(resting, step, stays, out["all"]),
    }
    counts = {"a layer backward": sum(held), "optimizer step": 0, START: 0}
    if start := at_start(job, shape, states["weights"] - cached):
        # NCCL's buffers come later, and the allocator gives them nothing of what it has cached
        found[START] = {**start, SYSTEM: system}
    others: dict[str, float] = {}
    if tensors.head_backward:
        ends = at_head
        # the other passes wait for their backward pass, behind the head's first one too
        others = {"logits": (_with_logits(job, shape, ends) - 1) * tensors.waiting}
        logits = {"logits": tensors.head_backward["logits"] + others["logits"]}
        parts = {"activations": _bytes(ends, tensors), **tensors.head_backward, **logits}
        found["head backward"] = _together(before, parts, out["head"])
        counts["head backward"] = sum(ends)
        found["a layer backward"] |= others
    if tensors.embedding_backward:
        ends = max(moments.embedding, key=lambda m: _bytes(m, tensors))
        parts = {"activations": _bytes(ends, tensors), **others, **tensors.embedding_backward, **stays}
        found["embedding backward"] = _together(always, parts, out["all"])
        counts["embedding backward"] = sum(ends)
    moment = max(found, key=lambda name: sum(found[name].values()))
    parts = {name: size for name, size in found[moment].items() if size > 0}
    return StageMemory(index, parts, sum(parts.values()), moment, counts[moment])


def _together(*several: Mapping[str, float]) -> dict[str, float]:
    """Parts of all; what FSDP2 has of a kind at one moment adds to what it has in all passes."""
    found: dict[str, float] = {}
    for parts in several:
        for name, size in parts.items():
            found[name] = found.get(name, 0.0) + size
    return found


def _beside(job: TrainingJob, arch: Transformer, shape: StageShape) -> float:
    """A layer of the forward pass that runs beside a backward pass has come before that one's layer has gone
    (Megatron-LM, core/models/common/model_chunk_schedule_plan.py, release_state). [byte]"""
    if not in_pairs(job):
        return 0.0
    kept, whole = each_kept(job, arch, [kind for chunk in shape.chunks for kind in chunk.layers])
    each = (size for chunk in shape.chunks for size in chunk_kept(job, arch, chunk, kept, whole))
    return max(each, default=0.0)


def _with_logits(job: TrainingJob, shape: StageShape, held: Held) -> int:
    """Passes whose logits a stage holds at once: all that it holds where every forward pass runs first; in
    other schedules the head's backward pass follows its forward pass."""
    ends = max(n for n, chunk in zip(held, shape.chunks, strict=True) if chunk.head)
    return ends if order_name(job) == "gpipe" else 1


def _fullest(
    order: Order, index: int, shape: StageShape, moments: Moments, tensors: StageActivations
) -> tuple[Held, Held, dict[str, dict[str, float]]]:
    """Passes held when a stage holds most at a layer's and at the head's backward pass, and the outputs of
    passes that are there then, or of all."""
    layers = max(moments.layers, key=lambda m: _bytes(m, tensors))
    head = max(moments.head, key=lambda m: _bytes(m, tensors), default=())
    if not tensors.output:
        return layers, head, {"layer": {}, "head": {}, "all": {}}
    at = next(number for number, chunk in enumerate(shape.chunks) if chunk.head)
    seen = _through(*order, index, at)
    found = [
        max(among, key=lambda pair: _bytes(pair[0], tensors) + pair[1] * tensors.output)
        for among in ((*seen[True], *seen[False]), seen[True])
    ]
    counts = {"layer": found[0][1], "head": found[1][1], "all": order[2]}
    return found[0][0], found[1][0], {name: {OUTPUTS: n * tensors.output} for name, n in counts.items()}


@lru_cache(maxsize=128)
def _through(
    stages: int, chunks: int, count: int, name: str, index: int, head: int
) -> dict[bool, tuple[tuple[Held, int], ...]]:
    return through_head(schedule(stages, chunks, count, name)[index], chunks, head)


def _bytes(held: Held, tensors: StageActivations) -> float:
    return sum(n * size for n, size in zip(held, tensors.chunks, strict=True))


def _why(stage: StageMemory, stages: int) -> str:
    """Where the peak is and what holds most of it."""
    most = sorted(stage.parts.items(), key=lambda p: -p[1])[:2]
    where = f"stage {stage.stage} of {stages}" if stages > 1 else "every GPU"
    passes = f", {stage.passes} forward passes held" if stage.passes else ""
    what = " and ".join(f"{name} ({size / stage.total:.0%})" for name, size in most)
    return f"{where} at {stage.moment}{passes}; most of it: {what}"


def system_bytes(job: TrainingJob, sizes: Sizes, staged: int | None = None) -> float:
    """CUDA context and the buffers of every communicator of more than one rank [byte].

    staged  GPUs of a server, where NCCL reaches no GPU from a NIC (GPUDirect) and communicators over servers
            have their buffers on the host: of those between GPUs of one server next to nothing is left, since
            such a ring has two channels instead of 24 (bigscience-workshop/bigscience, experiments/bandwidth/
            all_reduce_bench-a100-n4.txt)
    """
    era = era_of(job)
    stage, all_ranks = sizes.tensor * sizes.replicas, sizes.tensor * sizes.replicas * sizes.pipeline
    groups = [
        (sizes.tensor, sizes.tensor),
        (sizes.pipeline, all_ranks),
        (sizes.context, sizes.tensor * sizes.context),
        (sizes.replicas, stage),
    ]
    if sizes.expert > 1:
        groups.append((sizes.expert_replicas, stage))
    if era.deepspeed:
        groups += communicators(sizes.tensor, sizes.pipeline, sizes.replicas)
    plain = [ranks for ranks, span in groups if staged is None or span <= staged]
    total = constant("cuda_context_bytes" if era.lazy_kernels else "cuda_context_of_all_kernels_bytes")
    total += constant("communicator_of_two_bytes") * plain.count(2)
    total += constant("communicator_bytes") * sum(n > 2 for n in plain)
    return total + (constant("all_to_all_bytes") if sizes.expert > 1 else 0.0)
