"""The step as events for drawing: one representative GPU per stage."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.training.breakdown import Ending
from railwright.training.lanes import Span, ahead_of, is_ahead
from railwright.training.pipeline import Placed
from railwright.training.result import ADAM
from railwright.training.route import PASS_NAMES, Unit
from railwright.training.stage import Stage
from railwright.training.stages import StageShape
from railwright.training.timeline import Event, Timeline

MAX_EVENTS = 20_000
"""Events of passes a timeline carries at most, unless more are asked for: beyond it passes are drawn whole,
then only the first ones."""

PER_PASS = 3
"""Events around what is inside a pass: itself, the wait before it, its send."""


def timeline(
    stages: Sequence[Stage],
    shapes: Sequence[StageShape],
    placed: Sequence[Sequence[Placed]],
    endings: Sequence[Ending],
    span: float,
    overlapped_sends: bool,
    most: int = MAX_EVENTS,
) -> tuple[Timeline, tuple[str, ...]]:
    """Events of all stages ordered by (rank, start), about `most` of them, and a note on what is left out."""
    inside = sum(len(one.spans) for stage in stages for _, _, one in stage.passes)
    whole = sum(len(stage.passes) for stage in stages)
    drawn_inside = inside + PER_PASS * whole <= most
    limit = max(most // (PER_PASS * len(stages)), 1)
    notes: tuple[str, ...] = ()
    if not drawn_inside and PER_PASS * whole <= most:
        notes = (
            f"The step has more operators and messages than the {most:,} events that a timeline draws, "
            "so it shows whole passes.",
        )
    elif not drawn_inside:
        notes = (
            f"The step has {whole:,} passes; its timeline shows the first {limit:,} of each pipeline stage, "
            "without what is inside.",
        )
    events: list[Event] = []
    for rank, stage in enumerate(stages):
        own = _ended(rank, endings[rank], span)
        for i, (start, unit, one) in enumerate(stage.passes):
            if i >= limit:
                break
            if not drawn_inside:
                own.append(_whole(rank, unit, start, start + one.duration))
            else:
                own += [
                    _event(rank, s, start, shapes[rank].first, unit) for s in one.spans if s.task.lane != "dp"
                ]
        own += _between(rank, placed[rank][:limit], overlapped_sends)
        own += [_event(rank, s, 0.0, (), None) for s in stage.dp_spans]
        own.sort(key=lambda e: (e.start, e.end, e.lane))
        events += own
    return Timeline(tuple(e for e in events if e.end > e.start), span), notes


def _event(rank: int, span: Span, start: float, first: Sequence[int], unit: Unit | None) -> Event:
    """`first`: the first layer of every chunk."""
    task = span.task
    name, place = task.name, None
    if unit is not None:
        own, layer = unit, task.layer
        if unit.kind == "FB":
            forward, backward = unit.passes
            own, layer = (forward, ahead_of(layer)) if is_ahead(layer) else (backward, layer)
        if layer >= 0 and task.kind not in ("embedding", "head"):
            name = f"layer {first[own.chunk] + layer + 1} {name}"
        name, place = f"{name}, microbatch {own.microbatch + 1}", own[:3]
    return Event(rank, task.lane, name, task.kind, start + span.start, start + span.end, task.size, place)


def _whole(rank: int, unit: Unit, start: float, end: float) -> Event:
    name = f"{PASS_NAMES[unit.kind]}, microbatch {unit.microbatch + 1}"
    kind = "forward" if unit.kind == "F" else "backward"
    return Event(rank, "compute", name, kind, start, end, unit=unit[:3])


def _between(rank: int, placed: Sequence[Placed], overlapped_sends: bool) -> list[Event]:
    """Bubbles before passes, and sends after them."""
    found = []
    for p in placed:
        before = p.start - p.transfer - p.bubble
        if p.bubble > 0:
            found.append(
                Event(rank, "compute", "waiting for another stage", "bubble", before, before + p.bubble)
            )
        if p.sent > 0:
            each = p.sent / len(p.sends)
            found += [
                Event(rank, "pp", "pp send", "send", start, start + each, unit=one[:3])
                for one, start in p.sends
            ]
    return found


def _ended(rank: int, ending: Ending, span: float) -> list[Event]:
    host, copied = ending.host, ending.barrier + ending.host.down
    updated = copied + ending.on_gpu
    back = updated + host.adam
    waits = [
        (ending.reduced, ending.tied_start),
        (ending.ready, ending.barrier),
        (ending.end, span),
    ]
    return [
        Event(rank, "copy", "gradients to the host", "optimizer", ending.barrier, copied),
        Event(rank, "compute", "optimizer", "optimizer", copied, updated),
        Event(rank, "host", "CPU Adam", ADAM, updated, back),
        Event(rank, "copy", "weights from the host", "optimizer", back, back + host.up),
        *(Event(rank, "compute", "waiting for another stage", "bubble", a, b) for a, b in waits if b > a),
    ]
