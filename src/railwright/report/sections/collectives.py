"""The page's curves: bus bandwidth over size, what PXN changes, and what limits each variant."""

from __future__ import annotations

from railwright.collectives.prediction import CollectivePrediction
from railwright.report.parts.charts import Axes, Line, badge, line_chart
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.report.words.figures import Sweeps, busbw_band, large_point, letter, pxn_pairs, sweeps
from railwright.study.result import Result
from railwright.units import show_count, show_rate, show_share, show_size, show_time


def collectives_section(result: Result) -> Html | None:
    """One chart per collective, the ratio of PXN on to off, and the tables behind them."""
    found = sweeps(result)
    if not found:
        return None
    parts: list[Html] = [
        tag(
            "p",
            "Bus bandwidth as nccl-tests defines it, over the total size; "
            "hover a point for its time and algorithm.",
            class_="note",
        )
    ]
    for nth, sweep in enumerate(found):
        ranks = sweep.curves[0][1].points[0].ranks
        parts.append(tag("h3", f"{sweep.title} over {show_count(ranks)} GPUs"))
        parts.append(_busbw(result, sweep, f"busbw-{nth}"))
        parts += _ratio(result, sweep, f"ratio-{nth}")
        parts.append(_limits(result, sweep))
        parts.append(_table(sweep))
    return join(parts)


def _busbw(result: Result, sweep: Sweeps, name: str) -> Html:
    lines = [
        Line(i, letter(i), result.variants[i].name, tuple((p.size, p.busbw, _tip(p)) for p in curve.points))
        for i, curve in sweep.curves
    ]
    title = f"{sweep.title} bus bandwidth over size, one line per variant"
    axes = Axes(title, "total size", "bus bandwidth", show_size, lambda y: show_rate(y) if y else "0")
    return tag("figure", line_chart(lines, axes, name=name), _letters(result, sweep))


def _ratio(result: Result, sweep: Sweeps, name: str) -> list[Html]:
    """PXN on over off, for every pair of variants that differ in just that."""
    curves = dict(sweep.curves)
    lines = []
    for on, off in pxn_pairs(result):
        if on not in curves or off not in curves:
            continue
        without = {p.size: p for p in curves[off].points}
        points = tuple(
            (
                p.size,
                p.busbw / without[p.size].busbw,
                f"{show_size(p.size)}: × {p.busbw / without[p.size].busbw:.3g}",
            )
            for p in curves[on].points
            if p.size in without and without[p.size].busbw
        )
        if points:
            lines.append(Line(on, f"{letter(on)}/{letter(off)}", "with PXN over without", points))
    if not lines:
        return []
    ys = [y for line in lines for _, y, _ in line.points]
    axes = Axes(
        f"{sweep.title} bus bandwidth with PXN over without",
        "total size",
        "with PXN ÷ without",
        show_size,
        lambda y: f"{y:.4g} ×",
        y_from=min(1.0, min(ys)) if max(ys) - min(1.0, min(ys)) > 0.02 else 0.9,
        y_to=max(1.1, max(ys)),
        rule=1.0,
    )
    heading = tag("h3", f"{sweep.title}: what PXN changes")
    return [heading, tag("figure", line_chart(lines, axes, name=name, height=260.0))]


def _limits(result: Result, sweep: Sweeps) -> Html:
    """What limits each variant at the largest size: its longest part, its busiest link."""
    rows: list[list[Child]] = []
    for index, curve in sweep.curves:
        p = large_point(curve.points)
        longest = max(p.terms, key=lambda t: t.seconds, default=None)
        rows.append(
            [
                join([badge(index, letter(index)), result.variants[index].name]),
                show_rate(p.busbw),
                busbw_band(p),
                show_time(p.time),
                f"{longest.name}, {show_share(longest.seconds / p.time)}" if longest is not None else "–",
                _busiest(p),
            ]
        )
    size = show_size(large_point(sweep.curves[0][1].points).size)
    heads = ("variant", "bus bandwidth", "80 % of measurements", "time", "longest part", "busiest link")
    return data_table(f"What limits {sweep.title} at {size}", heads, rows, numbers=(1, 2, 3), wide=(5,))


def _table(sweep: Sweeps) -> Html:
    """Every point of the chart, for those who want numbers."""
    by_size: dict[float, dict[int, CollectivePrediction]] = {}
    for index, curve in sweep.curves:
        for p in curve.points:
            by_size.setdefault(p.size, {})[index] = p
    order = [index for index, _ in sweep.curves]
    rows: list[list[Child]] = []
    for size, found in sorted(by_size.items()):
        cells: list[Child] = [show_size(size)]
        for index in order:
            at = found.get(index)
            cells += [show_time(at.time), show_rate(at.busbw)] if at is not None else ["–", "–"]
        cells.append(", ".join(dict.fromkeys(f"{p.algorithm}/{p.protocol}" for p in found.values())))
        rows.append(cells)
    heads: list[Child] = ["size"]
    for index in order:
        heads += [f"{letter(index)} time", f"{letter(index)} busbw"]
    heads.append("algorithm")
    table = data_table(f"{sweep.title}, every size", heads, rows, numbers=range(len(heads)))
    return tag("details", tag("summary", f"Table: {sweep.title}, every size"), table)


def _letters(result: Result, sweep: Sweeps) -> Html:
    names = (tag("li", badge(i, letter(i)), result.variants[i].name) for i, _ in sweep.curves)
    return tag("ul", *names, class_="key")


def _busiest(p: CollectivePrediction) -> str:
    """The bottleneck in one sentence that names it once."""
    if p.bottleneck is None:
        return "–"
    named = p.bottleneck.why.startswith(p.bottleneck.name)
    return p.bottleneck.why if named else f"{p.bottleneck.name}: {p.bottleneck.why}"


def _tip(p: CollectivePrediction) -> str:
    band = busbw_band(p)
    return (
        f"{show_size(p.size)}: {show_rate(p.busbw)} (80 %: {band}), {show_time(p.time)}, "
        f"{p.algorithm}/{p.protocol}"
    )
