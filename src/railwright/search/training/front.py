"""Which of the layouts tried are told: the fastest, and those that no other beats."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

DIGITS = 9
"""Times, and memories, that agree to so many digits are equal.
The same parts added in another order differ in the 16th, timing and simulation in the 12th."""

Group = tuple[Any, ...]
BLOCK, CLASS, OWN = range(3)
"""What is bounded: a block, or a single layout by its class or by its own passes.  Of equal bounds the ones
that may still rise come first."""

Entry = tuple[float, int, int, int]
"""Of the search's heap: bound [s], of which of these, the block and the place there."""


@dataclass(frozen=True)
class Tried:
    """A layout, its place in the space, what makes it one of its own, what was known of it before [s], its
    exact time [s] and memory [byte], and how many axes it changes of the job's own layout."""

    block: int
    at: int
    group: Group
    bound: float
    time: float
    memory: float
    changes: int

    @property
    def order(self) -> tuple[float, float, int, int, int]:
        """Faster first; of equal times less memory, then what is nearer to the job's own layout, then what
        comes first in the space."""
        return (rounded(self.time), rounded(self.memory), self.changes, self.block, self.at)


@dataclass
class Listed:
    """The fastest layouts so far, one of each group.

    top      how many are listed
    limit    the time above which no layout is listed, rounded [s]
    tried    group -> its layouts that were timed
    first    group -> the best of them
    waiting  group -> layouts that need not be timed while that one stays
    """

    top: int
    limit: float = inf
    tried: dict[Group, list[Tried]] = field(default_factory=dict)
    first: dict[Group, Tried] = field(default_factory=dict)
    waiting: dict[Group, list[Entry]] = field(default_factory=dict)

    def best(self) -> list[Tried]:
        return sorted(self.first.values(), key=lambda one: one.order)[: self.top]

    def beats(self, group: Group, bound: float) -> bool:
        """Whether the best of a group is faster than all that take at least so long."""
        return group in self.first and rounded(self.first[group].time) < rounded(bound)

    def add(self, one: Tried) -> None:
        self.tried.setdefault(one.group, []).append(one)
        self._rank(one.group)

    def wait(self, group: Group, entry: Entry) -> None:
        self.waiting.setdefault(group, []).append(entry)

    def drop(self, one: Tried) -> list[Entry]:
        """Take the best of a group out; returns the layouts that waited behind it."""
        self.tried[one.group].remove(one)
        self._rank(one.group)
        return self.waiting.pop(one.group, [])

    def _rank(self, group: Group) -> None:
        self.first.pop(group, None)
        if self.tried[group]:
            self.first[group] = min(self.tried[group], key=lambda one: one.order)
        best = self.best()
        self.limit = rounded(best[-1].time) if len(best) == self.top else inf


def rounded(value: float) -> float:
    """To `DIGITS` digits; never in another order than the values."""
    return float(f"{value:.{DIGITS}g}")


def left_out(overfull: Iterable[Tried], listed: Sequence[Tried], top: int) -> list[Tried]:
    """Layouts that would be among the `top` listed if they could be held, one of each group, in order."""
    last = listed[-1].order if len(listed) == top else (inf,)
    found: dict[Group, Tried] = {}
    for one in sorted(overfull, key=lambda one: one.order):
        if one.order < last:
            found.setdefault(one.group, one)
    return list(found.values())


def unbeaten(
    found: Iterable[Tried], sent: Callable[[Tried], float], holds: Callable[[Tried], bool]
) -> list[Tried]:
    """Those that can be held and no other of them beats: none is as fast, as lean and as light on the
    network, and better in one.  Of equals the first; fastest first.

    sent   what a GPU sends per step in groups that span servers [byte]
    holds  asked only of layouts that none that can be held beats
    """
    kept: list[tuple[float, float]] = []
    front: list[Tried] = []
    ranked = [((rounded(one.time), rounded(one.memory), rounded(sent(one))), one) for one in found]
    for (_, memory, network), one in sorted(ranked, key=lambda each: (each[0], each[1].order)):
        if not any(lean <= memory and light <= network for lean, light in kept) and holds(one):
            kept.append((memory, network))
            front.append(one)
    return front
