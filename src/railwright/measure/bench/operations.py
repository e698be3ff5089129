"""One collective in torch's words: buffers, the call, and the check of every element of its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from railwright.measure.bench.session import Session
from railwright.measure.bench.sizes import PARTS

_TYPES = {"float": "float32", "int32": "int32", "double": "float64"}
_VALUES = 61
"""Elements are 0 … 60, so a sum over 200,000 ranks is still exact in float32."""


@dataclass(frozen=True)
class Operation:
    """A call to time, and a check that makes the call once on fresh data and counts wrong elements."""

    run: Callable[[], None]
    wrong: Callable[[], int]


@dataclass(frozen=True)
class _Ranks:
    """The ranks of one group, at one size.

    group   torch's; members  its ranks in order
    kind    type of an element
    count   elements of one part; length  of the larger buffer
    """

    session: Session
    group: Any
    members: Sequence[int]
    kind: Any
    count: int
    length: int

    @property
    def dist(self) -> Any:
        """torch.distributed."""
        return self.session.dist

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self.members)

    @property
    def me(self) -> int:
        """This rank's place among them."""
        return list(self.members).index(self.session.world.rank)

    def beside(self, places: int) -> int:
        """The rank so many places after this one, round the ring."""
        return self.members[(self.me + places) % self.size]

    def empty(self, elements: int) -> Any:
        """A buffer of zeros."""
        return self.session.torch.zeros(elements, dtype=self.kind, device=self.session.device)

    def data(self, place: int, elements: int) -> Any:
        """What the rank at a place brings."""
        torch = self.session.torch
        index = torch.arange(elements, dtype=torch.int64, device=self.session.device)
        return ((index * 31 + place * 17 + index // _VALUES) % _VALUES).to(self.kind)

    def total(self) -> Any:
        """The sum of what all bring, whole."""
        found = self.empty(self.length)
        for place in range(self.size):
            found += self.data(place, self.length)
        return found

    def mine(self, whole: Any) -> Any:
        """This rank's part of a buffer."""
        return whole[self.me * self.count : (self.me + 1) * self.count]


Call = Callable[[], None]
"""One call, which is timed: all that it needs is looked up before."""


def _all_reduce(ranks: _Ranks, target: Any, source: Any) -> Call:
    reduce, group = ranks.dist.all_reduce, ranks.group
    return lambda: reduce(target, group=group)


def _broadcast(ranks: _Ranks, target: Any, source: Any) -> Call:
    broadcast, first, group = ranks.dist.broadcast, ranks.members[0], ranks.group
    return lambda: broadcast(target, src=first, group=group)


def _all_gather(ranks: _Ranks, target: Any, source: Any) -> Call:
    # torch 2.13 renamed it; older ones know the long name only.
    gather = getattr(ranks.dist, "all_gather_single", None) or ranks.dist.all_gather_into_tensor
    group = ranks.group
    return lambda: gather(target, source, group=group)


def _reduce_scatter(ranks: _Ranks, target: Any, source: Any) -> Call:
    scatter = getattr(ranks.dist, "reduce_scatter_single", None) or ranks.dist.reduce_scatter_tensor
    group = ranks.group
    return lambda: scatter(target, source, group=group)


def _all_to_all(ranks: _Ranks, target: Any, source: Any) -> Call:
    exchange, group = ranks.dist.all_to_all_single, ranks.group
    return lambda: exchange(target, source, group=group)


def _send_around(ranks: _Ranks, target: Any, source: Any) -> Call:
    """Every rank sends to the next one and receives from the one before."""
    if ranks.size == 1:
        return lambda: target.copy_(source)
    dist, group, after, before = ranks.dist, ranks.group, ranks.beside(1), ranks.beside(-1)

    def call() -> None:
        sending = dist.P2POp(dist.isend, source, after, group)
        receiving = dist.P2POp(dist.irecv, target, before, group)
        for work in dist.batch_isend_irecv([sending, receiving]):
            work.wait()

    return call


@dataclass(frozen=True)
class _Collective:
    """How torch is asked for an operation, and what every rank has then.

    call    of the ranks, the target and the source
    result  of it on this rank
    sends_part, receives_part  buffers of `_Ranks.count` elements instead of all
    in_place  one buffer is source and target
    """

    call: Callable[[_Ranks, Any, Any], Call]
    result: Callable[[_Ranks], Any]
    sends_part: bool = False
    receives_part: bool = False
    in_place: bool = False


_COLLECTIVES: dict[str, _Collective] = {
    "all_reduce": _Collective(_all_reduce, _Ranks.total, in_place=True),
    "broadcast": _Collective(_broadcast, lambda ranks: ranks.data(0, ranks.length), in_place=True),
    "all_gather": _Collective(
        _all_gather,
        lambda ranks: ranks.session.torch.cat([ranks.data(i, ranks.count) for i in range(ranks.size)]),
        sends_part=True,
    ),
    "reduce_scatter": _Collective(
        _reduce_scatter, lambda ranks: ranks.mine(ranks.total()), receives_part=True
    ),
    "all_to_all": _Collective(
        _all_to_all,
        lambda ranks: ranks.session.torch.cat(
            [ranks.mine(ranks.data(i, ranks.length)) for i in range(ranks.size)]
        ),
    ),
    "sendrecv": _Collective(
        _send_around, lambda ranks: ranks.data((ranks.me - 1) % ranks.size, ranks.length)
    ),
}


def operation(
    session: Session, op: str, count: int, dtype: str, group: Any, members: Sequence[int]
) -> Operation:
    """Buffers and the call of one size.

    count    elements of one part (nccl-tests' count)
    group    torch's group; members its ranks in order
    """
    asked, length = _COLLECTIVES[op], count * (len(members) if op in PARTS else 1)
    ranks = _Ranks(session, group, members, getattr(session.torch, _TYPES[dtype]), count, length)
    sends = count if asked.sends_part else length
    source = ranks.empty(sends)
    target = source if asked.in_place else ranks.empty(count if asked.receives_part else length)
    run = asked.call(ranks, target, source)

    def wrong() -> int:
        if not asked.in_place:
            target.fill_(-1)
        source.copy_(ranks.data(ranks.me, sends))
        run()
        session.wait()
        return int((target != asked.result(ranks)).sum().item())

    return Operation(run, wrong)
