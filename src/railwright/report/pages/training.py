"""Predicted against measured training steps: the drawings, and one self-contained page around them."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

from railwright import __version__
from railwright.measure.table import Row, ValidationTable
from railwright.measure.training.bars import Reached, reached
from railwright.measure.training.errors import (
    Records,
    Table,
    by_family,
    generation_of,
    in_short,
    left_out,
    steps_of,
    worst,
)
from railwright.report.html import document
from railwright.report.parts.markup import Html, join, tag
from railwright.report.parts.scatter import Dot, decades, linear, scatter
from railwright.report.parts.table import data_table
from railwright.units import show_time

GENERATIONS = {
    "A100": 0,
    "L40S": 0,
    "H100": 1,
    "H200": 1,
    "H200-NVL": 1,
    "B200": 2,
    "B300": 2,
    "GB200": 3,
    "GB300": 3,
    "MI300X": 4,
    "MI325X": 4,
    "MI350X": 4,
    "MI355X": 4,
}
"""GPU -> place of its colour."""
COLOURS = ("A100, L40S", "H100, H200", "B200, B300", "GB200, GB300", "MI300X to MI355X")
KINDS = {"dense": 0, "moe": 1, "linear": 2}
SHAPES = ("dense", "MoE", "Mamba")
FAR = 0.5
"""Errors are drawn up to this; what is further off stands at the edge."""
NOTE = (
    "Error: predicted / measured - 1. Fitted: with the factors as they are shipped; left out: with factors "
    "whose fit had not seen the family (a model, a GPU and a publisher); never: no fit has seen it."
)


def training_page(table: ValidationTable, records: Records, fitted: Container[str]) -> str:
    """The page; the same validation gives the same text.

    records  record -> its row of the carried tables (`measure.training.replay.records`)
    fitted   families that a fit has seen (`measure.training.replay.fitted_families`)
    """
    steps = steps_of(table.rows, records)
    sections: list[tuple[str, Html]] = [
        ("What is asked, and what is reached", _bars(reached(table.rows, table.skipped, records))),
        ("Predicted against measured", tag("figure", steps_drawing(steps, records, tips=True))),
        ("Error of every step", tag("figure", errors_drawing(steps, records, tips=True))),
        ("The twenty worst, and why", _table("The steps that are furthest off", worst(steps))),
        (
            "By family",
            join(
                [
                    tag("p", NOTE, class_="note"),
                    _table("Errors by family", by_family(steps, records, fitted), "12345"),
                ]
            ),
        ),
        ("Not predicted", _table("Records left out", left_out(table.skipped))),
    ]
    body = join(
        [
            tag(
                "header",
                tag("p", "Railwright validation", class_="made"),
                tag("h1", "Training steps: predicted against measured"),
            ),
            tag(
                "main",
                tag("div", tag("p", in_short(steps)), class_="answer"),
                *(tag("section", tag("h2", name), inside) for name, inside in sections),
            ),
            tag("footer", tag("p", f"Railwright {__version__}")),
        ],
        "\n",
    )
    return document("Training steps: predicted against measured", body, __version__)


def steps_drawing(steps: Sequence[Row], records: Records, *, tips: bool = False) -> Html:
    """Predicted over measured step time; lines at equal and at 30 % more and less."""
    times = [t for r in steps for t in (r.predicted, r.measured)]
    x, y = decades("measured step", times, _seconds), decades("predicted step", times, _seconds)
    # The guides stop where one of their ends would leave the square.
    guides = [((x.low, x.low), (x.high, x.high))]
    guides += [
        ((x.low / min(1, f), x.low * max(1, f)), (x.high / max(1, f), x.high * min(1, f))) for f in (0.7, 1.3)
    ]
    return scatter(
        _dots(steps, records, {r.record: r.predicted for r in steps}, tips),
        x,
        y,
        name="steps",
        title="Predicted over measured step times, with lines at equal and at 30 % more and less",
        colours=COLOURS,
        shapes=SHAPES,
        guides=guides,
    )


def errors_drawing(steps: Sequence[Row], records: Records, *, tips: bool = False) -> Html:
    """Error over measured step time; lines at none and at 10 % more and less."""
    x = decades("measured step", [r.measured for r in steps], _seconds)
    y = linear("error of the prediction", -FAR, FAR, lambda v: f"{v:+.0%}" if v else "0")
    return scatter(
        _dots(steps, records, {r.record: r.error for r in steps}, tips),
        x,
        y,
        name="errors",
        title="Error of every predicted step over its measured time, with lines at none and at 10 %",
        colours=COLOURS,
        shapes=SHAPES,
        guides=[((x.low, e), (x.high, e)) for e in (0.0, -0.1, 0.1)],
    )


def _seconds(value: float) -> str:
    return f"{value:g} s"


def _dots(steps: Sequence[Row], records: Records, heights: Mapping[str, float], tips: bool) -> list[Dot]:
    found = []
    for r in steps:
        kind, gpu = generation_of(r)
        tip = ""
        if tips:
            tip = (
                f"{r.record}: {records[r.record]['gpu']}, {r.what}; {show_time(r.predicted)} predicted, "
                f"{show_time(r.measured)} measured, {r.error:+.1%}"
            )
        found.append(Dot(r.measured, heights[r.record], GENERATIONS[gpu], KINDS[kind], tip))
    return found


def _bars(found: Sequence[Reached]) -> Html:
    rows = [(b.what, b.asked, b.reached, "met" if b.met else "NOT met") for b in found]
    return data_table("Goals set for this version", ("bar", "asked", "reached", ""), rows)


def _table(caption: str, table: Table, numbers: str = "") -> Html:
    heads, rows = table
    wide = [i for i, head in enumerate(heads) if head in ("why", "step")]
    return data_table(caption, heads, rows, numbers=[int(n) for n in numbers], wide=wide)
