"""A drawn step says how busy its lanes are, and the close look shows what stages do together."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from railwright.report.drawings.timeline import GUTTER, LANE, RIGHT, WIDTH, draw_timeline
from railwright.training.lanes.timeline import Event, Timeline

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
