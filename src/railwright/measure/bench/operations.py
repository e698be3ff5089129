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


def operation(
    session: Session, op: str, count: int, dtype: str, group: Any, members: Sequence[int]
) -> Operation:
    """Buffers and the call of one size.

    count    elements of one part (nccl-tests' count)
    group    torch's group; members its ranks in order
    """
    torch, dist = session.torch, session.dist
    n, me = len(members), list(members).index(session.world.rank)
    kind = getattr(torch, _TYPES[dtype])
    length = count * (n if op in PARTS else 1)

    def data(rank: int, elements: int) -> Any:
        index = torch.arange(elements, dtype=torch.int64, device=session.device)
        return ((index * 31 + rank * 17 + index // _VALUES) % _VALUES).to(kind)

    def total(elements: int) -> Any:
        found = torch.zeros(elements, dtype=kind, device=session.device)
        for rank in range(n):
            found += data(rank, elements)
        return found

    if op in ("all_reduce", "broadcast"):
        buffer = torch.zeros(length, dtype=kind, device=session.device)

        def run() -> None:
            if op == "all_reduce":
                dist.all_reduce(buffer, group=group)
            else:
                dist.broadcast(buffer, src=members[0], group=group)

        def wrong() -> int:
            buffer.copy_(data(me, length))
            run()
            session.wait()
            expected = total(length) if op == "all_reduce" else data(0, length)
            return int((buffer != expected).sum().item())

        return Operation(run, wrong)

    sends, receives = {"all_gather": (count, length), "reduce_scatter": (length, count)}.get(
        op, (length, length)
    )
    source = torch.zeros(sends, dtype=kind, device=session.device)
    target = torch.zeros(receives, dtype=kind, device=session.device)
    after, before = members[(me + 1) % n], members[(me - 1) % n]

    # torch 2.13 renamed both; older ones know the long names only.
    gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
    scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

    def call() -> None:
        if op == "all_gather":
            gather(target, source, group=group)
        elif op == "reduce_scatter":
            scatter(target, source, group=group)
        elif op == "all_to_all":
            dist.all_to_all_single(target, source, group=group)
        elif n == 1:
            target.copy_(source)
        else:
            sending = dist.P2POp(dist.isend, source, after, group)
            receiving = dist.P2POp(dist.irecv, target, before, group)
            for work in dist.batch_isend_irecv([sending, receiving]):
                work.wait()

    def expected() -> Any:
        if op == "all_gather":
            return torch.cat([data(rank, count) for rank in range(n)])
        if op == "reduce_scatter":
            return total(length)[me * count : (me + 1) * count]
        if op == "all_to_all":
            return torch.cat([data(rank, length)[me * count : (me + 1) * count] for rank in range(n)])
        return data((me - 1) % n, length)

    def count_wrong() -> int:
        source.copy_(data(me, sends))
        target.fill_(-1)
        call()
        session.wait()
        return int((target != expected()).sum().item())

    return Operation(call, count_wrong)
