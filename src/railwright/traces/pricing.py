"""What the communication of a trace takes on a fabric: every collective priced with its whole family.

Groups of one family run the same collectives at the same time on different ranks and share links; the
network is asked about all of them at once.  Where a trace does not name families, groups of the same shape
(as many ranks, the same distances between them) that have no rank in common are one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import Op
from railwright.traces.graph import Group, Node, StepTrace
from railwright.traces.refusal import too_large
from railwright.traffic.demand import Communicator
from railwright.training.lanes.contention import NICS, Uses, on_links
from railwright.training.layers.communication import Predict


@dataclass(frozen=True)
class Price:
    """seconds of one communication alone; `wire` of them, the last ones, are bound by links that others may
    use [s], and `uses` says by which."""

    seconds: float
    wire: float
    uses: Uses = NICS


@dataclass
class Prices:
    """Prices of one trace on one machine; each question is asked once.

    Raises PlanError where the machine has fewer GPUs than the trace ranks, or a collective makes no sense.
    """

    trace: StepTrace
    machine: Machine
    predict: Predict | None = None
    _families: dict[str, tuple[Communicator, ...]] = field(default_factory=dict)
    _known: dict[tuple[tuple[Communicator, ...], Op, float], Price] = field(default_factory=dict)
    _lines: dict[tuple[int, int, float], tuple[Communicator, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        most = self.machine.network.fabric.num_gpus
        if max(self.trace.gpus) >= most:
            raise too_large(self.trace.name, self.trace.ranks, max(self.trace.gpus) + 1, most)
        for members in _families(self.trace.groups):
            family = tuple(self._communicator(group) for group in members)
            for group in members:
                self._families[group.name] = family

    def collective(self, node: Node) -> Price:
        """Of one collective, or of one of the equal parts it is sent in."""
        assert node.op is not None
        whole = self._price(self._families[node.group], node.op, node.size)
        return Price(whole.seconds / node.parts, whole.wire / node.parts, whole.uses)

    def message(self, source: int, target: int, size: float, of_ring: bool = False) -> Price:
        """Of one send.  A step of a ring shares links with other communication, one between stages does not
        (as in `training`)."""
        price = self._price(self._lines[source, target, size], "sendrecv", size)
        return price if of_ring else Price(price.seconds, 0.0)

    def expect(self, messages: dict[float, set[tuple[int, int]]]) -> None:
        """Name all (source, target) by size beforehand: ranks joined by sends of one size are one group."""
        for size in sorted(messages):
            lines = _lines(sorted(messages[size]))
            family = tuple(
                Communicator(np.array([self.trace.gpus[r] for r in line], np.int32), f"line {i}")
                for i, line in enumerate(lines)
            )
            for pair in messages[size]:
                self._lines[*pair, size] = family

    def _price(self, family: tuple[Communicator, ...], op: Op, size: float) -> Price:
        key = (family, op, size)
        if key not in self._known:
            if len(family[0]) == 1 or size <= 0:
                self._known[key] = Price(0.0, 0.0)
            else:
                answer = (self.predict or network_predict)(self.machine, op, size, family)
                self._known[key] = Price(answer.time, *on_links(answer, self._crosses(family)))
        return self._known[key]

    def _crosses(self, family: tuple[Communicator, ...]) -> bool:
        server = self.machine.network.fabric.server
        return any(bool((server[one.gpus] != server[one.gpus[0]]).any()) for one in family)

    def _communicator(self, group: Group) -> Communicator:
        return Communicator(np.array([self.trace.gpus[r] for r in group.ranks], np.int32), group.name)


def _families(groups: dict[str, Group]) -> list[list[Group]]:
    """Groups that run at the same time."""
    shaped: dict[tuple[object, ...], list[list[Group]]] = defaultdict(list)
    taken: dict[int, set[int]] = {}
    for group in groups.values():
        shape: tuple[object, ...] = (group.family, len(group.ranks))
        if not group.family:
            shape = ("", *(rank - group.ranks[0] for rank in group.ranks))
        for family in shaped[shape]:
            if not taken[id(family)].intersection(group.ranks):
                break
        else:
            family = []
            shaped[shape].append(family)
            taken[id(family)] = set()
        family.append(group)
        taken[id(family)].update(group.ranks)
    return [family for families in shaped.values() for family in families]


def _lines(pairs: list[tuple[int, int]]) -> list[list[int]]:
    """Ranks that sends join, walked along them from one with a single neighbour, or from the lowest."""
    near: dict[int, set[int]] = defaultdict(set)
    for a, b in pairs:
        near[a].add(b)
        near[b].add(a)
    left, found = set(near), []
    for start in sorted(near, key=lambda rank: (len(near[rank]) != 1, rank)):
        if start not in left:
            continue
        line, stack = [], [start]
        while stack:
            rank = stack.pop()
            if rank in left:
                left.discard(rank)
                line.append(rank)
                stack += sorted(near[rank] & left, reverse=True)
        found.append(line)
    return sorted(found)
