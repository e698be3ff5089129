"""The page's money and carbon: every way side by side, when owning pays, what it hangs on."""

from __future__ import annotations

from railwright.cost.priced import Priced
from railwright.report.drawings.money import PARTS, draw_break_even, draw_waterfall
from railwright.report.parts.charts import colour_key, stacked_bar
from railwright.report.parts.markup import Child, Html, join, tag
from railwright.report.parts.table import data_table
from railwright.report.words.money import RANGE, dollars, money_words, tonnes
from railwright.study.result import Result
from railwright.units import show_energy

MOST_SWINGS = 8


def money_section(result: Result) -> Html | None:
    """Only where the study has a section `money`."""
    priced = result.rooms.money
    if priced is None:
        return None
    found = priced.comparison
    own = priced.best_owned
    return join(
        [
            *(tag("p", sentence) for sentence in money_words(priced)),
            _ways(priced),
            _figure(draw_waterfall(own), f"A GPU-hour of {own.name}, part by part."),
            _figure(
                draw_break_even(found),
                "Purchase at once against rent, without interest and residual value; a dot is where owning "
                "has paid for itself.",
            ),
            _breaks(priced),
            _swings(priced),
            _carbon(priced),
            _unread(priced),
        ]
    )


def _figure(drawing: Html, words: str) -> Html:
    """A drawing that a narrow screen scrolls."""
    return tag("figure", tag("div", drawing, class_="scroll", tabindex=0), tag("figcaption", words))


def _ways(priced: Priced) -> Html:
    found = priced.comparison
    longest = max(float(c.monthly) for c in found.costs)
    rows: list[list[Child]] = []
    for c in found.costs:
        parts = [(PARTS[k], float(v), f"{k}: {dollars(float(v))} a month") for k, v in c.parts.items()]
        low, _, high = found.ranges[c.name]
        bar = stacked_bar(parts, longest, label=f"{c.name}: {dollars(float(c.monthly))} a month")
        rows.append(
            [
                c.name,
                dollars(float(c.upfront)) if float(c.upfront) else "–",
                dollars(float(c.monthly)),
                bar,
                dollars(float(c.per_gpu_hour)),
                f"{dollars(low)} to {dollars(high)}",
                f"{100 * found.cheapest[c.name]:.0f} %",
            ]
        )
    heads = ("way", "upfront", "a month", "of it", "GPU-hour", "range", "cheapest in")
    key = colour_key((look, name) for name, look in PARTS.items())
    table = data_table(
        "Every way of having these GPUs, cheapest first [USD]", heads, rows, (1, 2, 4, 5, 6), wide=(3,)
    )
    return join([table, key, tag("p", RANGE, class_="note")])


def _breaks(priced: Priced) -> Html | None:
    own = priced.best_owned.name
    rows: list[list[Child]] = []
    for b in priced.comparison.breaks:
        if b.own == own:
            months = f"{b.months:.0f} months" if b.months < 1e6 else "never"
            use = f"above {100 * b.utilisation:.0f} % use" if b.utilisation <= 1 else "at no use"
            rows.append([b.cloud, months, use])
    if not rows:
        return None
    heads = ("against", "paid back in", "cheaper over the years")
    return data_table(f"When {own} pays", heads, rows, (1, 2))


def _swings(priced: Priced) -> Html:
    rows: list[list[Child]] = [
        [s.item, dollars(s.low), dollars(s.high), tag("span", s.source, class_="soft")]
        for s in priced.comparison.swings[:MOST_SWINGS]
    ]
    caption = f"A GPU-hour of {priced.best_owned.name} with one price at either end of its range"
    return data_table(caption, ("price", "from", "to", "source"), rows, (1, 2), wide=(3,))


def _carbon(priced: Priced) -> Html:
    found = priced.comparison
    rows: list[list[Child]] = [
        [
            c.region,
            show_energy(c.energy),
            tonnes(c.operation),
            tonnes(c.making) if c.making else "not known",
            f"{c.per_gpu_hour:,.0f} g",
            dollars(found.owned_in[c.region]),
            tag("span", f"{c.intensity:g} g/kWh, {c.source}", class_="soft"),
        ]
        for c in found.carbon
    ]
    heads = (
        "region",
        "energy a year",
        "operation",
        "making the GPUs",
        "a GPU-hour",
        "owned there",
        "intensity",
    )
    return data_table("Energy and CO2e of a year, location-based", heads, rows, (1, 2, 3, 4, 5), wide=(6,))


def _unread(priced: Priced) -> Html | None:
    unread = priced.comparison.unread
    if not unread:
        return None
    text = f"From memory or estimated, read in no source: {', '.join(unread)}."
    return tag("p", f"{text} Put your own quotes in their place.", class_="note")
