"""A predicted step as nodes of ranks: what the timeline shows of a stage's GPU, for every GPU of the stage.

What a node waits for is read off the timeline, as trace tools read it off a measured one: the node before it
on its lane; whatever ended when it began, where it did not follow on that node at once; a pass for the
message it needs, and for its stage's sends where they block.  Beside compute, gradients wait for what had
been computed when they left, and passes for the parameters that had been gathered when they began.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from railwright.collectives import predict as network_predict
from railwright.collectives.machine import Machine
from railwright.collectives.prediction import CollectivePrediction, Op
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.traces.graph import ALONE, OPS, Group, Node, StepTrace
from railwright.traffic.demand import Communicator
from railwright.training import Event, Groups, StepResult, place, simulate
from railwright.training.lanes.result import ADAM
from railwright.training.lanes.tasks import PASSED_ON
from railwright.training.lanes.timeline import WAITS
from railwright.training.optimizer.muon import GATHERED
from railwright.training.software.eras import hides_sends

MOST_EVENTS = 400_000
"""Events that a timeline may have to be written as a trace: some seconds and 0.3 GB."""

_SAME = 1e-9
"""Two instants are one where they differ by less than this part of the step."""

NORM, NORM_BYTES = "gradient norm", 4.0
"""Before the optimizer all stages agree on the norm of the gradients: an all-reduce of one fp32 number
(Megatron-LM, optimizer/clip_grads.py), here along each pipeline.  Training leaves its microseconds out."""

ALSO = {"etp": "expert tp"}
"""What events call groups beside their own label."""

RING_TAGS = 1_000_000
"""Messages round a ring are numbered from here, those between stages from 0."""


def step_trace(
    job: TrainingJob, arch: Transformer, machine: Machine, most_events: int = MOST_EVENTS
) -> tuple[StepTrace, StepResult]:
    """The predicted step of a job as a trace, and the prediction.

    Raises PlanError as `training.simulate` does, and where the step has more than `most_events` events.
    """
    asked: dict[tuple[Op, float], list[Family]] = defaultdict(list)

    def recording(
        machine: Machine, op: Op, size: float, groups: Sequence[Communicator]
    ) -> CollectivePrediction:
        if tuple(groups) not in asked[op, size]:
            asked[op, size].append(tuple(groups))
        return network_predict(machine, op, size, groups)

    step = simulate(job, arch, machine, predict=recording, most_events=most_events)
    if step.timeline.coarse is not None:
        raise PlanError(
            f"{job.name}: its step has more than {most_events:,} events, and a trace needs every one; "
            "lower global_batch, which changes only how often the same pass is repeated."
        )
    groups = place(job, machine.network.fabric)
    return _Writer(step, groups, asked, blocking=not hides_sends(job)).trace(job.name), step


Unit = tuple[str, int, int]
Family = tuple[Communicator, ...]


@dataclass(frozen=True)
class _Draft:
    """A node of a stage before its rank is known.

    family  its groups instead of one; with `shift`, the peer is so many places further in the rank's group
    other   stage of its peer
    """

    node: Node
    family: Family = ()
    shift: int = 0
    other: int = -1


@dataclass
class _Lane:
    """What ran on one lane of a stage: ends in order, and whose they are."""

    ends: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    def add(self, end: float, node: int) -> None:
        place = bisect_right(self.ends, end)
        self.ends.insert(place, end)
        self.nodes.insert(place, node)

    def until(self, instant: float) -> int | None:
        """The last node that had ended."""
        place = bisect_right(self.ends, instant)
        return self.nodes[place - 1] if place else None

    def at(self, instant: float, eps: float) -> int | None:
        """The last node that ended at an instant."""
        place = bisect_right(self.ends, instant + eps)
        return self.nodes[place - 1] if place > bisect_left(self.ends, instant - eps) else None


class _Writer:
    """Timeline -> drafts of every stage -> nodes of every rank."""

    def __init__(
        self,
        step: StepResult,
        groups: Groups,
        asked: dict[tuple[Op, float], list[Family]],
        blocking: bool = False,
    ) -> None:
        self.blocking = blocking
        self.step, self.grid, self.pipelines, self.asked = step, groups.grid, groups.pp, asked
        self.eps = _SAME * step.timeline.span
        self.by_stage: list[list[Event]] = [[] for _ in range(len(self.grid))]
        for event in step.timeline.events:
            if event.kind not in WAITS:
                self.by_stage[event.rank].append(event)
        self.messages = self._routes()
        self.arrivals = self._arrivals()
        sends = [size for (op, size), known in asked.items() if op == "sendrecv" and self.pipelines in known]
        self.sent = sends[0] if sends else 0.0
        self.passed_on = 0
        self.gpus = np.sort(self.grid.reshape(-1))
        self.rank_of = {int(gpu): rank for rank, gpu in enumerate(self.gpus)}
        self.families: dict[Family, dict[int, str]] = {}
        self.groups: dict[str, Group] = {}
        self.drafts = [self._stage(stage) for stage in range(len(self.grid))]

    def trace(self, name: str) -> StepTrace:
        """Every rank's nodes: those of its stage, with its own groups and peers."""
        places = {int(gpu): place for place, gpu in np.ndenumerate(self.grid)}

        def nodes(rank: int) -> tuple[Node, ...]:
            gpu = int(self.gpus[rank])
            stage, *column = places[gpu]
            peers = [self.rank_of[int(g)] for g in self.grid[(slice(None), *column)]]
            found = []
            for draft in self.drafts[stage]:
                if draft.family and draft.shift:
                    ring = self.groups[self.families[draft.family][gpu]].ranks
                    peer = ring[(ring.index(rank) + draft.shift) % len(ring)]
                    found.append(replace(draft.node, peer=peer))
                elif draft.family:
                    found.append(replace(draft.node, group=self.families[draft.family][gpu]))
                elif draft.other >= 0:
                    found.append(replace(draft.node, peer=peers[draft.other]))
                else:
                    found.append(draft.node)
            return tuple(found)

        count = sum(len(drafts) for drafts in self.drafts) * self.grid[0].size
        gpus = tuple(int(g) for g in self.gpus)
        return StepTrace(name, len(gpus), nodes, self.groups, gpus, num_nodes=count)

    def _stage(self, stage: int) -> list[_Draft]:
        events = self.by_stage[stage]
        arriving = {unit: (key[0], tag) for key, (to, unit, tag) in self.messages.items() if to == stage}
        together = _together(events, self.eps)
        parts = _parts(events)
        drafts: list[_Draft] = []
        lanes: dict[str, _Lane] = defaultdict(_Lane)
        received: dict[Unit, int] = {}
        ended: dict[Unit, _Lane] = defaultdict(_Lane)
        beside: dict[int, int] = {}
        agreed = False

        def put(draft: _Draft) -> int:
            drafts.append(replace(draft, node=replace(draft.node, index=len(drafts))))
            return len(drafts) - 1

        for at, event in enumerate(events):
            unit, sends = event.unit, event.lane == "pp" and event.kind == "send"
            inside = event.lane not in ("pp", "dp")
            if sends and (unit is None or (stage, unit) not in self.messages):
                continue
            agrees = len(self.grid) > 1 and not agreed
            if agrees and (event.kind in ("optimizer", ADAM) or GATHERED in event.name):
                agreed = True
                ready = [
                    n for lane in lanes.values() if (n := lane.until(event.start + self.eps)) is not None
                ]
                lanes["dp"].add(event.start, put(self._norm(tuple(sorted(ready)))))
            after = self._waits(event, lanes)
            if PASSED_ON in event.name:
                # it runs beside the part before it; the timeline shows what it takes longer
                beside[len(drafts)] = lanes[event.lane].nodes[-1]
                after = set(drafts[beside[len(drafts)]].node.after)
            passes, begin = together.get(unit, ((), 0.0)) if unit is not None else ((), 0.0)
            if inside and event.start <= begin + self.eps:
                for one in passes:
                    if one in arriving and one not in received:
                        received[one] = self._receive(put, *arriving[one], one)
                after.update(received[one] for one in passes if one in arriving)
                if self.blocking:
                    after.update(lanes["pp"].nodes[-1:])
            if event.lane == "dp" and event.kind == "all_gather":
                # a pass gathers its parameters, and begins with the message that it needs
                for one in self._arrived(stage, event.start):
                    if one in arriving and one not in received:
                        received[one] = self._receive(put, *arriving[one], one)
                    after.add(received[one])
            if sends:
                done = [ended[one].until(event.start + self.eps) for one in passes]
                after.update(node for node in done if node is not None)
            waits = tuple(sorted(after | {beside[node] for node in after if node in beside}))
            if event.kind == "sendrecv":
                node = self._passed_on(put, event, waits, *parts.get(at, (0.0, 1)))
            else:
                node = put(self._draft(event, waits, parts.get(at, (0.0, 1)), stage))
            lanes[event.lane].add(event.end, node)
            if unit is not None and inside:
                ended[unit].add(event.end, node)
        return drafts

    def _waits(self, event: Event, lanes: dict[str, _Lane]) -> set[int]:
        """What an event waits for on its stage."""
        after = set(lanes[event.lane].nodes[-1:])
        for name, lane in lanes.items():
            ended = lane.at(event.start, self.eps) if name != event.lane else None
            if ended is not None:
                after.add(ended)
        beside = None
        if event.lane == "dp" and event.kind != "all_gather":
            beside = lanes["compute"].until(event.start + self.eps)
        elif event.lane == "compute" and event.unit is not None and event.unit[0] == "F":
            beside = lanes["dp"].until(event.start + self.eps)
        if beside is not None:
            after.add(beside)
        return after

    def _arrivals(self) -> list[dict[Unit, float]]:
        """By stage, when the message of each of its passes has been sent. [s]"""
        found: list[dict[Unit, float]] = [{} for _ in self.by_stage]
        sent = (event for events in self.by_stage for event in events if event.kind == "send")
        for event in sent:
            if event.unit is not None and (event.rank, event.unit) in self.messages:
                to, needed, _ = self.messages[event.rank, event.unit]
                found[to][needed] = max(event.end, found[to].get(needed, 0.0))
        return found

    def _arrived(self, stage: int, instant: float) -> list[Unit]:
        """Passes of a stage whose message is there at an instant."""
        return [unit for unit, end in self.arrivals[stage].items() if abs(end - instant) <= self.eps]

    def _draft(self, event: Event, after: tuple[int, ...], part: tuple[float, int], stage: int) -> _Draft:
        seconds = event.end - event.start
        kind = next((kind for kind in ALONE if kind == event.lane), None)
        if kind is not None:
            return _Draft(Node(0, event.name, kind, after, seconds))
        if event.lane == "pp" and event.kind == "send" and event.unit is not None:
            to, _, tag = self.messages[stage, event.unit]
            return _Draft(Node(0, event.name, "send", after, seconds, size=self.sent, tag=tag), other=to)
        op = next((op for op in OPS if op == event.kind), None)
        size, parts = part
        if op is None or not size:
            raise PlanError(
                f"The step's '{event.name}' ({event.kind}) is no collective that execution traces know; "
                f"they know {', '.join(OPS)}, and sends between pipeline stages."
            )
        node = Node(0, event.name, "collective", after, seconds, op, size, parts=parts)
        return _Draft(node, self._family(self._asked_for(event, op, size)))

    def _receive(self, put: Callable[[_Draft], int], source: int, tag: int, unit: Unit) -> int:
        """The message a pass needs."""
        name = f"pp receive, microbatch {unit[2] + 1}"
        return put(_Draft(Node(0, name, "receive", (), 0.0, size=self.sent, tag=tag), other=source))

    def _passed_on(
        self, put: Callable[[_Draft], int], event: Event, after: tuple[int, ...], size: float, parts: int
    ) -> int:
        """A step of a ring: every rank sends to the next of its group and receives from the one before."""
        family = self._family(self._asked_for(event, "sendrecv", size))
        self.passed_on += 1
        node = Node(
            0, event.name, "send", after, event.end - event.start, size=size, tag=RING_TAGS + self.passed_on
        )
        sent = put(_Draft(node, family, 1))
        got = replace(node, name=f"{event.name}, received", kind="receive", after=(sent,), seconds=0.0)
        return put(_Draft(got, family, -1))

    def _norm(self, after: tuple[int, ...]) -> _Draft:
        node = Node(0, NORM, "collective", after, 0.0, "all_reduce", NORM_BYTES)
        return _Draft(node, self._family(self.pipelines))

    def _asked_for(self, event: Event, op: Op, size: float) -> Family:
        """The groups that were asked for a collective: those whose label its name says, or else its lane."""
        known = self.asked[op, size]
        assert known, f"nobody asked for {op} of {size:g} bytes"
        named = [one for one in known if _called(one, event.name)]
        own = [one for one in known if _label(one) == event.lane]
        return max(named or own or known, key=lambda one: (_called(one, event.name), len(_label(one))))

    def _family(self, family: Family) -> Family:
        """Enter a family's groups under a name of their own."""
        if family not in self.families:
            label = _label(family)
            while any(group.family == label for group in self.groups.values()):
                label += "'"
            named: dict[int, str] = {}
            for i, one in enumerate(family):
                name = f"{label} {i}"
                self.groups[name] = Group(name, tuple(self.rank_of[int(g)] for g in one.gpus), label)
                named |= {int(gpu): name for gpu in one.gpus}
            self.families[family] = named
        return family

    def _routes(self) -> dict[tuple[int, Unit], tuple[int, Unit, int]]:
        """(stage, pass) that sends -> (stage, pass) that receives, and the message's number.

        The passes of one microbatch in one direction follow each other through the pieces of the model, so
        the one that needs a pass's result is the next that starts anywhere.
        """
        starts: dict[tuple[int, Unit], float] = {}
        sending: dict[tuple[int, Unit], None] = {}
        for stage, events in enumerate(self.by_stage):
            for event in events:
                if event.unit is None:
                    continue
                key = (stage, event.unit)
                if event.lane == "pp" and event.kind == "send":
                    sending[key] = None
                else:
                    starts[key] = min(starts.get(key, event.start), event.start)
        chains: dict[tuple[str, int], list[tuple[float, int, Unit]]] = defaultdict(list)
        for (stage, unit), start in starts.items():
            # gradients of activations pass from whole backward passes to split ones
            chains["B" if unit[0] == "I" else unit[0], unit[2]].append((start, stage, unit))
        following = {}
        for chain in chains.values():
            chain.sort()
            for (_, stage, unit), (_, other, needed) in pairwise(chain):
                following[stage, unit] = (other, needed)
        return {key: (*following[key], tag) for tag, key in enumerate(sending) if key in following}


