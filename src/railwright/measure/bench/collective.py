"""A collective over sizes, in one group or in several at the same time."""

from __future__ import annotations

from collections.abc import Iterable

from railwright import __version__
from railwright.collectives.prediction import Op
from railwright.collectives.rates import bus_factor
from railwright.measure.bench.operations import operation
from railwright.measure.bench.places import split
from railwright.measure.bench.report import BenchReport, BenchRow, Cell
from railwright.measure.bench.session import Session
from railwright.measure.bench.sizes import counts, total


def bench_collective(
    session: Session,
    op: Op,
    sizes: Iterable[float],
    *,
    dtype: str = "float",
    splitting: str = "none",
    warmup: int = 5,
    iterations: int = 20,
    check: bool = True,
) -> BenchReport:
    """Measure `op`; every rank calls this and gets the same report.

    A size's time is the mean over the ranks of a group, as nccl-tests' -a 1, of the slowest group.
    """
    wanted = sorted(sizes)
    members = split(splitting, session.places)
    groups = session.groups(members)
    mine = next(i for i, ranks in enumerate(members) if session.world.rank in ranks)
    ranks = max(len(m) for m in members)
    rows = []
    for count in counts(op, wanted, ranks, dtype):
        act = operation(session, op, count, dtype, groups[mine], members[mine])
        wrong = sum(session.share(act.wrong())) if check else None
        times = session.share(session.timed(act.run, warmup, iterations))
        time = max(sum(times[r] for r in m) / len(m) for m in members)
        size = total(op, count, ranks, dtype)
        algbw = size / time
        cell = Cell(time, algbw, algbw * bus_factor(op, ranks), None if wrong is None else int(wrong))
        rows.append(BenchRow(size, count, cell))
    return BenchReport(
        op=op,
        version=__version__,
        backend=session.backend,
        dtype=dtype,
        places=session.places,
        groups=tuple(map(tuple, members)),
        setting=(int(wanted[0]), int(wanted[-1]), _factor(wanted), warmup, iterations),
        split=splitting,
        rows=tuple(rows),
    )


def _factor(sizes: list[float]) -> int:
    return round(sizes[1] / sizes[0]) if len(sizes) > 1 else 1
