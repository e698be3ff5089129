"""nccl-tests' definitions of bandwidth (doc/PERFORMANCE.md): algbw = S / t, busbw = algbw x factor."""

from __future__ import annotations

from railwright.collectives.prediction import Op


def bus_factor(op: Op, ranks: int) -> float:
    """busbw over algbw.

    S is the total buffer: n times the per-rank part for all_gather and reduce_scatter, what one rank sends
    to all (itself included) for all_to_all, one message for broadcast and sendrecv.
    Source: NVIDIA/nccl-tests, doc/PERFORMANCE.md.
    """
    if op == "all_reduce":
        return 2 * (ranks - 1) / ranks
    if op in ("all_gather", "reduce_scatter", "all_to_all"):
        return (ranks - 1) / ranks
    return 1.0


def ranks_of_ratio(ratio: float) -> float:
    """Ranks of an all-reduce from its busbw/algbw, which tells when a table's caption is wrong.

    ratio  busbw / algbw, below 2
    Source: the definition above, solved for n.
    """
    return 2 / (2 - ratio)
