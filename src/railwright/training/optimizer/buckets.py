"""Gradient and parameter buckets of data parallelism: what is reduced when, and what must arrive before what.

`packed` says which parameters share one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from railwright.collectives.prediction import Op
from railwright.training.lanes.tasks import Task, ahead_of
from railwright.training.layers.communication import WEIGHT_BYTES, Prices
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.sizes import Sizes

BucketKind = Literal["dp", "expert_dp"]
PURPOSE = {"dp": "dp", "expert_dp": "expert dp"}
WIDE = 4.0
"""Bytes of a gradient in fp32."""

SHARED_BY: dict[BucketKind, tuple[GroupKind, GroupKind]] = {
    "dp": ("shard", "copies"),
    "expert_dp": ("expert_shard", "expert_copies"),
}
"""Ranks that share a copy of what is sharded, and those with the same shard of all copies."""


@dataclass(frozen=True)
class Bucket:
    """Parameters reduced and gathered together.

    kind         'dp' or 'expert_dp': the group they are replicated over
    parameters   of this GPU, and what fills up a bucket of a fixed size
    first, last  layers of the chunk it covers (-1 embedding, number of layers: head)
    ends         parameters of embedding and head among them
    wide         those of `ends` whose gradients are reduced in fp32, whatever the others'
    """

    kind: BucketKind
    parameters: float
    first: int
    last: int
    ends: float = 0.0
    wide: float = 0.0


def shared_by(kind: BucketKind, sizes: Sizes) -> tuple[GroupKind, GroupKind | None]:
    """Ranks over which gradients of a kind are scattered and parameters gathered, and where there are several
    copies those over which a rank's share of the gradients is then summed up.

    Source: Megatron-LM, core/distributed/param_and_grad_buffer.py, start_grad_sync (a reduce-scatter inside a
    distributed optimizer instance, then an all-reduce of the local shard over the instances, on one stream).
    """
    return (kind, None) if sizes.instances == 1 else SHARED_BY[kind]


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

    each      bytes of one gradient on the wire, but for a bucket's `wide`
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
        size = bucket.parameters * each + bucket.wide * (WIDE - each)
        group, across = shared_by(bucket.kind, sizes)
        after = (done[bucket.first],) if bucket.first in done else ()
        tasks.append(_task(prices, bucket, "gradients", op, size, group, after))
        if across:
            share = size / over[bucket.kind]
            tasks.append(_task(prices, bucket, "gradients of copies", "all_reduce", share, across, after))
    return tasks


def arriving(
    tasks: Sequence[Task], gathers: Sequence[Task], gates: Mapping[int, int], kind: str
) -> list[Task]:
    """A forward pass that gathers its own parameters: a layer waits for its last bucket, and buckets come one
    after the other from the start of the pass on.

    gates  for each layer, which of the gathers it waits for
    kind   'FB': a backward pass of another microbatch is among the tasks
    """
    waits = {ahead_of(layer) if kind == "FB" else layer: len(tasks) + i for layer, i in gates.items()}
    found = [
        task.behind((*task.after, waits[task.layer]))
        if task.lane == "compute" and task.layer in waits
        else task
        for task in tasks
    ]
    return [*found, *gathers]


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
