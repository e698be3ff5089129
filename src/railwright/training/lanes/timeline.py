"""The timeline: who runs what when.  Exposed communication is read off it, never assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.training.layout.route import Kind

Lane = Literal["compute", "tp", "cp", "ep", "emb", "pp", "dp", "host", "copy"]

WAITS = ("bubble", "transfer")
"""Kinds of events in which the compute lane waits: for another stage's work, and for a message from or to it
(exposed pipeline communication)."""

MERGED = "passes"
"""Kind of an event that stands for many passes of a stage, one after the other."""


@dataclass(frozen=True)
class Share:
    """Time of one kind of work on one rank, in one step, or in the passes that one event stands for.

    kind     'compute', 'bubble', 'host', 'copy', 'adam', 'data', or 'tp', 'cp', 'ep', 'emb', 'pp', 'dp'
             communication
    busy     seconds its lane is busy; for 'pp' with what it waits for messages of other stages
    exposed  seconds of it during which the rank computes nothing (for 'compute' and 'host': all of it);
             the exposed shares of all kinds add up to the step, or to the event
    """

    kind: str
    busy: float
    exposed: float


@dataclass(frozen=True)
class Event:
    """One span on one lane of one representative rank.

    rank    pipeline stage index (its representative GPU)
    lane    'compute', 'host' for launches, loading and CPU Adam, 'copy' to and from host memory, or the
            communication kind
    kind    for colours and sums: 'attention', 'mlp', 'experts', 'forward', 'backward', 'optimizer', 'adam',
            'all_to_all', 'all_gather', 'reduce_scatter', 'send', 'bubble', 'transfer', …
    start, end  [s]
    size    nccl-tests' S of a communication; 0 for compute, and for the later parts of one in parts [byte]
    unit    the pass it belongs to: (kind as in `route.Unit`, chunk, microbatch); None outside of passes
    inside  of a whole pass, or of many as one, what it consists of; the dp lane has events of its own
    """

    rank: int
    lane: Lane
    name: str
    kind: str
    start: float
    end: float
    size: float = 0.0
    unit: tuple[Kind, int, int] | None = None
    inside: tuple[Share, ...] = ()


@dataclass(frozen=True)
class Timeline:
    """All events of one step, ordered by (rank, start).

    span    of the step [s]
    coarse  from when to when whole passes stand for the operators and messages inside them; passes that reach
            beyond it, and a stage's first and last, may be in detail; None where every one is an event [s]
    """

    events: tuple[Event, ...]
    span: float
    coarse: tuple[float, float] | None = None
