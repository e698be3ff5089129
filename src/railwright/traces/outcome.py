"""What a replayed step's time went to: shares of every rank, and the chain of nodes that set the pace."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, replace

from railwright.traces.charging import IDLE, charged, family_of
from railwright.traces.graph import ALONE, Node, StepTrace
from railwright.traces.replaying import Replayed


@dataclass(frozen=True)
class RankShares:
    """Seconds of one rank; compute, host, exposed communication of every family and idle add up to the step.

    host  of its host, and copies to and from the host's memory, while nothing runs but data-parallel work
    idle  waiting for other ranks, before the first and after the last node too
    """

    rank: int
    compute: float
    host: float
    communication: dict[str, float]
    idle: float


@dataclass(frozen=True)
class PathShare:
    """One kind of node on the critical path: seconds, and how many nodes."""

    kind: str
    seconds: float
    nodes: int


def shares(replayed: Replayed, rank: int) -> RankShares:
    """What each instant of a rank went to, as in a predicted step's own shares (`traces.charging`)."""
    spent = charged(replayed, rank)
    communication = {
        kind[1:]: seconds for kind, seconds in sorted(spent.items()) if kind.startswith("+") and seconds
    }
    return RankShares(
        rank, spent.get("compute", 0.0), spent.get("host", 0.0), communication, spent.get(IDLE, 0.0)
    )


def busiest(replayed: Replayed) -> RankShares:
    """Shares of the rank that waits least for others, the first of equals."""
    every = [shares(replayed, rank) for rank in range(_different(replayed))]
    least = min(one.idle for one in every)
    return next(one for one in every if one.idle <= least + 1e-9 * replayed.time)


def critical_path(replayed: Replayed) -> tuple[PathShare, ...]:
    """Back from the last node to end, through what each had waited for; the longest kind first.

    The seconds of all kinds add up to the step.
    """
    at: tuple[int, int] | None = max(
        ((rank, i) for rank in range(_different(replayed)) for i in range(len(replayed.runs[rank]))),
        key=lambda one: (replayed.runs[one[0]][one[1]].end, -one[0], -one[1]),
        default=None,
    )
    seconds: dict[str, float] = defaultdict(float)
    count: dict[str, int] = defaultdict(int)
    until = replayed.time
    while at is not None:
        run, node = replayed.runs[at[0]][at[1]], replayed.nodes[at[0]][at[1]]
        kind = node.kind if node.kind in ALONE else family_of(replayed, node.group)
        cause = run.cause
        begin = replayed.runs[cause[0]][cause[1]].end if cause is not None else 0.0
        seconds[kind] += until - begin
        count[kind] += 1
        until, at = begin, cause
    found = [PathShare(kind, seconds[kind], count[kind]) for kind in seconds]
    return tuple(sorted(found, key=lambda one: (-one.seconds, one.kind)))


def on_one_processor(replayed: Replayed) -> StepTrace:
    """The trace for formats in which a rank does one thing at a time: its host computes too, in turn.

    What a rank does alone keeps the order in which it ended, and the host's work is as long as its rank did
    nothing else alone since the one before had ended.  So it takes as long as before on the same network.
    """

    def nodes(rank: int) -> tuple[Node, ...]:
        own, runs = replayed.nodes[rank], replayed.runs[rank]
        alone = [i for i, node in enumerate(own) if node.kind in ALONE]
        busy = sorted((runs[i].start, runs[i].end) for i in alone if own[i].kind == "compute")
        ends = [end for _, end in busy]
        found = list(own)
        last, until = None, 0.0
        for i in sorted(alone, key=lambda i: (runs[i].end, runs[i].start, i)):
            node, run = own[i], runs[i]
            if node.kind != "compute":
                begin = max(run.start, until)
                beside = 0.0
                for start, end in busy[bisect_right(ends, begin) :]:
                    if start >= run.end:
                        break
                    beside += min(run.end, end) - max(begin, start)
                node = replace(node, kind="compute", seconds=max(0.0, run.end - begin - beside))
            if last is not None and last not in node.after:
                node = replace(node, after=(*node.after, last))
            found[i] = node
            last, until = node.index, run.end
        return tuple(found)

    return replace(replayed.trace, nodes=nodes)


def _different(replayed: Replayed) -> int:
    """Ranks, from the first, of which the others are copies."""
    return 1 if replayed.trace.alike else replayed.trace.ranks
