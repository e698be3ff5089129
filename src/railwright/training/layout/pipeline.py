"""Passes of all stages composed into one step: who waits for whom, and for how much of it a transfer.

Legend: p stages, v chunks, m microbatches; passes run in the order their schedule gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from railwright.training.layout.route import Orders, Route, Unit


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


Part = tuple[str, int, int]
"""(kind, piece, microbatch) of a pass."""

Runner = Callable[[int, Unit, float], float]
"""(stage, unit, start) -> duration of the pass [s]; called in time order within a stage."""

Early = Callable[[int, Unit], tuple[float, ...]]
"""(stage, unit of two passes) -> how long before its end the result of each is there [s]; that of a unit of
one pass is there when it ends."""


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
    step = _Placing(orders, route or Route(len(orders), chunks), microbatches, send, blocking)
    while step.awake:
        step.place(step.awake.popleft(), run, early)
    assert list(map(len, step.placed)) == list(map(len, orders)), "the schedule deadlocks"
    return tuple(map(tuple, step.placed))


class _Placing:
    """All stages while their passes are placed; arguments as in `compose`.

    arrival   kind -> piece -> microbatch -> when what that pass needs is there [s]; -1: not yet
    pieces    stage -> chunk -> piece; holder  piece -> stage
    follows   kind -> piece -> the pass that needs its result
    free      stage -> when it is done with its last pass [s]
    link_free stage -> when it is done with its last send [s]
    awake     stages that may have something to place, in the order in which they are looked at
    """

    def __init__(self, orders: Orders, route: Route, microbatches: int, send: float, blocking: bool) -> None:
        stages = range(len(orders))
        self.orders, self.send, self.blocking = orders, send, blocking
        self.arrival = {
            "F": [[0.0 if route.first(p) else -1.0] * microbatches for p in range(route.pieces)],
            "B": [[-1.0] * microbatches for _ in range(route.pieces)],
        }
        self.pieces = [[route.piece(s, c) for c in range(route.chunks)] for s in stages]
        self.holder = [route.stage(piece) for piece in range(route.pieces)]
        self.follows = {
            kind: [_following(kind, piece, route) for piece in range(route.pieces)] for kind in ("F", "B")
        }
        self.free, self.link_free = [0.0 for _ in stages], [0.0 for _ in stages]
        self.placed: list[list[Placed]] = [[] for _ in stages]
        self.awake = deque(stages)

    def place(self, stage: int, run: Runner, early: Early) -> None:
        """Place the next passes of a stage, up to one whose input is not there yet."""
        order, placed, pieces = self.orders[stage], self.placed[stage], self.pieces[stage]
        for unit in islice(order, len(placed), None):
            parts = _parts(unit, pieces)
            arrived = 0.0
            for kind, piece, microbatch in parts:
                if (there := self.arrival[kind][piece][microbatch]) < 0:
                    return
                arrived = max(arrived, there)
            start = idle_from = self.free[stage]
            transfer = 0.0
            if arrived > idle_from:
                start, transfer = arrived, arrived - max(idle_from, arrived - self.send)
            end = start + run(stage, unit, start)
            sends: tuple[tuple[Unit, float], ...] = ()
            if len(parts) > 1:
                ahead = (0.0, 0.0) if self.blocking else early(stage, unit)
                for one, part, before in zip(unit.passes, parts, ahead, strict=True):
                    sends += self._deliver(stage, one, part, end - before, end)
            elif parts:
                sends = self._deliver(stage, unit, parts[0], end, end)
            send_start, sent = sends[0][1] if sends else end, self.send * len(sends)
            bubble = start - idle_from - transfer
            placed.append(Placed(unit, start, end, bubble, transfer, send_start, sent, sends))
            self.free[stage] = send_start + sent if self.blocking else end

    def _deliver(
        self, stage: int, one: Unit, part: Part, there: float, end: float
    ) -> tuple[tuple[Unit, float], ...]:
        """Hand the result of a pass to the one that needs it; what is sent, and when it leaves [s].

        there  when the result can be sent, `end` when it is there on its own stage [s]
        """
        kind, piece, microbatch = part
        to = self.follows[kind][piece]
        if to is None:
            return ()
        following, onward = to
        receiver = self.holder[onward]
        if receiver == stage:
            self.arrival[following][onward][microbatch] = end
            return ()
        leaves = max(there, self.link_free[stage])
        self.arrival[following][onward][microbatch] = self.link_free[stage] = leaves + self.send
        if receiver not in self.awake:
            self.awake.append(receiver)
        return ((one, leaves),)


def leaving(stage: int, unit: Unit, route: Route) -> int:
    """How many results of a unit another stage needs."""
    pieces = [route.piece(stage, c) for c in range(route.chunks)]
    following = (_following(kind, piece, route) for kind, piece, _ in _parts(unit, pieces))
    return sum(to is not None and route.stage(to[1]) != stage for to in following)


def _parts(unit: Unit, pieces: list[int]) -> tuple[Part, ...]:
    """What a unit needs to arrive, for each of its passes."""
    kind, chunk, microbatch, other, back = unit
    if kind == "W":
        return ()
    if kind == "FB":
        return ("F", pieces[chunk], microbatch), ("B", pieces[back], other)
    return (("F" if kind == "F" else "B", pieces[chunk], microbatch),)


def _following(kind: str, piece: int, route: Route) -> tuple[str, int] | None:
    """The pass that needs this one's result: (kind, piece), None after the first piece's backward."""
    if kind == "F":
        return ("B", piece) if route.last(piece) else ("F", piece + 1)
    return None if route.first(piece) else ("B", piece - 1)
