"""A drawn step says how busy its lanes are, and the close look shows what stages do together."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from railwright.report.drawings.timeline import GUTTER, LANE, RIGHT, WIDTH, close_look, draw_timeline
from railwright.training import simulate
from railwright.training.lanes.timeline import Event, Timeline
from training_cases import DENSE, MOE, job, machine

SPAN = 1.0
PLOT = WIDTH - GUTTER - RIGHT


def bars(timeline: Timeline) -> list[tuple[float, float, float, str]]:
    """x, width, height and tip of every drawn event."""
    drawn = draw_timeline(timeline, 0.0, timeline.span, name="n", title="t")
    rects = [r for r in ElementTree.fromstring(drawn).iter("rect") if r.find("title") is not None]
    return [
        (float(r.get("x", 0)), float(r.get("width", 0)), float(r.get("height", 0)), r.findtext("title") or "")
        for r in rects
    ]


@pytest.mark.parametrize("busy", [0.12, 0.5, 0.9, 1.0])
def test_a_bar_of_many_thin_events_is_as_high_as_its_lane_is_busy(busy: float) -> None:
    """2,000 collectives in a second, 0.4 pixels apart: a solid bar however short they are."""
    starts = [SPAN * i / 2000 for i in range(2000)]
    events = [Event(0, "tp", "tp all-reduce", "all_reduce", t, t + busy * SPAN / 2000) for t in starts]
    found = bars(Timeline(tuple(events), SPAN))
    drawn = sum(width * height for _, width, height, _ in found)
    assert drawn / (PLOT * (LANE - 2)) == pytest.approx(busy, rel=0.02)
    share = f"{100 * busy:.1f} % of"
    assert all(share in tip for _, _, _, tip in found)


def test_an_event_that_is_seen_apart_has_its_lanes_height() -> None:
    found = bars(Timeline((Event(0, "tp", "tp all-reduce", "all_reduce", 0.2, 0.3),), SPAN))
    assert [(width, height) for _, width, height, _ in found] == [(pytest.approx(0.1 * PLOT), LANE - 2)]


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "dualpipe"])
def test_every_drawn_stage_is_at_work_in_a_close_look(schedule: str) -> None:
    """Stages 1 and 2 of DualPipe's four waited through it: they had begun and were not done."""
    layout: dict[str, object] = {
        "1f1b": {"tensor": 2},
        "interleaved": {"tensor": 2, "virtual_pipeline": 2},
        "dualpipe": {"expert": 4, "tensor": 2, "sequence_parallel": True, "schedule": "dualpipe"},
    }[schedule]
    arch = MOE if schedule == "dualpipe" else DENSE
    step = simulate(job(batch=128, sequence=4096, pipeline=4, **layout), arch, machine(), most_events=90_000)
    start, end = close_look(step.timeline)
    shown = [e for e in step.timeline.events if e.end > start and e.start < end]
    assert not [e for e in shown if e.kind == "bubble"]
    assert {e.rank for e in shown if e.unit is not None} == {0, 1, 2, 3}