def _together(events: Sequence[Event], eps: float) -> dict[Unit, tuple[tuple[Unit, ...], float]]:
    """Of each pass of a stage: those that run at once, itself among them, and when they begin.

    Passes follow one another on a stage; only a forward and a backward that run together overlap.
    """
    spans: dict[Unit, tuple[float, float]] = {}
    for event in events:
        if event.unit is not None and event.lane not in ("pp", "dp"):
            start, end = spans.get(event.unit, (event.start, event.end))
            spans[event.unit] = min(start, event.start), max(end, event.end)
    found: list[tuple[list[Unit], float, float]] = []
    for unit, (start, end) in sorted(spans.items(), key=lambda one: one[1]):
        if found and start < found[-1][2] - eps:
            units, begin, over = found[-1]
            found[-1] = [*units, unit], begin, max(over, end)
        else:
            found.append(([unit], start, end))
    return {unit: (tuple(units), begin) for units, begin, _ in found for unit in units}


def _parts(events: Sequence[Event]) -> dict[int, tuple[float, int]]:
    """Place of a communication -> (size of the whole, number of parts it is sent in)."""
    runs: dict[tuple[str, Unit | None], list[int]] = {}
    done: list[tuple[float, list[int]]] = []
    for at, event in enumerate(events):
        if event.lane in ("compute", "host", "copy", "pp"):
            continue
        key = (event.lane, event.unit)
        if event.size:
            runs[key] = [at]
            done.append((event.size, runs[key]))
        elif key in runs:
            runs[key].append(at)
    return {at: (size, len(run)) for size, run in done for at in run}


def _label(family: Family) -> str:
    """'tp', 'expert dp', …: what its groups are called without their number."""
    return family[0].name.rsplit(" group", 1)[0].lower()


def _called(family: Family, name: str) -> int:
    """Letters of the longest word for a family that an event's name has, 0 for none."""
    label = _label(family)
    return max((len(word) for word in (label, ALSO.get(label, label)) if word in name), default=0)
