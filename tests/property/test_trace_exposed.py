"""A trace has every lane of a step, and what each exposes is read off it: the breakdown's own seconds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from railwright.model.shape.architecture import Transformer
from railwright.report.drawings.timeline import CLOSE_EVENTS, close_look
from railwright.report.files.trace import LANE_NAMES, left_out, step_events
from railwright.spec.training import Overlap
from railwright.training import StepResult, simulate
from railwright.training.lanes.result import ADAM
from railwright.training.lanes.timeline import MERGED
from training_cases import DENSE, MOE, job, machine

FIRST = ("tp", "cp", "ep", "emb", "host", "copy", "dp")
"""Whose an instant is in which nothing is computed and several lanes run: the first of these."""

LAYOUTS: dict[str, tuple[Transformer, dict[str, Any]]] = {
    "tensor and pipeline": (DENSE, {"tensor": 2, "pipeline": 4, "batch": 128}),
    "interleaved": (DENSE, {"tensor": 2, "pipeline": 4, "virtual_pipeline": 2, "batch": 128}),
    "sends that block": (DENSE, {"pipeline": 4, "batch": 128, "overlap": Overlap(pp=False)}),
    "weight gradients apart": (DENSE, {"pipeline": 4, "schedule": "zb-h1", "batch": 128}),
    "context": (DENSE, {"context": 2, "tensor": 2, "batch": 128}),
    "sharded parameters": (DENSE, {"zero": 3, "batch": 128}),
    "optimizer on the host": (DENSE, {"zero": 2, "offload": ("optimizer",), "batch": 128}),
    "experts": (MOE, {"expert": 8, "tensor": 2, "sequence_parallel": True, "batch": 128}),
    "experts in pairs": (
        MOE,
        {"expert": 8, "pipeline": 2, "virtual_pipeline": 2, "batch": 128, "overlap": Overlap(ep=True)},
    ),
    "experts, two directions": (MOE, {"expert": 8, "pipeline": 4, "schedule": "dualpipe", "batch": 128}),
}
ROOM = ("every event", "whole passes between the ends", "many passes as one")


@cache
def stepped(layout: str, room: str) -> StepResult:
    """A step whose timeline has room for all, for all but one event, and for hardly any."""
    arch, asked = LAYOUTS[layout]
    whole = simulate(job(**asked), arch, machine())
    if room == "every event":
        return whole
    count = len(whole.timeline.events)
    most = 10 if room == "many passes as one" else count - 1
    return simulate(job(**asked), arch, machine(), most_events=most, end_events=count // 3)


def lanes_of(events: Sequence[dict[str, Any]], stage: int) -> dict[int, str]:
    """Lane of every thread of a stage."""
    lane = {name: lane for lane, name in LANE_NAMES.items()}
    return {
        e["tid"]: lane[e["args"]["name"].split(" (")[0]]
        for e in events
        if e["name"] == "thread_name" and e["pid"] == stage
    }


def exposed(events: Sequence[dict[str, Any]], stage: int) -> Counter[str]:
    """Microseconds by kind of share, as a reader of the trace sums them."""
    lanes, found = lanes_of(events, stage), Counter[str]()
    spans: list[tuple[float, float, str]] = []
    for e in events:
        if e["ph"] != "X" or e["pid"] != stage:
            continue
        lane, kind = lanes[e["tid"]], e["args"]["kind"]
        what = {"bubble": "bubble", "transfer": "pp", "data": "data", ADAM: ADAM}.get(kind, lane)
        if "exposed_s" in e["args"]:
            found.update({k: 1e6 * seconds for k, seconds in e["args"]["exposed_s"].items()})
            what = "told by the event itself"
        if (lane, kind) != ("pp", "send"):
            spans.append((e["ts"], e["ts"] + e["dur"], what))
    order = {what: place for place, what in enumerate(FIRST)}
    marks = sorted({t for start, end, _ in spans for t in (start, end)})
    spans.sort(reverse=True)
    running: list[tuple[float, float, str]] = []
    for begin, finish in pairwise(marks):
        while spans and spans[-1][0] <= begin:
            running.append(spans.pop())
        running = [one for one in running if one[1] > begin]
        if running:
            found[min((what for _, _, what in running), key=lambda w: order.get(w, -1))] += finish - begin
    del found["told by the event itself"]
    return found


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_exposed_time_summed_in_the_trace_is_the_breakdowns(layout: str, room: str) -> None:
    step = stepped(layout, room)
    events = step_events(step)
    found = exposed(events, step.stage)
    told = {share.kind: 1e6 * share.exposed for share in step.shares}
    # Events begin and end on whole nanoseconds.
    for kind in {*found, *told}:
        assert found[kind] == pytest.approx(told.get(kind, 0.0), abs=1e-3 * len(events)), kind


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_lane_that_runs_is_in_the_trace(layout: str, room: str) -> None:
    step = stepped(layout, room)
    drawn = set(lanes_of(step_events(step), step.stage).values())
    run = {share.kind for share in step.shares if share.busy} - {"bubble", "data", ADAM}
    assert run <= drawn


def test_a_stage_that_only_works_in_the_middle_of_a_step_shows_its_lanes_too() -> None:
    """The last of 8 stages begins when there is no room for its events any more."""
    asked = job(tensor=2, pipeline=8, batch=128)
    step = simulate(asked, DENSE, machine(), most_events=2_000, end_events=80)
    assert step.timeline.coarse is not None
    begin, end = step.timeline.coarse
    last = [e for e in step.timeline.events if e.rank == 7 and e.lane == "tp"]
    assert last
    assert all(begin < e.start < e.end < end for e in last)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_is_outside_the_coarse_stretch_is_as_in_the_whole_trace(layout: str) -> None:
    whole, part = (stepped(layout, room).timeline for room in ROOM if room != "many passes as one")
    assert whole.coarse is None
    assert part.coarse is not None
    begin, end = part.coarse
    outside = [e for e in whole.events if e.start < begin or e.end > end]
    assert outside
    assert set(outside) <= set(part.events)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_trace_says_what_it_leaves_out_and_a_whole_one_says_nothing(layout: str) -> None:
    steps = [stepped(layout, room) for room in ROOM]
    said = [left_out(step.timeline) for step in steps]
    assert said[0] == ""
    assert "whole passes stand for" in said[1]
    assert "many of them as one" in said[2]
    assert [any(e.kind == MERGED for e in s.timeline.events) for s in steps] == [False, False, True]
    marks = [[e["name"] for e in step_events(s) if e.get("cat") == "compute,detail"] for s in steps]
    assert not marks[0]
    assert any("whole passes" in name for name in marks[1])


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_close_look_is_taken_where_every_operator_is_an_event(layout: str, room: str) -> None:
    timeline = stepped(layout, room).timeline
    start, end = close_look(timeline)
    assert 0 <= start < end <= timeline.span
    inside = [e for e in timeline.events if e.rank == 0 and e.start >= start and e.end <= end]
    assert not any(e.inside for e in inside)
    assert len(inside) >= CLOSE_EVENTS - 2
    if timeline.coarse is not None:
        assert end <= timeline.coarse[0] or start >= timeline.coarse[1]


def test_a_close_look_shows_exposed_messages_beside_computing() -> None:
    """Also of a step whose middle is drawn in whole passes."""
    for room in ROOM:
        timeline = stepped("tensor and pipeline", room).timeline
        start, end = close_look(timeline)
        lanes = {e.lane for e in timeline.events if e.rank == 0 and e.end > start and e.start < end}
        assert {"compute", "tp", "pp"} <= lanes
