"""What a benchmark's log says, in SI units: curves, their points, and the facts written above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

MANY_RANKS = 1_000_000
"""Upper end of a rank count that a log does not bound."""


@dataclass(frozen=True)
class Point:
    """One measured size.

    size    nccl-tests' S: the total buffer, as in collectives.prediction [byte]
    time    [s]
    algbw, busbw  nccl-tests' definitions [byte/s]
    line    1-based line of the log
    wrong   elements that failed the check; None where nothing was checked
    """

    size: float
    time: float
    algbw: float
    busbw: float
    line: int
    wrong: float | None = None


@dataclass(frozen=True)
class Device:
    """One line of 'Using devices'. group is the part of NCCL_TESTS_SPLIT, 0 without it."""

    rank: int
    group: int
    host: str
    device: int
    name: str


@dataclass(frozen=True)
class Header:
    """Facts a log states about its test; 0, '' and () where it states nothing.

    threads, gpus    nThread and nGpus, per process
    processes        of the launcher's command (mpirun -np)
    devices          the listed ones, in rank order
    command          the test's own command line as far as it is in the log, for OSU the title
    version          of the tests or of the library, as printed
    split            value of NCCL_TESTS_SPLIT
    caption          a number of GPUs that the text around the table names
    """

    threads: int = 0
    gpus: int = 0
    processes: int = 0
    devices: tuple[Device, ...] = ()
    command: str = ""
    version: str = ""
    split: str = ""
    caption: int = 0

    @property
    def hosts(self) -> tuple[str, ...]:
        """Distinct hosts in order of their first rank."""
        return tuple(dict.fromkeys(d.host for d in self.devices))

    @property
    def groups(self) -> int:
        """Communicators that ran at the same time."""
        return len({d.group for d in self.devices}) or 1


@dataclass(frozen=True)
class MeasuredCurve:
    """One collective over sizes, measured.

    op        our name ('all_reduce', …, 'all_to_all'), or nccl-tests' own ('reduce', 'gather', …) for others
    ranks     of one communicator; None where the log does not tell
    ranks_low, ranks_high  what busbw/algbw allows; equal where the log is sharp
    ranks_why what the count rests on
    points    ascending size
    in_place  which of nccl-tests' two halves
    file, line   where the table begins
    tool      'nccl-tests', 'rccl-tests', 'osu', 'railwright' or 'unknown'
    notes     what is doubtful, in sentences
    """

    op: str
    ranks: int | None
    ranks_low: int
    ranks_high: int
    ranks_why: str
    points: tuple[Point, ...]
    in_place: bool
    file: str
    line: int
    tool: str = "unknown"
    header: Header = field(default_factory=Header)
    notes: tuple[str, ...] = ()


def one_half(curves: Iterable[MeasuredCurve]) -> list[MeasuredCurve]:
    """One curve per table: out-of-place where there is one."""
    kept: dict[tuple[str, int], MeasuredCurve] = {}
    for curve in curves:
        key = (curve.file, curve.line)
        if key not in kept or (kept[key].in_place and not curve.in_place):
            kept[key] = curve
    return list(kept.values())
