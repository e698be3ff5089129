"""Gradient and parameter buckets of data parallelism: what is reduced when, and what must arrive before what.

Megatron-LM packs whole parameters of one model chunk into buckets, in the order their gradients appear, until
a bucket is large enough; dense and expert parameters have separate buffers because their groups differ.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from railwright.collectives.prediction import Op
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task
from railwright.training.layers.communication import WEIGHT_BYTES, Prices
from railwright.training.layers.stages import StageShape
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.sizes import Sizes
from railwright.training.software.constants import constant
from railwright.training.software.eras import era_of
from railwright.training.software.zero_engine import BUCKET

BucketKind = Literal["dp", "expert_dp"]
PURPOSE = {"dp": "dp", "expert_dp": "expert dp"}

SHARED_BY: dict[BucketKind, tuple[GroupKind, GroupKind]] = {
    "dp": ("shard", "copies"),
    "expert_dp": ("expert_shard", "expert_copies"),
}
"""Ranks that share a copy of what is sharded, and those with the same shard of all copies."""


@dataclass(frozen=True)
class Bucket:
    """Parameters reduced and gathered together.

    kind         'dp' or 'expert_dp': the group they are replicated over
    parameters   of this GPU
    first, last  layers of the chunk it covers (-1 embedding, number of layers: head)
    ends         parameters of embedding and head among them
    """

    kind: BucketKind
    parameters: float
    first: int
    last: int
    ends: float = 0.0


def shared_by(kind: BucketKind, sizes: Sizes) -> tuple[GroupKind, GroupKind | None]:
    """Ranks over which gradients of a kind are scattered and parameters gathered, and where there are several
    copies those over which a rank's share of the gradients is then summed up.

    Source: Megatron-LM, core/distributed/param_and_grad_buffer.py, start_grad_sync (a reduce-scatter inside a
    distributed optimizer instance, then an all-reduce of the local shard over the instances, on one stream).
    """
    return (kind, None) if sizes.instances == 1 else SHARED_BY[kind]


def bucket_threshold(data: int) -> float:
    """Parameters a bucket holds at least: larger groups need larger buckets to stay bandwidth-bound.

    data  ranks that hold the same dense parameters; buckets of experts, which fewer share, are as large
    Source: Megatron-LM, core/distributed/distributed_data_parallel_config.py, bucket_size; training.py
    (of the data-parallel group with context ranks).
    """
    return max(constant("bucket_parameters"), constant("bucket_parameters_per_rank") * data)


def buckets_of(job: TrainingJob, shape: StageShape, sizes: Sizes) -> list[tuple[Bucket, ...]]:
    """Buckets of each chunk of a stage.

    What is reduced once a step is one bucket where it is not hidden and, with Megatron-LM, in all chunks but
    the first of the first stage, which all others wait for.
    Source: Megatron-LM, core/distributed/distributed_data_parallel.py (bucket_size None, i.e. all parameters,
    without overlap_grad_reduce and where pp_rank > 0), training/training.py (disable_bucketing of chunks).
    DeepSpeed's ZeRO engine has buckets of one size.
    """
    once, trained, era = job.layout.zero < 2, job.lora is None, era_of(job)
    alone = once and (not job.overlap.dp or era.framework == "megatron")

    def threshold(chunk: int) -> float:
        if era.zero_engine:
            return float(BUCKET)
        first = chunk == 0 and shape.chunks[0].embedding and job.overlap.dp
        return bucket_threshold(sizes.replicas) if first or not alone else math.inf

    return [
        make_buckets(
            shape.trained_dense[c],
            shape.trained_expert[c],
            shape.embedding if chunk.embedding and trained else 0.0,
            shape.head if chunk.head and trained else 0.0,
            threshold(c),
        )
        for c, chunk in enumerate(shape.chunks)
    ]


def make_buckets(
    dense: Sequence[float], expert: Sequence[float], embedding: float, head: float, threshold: float
) -> tuple[Bucket, ...]:
    """Buckets of one chunk in the order its forward pass needs them.

    dense, expert  parameters per layer of the chunk, on this GPU
    threshold      parameters of one at least; infinite: one bucket of dense and one of expert parameters
    Whole layers are packed together, from the last layer down (`_pack`); embedding and head have buckets of
    their own.
    """
    if math.isinf(threshold):
        first, last = (-1 if embedding else 0), len(dense) - (not head)
        whole = (
            Bucket("dp", embedding + sum(dense) + head, first, last, embedding + head),
            Bucket("expert_dp", sum(expert), 0, len(expert) - 1),
        )
        return tuple(bucket for bucket in whole if bucket.parameters)
    found = [*_pack("dp", dense, threshold), *_pack("expert_dp", expert, threshold)]
    if embedding:
        found.append(Bucket("dp", embedding, -1, -1, embedding))
    if head:
        found.append(Bucket("dp", head, len(dense), len(dense), head))
    return tuple(sorted(found, key=lambda b: (b.first, b.kind)))


def gather_tasks(buckets: Sequence[Bucket], prices: Prices, weight: float = WEIGHT_BYTES) -> list[Task]:
    """Parameter all-gathers (distributed optimizer), in the order of `buckets`; no dependencies.

    weight  bytes of one of a layer as it is gathered; embedding and head have 16 bits
    """
    tasks = []
    for bucket in buckets:
        size = (bucket.parameters - bucket.ends) * weight + bucket.ends * WEIGHT_BYTES
        group, _ = shared_by(bucket.kind, prices.groups.sizes)
        tasks.append(_task(prices, bucket, "parameters", "all_gather", size, group, ()))
    return tasks


def reduce_tasks(
    buckets: Sequence[Bucket],
    prices: Prices,
    each: float,
    zero: int,
    backward: Sequence[Task] = (),
    scatters: bool = True,
) -> list[Task]:
    """Gradient reductions in the order the buckets fill: reduce-scatter with a distributed optimizer, and
    where there are several copies of that an all-reduce of the share behind it.

    each      bytes of one gradient on the wire
    backward  tasks of the last backward pass; a bucket is full when its lowest layer is done.  Without
              them the reductions run one after the other with nothing to wait for.
    scatters  whether ranks that share states get their part alone (`zero_engine`: all of it)
    """
    done: dict[int, int] = {}
    for index, task in enumerate(backward):
        if task.lane == "compute":
            done[task.layer] = index
    tasks = []
    op: Op = "reduce_scatter" if zero and scatters else "all_reduce"
    sizes = prices.groups.sizes
    over = dict(zip(SHARED_BY, sizes.over(zero), strict=True))
    for bucket in sorted(buckets, key=lambda b: (-b.first, b.kind)):
        size = bucket.parameters * each
        group, across = shared_by(bucket.kind, sizes)
        after = (done[bucket.first],) if bucket.first in done else ()
        tasks.append(_task(prices, bucket, "gradients", op, size, group, after))
        if across:
            share = size / over[bucket.kind]
            tasks.append(_task(prices, bucket, "gradients of copies", "all_reduce", share, across, after))
    return tasks


def _task(
    prices: Prices, bucket: Bucket, what: str, op: Op, size: float, group: GroupKind, after: tuple[int, ...]
) -> Task:
    purpose = f"{PURPOSE[bucket.kind]} {what}"
    seconds = prices.time("dp", purpose, op, size, group)
    return Task("dp", purpose, op, seconds, after, bucket.first, size, *prices.on_links(op, size, group))


def gate_of(buckets: Sequence[Bucket], offset: int) -> dict[int, int]:
    """For each layer the last bucket it needs, counted from `offset`."""
    gates: dict[int, int] = {}
    for index, bucket in enumerate(buckets):
        for layer in range(bucket.first, bucket.last + 1):
            gates[layer] = offset + index
    return gates


def _pack(kind: BucketKind, counts: Sequence[float], threshold: float) -> list[Bucket]:
    """Neighbouring layers, from the last one down, until they have `threshold` parameters; the first ones may
    have less.

    Source: Megatron-LM, core/distributed/param_and_grad_buffer.py (`bucket_size`; of parameters one by one).
    """
    filled = [layer for layer, count in enumerate(counts) if count]
    found: list[Bucket] = []
    held, last = 0.0, -1
    for layer in reversed(filled):
        last = last if held else layer
        held += counts[layer]
        if held >= threshold * (1 - 1e-9) or layer == filled[0]:
            found.append(Bucket(kind, held, layer, last))
            held = 0.0
    return found
