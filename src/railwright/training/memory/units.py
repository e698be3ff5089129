"""Units in which sharded parameters are gathered and their gradients reduced: what lies whole on a GPU.

PyTorch's FSDP2 gathers into one tensor and copies each weight out of it, on other streams than passes run on:
the next unit's comes before that of the one at work goes.
Source: PyTorch 2.13, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (wait_for_unshard; Note
[Overlapping all-gather copy-in and all-gather]), _fsdp_collectives.py (foreach_all_gather,
foreach_all_gather_copy_out).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.software.eras import era_of
from railwright.training.software.nf4 import gathered_bytes, is_nf4
from railwright.training.software.zero_engine import kept_ahead

ENDS_BYTES = 2.0
"""Bytes of one weight of embedding and head, and of one gathered weight: 16 bits, but for a head in MXFP8."""

GATHERED, WAITING = "gathered weights", "gradients before reduction"


def copies_out(job: TrainingJob) -> bool:
    """Whether FSDP2 shards a job's parameters."""
    return job.layout.zero == 3 and bool(era_of(job).units)


def gathered(job: TrainingJob, shape: StageShape, dense: bool, expert: bool) -> float:
    """Parameters that lie whole on a GPU at once: the unit that computes and those gathered ahead of it, or
    all where they stay after the forward pass. [byte]

    dense, expert  whether parameters of either kind are gathered
    Of FSDP2 those that were copied out, at least: of the smallest layer, beside the model's own, which stays
    until the last backward pass.  What a unit has more is in `beside`.
    """
    sizes = unit_sizes(job, shape, dense, expert)
    if not job.layout.reshard:
        return sum(sizes)
    if era_of(job).zero_engine:
        return kept_ahead(unit_counts(shape, dense, expert), sizes)
    if copies_out(job):
        return sum(_own(job, shape, dense, sizes)) + min(_layers(shape, dense, sizes), default=0.0)
    return sum(sorted(sizes, reverse=True)[: 1 + job.overlap.prefetch])


class Beside(NamedTuple):
    """Parts that FSDP2 has at a backward pass of one kind, and when a head's weights are copied out or its
    gradient is reduced, beside those that it has in all passes. [byte]"""

    layer: dict[str, float]
    copying: dict[str, float]
    head: dict[str, float]
    reducing: dict[str, float]
    embedding: dict[str, float]


def accumulates(job: TrainingJob, passes: int, ranks: int) -> bool:
    """Whether gradients are there before a backward pass makes them: with FSDP2, and where PyTorch has one
    copy of the weights (`makes_gradients`), from a step's second microbatch on.

    passes  microbatches of a step
    """
    if copies_out(job):
        return passes > 1 or not job.layout.reduce_each
    return passes > 1 or not makes_gradients(job, ranks)


def makes_gradients(job: TrainingJob, ranks: int) -> bool:
    """Whether autograd makes a weight's gradient anew in every step: in PyTorch's modules, whose gradients
    are dropped behind the optimizer's step, without DistributedDataParallel, which keeps buckets of them;
    those of adapters are too small to matter.

    ranks  that hold the same parameters
    Source: PyTorch, optim/optimizer.py (zero_grad, set_to_none).
    """
    alone = ranks == 1 and job.layout.zero < 3 and job.lora is None
    return alone and era_of(job).fp32_shards


def beside(job: TrainingJob, shape: StageShape, kept: Sequence[Sequence[float]]) -> Beside:
    """What FSDP2 has at a layer's, the head's and the embedding's backward pass alone: weights of what is
    larger than the smallest layer, and what is gathered ahead; gradients in 16 bits that are not reduced yet,
    but for the ends' own; and what those of a unit are joined in, until the next unit's are.

    kept  by the layers of each chunk, of one pass [byte]
    The head's gradients wait for those of the embedding where both are the model's own.  Nothing under other
    ways to shard (`states.state_parts`).
    """
    if not copies_out(job):
        return Beside({}, {}, {}, {}, {})
    sent = gradient_bytes(job) * job.layout.reduce_each
    # sums in 16 bits take what autograd makes as it is
    made = ENDS_BYTES if sent or gradient_bytes(job) > ENDS_BYTES else 0.0
    trains = shape.adapters is None
    joined = trains and era_of(job).units == "joined"
    own = shape.embedding * trains + shape.head * joined
    waits = ENDS_BYTES * shape.head * joined
    layers = _layers(shape, True, unit_sizes(job, shape, True, True))
    apart = era_of(job).units == "apart"
    more = (ENDS_BYTES * end - min(layers, default=0.0) for end in (shape.head, shape.embedding))
    head, embedding = (max(size, 0.0) * (apart and job.layout.reshard) for size in more)
    passes = _layer_passes(job, shape, layers, kept, made, sent)
    weights, gradients = max(passes, key=sum, default=(0.0, 0.0))
    # a unit's weights go before its gradients are joined
    first = {GATHERED: embedding, WAITING: waits}
    then = {WAITING: sent * own + waits}
    return Beside(
        {GATHERED: weights, WAITING: gradients + waits},
        {GATHERED: head + ENDS_BYTES * shape.head * apart},
        {GATHERED: head},
        {WAITING: sent * shape.head * trains * apart},
        max(first, then, key=lambda parts: sum(parts.values())),
    )


