"""What a layout puts on the network: bytes that one GPU sends per step in groups that span servers."""

from __future__ import annotations

from railwright.training.result import StepResult


def bytes_sent(step: StepResult) -> float:
    """Bytes one GPU of the critical stage sends in a step in groups that span servers. [byte]

    Per collective of size S over n ranks: all-gather and reduce-scatter S (n-1)/n, all-reduce twice that,
    all-to-all S (n-1)/n, a send S (nccl-tests, doc/PERFORMANCE.md).  All of a group's bytes count, also those
    that stay inside a server.
    """
    return sum(
        used.count * _sent(used.prediction.op, used.prediction.size, used.prediction.ranks)
        for used in step.collectives
        if used.crosses
    )


def _sent(op: str, size: float, ranks: int) -> float:
    if op == "sendrecv":
        return size
    return size * (ranks - 1) / ranks * (2.0 if op == "all_reduce" else 1.0)
