"""`railwright validate`: published measurements, replayed."""

from __future__ import annotations

from typing import Annotated

import typer

MISSED = 1


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
    from railwright.measure import validate as replay

    found = replay(family)
    for line in found.lines(detail=detail or family is not None):
        typer.echo(line)
    if not found.passed:
        raise typer.Exit(MISSED)
