"""Laws of the drawings: every cable is drawn once, boxes do not overlap, labels keep apart, text is text."""

from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from railwright.fabric.graph import Kind, Role
from railwright.report.drawings.boxes import MOST_GROUPS, MOST_SERVERS, MOST_SWITCHES, boxes_of
from railwright.report.drawings.fabric import bundles, draw_fabric
from railwright.report.parts.charts import Axes, Line, line_chart, log2_ticks, nice_ticks, spread
from railwright.report.parts.markup import tag
from railwright.report.words.figures import letter
from report_fixture import fail, toy_fabric

fabrics = st.builds(
    lambda per_group, groups, spines, by_rail, gpus: toy_fabric(
        per_group * groups, leaves_per_group=gpus, spines=spines, by_rail=by_rail, groups=groups, gpus=gpus
    ),
    st.integers(1, 12),
    st.integers(1, 30),
    st.integers(0, 6),
    st.booleans(),
    st.sampled_from([1, 4, 8]),
)


@settings(max_examples=40)
@given(fabrics)
def test_every_device_is_in_one_box_and_every_cable_in_one_bundle(fabric):
    boxes, box_of = boxes_of(fabric)
    assert np.all(box_of >= 0)
    assert sum(b.count for b in boxes if b.kind == Kind.GPU) == fabric.num_servers
    assert sum(b.count for b in boxes if b.kind == Kind.LEAF) == len(fabric.devices(Kind.LEAF))
    links = bundles(fabric, box_of)
    assert sum(link.cables for link in links) == np.count_nonzero(fabric.role >= Role.NODE_LEAF)
    assert all(boxes[link.low].kind < boxes[link.high].kind for link in links)


@settings(max_examples=40)
@given(fabrics)
def test_boxes_of_a_row_fit_and_do_not_overlap(fabric):
    boxes, _ = boxes_of(fabric)
    for kind in (Kind.GPU, Kind.LEAF, Kind.SPINE):
        row = sorted((b.centre - b.width / 2, b.centre + b.width / 2) for b in boxes if b.kind == kind)
        assert len(row) <= max(MOST_SERVERS, MOST_SWITCHES, MOST_GROUPS)
        assert all(0 <= low < high <= 1 + 1e-9 for low, high in row)
        assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(row))


@settings(max_examples=15)
@given(fabrics, st.data())
def test_a_failed_switch_is_failed_in_the_drawing_and_nothing_else_is(fabric, data):
    switches = np.flatnonzero(fabric.kind == Kind.LEAF)
    broken = int(data.draw(st.sampled_from(switches.tolist())))
    dead = np.count_nonzero((fabric.a == broken) | (fabric.b == broken))
    failed = fail(fabric, broken)
    boxes, box_of = boxes_of(failed)
    assert sum(link.failed for link in bundles(failed, box_of)) == dead
    mine = boxes[box_of[broken]]
    assert mine.state == (("failed" if mine.count == 1 else "hurt") if dead else "")
    assert all(not b.state for b in boxes if b is not mine and b.kind == Kind.LEAF)
    ElementTree.fromstring(draw_fabric(failed, name="x", title="<&>"))


@given(
    st.lists(st.floats(0, 300), min_size=1, max_size=12),
    st.floats(1, 20),
)
def test_labels_keep_their_order_and_distance(wanted, gap):
    placed = spread(wanted, gap, 0.0, 300.0)
    order = sorted(range(len(wanted)), key=lambda i: (wanted[i], i))
    for before, after in pairwise(order):
        assert placed[after] - placed[before] >= gap - 1e-6
    assert max(placed) <= 300.0 + 1e-9


@example(low=5443434375.0, span=1e-6, most=5)
@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e12), st.integers(2, 10))
def test_ticks_are_even_and_cover_the_data(low, span, most):
    high = low + span
    ticks = nice_ticks(low, high, most)
    slack = 1e-6 * max(abs(low), abs(high), span)
    assert ticks[0] <= low + slack
    assert ticks[-1] >= high - slack
    assert len(ticks) <= most + 3


@given(st.integers(0, 40), st.integers(1, 40), st.integers(3, 8))
def test_size_ticks_are_powers_of_two_within_the_data(first, more, most):
    ticks = log2_ticks(2.0**first, 2.0 ** (first + more), most)
    assert 1 <= len(ticks) <= most
    assert all(2.0**first <= t <= 2.0 ** (first + more) for t in ticks)


@settings(max_examples=30)
@example([[5e-324]])
@given(st.lists(st.lists(st.floats(0, 1e12), min_size=1, max_size=12), min_size=1, max_size=9))
def test_any_curve_can_be_drawn(curves):
    lines = [
        Line(i, letter(i), f"curve {i}", tuple((2.0**x, y, "tip") for x, y in enumerate(ys)))
        for i, ys in enumerate(curves)
    ]
    axes = Axes("title", "x", "y", lambda x: f"{x:g}", lambda y: f"{y:g}")
    chart = ElementTree.fromstring(line_chart(lines, axes, name="n"))
    assert len(chart.findall("svg")) == 2


@given(st.text(st.characters(exclude_categories=["Cc", "Cs"]), max_size=40))
def test_text_comes_back_as_it_went_in(text):
    element = ElementTree.fromstring(tag("p", text, title=text))
    assert (element.text or "") == text
    assert element.get("title") == text


@given(st.integers(0, 2000))
def test_letters_are_distinct(index):
    assert letter(index) != letter(index + 1)
    assert letter(0) == "A"
    assert letter(26) == "AA"
