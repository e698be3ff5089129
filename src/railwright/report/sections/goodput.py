"""The page's failures: how often, by what, what they take, how long the run takes."""

from __future__ import annotations

import math

from railwright.reliability import Goodput
from railwright.reliability.words import fate
from railwright.report.parts.charts import colour_key, part_looks, stacked_bar
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.study.result import Result
from railwright.units import show_amount, show_count, show_share, show_time

MOST_SWINGS = 10


def goodput_section(result: Result) -> Html | None:
    """Only where the study has a section `reliability`."""
    g = result.rooms.goodput
    if g is None:
        return None
    return join(
        [
            *(tag("p", sentence) for sentence in g.answer),
            _losses(g),
            _components(g),
            _forecast(g),
            _spares(g),
            _faults(g),
            _tornado(g),
            *(tag("p", note, class_="note") for note in g.notes),
        ]
    )


def _losses(g: Goodput) -> Html:
    parts = [("training", g.goodput), *g.losses]
    looks = {"training": "k-compute", **part_looks(name for name, _ in g.losses)}
    bar = stacked_bar(
        [(looks[name], share, f"{name}: {show_share(share)}") for name, share in parts],
        1.0,
        label=f"goodput {show_share(g.goodput)}",
    )
    key = colour_key((looks[name], f"{name} {100 * share:.2f} %") for name, share in parts)
    return tag("figure", bar, key, tag("figcaption", "Where the wall time goes."))


def _components(g: Goodput) -> Html:
    rows: list[list[Child]] = [
        [
            c.name,
            show_amount(c.units),
            f"{100 * c.rate:.3g} %",
            f"{c.per_1000_node_days:.3f}",
            show_time(c.mtti) if math.isfinite(c.mtti) else "never",
            show_share(c.share) if c.stops else "goes on",
            tag("span", c.source, class_="soft"),
        ]
        for c in sorted(g.components, key=lambda c: (-c.share, -c.per_1000_node_days))
        if c.rate * c.units
    ]
    heads = ("part", "units", "a year", "per 1,000 node-days", "one every", "share", "source")
    return data_table("What breaks (nodes of eight GPUs)", heads, rows, (1, 2, 3, 4, 5), wide=(6,))


def _forecast(g: Goodput) -> Html:
    run = g.forecast
    rows: list[list[Child]] = [
        ["wall time", *map(show_time, run.wall)],
        ["wall time with the step's range", *map(show_time, run.wall_measured)],
        ["GPU-hours, spare servers included" if g.spares else "GPU-hours", *map(show_amount, run.gpu_hours)],
    ]
    caption = f"The run to its end, {show_count(run.samples)} simulated"
    return data_table(caption, ("", "p10", "p50", "p90", "p99", "mean"), rows, (1, 2, 3, 4, 5))


def _spares(g: Goodput) -> Html:
    rows: list[list[Child]] = [
        [show_share(w.share), str(w.replayed), str(w.scaled), str(w.independent)] for w in g.wanted
    ]
    heads = ("of the time", "trace replayed", "fails together", "were failures independent")
    return data_table("Spare servers the job needs", heads, rows, (1, 2, 3))


def _faults(g: Goodput) -> Html | None:
    if g.network is None:
        return None
    rows: list[list[Child]] = [
        [
            f.what,
            f.element,
            fate(f),
            f"{100 * f.expected:.3f} %",
            f.why,
        ]
        for f in g.network.faults
    ]
    table = data_table(
        "The step with one network element dead",
        ("", "first", "step", "of the time", "why"),
        rows,
        (2, 3),
        wide=(4,),
    )
    return join([table, *(tag("p", sentence) for sentence in g.network.words)])


def _tornado(g: Goodput) -> Html:
    rows: list[list[Child]] = [
        [s.name, s.low, s.high, f"{100 * s.at_low:.1f} %", f"{100 * s.at_high:.1f} %"]
        for s in g.tornado[:MOST_SWINGS]
    ]
    heads = ("assumption", "from", "to", "goodput from", "to")
    return data_table("What the goodput hangs on", heads, rows, (3, 4))
