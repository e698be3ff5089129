"""Every pair of ranks, in parallel rounds, both ways at once: finds the slow port, cable or host."""

from __future__ import annotations

from railwright.measure.bench.matrix import Matrix, matrix_of
from railwright.measure.bench.schedule import rounds
from railwright.measure.bench.session import Session


def bench_pairs(session: Session, size: int, *, warmup: int = 2, iterations: int = 10) -> Matrix:
    """The matrix of all pairs; every rank calls this and gets the same one.

    size  of one message [byte]

    n ranks take n-1 rounds (n when odd), so 1,024 GPUs take 1,023 rounds instead of 523,776 turns.
    """
    torch, dist = session.torch, session.dist
    source = torch.zeros(size, dtype=torch.uint8, device=session.device)
    target = torch.zeros_like(source)
    me = session.world.rank
    dist.barrier()  # NCCL wants all ranks in the first call of a group
    times: dict[tuple[int, int], float] = {}
    for pairs in rounds(session.world.size):
        partner = next((b if a == me else a for a, b in pairs if me in (a, b)), None)

        def act(partner: int | None = partner) -> None:
            if partner is not None:
                both = [dist.P2POp(dist.isend, source, partner), dist.P2POp(dist.irecv, target, partner)]
                for work in dist.batch_isend_irecv(both):
                    work.wait()

        seconds = session.share(session.timed(act, warmup, iterations))
        for a, b in pairs:
            times[(a, b)], times[(b, a)] = seconds[a], seconds[b]
    return matrix_of(session.places, times, size)
