"""What a simulator said, and what ours says of the very problem it was given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.crosscheck.programs import Failed as Failed
from railwright.crosscheck.programs import Ran

Status = Literal["ran", "not installed", "not expressible", "failed"]


@dataclass(frozen=True)
class Found:
    """An installed simulator.

    name     as in the table: 'simgrid', 'htsim_uec', …
    program  path of what is run
    version  '' where the program does not tell
    """

    name: str
    program: str
    version: str = ""


@dataclass(frozen=True)
class Answer:
    """One simulator's time beside ours.

    time    when its last message has finished [s]
    ours    the same by our engine, for the problem as this simulator counts it [s]
    counts  what that adds to our fluid: 'fluid' (nothing), 'packets', 'one crossbar'
    ran     what running it cost
    """

    time: float
    ours: float
    counts: str
    ran: Ran
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """One line of the table.

    time, ours   see Answer; None unless status is 'ran' [s]
    difference   ours / time - 1
    cpu, wall    of the simulator's process [s]
    memory       its largest resident set [byte]
    files        what was written for it, below the folder
    notes        what differs in the model, what failed, or how to get it
    """

    simulator: str
    version: str
    status: Status
    time: float | None
    ours: float | None
    counts: str
    difference: float | None
    cpu: float | None
    wall: float | None
    memory: int | None
    files: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class CrossCheck:
    """All simulators on one problem.

    time     what our engine says, bandwidth only [s]
    latency  longest path latency, not in `time` [s]
    engine   which of our engines answered
    cpu      processor time it took, routes included [s]
    demands, ranks  their numbers
    """

    study: str
    fabric: str
    pattern: str
    routing: str
    ranks: int
    size: float
    demands: int
    time: float
    latency: float
    engine: str
    cpu: float
    folder: str
    rows: tuple[Row, ...]
