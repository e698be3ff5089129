"""`railwright bill`: everything to buy, priced where a price is known, for procurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railwright.cli.studies import StudyArgument


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("bill")(bill)


def bill(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="bill.xlsx, or a folder for CSV files.")
    ] = None,
) -> None:
    """List everything to buy, for procurement.

    Servers, switches, cables and storage with price ranges and their sources; racks, PDUs, cords, cables by
    length and medium as the site plan counts them.  Nothing is overwritten.
    """
    from railwright.cli.checking import refuse_unknown_names
    from railwright.cli.studies import open_study
    from railwright.cli.tables import print_table
    from railwright.report.files.bill import whole_bill, write_bill
    from railwright.report.words.money import dollars
    from railwright.study.evaluate import Workshop
    from railwright.study.rooms import money, site

    asked = open_study(study)
    refuse_unknown_names(asked, study)
    workshop = Workshop.of(asked)
    made = whole_bill(money(asked, workshop), site(asked, workshop))
    heads, rows = made.tables["summary"]
    print_table(heads, [(str(r[0]), *(dollars(float(x)) for x in r[1:])) for r in rows], right=True)
    typer.echo("")
    heads, rows = made.tables["room"]
    print_table(heads[:4], [(str(r[0]), str(r[1]), f"{float(r[2]):,g}", str(r[3])) for r in rows])
    if out is None:
        typer.echo("\n--out bill.xlsx (or a folder) writes every line with its source.")
        return
    for path in write_bill(made, out):
        typer.echo(str(path))
