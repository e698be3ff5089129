"""One step's timeline as lanes in SVG: the whole step, and a stretch of it near enough to read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.report.charts import nice_ticks
from railwright.report.markup import Html, number, tag
from railwright.training.timeline import Event, Timeline
from railwright.units import show_time

WIDTH, GUTTER, RIGHT = 960.0, 128.0, 8.0
LANE, LANE_GAP, RANK_GAP, AXIS = 20.0, 3.0, 12.0, 26.0
LANES = ("compute", "ep", "emb", "tp", "cp", "pp", "dp", "copy", "host")
MOST_RANKS = 4
CLOSE_EVENTS = 14
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
    """

    start: float
    end: float
    look: str
    names: tuple[str, ...]
    tip: str


def look_of(event: Event) -> str:
    """Class that colours an event: by kind for compute, else by lane."""
    if event.kind == "bubble":
        return "k-bubble"
    if event.kind in ("data", "adam"):
        return f"k-{event.kind}"
    if event.lane == "compute":
        return COMPUTE_LOOKS.get(event.kind, "k-compute")
    return f"k-{event.lane}"


def draw_timeline(timeline: Timeline, start: float, end: float, *, name: str, title: str) -> Html:
    """All lanes of the first pipeline stages between `start` and `end` [s]."""
    ranks = sorted({event.rank for event in timeline.events})[:MOST_RANKS]
    inside = [e for e in timeline.events if e.rank in ranks and e.end > start and e.start < end]
    plot = WIDTH - GUTTER - RIGHT
    scale = plot / (end - start) if end > start else 0.0
    y, rows = 6.0, []
    for rank in ranks:
        first = True
        for lane in LANES:
            events = [e for e in inside if e.rank == rank and e.lane == lane]
            if not events:
                continue
            rows.append(_lane(events, rank, lane, y, start, end, scale, named=first))
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
    """A stretch of the first stage, from the middle of the step, that holds few enough events to read."""
    events = [e for e in timeline.events if e.rank == timeline.events[0].rank and e.kind != "bubble"]
    work = sorted((e for e in events if e.lane != "host"), key=lambda e: (e.start, e.end))
    if len(work) <= CLOSE_EVENTS:
        return 0.0, timeline.span
    first = min(len(work) - CLOSE_EVENTS, int(len(work) * 0.3))
    window = work[first : first + CLOSE_EVENTS]
    return window[0].start, max(e.end for e in window)


def _lane(
    events: Sequence[Event],
    rank: int,
    lane: str,
    y: float,
    start: float,
    end: float,
    scale: float,
    *,
    named: bool,
) -> Html:
    parts: list[Html] = [
        tag("rect", class_="lane", x=GUTTER, y=y, width=WIDTH - GUTTER - RIGHT, height=LANE),
        tag("text", LANE_NAMES[lane], class_="lane-name", x=GUTTER - 8, y=y + 14, text_anchor="end"),
    ]
    if named:
        parts.append(tag("text", f"Stage {rank}", class_="row-name", x=0, y=y + 14))
    for span in _merged(events, 0.7 / scale if scale > 0 else 0.0):
        low, high = max(span.start, start), min(span.end, end)
        x, width = GUTTER + (low - start) * scale, max(0.35, (high - low) * scale)
        parts.append(
            tag("rect", tag("title", span.tip), class_=span.look, x=x, y=y + 1, width=width, height=LANE - 2)
        )
        text = next((n for n in span.names if len(n) * 6.3 + 6 <= width), None)
        if text is not None:
            parts.append(tag("text", text, class_="event", x=x + width / 2, y=y + 14, text_anchor="middle"))
    return tag("g", *parts)


def _merged(events: Sequence[Event], thin: float) -> list[Span]:
    """Events in order; neighbours of one look that are too thin to see apart become one span."""
    spans: list[Span] = []
    crowd: list[Event] = []

    def close() -> None:
        if not crowd:
            return
        first, end = crowd[0], max(e.end for e in crowd)
        if len(crowd) == 1:
            tip = f"{first.name}: {show_time(first.end - first.start)}, from {show_time(first.start)}"
            names: tuple[str, ...] = (first.name, first.kind.replace("_", "-"))
        else:
            busy = sum(e.end - e.start for e in crowd)
            tip, names = f"{len(crowd)} × {first.kind}, together {show_time(busy)}", ()
        spans.append(Span(first.start, end, look_of(first), names, tip))
        crowd.clear()

    for event in sorted(events, key=lambda e: (e.start, e.end, e.name)):
        together = (
            crowd
            and look_of(event) == look_of(crowd[0])
            and event.end - event.start < 3 * thin
            and event.start - crowd[-1].end < thin
        )
        if not together:
            close()
        crowd.append(event)
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