def _layer_passes(
    job: TrainingJob,
    shape: StageShape,
    sizes: Sequence[float],
    kept: Sequence[Sequence[float]],
    made: float,
    sent: float,
) -> Iterator[tuple[float, float]]:
    """At each layer's backward pass: its weights beyond the smallest layer's, with those of the units before
    it that were gathered, an embedding among them, and gradients that are made or joined, less what layers
    behind it kept, which is over. [byte]

    sizes       of the layers of all chunks as they are gathered
    made, sent  bytes of a gradient as it is made and as it is joined; 0 where it is not there
    """
    at, least = 0, min(sizes, default=0.0)
    apart = era_of(job).units == "apart"
    parts = zip(shape.chunks, kept, shape.trained_dense, shape.trained_expert, strict=True)
    for chunk, keeps_of, dense, expert in parts:
        before = gone = 0.0
        front = [ENDS_BYTES * shape.embedding] if apart and chunk.embedding else []
        units = [*front, *sizes[at : at + len(dense)]]
        # a shape of bounds has parameters where a chunk has no layer (`search.bounds.footprint`)
        layers = [*zip(dense, expert, keeps_of, strict=False)]
        for i, (of_dense, of_experts, keeps) in reversed([*enumerate(layers)]):
            this = i + len(front)
            ahead = units[max(this - job.overlap.prefetch, 0) : this]
            more, count = sizes[at + i] - least + sum(ahead), of_dense + of_experts
            more *= job.layout.reshard
            yield more, max(made * count + sent * before - gone, -more)
            before, gone = count, gone + keeps
        at += len(dense)


def largest_unit(shape: StageShape) -> float:
    """Parameters of the unit with most gradients."""
    if shape.adapters is None:
        return max(unit_counts(shape))
    # an end of the pipeline may have no layer, and then no adapter
    return max((size for chunk in shape.adapters for size in chunk), default=0.0)


def unit_sizes(job: TrainingJob, shape: StageShape, dense: bool, expert: bool) -> list[float]:
    """Bytes of each unit as it is gathered, in the order of `unit_counts`."""
    counts = unit_counts(shape, dense, expert)
    sizes = [ENDS_BYTES * count for count in counts]
    if is_nf4(job):
        trained = (size for chunk in shape.trained_dense for size in chunk)
        for i, thin in enumerate(trained, bool(shape.embedding and dense)):
            sizes[i] = ENDS_BYTES * thin + gathered_bytes(job) * (counts[i] - thin)
    return sizes


def unit_counts(shape: StageShape, of_dense: bool = True, of_experts: bool = True) -> list[float]:
    """Parameters of each unit of sharding in the order of the forward pass: every layer, and the ends; of
    either kind."""
    layers = [
        d * of_dense + e * of_experts
        for dense, expert in zip(shape.dense, shape.expert, strict=True)
        for d, e in zip(dense, expert, strict=True)
    ]
    embedding, head = ([end] if end and of_dense else [] for end in (shape.embedding, shape.head))
    return [*embedding, *layers, *head]


def _own(job: TrainingJob, shape: StageShape, dense: bool, sizes: list[float]) -> list[float]:
    """Of units those that are the model's own, which it gathers first and keeps. [byte]"""
    if era_of(job).units == "apart":
        return []
    first, last = _ends(shape, dense)
    return [*sizes[:first], *sizes[len(sizes) - last :]]


def _layers(shape: StageShape, dense: bool, sizes: list[float]) -> list[float]:
    first, last = _ends(shape, dense)
    return sizes[first : len(sizes) - last]


def _ends(shape: StageShape, dense: bool) -> tuple[int, int]:
    """Whether an embedding is the first unit and a head the last one."""
    return int(bool(shape.embedding and dense)), int(bool(shape.head and dense))
