"""The step as events for drawing: one representative GPU per stage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

from railwright.training.lanes.result import ADAM
from railwright.training.lanes.tasks import LANES, Pass, Span, ahead_of, is_ahead
from railwright.training.lanes.timeline import MERGED, Event, Share, Timeline
from railwright.training.layout.pipeline import Placed
from railwright.training.layout.route import PASS_NAMES, Unit
from railwright.training.optimizer.muon import Exchanged
from railwright.training.software.host import WHOLE_PASS
from railwright.training.step.breakdown import spent
from railwright.training.step.endings import Ending
from railwright.training.step.stage import Stage

MAX_EVENTS = 20_000
"""Events of passes a timeline carries, unless more are asked for; beyond it passes are whole."""

_ORDER = attrgetter("start", "end", "lane")

PER_PASS = 4
"""Events around what is inside a pass: itself, the two waits before it, its send."""


def timeline(
    stages: Sequence[Stage],
    placed: Sequence[Sequence[Placed]],
    endings: Sequence[Ending],
    span: float,
    overlapped_sends: bool,
    most: int = MAX_EVENTS,
    ends: int = 0,
) -> Timeline:
    """Events of all stages ordered by (rank, start).

    most  where the step has more events, passes are whole; where it has too many passes for that, those in
          the middle of each stage are one event
    ends  of such a step, events inside its first and last passes, which are in detail all the same, as are
          those of each stage; only with some do whole passes say what is inside them, which takes time
    """
    count = sum(len(stage.passes) for stage in stages)
    inside = sum(len(one.spans) for stage in stages for _, _, one in stage.passes)
    coarse = _middle(stages, ends) if inside + PER_PASS * count > most else None
    kept = count if PER_PASS * count <= most else max(most // (2 * PER_PASS * len(stages)), 1)
    known: dict[int, tuple[Share, ...]] = {}
    events: list[Event] = []
    for rank, stage in enumerate(stages):
        own = _ended(rank, endings[rank], span)
        merged: list[int] = []
        for i, (start, unit, one) in enumerate(stage.passes):
            # However deep the pipeline, each stage shows each of its lanes.
            outer = ends > 0 and i in (0, len(stage.passes) - 1)
            if coarse is None or start < coarse[0] or start + one.duration > coarse[1] or outer:
                own += [
                    _event(rank, s, start, stage.shape.first, unit) for s in one.spans if s.task.lane != "dp"
                ]
            elif kept <= i < len(stage.passes) - kept:
                merged.append(i)
                continue
            else:
                if ends and id(one) not in known:
                    known[id(one)] = _shares(*spent([one], (), overlapped_sends))
                own.append(_whole(rank, unit, start, one, known.get(id(one), ())))
            own += _around(rank, placed[rank][i], overlapped_sends)
        if merged:
            here = slice(merged[0], merged[-1] + 1)
            passes = [one for _, _, one in stage.passes[here]]
            own.append(_merged(rank, passes, placed[rank][here], overlapped_sends, told=ends > 0))
        own += [_event(rank, s, 0.0, (), None) for s in stage.dp_spans]
        own.sort(key=_ORDER)
        events += own
    return Timeline(tuple(e for e in events if e.end > e.start), span, coarse)


def _middle(stages: Sequence[Stage], ends: int) -> tuple[float, float] | None:
    """From when to when passes are whole, where those that begin before it and those that end after it have
    `ends` events inside, half of them each; None where no pass is left between them. [s]"""
    passes = [
        (start, start + one.duration, len(one.spans)) for stage in stages for start, _, one in stage.passes
    ]
    if not ends:
        return 0.0, max(end for _, end, _ in passes)
    begin = _beyond(sorted((start, held) for start, _, held in passes), ends // 2)
    end = _beyond(sorted(((end, held) for _, end, held in passes), reverse=True), ends // 2)
    return None if begin is None or end is None else (begin, end)


def _beyond(passes: Iterable[tuple[float, int]], room: int) -> float | None:
    """The instant of the first pass for whose events there is no room; None where there is for all."""
    for instant, held in passes:
        room -= held
        if room < 0:
            return instant
    return None


def _event(rank: int, span: Span, start: float, first: Sequence[int], unit: Unit | None) -> Event:
    """`first`: the first layer of every chunk."""
    task = span.task
    name, place = task.name, None
    if unit is not None:
        own, layer = unit, task.layer
        if unit.kind == "FB":
            forward, backward = unit.passes
            own, layer = (forward, ahead_of(layer)) if is_ahead(layer) else (backward, layer)
        if layer >= 0 and task.kind not in ("embedding", "head") and name != WHOLE_PASS:
            name = f"layer {first[own.chunk] + layer + 1} {name}"
        name, place = f"{name}, microbatch {own.microbatch + 1}", own[:3]
    return Event(rank, task.lane, name, task.kind, start + span.start, start + span.end, task.size, place)


def _whole(rank: int, unit: Unit, start: float, one: Pass, inside: tuple[Share, ...]) -> Event:
    name = f"{PASS_NAMES[unit.kind]}, microbatch {unit.microbatch + 1}"
    kind = "forward" if unit.kind == "F" else "backward"
    return Event(rank, "compute", name, kind, start, start + one.duration, unit=unit[:3], inside=inside)


def _merged(
    rank: int, passes: Sequence[Pass], placed: Sequence[Placed], overlapped_sends: bool, *, told: bool
) -> Event:
    """Passes that follow one another, with the waits and sends between them; told: it says what is inside."""
    first, last = placed[0], placed[-1]
    begin = first.start - first.transfer - first.bubble
    end = last.end if overlapped_sends else last.send_start + last.sent
    inside = _shares(*spent(passes, placed, overlapped_sends)) if told else ()
    name = f"{len(passes):,} pass{'es' if len(passes) > 1 else ''}"
    return Event(rank, "compute", name, MERGED, begin, end, inside=inside)


def _shares(busy: Mapping[str, float], exposed: Mapping[str, float]) -> tuple[Share, ...]:
    kinds = [kind for kind in (*LANES, "bubble") if busy.get(kind) or exposed.get(kind)]
    return tuple(Share(kind, busy.get(kind, 0.0), exposed.get(kind, 0.0)) for kind in kinds)


def _around(rank: int, p: Placed, overlapped_sends: bool) -> list[Event]:
    """Waits before a pass, and sends after it."""
    found = []
    before = p.start - p.transfer
    if p.bubble > 0:
        name = "waiting for another stage"
        found.append(Event(rank, "compute", name, "bubble", before - p.bubble, before))
    if p.transfer > 0:
        name = "waiting for a message of another stage"
        found.append(Event(rank, "compute", name, "transfer", before, p.start))
    if p.sent > 0:
        each = p.sent / len(p.sends)
        for one, start in p.sends:
            found.append(Event(rank, "pp", "pp send", "send", start, start + each, unit=one[:3]))
            if not overlapped_sends:
                name = "waiting for its own send"
                found.append(Event(rank, "compute", name, "transfer", start, start + each))
    return found


def _exchanged(rank: int, exchanged: tuple[Exchanged, ...], start: float) -> list[Event]:
    """Collectives of an optimizer's step, one after the other."""
    found = []
    for one in exchanged:
        for _ in range(one.times):
            found.append(Event(rank, "tp", one.purpose, one.op, start, start + one.seconds, one.size))
            start += one.seconds
    return found


def _ended(rank: int, ending: Ending, span: float) -> list[Event]:
    host, copied = ending.host, ending.barrier + ending.host.down
    exchanged = _exchanged(rank, ending.exchanged, copied)
    gathered = exchanged[-1].end if exchanged else copied
    updated = gathered + ending.on_gpu
    back = updated + host.adam
    waits = [
        (ending.reduced, ending.tied_start),
        (ending.ready, ending.barrier),
        (ending.end, span),
    ]
    return [
        Event(rank, "copy", "gradients to the host", "optimizer", ending.barrier, copied),
        *exchanged,
        Event(rank, "compute", "optimizer", "optimizer", gathered, updated),
        Event(rank, "host", "CPU Adam", ADAM, updated, back),
        Event(rank, "copy", "weights from the host", "optimizer", back, back + host.up),
        *(Event(rank, "compute", "waiting for another stage", "bubble", a, b) for a, b in waits if b > a),
    ]
