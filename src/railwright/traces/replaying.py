"""A trace replayed on a fabric: every rank's nodes as events, collectives when all their members are there.

A rank computes one thing at a time, and its host and its copies do one thing at a time each; the
collectives of a group run one after the other, in program order as a communicator's do, or as their members
come where the trace has no such order.  A collective begins when its last member has reached it and takes
what `pricing` says; communications that meet on a rank share its links in the part that is bound by bandwidth
(`training.lanes.contention`).  A send does not wait for its receiver.
Computing takes what the trace says: what communication beside it slowed down is in there already.
Of ranks that are all alike (`StepTrace.alike`) the first is placed and stands for all: they begin together,
do the same, and a collective takes the same in all groups of its family, so nobody ever waits for anybody.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.traces.graph import ALONE, Node, StepTrace
from railwright.traces.pricing import Price, Prices
from railwright.training.lanes.contention import Uses, stretches
from railwright.training.layers.communication import Predict

MOST_NODES = 3_000_000
"""Nodes of all ranks that are placed, together: about 3 GB, and a minute of one core."""


class Run(NamedTuple):
    """One node placed in time: reached (all it waits for is done), began, ended [s]; communication waits for
    other ranks in between.  `cause` is the (rank, place) whose end let it begin, None at the start."""

    reached: float
    start: float
    end: float
    cause: tuple[int, int] | None


@dataclass(frozen=True)
class Replayed:
    """One step of a trace on a fabric.

    time     until the last node of the last rank has ended [s]
    runs     rank -> its nodes placed in time
    """

    trace: StepTrace
    time: float
    nodes: tuple[tuple[Node, ...], ...]
    runs: tuple[tuple[Run, ...], ...]


@dataclass
class _Transfer:
    """A communication that is under way on some ranks."""

    fixed: float
    wire: float
    ranks: tuple[int, ...]
    members: list[tuple[int, int]]
    since: float
    uses: Uses
    stretch: float = 1.0
    version: int = 0


def replay(trace: StepTrace, machine: Machine, predict: Predict | None = None) -> Replayed:
    """Place every node of every rank in time.

    predict  how one collective is priced; default: the network's, `collectives.predict`
    Raises PlanError where ranks call different collectives, nodes wait for each other or take no time at all,
    or the trace is larger than MOST_NODES or than the machine.
    """
    return _Replay(trace, machine, predict).run()


class _Replay:
    def __init__(self, trace: StepTrace, machine: Machine, predict: Predict | None) -> None:
        self.trace = trace
        self.nodes: list[tuple[Node, ...]] = []
        total = 0
        for _, nodes in [(0, trace.nodes(0))] if trace.alike else trace:
            self.nodes.append(nodes)
            total += len(nodes)
            if total > MOST_NODES:
                raise PlanError(
                    f"{trace.name} has more than {MOST_NODES:,} nodes on {trace.ranks:,} ranks, and no more "
                    "are replayed; replay fewer ranks or a shorter trace."
                )
        self.prices = Prices(trace, machine, predict)
        self.place = [{node.index: i for i, node in enumerate(nodes)} for nodes in self.nodes]
        self.rings = [_ring_steps(nodes, place) for nodes, place in zip(self.nodes, self.place, strict=True)]
        self.waiting = [[len(set(node.after)) for node in nodes] for nodes in self.nodes]
        self.followers: list[list[list[int]]] = [[[] for _ in nodes] for nodes in self.nodes]
        self.runs: list[list[Run | None]] = [[None] * len(nodes) for nodes in self.nodes]
        self.reached: list[list[float]] = [[0.0] * len(nodes) for nodes in self.nodes]
        self.cause: list[list[tuple[int, int] | None]] = [[None] * len(nodes) for nodes in self.nodes]
        self.call: list[dict[int, int]] = [{} for _ in self.nodes]
        self.came: dict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        self.complete: dict[str, dict[int, None]] = defaultdict(dict)
        self.turn: dict[str, int] = defaultdict(int)
        self.met: set[str] = set()
        self.posted: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        self.arrived: dict[tuple[int, int, int], list[tuple[int, int]]] = defaultdict(list)
        self.ready: dict[tuple[int, str], list[tuple[float, int]]] = defaultdict(list)
        self.busy: set[tuple[int, str]] = set()
        self.transfers: dict[int, _Transfer] = {}
        self.on_rank: list[set[int]] = [set() for _ in self.nodes]
        self.heap: list[tuple[float, int, int, int, int]] = []
        self.counter = 0
        self._link()

    def run(self) -> Replayed:
        """Events in time order until nothing is left."""
        for rank, nodes in enumerate(self.nodes):
            for i in range(len(nodes)):
                if not self.waiting[rank][i]:
                    self._reach(rank, i, 0.0, None)
        while self.heap:
            now, _, what, a, b = heapq.heappop(self.heap)
            if what == 0:
                self.busy.discard((a, self.nodes[a][b].kind))
                self._finish(a, b, self.reached[a][b], now)
                self._next(a, self.nodes[a][b].kind, now, (a, b))
            elif a in self.transfers and self.transfers[a].version == b:
                self._progress(a, now)
        placed = tuple(self._placed(rank) for rank in range(len(self.nodes)))
        time = max((run.end for runs in placed for run in runs), default=0.0)
        if not time:
            raise PlanError(
                f"in {self.trace.name} no rank computes for any time or sends anything, so there is nothing "
                "to replay; record the step with its times (chakra_trace_link)."
            )
        times = self.trace.ranks if self.trace.alike else 1
        return Replayed(self.trace, time, tuple(self.nodes) * times, placed * times)

    def _placed(self, rank: int) -> tuple[Run, ...]:
        found = []
        for i, run in enumerate(self.runs[rank]):
            if run is None:
                raise PlanError(self._stuck(rank, i))
            found.append(run)
        return tuple(found)

    def _link(self) -> None:
        """Who follows whom; which call of its group a collective is; which messages there are."""
        messages: dict[float, set[tuple[int, int]]] = defaultdict(set)
        calls: dict[str, list[tuple[int, Node]]] = {}
        for rank, nodes in enumerate(self.nodes):
            count: dict[str, int] = defaultdict(int)
            for i, node in enumerate(nodes):
                for before in set(node.after):
                    self.followers[rank][self.place[rank][before]].append(i)
                if node.kind == "send":
                    messages[node.size].add((rank, node.peer))
                if node.kind != "collective":
                    continue
                self.call[rank][i] = count[node.group]
                known = calls.setdefault(node.group, [])
                if count[node.group] == len(known):
                    known.append((rank, node))
                first, other = known[count[node.group]]
                count[node.group] += 1
                if (other.op, other.size) != (node.op, node.size):
                    raise PlanError(
                        f"{self.trace.name}: ranks of group '{node.group}' call different collectives: "
                        f"number {count[node.group]} is {_called(other)} on rank {first} and {_called(node)} "
                        f"on rank {rank}."
                    )
        self.prices.expect(messages)

    def _reach(self, rank: int, i: int, now: float, cause: tuple[int, int] | None) -> None:
        """All that a node waits for on its rank is done."""
        node = self.nodes[rank][i]
        self.reached[rank][i], self.cause[rank][i] = now, cause
        if node.kind in ALONE:
            heapq.heappush(self.ready[rank, node.kind], (now, i))
            self._next(rank, node.kind, now, cause)
        elif node.kind == "collective":
            call = self.call[rank][i]
            self.came[node.group, call].append((rank, i))
            if len(self.came[node.group, call]) == self._members(node.group):
                self.complete[node.group][call] = None
                self._meet(node.group, now)
        elif node.kind == "send":
            price = self.prices.message(rank, node.peer, node.size, i in self.rings[rank])
            self._begin(price, [(rank, i)], now, {})
        else:
            self.posted[node.peer, rank, node.tag].append((rank, i))
            self._deliver((node.peer, rank, node.tag), now)

    def _next(self, rank: int, kind: str, now: float, cause: tuple[int, int] | None) -> None:
        """Start the next of a rank's compute or host nodes, if it is free."""
        queue = self.ready[rank, kind]
        if kind not in ALONE or not queue or (rank, kind) in self.busy:
            return
        reached, i = heapq.heappop(queue)
        self.busy.add((rank, kind))
        if now > reached:
            self.cause[rank][i] = cause
        self.runs[rank][i] = Run(reached, now, now + self.nodes[rank][i].seconds, self.cause[rank][i])
        self._push(now + self.nodes[rank][i].seconds, 0, rank, i)

    def _meet(self, group: str, now: float, ended: Mapping[int, int] | None = None) -> None:
        """Begin the collective whose turn it is, if all its members have come and the group has no other.

        ended  by rank, the place of the collective whose end made it its turn
        """
        complete = self.complete[group]
        call = self.turn[group] if self.trace.in_turn else next(iter(complete), -1)
        if call not in complete or group in self.met:
            return
        del complete[call]
        self.met.add(group)
        came = self.came[group, call]
        rank, i = came[0]
        self._begin(self.prices.collective(self.nodes[rank][i]), came, now, ended or {})

    def _members(self, group: str) -> int:
        """Ranks of a group that are placed."""
        return 1 if self.trace.alike else len(self.trace.groups[group].ranks)

    def _begin(
        self, price: Price, members: list[tuple[int, int]], now: float, ended: Mapping[int, int]
    ) -> None:
        latest = max(members, key=lambda one: self.reached[one[0]][one[1]])
        queued = self.reached[latest[0]][latest[1]] < now
        for rank, i in members:
            if queued:
                self.cause[rank][i] = (rank, ended[rank])
            elif latest != (rank, i):
                self.cause[rank][i] = self.cause[latest[0]][latest[1]]
            self.runs[rank][i] = Run(self.reached[rank][i], now, now, self.cause[rank][i])
        self.counter += 1
        key = self.counter
        ranks = tuple(rank for rank, _ in members)
        self.transfers[key] = _Transfer(
            price.seconds - price.wire, price.wire, ranks, members, now, price.uses
        )
        if price.seconds - price.wire <= 0 and price.wire > 0:
            self._onto(key, now)
        else:
            self._push(now + price.seconds - price.wire, 1, key, 0)

    def _onto(self, key: int, now: float) -> None:
        """A transfer begins the part that is bound by links; those it meets slow down."""
        for rank in self.transfers[key].ranks:
            self.on_rank[rank].add(key)
        self._shared(key, now)

    def _shared(self, key: int, now: float) -> None:
        touched = sorted({other for rank in self.transfers[key].ranks for other in self.on_rank[rank]})
        known: dict[tuple[int, ...], dict[int, float]] = {}
        for other in touched:
            one = self.transfers[other]
            one.wire = max(0.0, one.wire - (now - one.since) / one.stretch) if one.version else one.wire
            one.since = now
            one.stretch = max(self._stretch(other, rank, known) for rank in one.ranks)
            one.version += 1
            self._push(now + one.wire * one.stretch, 1, other, one.version)

    def _stretch(self, key: int, rank: int, known: dict[tuple[int, ...], dict[int, float]]) -> float:
        """How many times as long as alone a transfer takes beside the others on a rank.

        known  of those that met elsewhere, which are the same ones on most ranks
        """
        met = tuple(sorted(self.on_rank[rank]))
        if met not in known:
            known[met] = dict(zip(met, stretches([self.transfers[one].uses for one in met]), strict=True))
        return known[met][key]

    def _progress(self, key: int, now: float) -> None:
        """A transfer's own part, or all of it, is over."""
        one = self.transfers[key]
        if not one.version and one.wire > 0:
            self._onto(key, now)
            return
        if one.version:
            for rank in one.ranks:
                self.on_rank[rank].discard(key)
            self._shared(key, now)
        del self.transfers[key]
        node = self.nodes[one.members[0][0]][one.members[0][1]]
        for rank, i in one.members:
            run = self.runs[rank][i]
            assert run is not None
            self.runs[rank][i] = run._replace(end=now)
        for rank, i in one.members:
            self._finish(rank, i, self.reached[rank][i], now)
        if node.kind == "send":
            rank, i = one.members[0]
            self.arrived[rank, node.peer, node.tag].append((rank, i))
            self._deliver((rank, node.peer, node.tag), now)
        else:
            # Not before all members have gone on: the next one has queued for this one.
            self.turn[node.group] += 1
            self.met.discard(node.group)
            self._meet(node.group, now, dict(one.members))

    def _deliver(self, key: tuple[int, int, int], now: float) -> None:
        while self.posted[key] and self.arrived[key]:
            rank, i = self.posted[key].pop(0)
            sender = self.arrived[key].pop(0)
            sent = self.runs[sender[0]][sender[1]]
            assert sent is not None
            waited = sent.end > self.reached[rank][i]
            cause = sender if waited else self.cause[rank][i]
            self.runs[rank][i] = Run(self.reached[rank][i], now, now, cause)
            self._finish(rank, i, self.reached[rank][i], now)

    def _finish(self, rank: int, i: int, reached: float, now: float) -> None:
        for follower in self.followers[rank][i]:
            self.waiting[rank][follower] -= 1
            if not self.waiting[rank][follower]:
                self._reach(rank, follower, now, (rank, i))

    def _push(self, instant: float, what: int, a: int, b: int) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (instant, self.counter, what, a, b))

    def _stuck(self, rank: int, i: int) -> str:
        """Why a node never starts: back through what each waits for, on whatever rank, to the first cause."""
        seen: set[tuple[int, int]] = set()
        held: tuple[int, int] | str = (rank, i)
        while isinstance(held, tuple):
            rank, i = held
            held = (
                "it waits for a node that never ends, which waits for it."
                if held in seen
                else self._held(*held)
            )
            seen.add((rank, i))
        node = self.nodes[rank][i]
        return f"{self.trace.name}: rank {rank}'s '{node.name}' (node {node.index}) never starts: {held}"

    def _held(self, rank: int, i: int) -> tuple[int, int] | str:
        """The (rank, place) that a node waits for and that never ends, or the reason where there is none."""
        node = self.nodes[rank][i]
        if self.waiting[rank][i]:
            places = (self.place[rank][before] for before in node.after)
            late = [(rank, place) for place in places if self.runs[rank][place] is None]
            return late[0] if late else "it waits for a node that never ends."
        if node.kind == "collective":
            call = self.call[rank][i]
            came = {one for one, _ in self.came[node.group, call]}
            missing = next((r for r in self.trace.groups[node.group].ranks if r not in came), rank)
            due = call if missing != rank else self.turn[node.group]
            place = self._place_of(missing, node.group, due)
            if place is None:
                return f"of its group '{node.group}' rank {missing} never calls it."
            return missing, place
        sends = (
            (node.peer, place)
            for place, one in enumerate(self.nodes[node.peer])
            if (one.kind, one.peer, one.tag) == ("send", rank, node.tag)
            and self.runs[node.peer][place] is None
        )
        return next(sends, f"rank {node.peer} never sends message {node.tag} to it.")

    def _place_of(self, rank: int, group: str, call: int) -> int | None:
        """Where a rank calls a collective of a group for the nth time."""
        calls = self.call[rank].items()
        return next((i for i, n in calls if n == call and self.nodes[rank][i].group == group), None)


def _ring_steps(nodes: Sequence[Node], place: Mapping[int, int]) -> set[int]:
    """Places of the sends that are a step of a ring: what comes with the same tag waits for them."""
    found = set()
    for node in nodes:
        if node.kind == "receive":
            before = (place[index] for index in node.after)
            found |= {i for i in before if nodes[i].kind == "send" and nodes[i].tag == node.tag}
    return found


def _called(node: Node) -> str:
    return f"{node.op} of {node.size:,.0f} bytes ('{node.name}')"
