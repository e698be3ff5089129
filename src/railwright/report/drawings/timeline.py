"""One step's timeline as lanes in SVG: the whole step, and a stretch of it near enough to read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from statistics import median
from typing import NamedTuple

import numpy as np

from railwright.report.parts.charts import nice_ticks
from railwright.report.parts.markup import Html, number, tag
from railwright.traces.intervals import union
from railwright.training.lanes.timeline import MERGED, WAITS, Event, Timeline
from railwright.units import show_share, show_time

WIDTH, GUTTER, RIGHT = 960.0, 128.0, 8.0
LANE, LANE_GAP, RANK_GAP, AXIS = 20.0, 3.0, 12.0, 26.0
LANES = ("compute", "ep", "emb", "tp", "cp", "pp", "dp", "copy", "host")
LOWEST = 1.5
"""Height of the lowest bar: one that can be seen, and pointed at."""
MOST_RANKS = 4
CLOSE_EVENTS = 14
CLOSE_PLACE = 0.3
"""Where in a step a close look is taken, of equals: behind the pipeline's fill, as a share of its events."""
LANE_NAMES = {
    "compute": "compute",
    "tp": "tensor par.",
    "cp": "context par.",
    "ep": "expert par.",
    "emb": "embeddings",
    "pp": "pipeline",
    "dp": "data par.",
    "copy": "host copies",
    "host": "host",
}
COMPUTE_LOOKS = {"attention": "k-attention", "optimizer": "k-optimizer", "backward": "k-backward"}


@dataclass(frozen=True)
class Span:
    """One drawn rectangle: an event, or several too thin to see apart.

    names  what may be written in it, the longest that fits
    busy   share of it in which an event runs, 0..1: so much of the lane's height is filled
    """

    start: float
    end: float
    look: str
    names: tuple[str, ...]
    tip: str
    busy: float = 1.0


def look_of(event: Event) -> str:
    """Class that colours an event: by kind for compute, else by lane."""
    if event.kind == "bubble":
        return "k-bubble"
    if event.kind == "transfer":
        return "k-pp"
    if event.kind in ("data", "adam"):
        return f"k-{event.kind}"
    if event.lane == "compute":
        return COMPUTE_LOOKS.get(event.kind, "k-compute")
    return f"k-{event.lane}"


def draw_timeline(timeline: Timeline, start: float, end: float, *, name: str, title: str) -> Html:
    """All lanes of the first pipeline stages between `start` and `end`, idle ones too [s]."""
    lanes: dict[tuple[int, str], list[Event]] = {}
    for event in timeline.events:
        lanes.setdefault((event.rank, event.lane), []).append(event)
    ranks = sorted({rank for rank, _ in lanes})[:MOST_RANKS]
    plot = WIDTH - GUTTER - RIGHT
    scale = plot / (end - start) if end > start else 0.0
    y = 6.0
    rows: list[Html] = []
    for rank in ranks:
        first = True
        for lane in LANES:
            if (rank, lane) not in lanes:
                continue
            events = [e for e in lanes[rank, lane] if e.end > start and e.start < end]
            under = [_coarse(one, y, start, end, scale) for one in _inside(timeline, lanes, rank, lane)]
            rows.append(_lane(events, under, rank, lane, y, start, end, scale, named=first))
            y += LANE + LANE_GAP
            first = False
        y += RANK_GAP
    height = y + AXIS - RANK_GAP
    return tag(
        "svg",
        tag("title", title, id=name),
        _axis(start, end, scale, y - RANK_GAP + 4),
        *rows,
        class_="timeline",
        viewBox=f"0 0 {number(WIDTH)} {number(height)}",
        role="img",
        aria_labelledby=name,
    )


