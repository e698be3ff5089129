"""Parameters sharded over data-parallel ranks (ZeRO-3, FSDP, HSDP): gathered layer by layer in every pass.

A unit is one layer, or the embedding, or the head with the final norm: its parameters are gathered before it
computes, `Overlap.prefetch` units ahead, and dropped after it; its gradients are reduced and scattered behind
it.  Gathers and reductions of one rank share a communicator: they run one at a time in the order of issue.
Sources: Zhao et al., PyTorch FSDP (arXiv 2304.11277), sections 3.2 and 3.3 (units, prefetching, hybrids);
Rajbhandari et al., ZeRO (arXiv 1910.02054), section 5.3; PyTorch, fully_shard (`reshard_after_forward`: the
last unit of the forward pass, needed first in the backward one, stays).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from railwright.collectives.prediction import Op
from railwright.model.operators.kernels import ELEMENT
from railwright.spec.training import TrainingJob
from railwright.training.lanes.tasks import Task
from railwright.training.layers.casts import narrow_gathers
from railwright.training.layers.communication import WEIGHT_BYTES, Prices, gradient_bytes, shards_narrow
from railwright.training.layout.placement import GroupKind
from railwright.training.layout.route import Chunk
from railwright.training.optimizer.buckets import shared_by
from railwright.training.passes.chain import NO_COPIES, woven
from railwright.training.passes.offload import HOST_SUM, host_copy, host_link
from railwright.training.software.eras import era_of
from railwright.training.software.formats import frozen_bytes
from railwright.training.software.hosted import ranks_together, weights_on_host
from railwright.training.software.nf4 import gathered_bytes, stored_bytes

WEIGHTS, GRADIENTS = "weights from the host", "gradients to the host"
ADDED = "gradients to the host, added there"
"""Names of copies of shards."""

Sent = tuple[str, Op, float, GroupKind]
"""A collective as `Prices.comm` takes it: purpose, operation, size [byte] and groups."""

SHARD_BYTES = 4.0
"""Bytes of a weight that trains, or of a gradient, as it is copied: FSDP2's shards are fp32."""


def shard_bytes(job: TrainingJob) -> float:
    """The same of a job: DeepSpeed's ZeRO engine has 16 bits of either on the host for that (stage3.py,
    grad_partitions_flat_buffer; partition_parameters.py, ds_tensor)."""
    return ELEMENT if era_of(job).zero_engine else SHARD_BYTES


@dataclass(frozen=True)
class Units:
    """Data-parallel communication of a chunk's units.

    order    units as the forward pass needs them: -1 embedding, layers from 0, their number for the head
    gathers, reduces  tasks of each unit, without what they wait for
    fetches, returns  of shards that lie on the host, the copy before the gathers, and that of the gradients
                      behind the reductions
    added    the same where the host also adds them to what earlier microbatches left
    """

    order: tuple[int, ...]
    gathers: Mapping[int, tuple[Task, ...]]
    reduces: Mapping[int, tuple[Task, ...]]
    fetches: Mapping[int, Task] = field(default_factory=dict)
    returns: Mapping[int, Task] = field(default_factory=dict)
    added: Mapping[int, Task] = field(default_factory=dict)


def units_of(
    job: TrainingJob,
    chunk: Chunk,
    held: Mapping[int, tuple[float, float]],
    trained: Mapping[int, tuple[float, float]],
    prices: Prices,
) -> Units:
    """Units of one chunk.

    held, trained  per unit, dense and expert parameters on this GPU if nothing were sharded: all of them, and
                   those with gradients
    """
    layers, sizes = len(chunk.layers), prices.groups.sizes
    order = ([-1] if chunk.embedding else []) + list(range(layers)) + ([layers] if chunk.head else [])
    (group, across), (of_experts, experts_across) = (shared_by(kind, sizes) for kind in ("dp", "expert_dp"))

    def gathered(unit: int) -> tuple[Task, ...]:
        inside = 0 <= unit < layers
        frozen = gathered_bytes(job) if inside else WEIGHT_BYTES
        each = 1.0 if inside and shards_narrow(job) else WEIGHT_BYTES
        dense, expert = (
            trains * each + (count - trains) * frozen
            for count, trains in zip(held[unit], trained[unit], strict=True)
        )
        dense *= narrow_gathers(job) if inside else 1.0
        return _tasks(
            prices,
            unit,
            [("dp parameters", "all_gather", dense, group)],
            [("expert dp parameters", "all_gather", expert, of_experts)],
        )

    def reduced(unit: int) -> tuple[Task, ...]:
        dense, expert = (count * gradient_bytes(job) for count in trained[unit])
        dense_sent: list[Sent] = [("dp gradients", "reduce_scatter", dense, group)]
        expert_sent: list[Sent] = [("expert dp gradients", "reduce_scatter", expert, of_experts)]
        if across and experts_across:
            over, expert_over = sizes.over(3)
            dense_sent.append(("dp gradients of copies", "all_reduce", dense / over, across))
            copied = "expert dp gradients of copies"
            expert_sent.append((copied, "all_reduce", expert / expert_over, experts_across))
        return _tasks(prices, unit, dense_sent, expert_sent)

    gathers, reduces = {u: gathered(u) for u in order}, {u: reduced(u) for u in order}
    if not weights_on_host(job):
        return Units(tuple(order), gathers, reduces)
    over = sizes.over(3)

    def fetched(unit: int) -> float:
        """Weights that train, and as many as the bytes of the frozen ones are."""
        train, frozen = _shard(trained[unit], over), frozen_bytes(job)
        each = stored_bytes(job, frozen) if 0 <= unit < layers else frozen
        return train + (_shard(held[unit], over) - train) * each / shard_bytes(job)

    return Units(
        tuple(order),
        gathers,
        reduces,
        {u: shard_copy(job, prices, u, fetched(u), WEIGHTS) for u in order},
        {u: shard_copy(job, prices, u, n, GRADIENTS) for u in order if (n := _shard(trained[u], over))},
        {u: shard_copy(job, prices, u, n, ADDED) for u in order if (n := _shard(trained[u], over))},
    )


