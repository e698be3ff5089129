"""Passes of all stages composed into one step: who waits for whom, and for how much of it a transfer.

Legend: p stages, v chunks, m microbatches; passes run in the order their schedule gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from railwright.training.schedule import Orders, Unit


class Placed(NamedTuple):
    """One pass on one stage.

    start, end  of the pass [s]
    bubble      waiting before it for another stage's work [s]
    transfer    waiting before it for a transfer between stages [s]
    send_start  when its result leaves: sends of one stage go one after the other [s]
    sent        length of its own send [s]; it blocks the stage where sends are not overlapped
    """

    unit: Unit
    start: float
    end: float
    bubble: float
    transfer: float
    send_start: float
    sent: float


Runner = Callable[[int, Unit, float], float]
"""(stage, unit, start) -> duration of the pass [s]; called in time order within a stage."""


def compose(
    orders: Orders, chunks: int, microbatches: int, run: Runner, send: float, blocking: bool
) -> tuple[tuple[Placed, ...], ...]:
    """Place every pass of every stage as early as its order and its input allow.

    send      time of one transfer between neighbouring stages [s]
    blocking  whether the sender computes nothing while it sends

    A forward needs the forward of the previous piece, a backward that of the next piece.
    """
    stages, pieces = len(orders), len(orders) * chunks
    arrival: dict[str, list[list[float]]] = {
        kind: [[-1.0] * microbatches for _ in range(pieces)] for kind in "FB"
    }
    for i in range(microbatches):
        arrival["F"][0][i] = 0.0
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
            kind, chunk, microbatch = unit
            piece = chunk * stages + stage
            arrived = arrival[kind][piece][microbatch]
            if arrived < 0:
                break
            idle_from = free[stage]
            start = max(arrived, idle_from)
            transfer = max(0.0, start - max(idle_from, arrived - send)) if start > idle_from else 0.0
            end = start + run(stage, unit, start)
            following = _following(kind, piece, pieces)
            sends = following is not None and following[1] % stages != stage
            sent = send if sends else 0.0
            send_start = max(end, wire_free[stage]) if sends else end
            if sends:
                wire_free[stage] = send_start + sent
            bubble = start - idle_from - transfer
            done.append(Placed(unit, start, end, bubble, transfer, send_start, sent))
            free[stage] = send_start + sent if blocking else end
            position[stage] += 1
            if following is not None:
                to_kind, to_piece = following
                arrival[to_kind][to_piece][microbatch] = send_start + sent
                receiver = to_piece % stages
                if receiver != stage and not queued[receiver]:
                    queued[receiver] = True
                    waiting.append(receiver)
    assert all(position[s] == len(orders[s]) for s in range(stages)), "the schedule deadlocks"
    return tuple(tuple(done) for done in placed)


def _following(kind: str, piece: int, pieces: int) -> tuple[str, int] | None:
    """The pass that needs this one's result: (kind, piece), None after the first piece's backward."""
    if kind == "F":
        return ("F", piece + 1) if piece + 1 < pieces else ("B", piece)
    return ("B", piece - 1) if piece else None
