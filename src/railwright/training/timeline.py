"""The timeline: who runs what when.  Exposed communication is read off it, never assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.training.route import Kind

Lane = Literal["compute", "tp", "cp", "ep", "emb", "pp", "dp", "host", "copy"]


@dataclass(frozen=True)
class Event:
    """One span on one lane of one representative rank.

    rank    pipeline stage index (its representative GPU)
    lane    'compute' or the communication kind: 'tp', 'ep', 'pp', 'dp'; 'host' for framework
            time, 'copy' to and from host memory
    kind    for colours and sums: 'attention', 'mlp', 'experts', 'forward', 'backward', 'optimizer', 'adam',
            'all_to_all', 'all_gather', 'reduce_scatter', 'send', 'bubble', …
    start, end  [s]
    size    nccl-tests' S of a communication; 0 for compute, and for the later parts of one in parts [byte]
    unit    the pass it belongs to: (kind as in `schedule.Unit`, chunk, microbatch); None outside of passes
    """

    rank: int
    lane: Lane
    name: str
    kind: str
    start: float
    end: float
    size: float = 0.0
    unit: tuple[Kind, int, int] | None = None


@dataclass(frozen=True)
class Timeline:
    """All events of one step, ordered by (rank, start)."""

    events: tuple[Event, ...]
    span: float
