"""`railwright cost`: what the cluster costs owned, colocated, rented and mixed, and what it emits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.errors import RailwrightError

if TYPE_CHECKING:
    from railwright.cost import Comparison
    from railwright.cost.priced import Priced

SHOWN_SWINGS = 6
OTHERS = ("iceland", "texas")
PARTS = ("purchase", "power", "space", "people", "support", "rent", "data")


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("cost")(cost)


def cost(
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="Study file or template; none with --prices.")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option("--region", help="Regions whose carbon to compare; repeatable.")
    ] = None,
    prices: Annotated[bool, typer.Option("--prices", help="Print the price book with its sources.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for purchase.csv, ways.csv and prices.csv.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")] = False,
) -> None:
    """Say what a cluster costs: owned, colocated, rented, mixed.

    Per GPU-hour wanted and per training run, with ranges; when owning pays; what the answer hangs on; carbon.
    """
    from railwright.cost import price_book

    if prices:
        if study is not None:
            from railwright.cli.studies import open_study

            money = open_study(study).money
            _print_book(price_book(money.prices if money else None))
            return
        _print_book(price_book())
        return
    if study is None:
        raise RailwrightError("give a study, or --prices for the price book")
    from railwright.cli.checking import refuse_unknown_names
    from railwright.cli.studies import open_study
    from railwright.cost.options import check_region
    from railwright.study.evaluate import Workshop
    from railwright.study.rooms import goodput, served
    from railwright.study.rooms import money as money_of

    asked = open_study(study)
    refuse_unknown_names(asked, study)
    book = price_book(asked.money.prices if asked.money else None)
    for name in region or ():
        check_region(book, name, "--region")
    workshop = Workshop.of(asked)
    failing = goodput(asked, workshop) if asked.reliability is not None else None
    serving = served(asked, workshop, lambda what: None)
    found = money_of(asked, workshop, failing, serving, tuple(region or OTHERS))
    if as_json:
        from railwright.report.files.plain import finite
        from railwright.report.files.rooms import money as plain

        typer.echo(json.dumps(finite(plain(found)), indent=2, allow_nan=False))
    else:
        _print(found)
    if out is not None:
        _write(found.comparison, out)


def _print(priced: Priced) -> None:
    from railwright.cli.tables import print_table
    from railwright.cost.quantities import mean_use
    from railwright.report.words.money import RANGE, dollars, money_words, tonnes
    from railwright.units import show_energy

    found = priced.comparison
    case, money = found.case, found.case.money
    typer.echo(money_words(priced)[0])
    use = mean_use(case.levels)
    pue = money.pue if money.pue is not None else found.book["pue"].middle
    typer.echo(
        f"{case.cluster.gpus:,} GPUs over {money.years:g} years in '{money.region}', {100 * use:.0f} % "
        f"wanted in the mean ({money.use.profile}); PUE {pue:.2f}.\n"
    )
    rows = []
    for c in found.costs:
        low, _, high = found.ranges[c.name]
        rows.append(
            (
                c.name,
                dollars(float(c.upfront)) if float(c.upfront) else "–",
                dollars(float(c.monthly)),
                dollars(float(c.per_gpu_hour)),
                f"{dollars(low)} to {dollars(high)}",
                f"{100 * found.cheapest[c.name]:.0f} %",
            )
        )
    print_table(("way", "upfront", "a month", "GPU-hour", "range", "cheapest"), rows, right=True)
    typer.echo(f"{RANGE}\n")
    for sentence in money_words(priced)[1:]:
        typer.echo(sentence)
    _print_breaks(found)
    typer.echo("\nA GPU-hour of the best owned way, by the prices it hangs on most:")
    for s in found.swings[:SHOWN_SWINGS]:
        mark = "  (nobody has read this price)" if s.unread else ""
        typer.echo(f"  {s.item:<26} {dollars(s.low)} to {dollars(s.high)}{mark}")
    typer.echo("")
    for place in found.carbon:
        making = f", {tonnes(place.making)} more from making the GPUs" if place.making else ""
        typer.echo(
            f"{place.region}: {show_energy(place.energy)} and {tonnes(place.operation)} "
            f"CO2e a year at {place.intensity:g} g/kWh{making}; {place.per_gpu_hour:,.0f} g per GPU-hour, "
            f"which costs {dollars(found.owned_in[place.region])} owned."
        )
        if place.best_hours is not None:
            typer.echo(f"  in the cleanest hours of its day: {tonnes(place.best_hours)}.")
    if found.unread:
        typer.echo(
            f"\n{len(found.unread)} of the prices used are from memory or estimated; `railwright cost "
            "--prices` shows every source, and money.prices puts your own quotes in their place."
        )


def _print_breaks(found: Comparison) -> None:
    own = min((c for c in found.costs if c.kind in ("own", "colo")), key=lambda c: float(c.monthly)).name
    for b in found.breaks:
        if b.own != own:
            continue
        if b.months == float("inf"):
            typer.echo(f"{b.own} never pays against {b.cloud}: running it costs more than renting.")
            continue
        from_use = (
            f"cheaper over the years above {100 * b.utilisation:.0f} % use"
            if b.utilisation <= 1
            else "dearer over the years at any use"
        )
        typer.echo(f"{b.own} against {b.cloud}: paid back in {b.months:.0f} months at this use; {from_use}.")


def _print_book(book: Any) -> None:
    from railwright.cli.tables import print_table
    from railwright.cost.prices import spreads

    rows = [
        (p.item, f"{p.low:g}", f"{p.middle:g}", f"{p.high:g}", p.unit, p.provenance) for p in book.values()
    ]
    print_table(("item", "low", "middle", "high", "unit", "source"), rows)
    typer.echo("\nRanges that are assumed, of prices of which one figure was read:")
    for spread in spreads().values():
        typer.echo(f"  {spread.kind}: {spread.low:.2f} to {spread.high:.2f} times it, the ends of")
        for seen in spread.seen:
            typer.echo(f"    {seen}")


def _write(found: Comparison, out: Path) -> None:
    from railwright.cost.options import line_price, middle
    from railwright.export.files import write_new
    from railwright.export.sheet import csv_text

    draw = middle(found.book)
    lines = found.case.cluster.lines
    texts = {
        "purchase.csv": csv_text(
            ("room", "item", "quantity", "usd"),
            [(x.room, x.what, x.quantity, round(float(line_price(x, draw)), 2)) for x in lines],
        ),
        "ways.csv": csv_text(
            ("way", "upfront_usd", *(f"{p}_usd_a_month" for p in PARTS), "usd_a_month", "usd_per_gpu_hour"),
            [
                (
                    c.name,
                    round(float(c.upfront), 2),
                    *(round(float(c.parts.get(p, 0.0)), 2) for p in PARTS),
                    round(float(c.monthly), 2),
                    round(float(c.per_gpu_hour), 4),
                )
                for c in found.costs
            ],
        ),
        "prices.csv": csv_text(
            ("item", "low", "middle", "high", "range", "unit", "date", "status", "source"),
            [
                (
                    p.item,
                    p.low,
                    p.middle,
                    p.high,
                    "assumed" if p.assumed else "",
                    p.unit,
                    p.date,
                    p.status,
                    p.source,
                )
                for p in found.book.values()
            ],
        ),
    }
    for path in write_new({out / name: text for name, text in texts.items()}):
        typer.echo(str(path))