def shard_copy(job: TrainingJob, prices: Prices, unit: int, parameters: float, name: str) -> Task:
    """A rank's shard of a unit on its way to or from the host; `ADDED`: and its being added up.

    Source: PyTorch, FSDP2, _fsdp_param.py (all_gather_inputs, copied before they are cast),
    _fsdp_collectives.py (foreach_reduce: cast before it is copied; added on the host where there is a
    gradient already, which the host waits for).  DeepSpeed fetches the sum, adds on the GPU and returns it
    (stage3.py, partition_grads).
    """
    seconds = parameters * shard_bytes(job) / host_link(prices.machine)
    added = 0.0
    if name == ADDED and era_of(job).zero_engine:
        added = seconds
    elif name == ADDED:
        machine, ranks = prices.machine, prices.groups.grid.size
        here = ranks_together(job, machine.network.fabric, machine.server, ranks)
        added = parameters * here * HOST_SUM
    return host_copy(prices.machine, name, seconds, unit, added)


def _shard(count: tuple[float, float], over: tuple[int, int]) -> float:
    return count[0] / over[0] + count[1] / over[1]


def all_gathers(units: Units) -> list[Task]:
    """The gathers of a chunk one after the other, as its forward pass needs them."""
    return [task for unit in units.order for task in units.gathers[unit]]


def last_gathers(units: Units) -> dict[int, int]:
    """Where among them the last one of each unit stands, of units that have any."""
    found: dict[int, int] = {}
    count = 0
    for unit in units.order:
        count += len(units.gathers[unit])
        if units.gathers[unit]:
            found[unit] = count - 1
    return found


def forward_with(tasks: Sequence[Task], units: Units, ahead: int) -> list[Task]:
    """A forward pass that gathers each unit's parameters, `ahead` units before they are needed, or when the
    host gets to them: only a backward pass issues the next unit's from the one before (PyTorch FSDP,
    `backward_prefetch`)."""
    return woven(tasks, units.order, units.gathers, {}, ahead, units.fetches, reached=True)


def backward_with(
    tasks: Sequence[Task],
    units: Units,
    ahead: int,
    *,
    gather: bool,
    reduce: bool,
    blocking: bool,
    adding: bool = False,
) -> list[Task]:
    """A backward pass that gathers parameters again where they were dropped, and reduces its gradients.

    The unit it begins with was not dropped; gradients of an embedding need no parameters.
    blocking  every unit waits for the reductions of the one before, and the end of the pass for the last
    adding    gradients of earlier microbatches are there, on the host
    """
    order = tuple(reversed(units.order))
    again = {u: units.gathers[u] for u in order[1:] if u >= 0} if gather else {}
    fetches = {u: task for u, task in units.fetches.items() if u in again}
    returns = (units.added if adding else units.returns) if reduce else NO_COPIES
    waiting: Literal["", "reduced", "returned"] = "returned" if adding else "reduced" if blocking else ""
    if adding:
        tasks = launched_by_unit(tasks, order)
    found = woven(tasks, order, again, units.reduces if reduce else {}, ahead, fetches, returns, waiting)
    return ending_with_dp(found) if blocking else found


def launched_by_unit(tasks: Sequence[Task], order: Sequence[int]) -> Sequence[Task]:
    """A pass that a host launches in one go, unit by unit instead, by what each computes: one that waits for
    every unit's gradients gets to the next only then."""
    whole = next((i for i, t in enumerate(tasks) if t.lane == "host" and not t.after and t.layer < 0), None)
    times = {
        unit: sum(t.duration for t in tasks if t.lane == "compute" and t.layer == unit) for unit in order
    }
    left = {unit: seconds / sum(times.values()) for unit, seconds in times.items() if seconds}
    if whole is None or not left:
        return tasks
    host, last = tasks[whole], 0
    found, place = list[Task](), list[int]()
    for i, task in enumerate(tasks):
        if share := left.pop(task.layer, 0.0) if i != whole else 0.0:
            last = len(found)
            found.append(host._replace(duration=host.duration * share, layer=task.layer))
        place.append(last if i == whole else len(found))
        if i != whole:
            found.append(task.behind(tuple([place[n] for n in task.after])))
    return found


def behind(tasks: Sequence[Task], sent: Sequence[Task]) -> list[Task]:
    """A pass whose dp tasks wait until all of it is launched and computed, and which is over only when they
    are."""
    last = {task.lane: i for i, task in enumerate(tasks) if task.lane in ("compute", "host")}
    after = tuple(last.values())
    return ending_with_dp([*tasks, *(task.behind(after) for task in sent)])


def ending_with_dp(tasks: list[Task]) -> list[Task]:
    """The same pass, over only when all of its dp tasks are."""
    sent = tuple(i for i, task in enumerate(tasks) if task.lane == "dp")
    return [*tasks, Task("compute", "waiting for dp", "wait", 0.0, sent, -1)] if sent else tasks


def _tasks(
    prices: Prices,
    unit: int,
    dense: Sequence[Sent],
    expert: Sequence[Sent],
) -> tuple[Task, ...]:
    """Tasks of what is not empty."""
    found = []
    for purpose, op, size, kind in (*dense, *expert):
        comm = prices.comm("dp", purpose, op, size, kind)
        if comm.seconds > 0:
            found.append(Task("dp", purpose, op, comm.seconds, (), unit, size, comm.wire, comm.uses))
    return tuple(found)
