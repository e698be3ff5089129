"""A comparison as one small self-contained page: curves, findings, and the table behind them."""

from __future__ import annotations

from railwright.measure.compare.result import ComparedCurve, Comparison
from railwright.report.parts.charts import Axes, Line, line_chart
from railwright.report.parts.markup import Html, join, tag
from railwright.report.parts.style import stylesheet
from railwright.report.parts.table import data_table
from railwright.report.words.figures import letter
from railwright.units import show_change, show_rate, show_size, show_time

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def compare_page(comparison: Comparison) -> str:
    """The whole page; the same comparison gives the same text. Nothing is fetched and no script runs."""
    title = f"Measured against {comparison.study}"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="generator", content=f"railwright {comparison.version}"),
        tag("title", f"{title} · Railwright"),
        tag("link", rel="icon", href="data:,"),
        tag("style", Html(stylesheet())),
    )
    body = join(
        [
            tag("header", tag("p", "Railwright comparison", class_="made"), tag("h1", title)),
            tag(
                "main",
                tag("section", tag("h2", "Findings"), _findings(comparison), id="findings"),
                *(
                    tag("section", tag("h2", curve.title), _curve(curve, nth), id=f"curve-{nth}")
                    for nth, curve in enumerate(comparison.curves)
                ),
            ),
            tag("footer", tag("p", f"Railwright {comparison.version}")),
        ],
        "\n",
    )
    return f"<!DOCTYPE html>\n{tag('html', head, tag('body', body), lang='en')}\n"


def _findings(comparison: Comparison) -> Html:
    total = sum(len(c.points) for c in comparison.curves)
    inside = sum(p.inside for c in comparison.curves for p in c.points)
    verdict = tag("p", f"{inside} of {total} sizes lie in the 80 % band of the prediction.", class_="answer")
    left = [tag("p", f"Left out: {reason}", class_="note") for reason in comparison.skipped]
    if not comparison.findings:
        return join([verdict, *left])
    rows = [(f.kind, f"{f.confidence:.0%}", f.evidence, f.next_test or "–") for f in comparison.findings]
    heads = ("finding", "confidence", "evidence", "next test")
    return join([verdict, data_table("What the curves tell", heads, rows, numbers={1}, wide={2, 3}), *left])


def _curve(curve: ComparedCurve, nth: int) -> Html:
    factor = [p.busbw * p.measured for p in curve.points]

    def line(index: int, name: str, times: tuple[float, ...]) -> Line:
        points = tuple(
            (p.size, f / t, f"{show_size(p.size)}: {show_rate(f / t)}, {show_time(t)}")
            for p, f, t in zip(curve.points, factor, times, strict=True)
        )
        return Line(index, letter(index), name, points)

    lines = [
        line(0, "measured", tuple(p.measured for p in curve.points)),
        line(1, "as designed", tuple(p.predicted for p in curve.points)),
        line(2, "band, slow end", tuple(p.high for p in curve.points)),
        line(3, "band, fast end", tuple(p.low for p in curve.points)),
    ]
    if curve.best.key != "as-designed" and any(not p.inside for p in curve.points):
        lines.append(line(4, f"best fit: {curve.best.key}", curve.best.times))
    axes = Axes(
        f"{curve.title}: measured and predicted bus bandwidth over size",
        "total size",
        "bus bandwidth",
        show_size,
        lambda y: show_rate(y) if y else "0",
    )
    names = tag("p", join([tag("span", f"{one.letter} {one.name}") for one in lines], " · "), class_="note")
    rows = [
        (
            show_size(p.size),
            show_time(p.measured),
            show_time(p.predicted),
            show_rate(p.busbw),
            show_rate(p.predicted_busbw),
            show_change(1 / p.ratio - 1, 0),
            f"{p.algorithm}/{p.protocol}",
        )
        for p in curve.points
    ]
    heads = ("size", "time", "predicted", "busbw", "predicted", "off", "NCCL's choice")
    notes = [tag("p", note, class_="note") for note in (*curve.measured.notes, *curve.notes)]
    source = tag("p", f"From {curve.measured.file}, line {curve.measured.line}.", class_="note")
    return join(
        [
            source,
            tag("figure", line_chart(lines, axes, name=f"busbw-{nth}"), names),
            data_table("Size by size", heads, rows, numbers={1, 2, 3, 4, 5}),
            *notes,
        ]
    )