def close_look(timeline: Timeline) -> tuple[float, float]:
    """A stretch of the first stage, in detail, that holds few enough events to read, on as many lanes as any.

    It is no longer than twice the usual one, so that it is no wait with two ends, and lies where every stage
    that is drawn is at work: has begun, is not done, and waits for no other.  Where no stretch in detail is
    such, it is one of those that miss least of it.
    """
    begin, end = timeline.coarse or (timeline.span, inf)
    events = [e for e in timeline.events if e.rank == timeline.events[0].rank and e.kind not in WAITS]
    work = [e for e in events if e.lane != "host" and (e.end <= begin or e.start >= end)]
    work.sort(key=lambda e: (e.start, e.end))
    stretches = [
        _Stretch(i, window[0].start, _last(window), len({e.lane for e in window}))
        for i in range(len(work) - CLOSE_EVENTS)
        if (window := work[i : i + CLOSE_EVENTS])
        and not (window[0].start < begin and window[-1].start >= end)
    ]
    if not stretches:
        return 0.0, timeline.span
    usual = median(s.end - s.start for s in stretches)
    short = [s for s in stretches if s.end - s.start <= 2 * usual]
    idle = _missing(timeline, short)
    least = min(idle) + 1e-9
    within = [s for s, missing in zip(short, idle, strict=True) if missing <= least]
    best = min(within, key=lambda s: (-s.lanes, abs(s.place - CLOSE_PLACE * len(work))))
    return best.start, best.end


class _Stretch(NamedTuple):
    """Events from `place` on: from when to when, and on how many lanes."""

    place: int
    start: float
    end: float
    lanes: int


def _missing(timeline: Timeline, stretches: Sequence[_Stretch]) -> list[float]:
    """Share of each stretch in which a stage that is drawn is not at work, 0..1."""
    idle = _idle(timeline)
    edges = [instant for span in idle for instant in span]
    # what is idle before each edge; between two of them it grows in a straight line
    before = np.repeat(np.cumsum([0.0, *(end - start for start, end in idle)]), 2)[1:-1]
    ends = np.array([(s.start, s.end) for s in stretches])
    at = np.interp(ends, edges, before) if edges else np.zeros_like(ends)
    return [float(share) for share in (at[:, 1] - at[:, 0]) / (ends[:, 1] - ends[:, 0])]


def _idle(timeline: Timeline) -> list[tuple[float, float]]:
    """When a stage that is drawn has not begun its passes, waits for another, or is done with them [s]."""
    passes: dict[int, tuple[float, float]] = {}
    bubbles: dict[int, list[tuple[float, float]]] = {}
    for e in timeline.events:
        if e.lane == "compute" and e.unit is not None:
            start, end = passes.get(e.rank, (e.start, e.end))
            passes[e.rank] = min(start, e.start), max(end, e.end)
        elif e.kind == "bubble":
            bubbles.setdefault(e.rank, []).append((e.start, e.end))
    drawn = sorted(passes)[:MOST_RANKS]
    ends = [span for rank in drawn for span in ((0.0, passes[rank][0]), (passes[rank][1], timeline.span))]
    return union([*ends, *(span for rank in drawn for span in bubbles.get(rank, ()))])


def _last(window: Sequence[Event]) -> float:
    """When the last ends; what runs on beside a pass, as gradients do, is cut off."""
    ends = [e.end for e in window if e.lane != "dp"]
    return max(ends or [e.end for e in window])


def _lane(
    events: Sequence[Event],
    under: Sequence[Html | None],
    rank: int,
    lane: str,
    y: float,
    start: float,
    end: float,
    scale: float,
    *,
    named: bool,
) -> Html:
    parts: list[Html | None] = [
        tag("rect", class_="lane", x=GUTTER, y=y, width=WIDTH - GUTTER - RIGHT, height=LANE),
        *under,
        tag("text", LANE_NAMES[lane], class_="lane-name", x=GUTTER - 8, y=y + 14, text_anchor="end"),
    ]
    if named:
        parts.append(tag("text", f"Stage {rank}", class_="row-name", x=0, y=y + 14))
    for span in _merged(events, 0.7 / scale if scale > 0 else 0.0):
        low, high = max(span.start, start), min(span.end, end)
        x, width = GUTTER + (low - start) * scale, max(0.35, (high - low) * scale)
        tall = max(LOWEST, span.busy * (LANE - 2))
        below = y + LANE - 1 - tall
        parts.append(
            tag("rect", tag("title", span.tip), class_=span.look, x=x, y=below, width=width, height=tall)
        )
        text = next((n for n in span.names if len(n) * 6.3 + 6 <= width), None)
        if text is not None:
            parts.append(tag("text", text, class_="event", x=x + width / 2, y=y + 14, text_anchor="middle"))
    return tag("g", *parts)


