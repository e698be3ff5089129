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
from dataclasses import dataclass

from railwright.spec.training import TrainingJob
from railwright.training.casts import narrow_gathers
from railwright.training.chain import woven
from railwright.training.communication import WEIGHT_BYTES, Prices, gradient_bytes
from railwright.training.lanes import Task
from railwright.training.placement import GroupKind
from railwright.training.route import Chunk

_WHOLE: tuple[GroupKind, GroupKind] = ("dp", "expert_dp")
_HYBRID: tuple[GroupKind, GroupKind] = ("shard", "shard")
"""Groups that share dense parameters, and experts: a copy's experts lie where its rest does."""


@dataclass(frozen=True)
class Units:
    """Data-parallel communication of a chunk's units.

    order    units as the forward pass needs them: -1 embedding, layers from 0, their number for the head
    gathers, reduces  tasks of each unit, without what they wait for
    """

    order: tuple[int, ...]
    gathers: Mapping[int, tuple[Task, ...]]
    reduces: Mapping[int, tuple[Task, ...]]


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
    layers = len(chunk.layers)
    order = ([-1] if chunk.embedding else []) + list(range(layers)) + ([layers] if chunk.head else [])
    group, of_experts = _WHOLE if job.layout.shard is None else _HYBRID

    def gathered(unit: int) -> tuple[Task, ...]:
        dense, expert = held[unit]
        dense *= narrow_gathers(job) if 0 <= unit < layers else 1.0
        return _tasks(
            prices,
            unit,
            [("dp parameters", "all_gather", dense * WEIGHT_BYTES, group)],
            [("expert dp parameters", "all_gather", expert * WEIGHT_BYTES, of_experts)],
        )

    def reduced(unit: int) -> tuple[Task, ...]:
        dense, expert = (count * gradient_bytes(job) for count in trained[unit])
        dense_sent = [("dp gradients", "reduce_scatter", dense, group)]
        expert_sent = [("expert dp gradients", "reduce_scatter", expert, of_experts)]
        if job.layout.shard is not None:
            share = 1.0 / job.layout.shard
            dense_sent.append(("dp gradients of copies", "all_reduce", dense * share, "copies"))
            expert_sent.append(("expert dp gradients of copies", "all_reduce", expert * share, "copies"))
        return _tasks(prices, unit, dense_sent, expert_sent)

    return Units(tuple(order), {u: gathered(u) for u in order}, {u: reduced(u) for u in order})


def forward_with(tasks: Sequence[Task], units: Units, ahead: int) -> list[Task]:
    """A forward pass that gathers each unit's parameters, `ahead` units before they are needed."""
    return woven(tasks, units.order, units.gathers, {}, ahead)


def backward_with(
    tasks: Sequence[Task], units: Units, ahead: int, gather: bool, reduce: bool, blocking: bool
) -> list[Task]:
    """A backward pass that gathers parameters again where they were dropped, and reduces its gradients.

    The unit it begins with was not dropped; gradients of an embedding need no parameters.
    blocking  the pass ends only when its last reduction does
    """
    order = tuple(reversed(units.order))
    again = {u: units.gathers[u] for u in order[1:] if u >= 0} if gather else {}
    found = woven(tasks, order, again, units.reduces if reduce else {}, ahead)
    return ending_with_dp(found) if blocking else found


def ending_with_dp(tasks: list[Task]) -> list[Task]:
    """The same pass, over only when all of its dp tasks are."""
    sent = tuple(i for i, task in enumerate(tasks) if task.lane == "dp")
    return [*tasks, Task("compute", "waiting for dp", "wait", 0.0, sent, -1)] if sent else tasks


def _tasks(
    prices: Prices,
    unit: int,
    dense: Sequence[tuple[str, str, float, str]],
    expert: Sequence[tuple[str, str, float, str]],
) -> tuple[Task, ...]:
    """Tasks of what is not empty."""
    found = []
    for purpose, op, size, kind in (*dense, *expert):
        comm = prices.comm("dp", purpose, op, size, kind)  # type: ignore[arg-type]
        if comm.seconds > 0:
            found.append(Task("dp", purpose, op, comm.seconds, (), unit, size, comm.wire))
    return tuple(found)
