"""A step as every trace format sees it: nodes of ranks, what each waits for, and the groups they meet in.

Ranks are numbered 0 … n-1; without a placement rank i is GPU i of the fabric.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from railwright.collectives.prediction import Op

Kind = Literal["compute", "host", "copy", "collective", "send", "receive"]

ALONE: tuple[Kind, ...] = ("compute", "host", "copy")
"""What a rank does without others: on its GPU, on its host, between its memory and the host's."""

OPS: tuple[Op, ...] = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
"""Collectives that can be priced and replayed."""


@dataclass(frozen=True, slots=True)
class Node:
    """One thing that one rank does.

    index    unique in its rank
    after    nodes of the same rank that must have finished
    seconds  what it took where it was recorded or predicted; replay prices communication itself [s]
    op, size  of a collective: nccl-tests' op and S; of a send or receive: size is the message [byte]
    group    name of the communicator of a collective
    peer, tag   of a send or receive: the other rank, and which message between the two it is
    parts    in how many equal parts the collective is sent of which this is one: it takes 1/parts of the
             time of the whole, whose size is `size`
    """

    index: int
    name: str
    kind: Kind
    after: tuple[int, ...] = ()
    seconds: float = 0.0
    op: Op | None = None
    size: float = 0.0
    group: str = ""
    peer: int = -1
    tag: int = 0
    parts: int = 1


@dataclass(frozen=True)
class Group:
    """A communicator of a trace.

    family   groups of one family run the same collectives at the same time on different ranks
             ('tp', 'dp', …); '' where the trace does not say
    """

    name: str
    ranks: tuple[int, ...]
    family: str = ""


@dataclass(frozen=True)
class StepTrace:
    """One step of all ranks.

    nodes    rank -> its nodes; called again for every pass over them
    groups   name -> communicator
    gpus     rank -> GPU of the fabric
    alike    all ranks do the same: their nodes differ in the names of groups alone, groups of one family have
             the same number of ranks, and no rank sends to one other
    in_turn  nodes are listed as the program calls them, and a group's collectives run in that order; without,
             what nodes wait for alone orders them
    num_nodes  of all ranks together, 0 where that is not known before they are made
    """

    name: str
    ranks: int
    nodes: Callable[[int], tuple[Node, ...]]
    groups: dict[str, Group]
    gpus: tuple[int, ...]
    notes: tuple[str, ...] = field(default=())
    alike: bool = False
    in_turn: bool = True
    num_nodes: int = 0

    def __iter__(self) -> Iterator[tuple[int, tuple[Node, ...]]]:
        return ((rank, self.nodes(rank)) for rank in range(self.ranks))