def _inside(
    timeline: Timeline, lanes: Mapping[tuple[int, str], Sequence[Event]], rank: int, lane: str
) -> list[tuple[float, float]]:
    """From when to when what a lane does stands inside passes that are drawn as a whole [s]."""
    if timeline.coarse is None or lane in ("compute", "dp"):
        return []
    if lane == "pp":
        return [(e.start, e.end) for e in lanes.get((rank, "compute"), ()) if e.kind == MERGED]
    return [timeline.coarse]


def _coarse(stretch: tuple[float, float], y: float, start: float, end: float, scale: float) -> Html | None:
    """In a lane, the stretch whose events stand inside whole passes; None where it is not seen."""
    low, high = max(stretch[0], start), min(stretch[1], end)
    if high <= low:
        return None
    x, width = GUTTER + (low - start) * scale, (high - low) * scale
    text = "inside the passes"
    return tag(
        "g",
        tag("rect", class_="coarse", x=x, y=y + 1, width=width, height=LANE - 2),
        tag("text", text, class_="lane-name", x=x + width / 2, y=y + 14, text_anchor="middle")
        if len(text) * 6.3 + 6 <= width
        else None,
    )


def _merged(events: Sequence[Event], thin: float) -> list[Span]:
    """Events in order; neighbours that are too thin to see apart become one span: of one look as many as
    follow one another, of several looks those that are together too thin to be seen.  Between them the lane
    may do nothing for most of the time, which the span says."""
    spans: list[Span] = []
    crowd: list[Event] = []
    looks: dict[str, float] = {}  # seconds of each in the crowd

    def close() -> None:
        if not crowd:
            return
        first, end, share = crowd[0], max(e.end for e in crowd), 1.0
        if len(crowd) == 1:
            tip = f"{first.name}: {show_time(first.end - first.start)}, from {show_time(first.start)}"
            names: tuple[str, ...] = (first.name, first.kind.replace("_", "-"))
        else:
            busy = sum(e.end - e.start for e in crowd)
            kinds = {e.kind for e in crowd}
            what = f"{len(crowd)} × {first.kind}" if len(kinds) == 1 else f"{len(crowd)} events"
            share = min(1.0, busy / (end - first.start))
            tip = f"{what}, together {show_time(busy)}: {show_share(share)} of {show_time(end - first.start)}"
            names = ()
        spans.append(Span(first.start, end, max(looks, key=looks.__getitem__), names, tip, share))
        crowd.clear()
        looks.clear()

    for event in sorted(events, key=lambda e: (e.start, e.end, e.name)):
        together = (
            crowd
            and event.start - crowd[-1].end < thin
            and (
                (event.end - event.start < 3 * thin and looks.keys() == {look_of(event)})
                or event.end - crowd[0].start < thin
            )
        )
        if not together:
            close()
        crowd.append(event)
        looks[look_of(event)] = looks.get(look_of(event), 0.0) + event.end - event.start
        if event.end - event.start >= 3 * thin:
            close()
    close()
    return spans


def _axis(start: float, end: float, scale: float, y: float) -> Html:
    """Time from the left edge; ticks at round times since then."""
    parts: list[Html] = []
    for t in nice_ticks(0.0, end - start, 8):
        x = GUTTER + t * scale
        if x > WIDTH - RIGHT + 1:
            break
        anchor = "start" if t == 0 else "end" if x > WIDTH - 40 else "middle"
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=2, y2=y + 2))
        parts.append(
            tag("text", show_time(t) if t else "0", class_="tick", x=x, y=y + 16, text_anchor=anchor)
        )
    return tag("g", *parts, aria_hidden="true")
