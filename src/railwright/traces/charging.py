"""Which kind of work each instant of a replayed rank goes to, by the rule of a step's own shares.

As `training.lanes.tasks.exposure` has it, a rank computes, else an inner communication runs (tp, cp, ep, emb,
pp), else it waits for its host.  Data-parallel work and messages between stages run beside all that: where
nothing else runs, an instant is theirs only if what comes next waits for them, else it is waiting for other
ranks.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from railwright.traces.graph import ALONE, Node
from railwright.traces.replaying import Replayed
from railwright.training.lanes.result import COMMUNICATION

IDLE = "idle"
MESSAGES = "+messages"
"""Kinds beside those of ALONE; a communication's is its family's name behind a '+'."""

BESIDE = ("dp", "shard", "copies", "embedding", "mirror")
"""Last words of the families (`training.layout.placement.Groups`) of data-parallel work: gradients and
parameters of ranks, copies and stages that hold the same."""

INNER = {"etp": "tp", "local": "ep", "rail": "ep"}
"""Last words of families that are charged where another is."""


def charged(replayed: Replayed, rank: int) -> dict[str, float]:
    """Seconds of a rank by kind; they add up to the step."""
    nodes, runs = replayed.nodes[rank], replayed.runs[rank]
    kinds = _kinds(replayed, rank)
    own = [i for i, kind in enumerate(kinds) if kind and runs[i].end > runs[i].start]
    edges = sorted(
        edge
        for i in own
        for edge in ((runs[i].start, 1, _inward(kinds[i]), i), (runs[i].end, 0, _inward(kinds[i]), i))
    )
    place = {node.index: i for i, node in enumerate(nodes)}
    spent: dict[str, float] = defaultdict(float)
    running: dict[str, int] = defaultdict(int)
    now = 0.0
    for instant, starts, _, i in edges:
        if instant > now:
            active = [kind for kind, count in running.items() if count]
            if active:
                spent[min(active, key=_inward)] += instant - now
            else:
                for kind, seconds in _waited(replayed, rank, kinds, place, i, now):
                    spent[kind] += seconds
            now = instant
        running[kinds[i]] += 1 if starts else -1
    for kind, seconds in _behind(replayed, rank, kinds, now):
        spent[kind] += seconds
    return dict(spent)


def family_of(replayed: Replayed, group: str) -> str:
    """Name of a kind of communication: its groups' family, else the group; 'messages' for sends."""
    if not group:
        return MESSAGES[1:]
    known = replayed.trace.groups[group]
    return known.family or known.name


def _kinds(replayed: Replayed, rank: int) -> list[str]:
    """Kind of every node that keeps its rank from computing while it runs; '' of what runs beside.

    A step of a ring is a send that the rank's own receive follows; it is no message between stages.
    """
    nodes = replayed.nodes[rank]
    ring = {before for node in nodes if node.kind == "receive" for before in node.after}

    def kind(node: Node) -> str:
        if node.kind in ALONE:
            return "host" if node.kind == "copy" else node.kind
        if node.kind == "collective":
            return "" if _is_dp(replayed, node) else f"+{_family(replayed, node)}"
        return MESSAGES if node.index in ring else ""

    return [kind(node) for node in nodes]


def _family(replayed: Replayed, node: Node) -> str:
    return family_of(replayed, node.group)


def _is_dp(replayed: Replayed, node: Node) -> bool:
    return node.kind == "collective" and _word(_family(replayed, node)) in BESIDE


def _word(family: str) -> str:
    """'dp' of 'expert dp', of a second family of that name too."""
    return family.split()[-1].rstrip("'")


def _inward(kind: str) -> tuple[int, int, str]:
    """Order of what an instant is charged to: computing, communication from the innermost out, the host."""
    if kind in ALONE:
        return (0 if kind == "compute" else 2), 0, kind
    word = _word(kind.removeprefix("+"))
    word = INNER.get(word, word)
    return 1, COMMUNICATION.index(word) if word in COMMUNICATION else len(COMMUNICATION), kind


def _waited(
    replayed: Replayed, rank: int, kinds: list[str], place: dict[int, int], i: int, since: float
) -> Iterator[tuple[str, float]]:
    """What a node waited for since an instant at which its rank had nothing left to do, backwards.

    A message counts while it is under way, before that its sender is waited for.
    """
    nodes, runs = replayed.nodes[rank], replayed.runs[rank]
    until = runs[i].start

    def back(instant: float, kind: str) -> tuple[str, float]:
        nonlocal until
        earlier = max(since, min(until, instant))
        seconds, until = until - earlier, earlier
        return kind, seconds

    while until > since:
        yield back(runs[i].reached, IDLE)
        before = sorted((place[one] for one in nodes[i].after), key=lambda one: runs[one].end)
        if before and nodes[before[-1]].kind == "receive":
            cause = runs[before[-1]].cause
            yield back(replayed.runs[cause[0]][cause[1]].start if cause else until, MESSAGES)
            # a send of its own that blocks its computing ran meanwhile
            before = [one for one in before if nodes[one].kind == "send"]
        if not before or kinds[before[-1]]:
            break
        i = before[-1]
        yield back(runs[i].end, IDLE)
        yield back(runs[i].start, MESSAGES if nodes[i].kind == "send" else f"+{_family(replayed, nodes[i])}")
    yield back(since, IDLE)


def _behind(replayed: Replayed, rank: int, kinds: list[str], since: float) -> Iterator[tuple[str, float]]:
    """What is left when a rank has nothing to do any more: data-parallel work, then waiting for others."""
    for node, run in zip(replayed.nodes[rank], replayed.runs[rank], strict=True):
        if _is_dp(replayed, node) and run.end > since:
            start = max(since, run.start)
            yield IDLE, start - since
            yield f"+{_family(replayed, node)}", run.end - start
            since = run.end
    yield IDLE, replayed.time - since
