"""What a layout puts on the network: bytes that one GPU sends per step in groups that span servers."""

from __future__ import annotations

from railwright.training.communication import Prices
from railwright.training.placement import GroupKind
from railwright.training.result import StepResult

KINDS: tuple[tuple[str, tuple[GroupKind, ...]], ...] = (
    ("tp", ("tp",)),
    ("cp", ("cp",)),
    ("ep", ("ep",)),
    ("dp", ("dp", "expert_dp")),
    ("pp", ("pp",)),
)
"""Lanes and the groups that communicate on them."""


def bytes_sent(step: StepResult, prices: Prices) -> float:
    """Bytes one GPU of the critical stage sends in a step in groups that span servers. [byte]

    Per collective of size S over n ranks: all-gather and reduce-scatter S (n-1)/n, all-reduce twice that,
    all-to-all S (n-1)/n, a send S (nccl-tests, doc/PERFORMANCE.md).  All of a group's bytes count, also those
    that stay inside a server.
    """
    crossing = {lane: any(_crosses(prices, kind) for kind in kinds) for lane, kinds in KINDS}
    total = 0.0
    for used in step.collectives:
        if crossing.get(used.kind):
            total += used.count * _sent(used.prediction.op, used.prediction.size, used.prediction.ranks)
    return total


def _crosses(prices: Prices, kind: GroupKind) -> bool:
    groups = prices.groups.of(kind)
    return bool(groups) and len(groups[0]) > 1 and prices.crosses_servers(kind)


def _sent(op: str, size: float, ranks: int) -> float:
    if op == "sendrecv":
        return size
    return size * (ranks - 1) / ranks * (2.0 if op == "all_reduce" else 1.0)
