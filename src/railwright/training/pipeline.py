"""Passes of all stages composed into one step: who waits for whom, and for how much of it a transfer.

Legend: p stages, v chunks, m microbatches; passes run in the order their schedule gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from railwright.training.route import Orders, Route, Unit


class Placed(NamedTuple):
    """One pass on one stage.

    start, end  of the pass [s]
    bubble      waiting before it for another stage's work [s]
    transfer    waiting before it for a transfer between stages [s]
    send_start  when its first result leaves: sends of one stage go one after the other [s]
    sent        length of its own sends [s]; they block the stage where they are not overlapped
    sends       the passes whose results it sends, and when each leaves [s]
    """

    unit: Unit
    start: float
    end: float
    bubble: float
    transfer: float
    send_start: float
    sent: float
    sends: tuple[tuple[Unit, float], ...] = ()


Runner = Callable[[int, Unit, float], float]
"""(stage, unit, start) -> duration of the pass [s]; called in time order within a stage."""

Early = Callable[[int, Unit], tuple[float, ...]]
"""(stage, unit) -> how long before its end the result of each of its passes is there [s]."""


def at_the_end(stage: int, unit: Unit) -> tuple[float, ...]:
    """`Early` where every result is there when its unit ends."""
    return (0.0, 0.0)


def compose(
    orders: Orders,
    chunks: int,
    microbatches: int,
    run: Runner,
    send: float,
    blocking: bool,
    route: Route | None = None,
    early: Early = at_the_end,
) -> tuple[tuple[Placed, ...], ...]:
    """Place every pass of every stage as early as its order and its input allow.

    send      time of one transfer between neighbouring stages [s]
    blocking  whether the sender computes nothing while it sends
    route     which stage holds which piece; default: `Route(len(orders), chunks)`
    early     when results are there; sends that block wait for the end

    A forward needs the forward of the previous piece, a backward that of the next piece; weight gradients
    computed apart come after the input gradients in their stage's own order.
    """
    stages = len(orders)
    route = route or Route(stages, chunks)
    pieces = route.pieces
    arrival: dict[str, list[list[float]]] = {
        kind: [[-1.0] * microbatches for _ in range(pieces)] for kind in "FB"
    }
    for piece in range(pieces):
        if route.first(piece):
            arrival["F"][piece] = [0.0] * microbatches
    place = [[route.piece(s, c) for c in range(chunks)] for s in range(stages)]
    holder = [route.stage(piece) for piece in range(pieces)]
    position, free, wire_free = [0] * stages, [0.0] * stages, [0.0] * stages
    placed: list[list[Placed]] = [[] for _ in range(stages)]
    waiting = deque(range(stages))
    queued = [True] * stages
    while waiting:
        stage = waiting.popleft()
        queued[stage] = False
        order, done = orders[stage], placed[stage]
        while position[stage] < len(order):
            unit = order[position[stage]]
            parts = _parts(unit, place[stage])
            arrived = max([arrival[kind][piece][m] for kind, piece, m in parts], default=0.0)
            if any(arrival[kind][piece][m] < 0 for kind, piece, m in parts):
                break
            idle_from = free[stage]
            start = max(arrived, idle_from)
            transfer = max(0.0, start - max(idle_from, arrived - send)) if start > idle_from else 0.0
            end = start + run(stage, unit, start)
            before = (0.0, 0.0) if blocking else early(stage, unit)
            sends: list[tuple[Unit, float]] = []
            for one, (kind, piece, microbatch), ahead in zip(unit.passes, parts, before, strict=False):
                to = _following(kind, piece, route)
                if to is None:
                    continue
                receiver, at = holder[to[1]], end
                if receiver != stage:
                    leaves = max(end - ahead, wire_free[stage])
                    at = wire_free[stage] = leaves + send
                    sends.append((one, leaves))
                    if not queued[receiver]:
                        queued[receiver] = True
                        waiting.append(receiver)
                arrival[to[0]][to[1]][microbatch] = at
            send_start, sent = sends[0][1] if sends else end, send * len(sends)
            bubble = start - idle_from - transfer
            done.append(Placed(unit, start, end, bubble, transfer, send_start, sent, tuple(sends)))
            free[stage] = send_start + sent if blocking else end
            position[stage] += 1
    assert all(position[s] == len(orders[s]) for s in range(stages)), "the schedule deadlocks"
    return tuple(tuple(done) for done in placed)


def leaving(stage: int, unit: Unit, route: Route) -> int:
    """How many results of a unit another stage needs."""
    pieces = [route.piece(stage, c) for c in range(route.chunks)]
    following = (_following(kind, piece, route) for kind, piece, _ in _parts(unit, pieces))
    return sum(to is not None and route.stage(to[1]) != stage for to in following)


def _parts(unit: Unit, pieces: list[int]) -> list[tuple[str, int, int]]:
    """What a unit needs to arrive: (kind, piece, microbatch) of each of its passes."""
    if unit.kind == "W":
        return []
    return [("F" if one.kind == "F" else "B", pieces[one.chunk], one.microbatch) for one in unit.passes]


def _following(kind: str, piece: int, route: Route) -> tuple[str, int] | None:
    """The pass that needs this one's result: (kind, piece), None after the first piece's backward."""
    if kind == "F":
        return ("B", piece) if route.last(piece) else ("F", piece + 1)
    return None if route.first(piece) else ("B", piece - 1)
