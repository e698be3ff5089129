"""The critical path of a step: the chain of tasks that sets its length, read off the timeline.

Every task starts the instant the last thing it waits for is over: the task before it on its lane, one it
depends on, a send from another stage, or the slowest stage's gradients.  So the path is walked back from the
end of the step: from each task to one that ended the instant it started.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from railwright.training.lanes.result import ADAM, COMMUNICATION
from railwright.training.lanes.tasks import Span, Task, exposure
from railwright.training.lanes.timeline import MERGED, WAITS, Event, Timeline
from railwright.training.layout.route import PASS_NAMES
from railwright.units import show_share

SAME = 1e-9
"""Two instants this close, relative to the step, are one: rounding of sums of task times only."""

SHOWN = 0.005
"""A part that rounds to 0 % is not told."""

MOST_WAITS = 0.01
"""Share of a step without a task on the path from which a timeline is taken to be cut off."""

NOTHING_KNOWN: Mapping[str, float] = MappingProxyType({})

MIXED = ("forward", "backward", "optimizer")
"""Compute that holds other things too: whole passes their messages and launches, the optimizer what every
step takes besides."""

LANE_WORDS = {
    "tp": "tensor-parallel communication",
    "cp": "context-parallel communication",
    "ep": "expert all-to-all",
    "emb": "exchange of embeddings",
    "pp": "pipeline sends",
    "dp": "gradient and parameter exchange",
    "host": "kernel launches",
    "copy": "copies to and from host memory",
}


@dataclass(frozen=True)
class Wait:
    """A stretch of the path in which nothing that the timeline shows runs. [s]"""

    start: float
    end: float


@dataclass(frozen=True)
class Part:
    """All tasks of one stage and one kind on the path.

    what     'attention', 'mlp', … of compute, else what the lane does
    seconds  in all; share of the step 0..1
    """

    rank: int
    lane: str
    what: str
    seconds: float
    share: float


class Beside(NamedTuple):
    """For how long the critical path is in `what` while the GPU's time is that of a kind of shares [s].

    Summed up over what, a kind has its share of the step; over kinds, a part has its length.
    """

    what: str
    kind: str
    seconds: float


@dataclass(frozen=True)
class CriticalPath:
    """Tasks and waits in time order; their lengths add up to the step.

    bubbles  waits of the main stage for others, longest first
    beside   where embeddings are exchanged beside compute: what the GPU does while the path is in a part
    """

    events: tuple[Event, ...]
    waits: tuple[Wait, ...]
    span: float
    bubbles: tuple[Event, ...]
    beside: tuple[Beside, ...] = ()

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """What the path consists of, the largest part first."""
        seconds: dict[tuple[int, str, str], float] = {}
        for e in self.events:
            key = (e.rank, e.lane, what_of(e))
            seconds[key] = seconds.get(key, 0.0) + e.end - e.start
        parts = (Part(*key, time, time / self.span) for key, time in seconds.items())
        return tuple(sorted(parts, key=lambda p: (-p.seconds, p.rank, p.lane, p.what)))

    @cached_property
    def main(self) -> int:
        """The stage that most of the path runs on; the first of equals."""
        seconds: dict[int, float] = {}
        for p in self.parts:
            seconds[p.rank] = seconds.get(p.rank, 0.0) + p.seconds
        return min(seconds, key=lambda rank: (-seconds[rank], rank)) if seconds else 0

    def sentences(self, worth: Mapping[str, float] = NOTHING_KNOWN) -> tuple[str, ...]:
        """Two or three sentences: what the path is made of, where it waits, what shortens it most.

        worth  by which share the step is shorter without 'compute', 'launches' or 'communication', where
               known: a part of one of these that gets shorter cannot save more
        """
        if not self.events:
            return ()
        shares = by_what(self.parts)
        made = ", ".join(f"{show_share(share, 0)} {what}" for what, share in shares[:5] if share >= SHOWN)
        found = [f"The critical path of the step is {made}."]
        if len({p.rank for p in self.parts}) > 1 or self.bubbles:
            found.append(self._stages())
        what, share = shares[0]
        if hidden := self._hidden(what):
            found.append(hidden)
        most = min(0.1 * share, worth.get(self._thing(what), 1.0))
        found.append(
            f"Its largest part is {what}: making that 10 % shorter takes at most {100 * most:.1f} % off "
            "the step."
        )
        return tuple(found)

    def _thing(self, what: str) -> str:
        """Which of the things that `worth` speaks of a part belongs to; '' where not to one alone."""
        lane = next((p.lane for p in self.parts if p.what == what), "")
        if lane == "compute" and what not in MIXED:
            return "compute"
        if what == LANE_WORDS["host"]:
            return "launches"
        return "communication" if lane in COMMUNICATION else ""

    def _hidden(self, what: str) -> str:
        """What the GPU does beside the largest part, where shares count that instead; else ''."""
        own = {b.kind: b.seconds / self.span for b in self.beside if b.what == what}
        lane = next((p.lane for p in self.parts if p.what == what), "")
        words = {"compute": "computes", "emb": "exchanges embeddings", "dp": "exchanges gradients"}
        # waiting for data is itself what the shares count
        others = {k: s for k, s in own.items() if k in words and k != lane and s >= SHOWN}
        if not others:
            return ""
        told = " and ".join(f"{words[kind]} for {show_share(s, 0)} of the step" for kind, s in others.items())
        return f"Beside {what} the GPU {told}, and its shares count that."

    def _stages(self) -> str:
        own = sum(p.share for p in self.parts if p.rank == self.main)
        others = sorted({p.rank for p in self.parts} - {self.main})
        text = f"It runs {show_share(own, 0)} of the step on stage {self.main}"
        if others:
            text += f" and the rest on {'stage' if len(others) == 1 else 'stages'} {_listed(others)}"
        if self.bubbles:
            total = sum(b.end - b.start for b in self.bubbles) / self.span
            longest = _before(self.bubbles[0], self.events, self.span)
            text += (
                f"; stage {self.main} waits for others {show_share(total, 0)} of the step, longest {longest}"
            )
        return f"{text}."


def critical_path(timeline: Timeline) -> CriticalPath | None:
    """The chain of tasks that sets the length of a step; None where the timeline does not hold all of it.

    Where the timeline has whole passes, so has the path.  Where several tasks ended the instant
    the next one started, each is a reason for it; the one on the same lane is taken, then of the same pass,
    then of the same stage.  Interference is in the lengths of tasks, so shortening communication beside the
    path may still shorten the step by what it slowed.
    """
    span, close = timeline.span, SAME * timeline.span
    tasks = [e for e in timeline.events if e.kind not in (*WAITS, MERGED)]
    if not tasks or max(e.end for e in tasks) < span - close:
        return None
    ended = _Ended(tasks, close)
    last = ended.at(span)
    found: list[Event] = [min(last, key=lambda e: (e.lane != "compute", e.rank))]
    waits: list[Wait] = []
    while found[-1].start > close:
        now = found[-1]
        before = [e for e in ended.at(now.start) if e.start < now.start]
        if before:
            found.append(min(before, key=lambda e: _distance(e, now)))
            continue
        within = ended.during(now)
        if within is not None:
            found.append(replace(within, end=now.start))
            continue
        earlier = ended.before(now.start - close)
        waits.append(Wait(earlier.end if earlier is not None else 0.0, now.start))
        if earlier is None:
            break
        found.append(earlier)
    if sum(w.end - w.start for w in waits) > MOST_WAITS * span:
        return None
    path = CriticalPath(tuple(reversed(found)), tuple(reversed(waits)), span, ())
    bubbles = [e for e in timeline.events if e.kind == "bubble" and e.rank == path.main]
    bubbles.sort(key=lambda e: (e.start - e.end, e.start))
    mixed = any(e.lane == "emb" for e in timeline.events)
    return CriticalPath(
        path.events, path.waits, span, tuple(bubbles), _beside(path, timeline) if mixed else ()
    )


def _beside(path: CriticalPath, timeline: Timeline) -> tuple[Beside, ...]:
    """What the one stage of a timeline does during every part of a path, as its shares count it."""
    tasks = [e for e in timeline.events if e.kind not in (*WAITS, MERGED)]
    found: dict[tuple[str, str], float] = {}
    for part in path.events:
        if part.kind == "data":
            found[what_of(part), "data"] = found.get((what_of(part), "data"), 0.0) + part.end - part.start
            continue
        inside = [
            Span(Task(e.lane, e.name, e.kind, 0.0), max(e.start, part.start), min(e.end, part.end))
            for e in tasks
            if e.start < part.end and e.end > part.start
        ]
        moved = [s._replace(start=s.start - part.start, end=s.end - part.start) for s in inside]
        for kind, seconds in exposure(moved, part.end - part.start).items():
            key = (what_of(part), kind)
            found[key] = found.get(key, 0.0) + seconds
    return tuple(Beside(what, kind, seconds) for (what, kind), seconds in found.items())


def by_what(parts: Sequence[Part]) -> list[tuple[str, float]]:
    """(what, share of the step) over all stages; the largest first."""
    shares: dict[str, float] = {}
    for p in parts:
        shares[p.what] = shares.get(p.what, 0.0) + p.share
    return sorted(shares.items(), key=lambda one: (-one[1], one[0]))


def what_of(event: Event) -> str:
    """What an event is called in a sum: its kind of compute, or what its lane does."""
    if event.lane == "compute":
        return event.kind
    if event.kind in ("data", ADAM):
        return event.name
    return LANE_WORDS.get(event.lane, event.lane)


class _Ended:
    """Events by their end."""

    def __init__(self, events: Iterable[Event], close: float) -> None:
        self.events = sorted(events, key=lambda e: e.end)
        self.ends = [e.end for e in self.events]
        self.close = close

    def at(self, instant: float) -> list[Event]:
        """Those that ended then."""
        first = bisect_left(self.ends, instant - self.close)
        return self.events[first : bisect_right(self.ends, instant + self.close, first)]

    def during(self, now: Event) -> Event | None:
        """The compute of the same stage that runs when an event starts: a whole pass, drawn as one."""
        for place in range(bisect_left(self.ends, now.start), len(self.events)):
            event = self.events[place]
            if event.rank == now.rank and event.lane == "compute" and event.start < now.start:
                return event
        return None

    def before(self, instant: float) -> Event | None:
        """The last that ended before."""
        place = bisect_left(self.ends, instant)
        return self.events[place - 1] if place else None


def _distance(before: Event, now: Event) -> tuple[bool, ...]:
    """Sorts reasons: a busy lane, the same pass, the same stage, a send of the microbatch, any send."""
    alone = now.unit is None
    sent = before.lane == "pp" and not alone
    related = before.unit is not None and now.unit is not None and before.unit[2] == now.unit[2]
    return (
        not (before.rank == now.rank and before.lane == now.lane),
        not (before.rank == now.rank and before.unit is not None and before.unit == now.unit),
        before.rank != now.rank,
        not (sent and related),
        not sent,
    )


def _before(bubble: Event, events: Sequence[Event], span: float) -> str:
    """'before microbatch 4', where the task after a bubble belongs to one."""
    nexts = [e for e in events if e.rank == bubble.rank and e.start >= bubble.end - SAME * span]
    if not nexts:
        return "at the end"
    first = min(nexts, key=lambda e: e.start)
    if first.unit is None:
        return f"before the {first.name}"
    kind, _, microbatch = first.unit
    return f"before the {PASS_NAMES[kind]} of microbatch {microbatch + 1}"


def _listed(ranks: Sequence[int]) -> str:
    """'0, 1 and 2', or '0 to 14' where they are many and in a row."""
    if len(ranks) > 3 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    if len(ranks) > 6:
        return f"{', '.join(map(str, ranks[:5]))} and {len(ranks) - 5} more"
    most, last = ", ".join(map(str, ranks[:-1])), str(ranks[-1])
    return f"{most} and {last}" if most else last
