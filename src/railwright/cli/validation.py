"""`railwright validate`: published measurements, replayed."""

from __future__ import annotations

from typing import Annotated

import typer

MISSED = 1
LEGEND = (
    "Errors are predicted / measured - 1: median, mean and p90 of their sizes, bias their mean with its "
    "sign. skip: records this version does not model. Factors of training steps are fitted to the records of "
    "these rows; 'each family left out' and 'where the fit has not seen the record' are errors without them."
)


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("validate")(validate)


def validate(
    family: Annotated[
        str | None, typer.Argument(metavar="[FAMILY]", help="One family; default: all.")
    ] = None,
    detail: Annotated[bool, typer.Option("--detail", "-d", help="The twenty worst of each family.")] = False,
) -> None:
    """Replay published measurements.

    Prints predicted, measured and error by family; exits with 1 where a family misses its bar.
    """
    from railwright.cli.tables import print_words
    from railwright.measure import validate as replay

    found = replay(family)
    for line in found.lines(detail=detail or family is not None):
        typer.echo(line)
    print_words(f"\n{LEGEND}")
    if not found.passed:
        raise typer.Exit(MISSED)
