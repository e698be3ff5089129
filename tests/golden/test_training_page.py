"""The page of `railwright validate training`: drawings and tables of rows made by hand."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app
from railwright.measure.table import Row, Skipped, ValidationTable
from railwright.measure.training.errors import by_family, generation_of, left_out, steps_of, worst
from railwright.measure.training.reasons import RULES, UNKNOWN, reason_of
from railwright.measure.training.replay import records
from railwright.report.pages.training import (
    GENERATIONS,
    KINDS,
    SHAPES,
    errors_drawing,
    steps_drawing,
    training_page,
)
from railwright.report.parts.scatter import BOTTOM, HEIGHT, LEFT, RIGHT, ROW, TOP, WIDTH, picture

CARRIED = {r["id"]: r for r in records()}


def row(record: str, predicted: float, measured: float, left_out: float | None = None, why: str = "") -> Row:
    kind = "moe" if "grok" in record else "dense"
    family = f"training {kind} {CARRIED[record]['gpu']} fp8"
    return Row(family, record, "", predicted, measured, "s/step", "", why, left_out=left_out or predicted)


def some() -> list[Row]:
    """Three steps of one family (10 % long, right, 20 % short) and one never fitted (half as long)."""
    ours = [name for name, r in CARRIED.items() if r["family"] == "dgxc-llama3-70b-H100"]
    slow = next(name for name, r in CARRIED.items() if r["family"] == "vtrain-gpt-39.1b")
    steps = [row(name, p, 1.0, p * 1.02) for name, p in zip(ours, (1.1, 1.0, 0.8), strict=False)]
    return [*steps, row(slow, 50.0, 100.0, why="disturbed")]


def table() -> ValidationTable:
    beside = Row("memory resident", "x", "", 1.0, 2.0, "GiB", "")
    skipped = (Skipped("training dense H100 fp8", "y", "no layout"), Skipped("collectives", "z", "other"))
    return ValidationTable((*some(), beside), skipped, {})


def test_a_familys_errors_by_hand() -> None:
    heads, rows = by_family(some(), CARRIED, {"dgxc-llama3-70b-H100"})
    assert heads == ("family", "steps", "fitted", "left out", "bias", "worst")
    # fitted (10 + 0 + 20)/3; left out: 12.2, 2 and 18.4 %
    assert rows[0] == ("dgxc-llama3-70b-H100", "3", "10.0%", "10.9%", "-3.3%", "-20.0%")
    assert rows[1] == ("vtrain-gpt-39.1b", "1", "never", "50.0%", "-50.0%", "-50.0%")


def test_the_worst_come_first_with_their_reasons() -> None:
    rows = worst(some())[1]
    assert [r[0] for r in rows] == ["-50%", "-20%", "+10%", "+0%"]
    assert rows[0][1:3] == ("50 s", "100 s")
    assert rows[0][-1] == "disturbed"


def test_only_steps_are_counted() -> None:
    found = table()
    assert len(steps_of(found.rows, CARRIED)) == 4
    assert left_out(found.skipped)[1] == [("1", "no layout")]


def test_a_dot_stands_where_its_step_is() -> None:
    """Measured 1 s of 1 to 100 s is the left edge; a step 50 % short lies on the floor of the errors."""
    marks = list(ElementTree.fromstring(errors_drawing(some(), CARRIED)).iter("circle"))[-4:]
    assert [float(m.attrib["cx"]) for m in marks] == pytest.approx([LEFT] * 3 + [WIDTH - RIGHT])
    middle = (TOP + HEIGHT - BOTTOM) / 2
    assert float(marks[1].attrib["cy"]) == pytest.approx(middle)
    assert float(marks[3].attrib["cy"]) == pytest.approx(HEIGHT - BOTTOM)


def test_equal_steps_lie_on_the_diagonal() -> None:
    drawing = ElementTree.fromstring(steps_drawing([row(r.record, 3.0, 3.0) for r in some()], CARRIED))
    mark = list(drawing.iter("circle"))[-1]
    across = (float(mark.attrib["cx"]) - LEFT) / (WIDTH - RIGHT - LEFT)
    up = (HEIGHT - BOTTOM - float(mark.attrib["cy"])) / (HEIGHT - BOTTOM - TOP)
    assert across == pytest.approx(up, abs=1e-3)


def test_the_key_lies_inside_the_drawing() -> None:
    """Five colours in one row, three shapes in another; a letter is 6.7 wide (report/parts/scatter.py)."""
    root = ElementTree.fromstring(steps_drawing(some(), CARRIED))
    rows = ("17", str(int(17 + ROW)))
    key = {t.text: float(t.attrib["x"]) for t in root.iter("text") if t.attrib.get("y") in rows}
    assert len(key) == len({*GENERATIONS.values()}) + len(SHAPES)
    assert max(x + 6.7 * len(text or "") for text, x in key.items()) <= WIDTH


def test_a_drawing_stands_alone() -> None:
    text = picture(steps_drawing(some(), CARRIED))
    root = ElementTree.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "prefers-color-scheme:dark" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")


def test_the_page_has_a_tooltip_on_every_dot() -> None:
    page = training_page(table(), CARRIED, ())
    assert page == training_page(table(), CARRIED, ())
    assert page.count("s predicted,") == 2 * len(some())
    for heading in ("Predicted against measured", "The twenty worst, and why", "By family", "Not predicted"):
        assert f"<h2>{heading}</h2>" in page
    assert "<script" not in re.sub(r"<head>.*</head>", "", page, flags=re.S)


def test_every_carried_record_has_a_colour_and_a_shape() -> None:
    for r in CARRIED.values():
        gpu = r["gpu"].removesuffix("-40")
        kind, found = generation_of(Row(f"training dense {gpu} 16-bit", r["id"], "", 1, 1, "", ""))
        assert found in GENERATIONS, found
        assert kind in KINDS


def test_every_reason_is_some_records() -> None:
    """A rule that fits no record is dead, or misspelt."""
    for fits, _, why in RULES:
        assert any(fits(r) for r in CARRIED.values()), why


def test_reasons_are_given_from_a_tenth_on() -> None:
    slow = next(r for r in CARRIED.values() if r["family"] == "vtrain-gpt-39.1b")
    assert reason_of(slow, -0.09) == ""
    assert "disturbed" in reason_of(slow, -0.3)
    assert reason_of(slow, 0.3) == UNKNOWN


def test_only_training_has_a_page() -> None:
    done = CliRunner().invoke(app, ["validate", "serving", "--html", "page.html"])
    assert done.exit_code == 2
    assert "only training is drawn" in done.output
