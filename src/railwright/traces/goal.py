"""GOAL schedules, the text that LogGOPSim's txt2bin reads: sends, receives and computing of every rank.

Format: spcl/LogGOPSim, src/LogGOPSim/txt2bin.re: `num_ranks N`, then per rank `rank R { … }` with lines
`label: calc NANOSECONDS`, `label: send BYTESb to RANK tag T`, `label: recv BYTESb from …` and
`label requires label`.  Everything is on one CPU: LogGOPSim does not make a CPU wait for another's work (it
starts a node when its own CPU is free).  Messages travel beside computing there but arrive between two
computations (LogGOPSim.cpp, OP_MSG: `nexto <= elem.time`), so a ring gets less far beside computing than in
the prediction.
Collectives are written as the messages of a ring (all-reduce 2(n-1) steps of S/n, all-gather and
reduce-scatter n-1), an all-to-all and a broadcast as direct sends: GOAL has none of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from railwright.errors import PlanError
from railwright.traces.graph import ALONE, Group, Node, StepTrace

MOST_LINES = 50_000_000
"""Lines that are written: about 2 GB of text."""

_RING = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Times a ring goes round, but for one step."""


def write(trace: StepTrace) -> Iterator[str]:
    """The schedule in pieces of text, rank by rank.

    A collective's messages carry its group's number as their tag: LogGOPSim matches messages of the same ends
    and tag in order, and the collectives of one group follow each other.
    Raises PlanError where the schedule would have more than MOST_LINES lines.
    """
    tags = {name: number for number, name in enumerate(trace.groups, 1)}
    lines = 0
    yield f"num_ranks {trace.ranks}\n"
    for rank, nodes in trace:
        # txt2bin knows a label only once it has read it, and a node may wait for one that comes later.
        said = [line for node in nodes for line in _node(rank, node, trace.groups, tags)]
        text = ["", f"rank {rank} {{", *sorted(said, key=lambda line: " requires " in line), "}\n"]
        lines += len(text)
        if lines > MOST_LINES:
            raise PlanError(
                f"{trace.name}: as GOAL its collectives are more than {MOST_LINES:,} lines of messages on "
                f"{trace.ranks:,} ranks; write a smaller cluster, or Chakra, which has collectives."
            )
        yield "\n".join(text)


def _node(rank: int, node: Node, groups: dict[str, Group], tags: dict[str, int]) -> list[str]:
    """Lines of a node; label `nI` is its end, and what it waits for are the ends of others."""
    label = f"n{node.index}"
    before = [f"n{i}" for i in node.after]
    if node.kind in ALONE:
        return _line(label, f"calc {round(node.seconds * 1e9)}", before)
    size = max(1, round(node.size / node.parts))
    if node.kind in ("send", "receive"):
        return _line(label, _message(node.kind, size, node.peer, len(tags) + 1 + node.tag), before)
    members = groups[node.group].ranks
    tag = tags[node.group]
    if len(members) == 1:
        return _line(label, "calc 0", before)
    steps = _ring(rank, node, members) if node.op in _RING else _direct(rank, node, members)
    found: list[str] = []
    ends: list[str] = []
    for i, (kind, amount, peer, needs) in enumerate(steps):
        name = f"{label}x{i}"
        wait = before if needs is None else [f"{label}x{needs}"]
        found += _line(name, _message(kind, amount, peer, tag), wait)
        ends.append(name)
    return found + _line(label, "calc 0", ends or before)


def _ring(rank: int, node: Node, members: tuple[int, ...]) -> Iterator[tuple[str, int, int, int | None]]:
    """(kind, bytes, peer, message it follows): each step's messages follow the receive of the step before."""
    count, place = len(members), members.index(rank)
    amount = max(1, round(node.size / node.parts / count))
    after, before = members[(place + 1) % count], members[place - 1]
    for step in range(_RING[str(node.op)] * (count - 1)):
        yield "send", amount, after, 2 * step - 1 if step else None
        yield "receive", amount, before, 2 * step - 1 if step else None


def _direct(rank: int, node: Node, members: tuple[int, ...]) -> Iterator[tuple[str, int, int, int | None]]:
    count, place = len(members), members.index(rank)
    whole = node.size / node.parts
    if node.op == "broadcast":
        if place == 0:
            for peer in members[1:]:
                yield "send", max(1, round(whole)), peer, None
        else:
            yield "receive", max(1, round(whole)), members[0], None
        return
    for step in range(1, count):
        yield "send", max(1, round(whole / count)), members[(place + step) % count], None
        yield "receive", max(1, round(whole / count)), members[place - step], None


def _message(kind: str, size: int, peer: int, tag: int) -> str:
    word = f"send {size}b to {peer}" if kind == "send" else f"recv {size}b from {peer}"
    return f"{word} tag {tag}"


def _line(label: str, what: str, before: list[str]) -> list[str]:
    return [f"{label}: {what}", *(f"{label} requires {other}" for other in before)]
