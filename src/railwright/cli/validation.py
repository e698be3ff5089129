"""`railwright validate`: published measurements, replayed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

MISSED = 1
MOST = 4
"""Processes at most: each holds its own prices, some 0.5 GB."""
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
        str | None,
        typer.Argument(
            metavar="[FAMILY]",
            help="designs, models, collectives, effects, training or serving; default: all.",
        ),
    ] = None,
    detail: Annotated[bool, typer.Option("--detail", "-d", help="The twenty worst of each family.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Training: drawn as a page, with the reasons of misses."),
    ] = None,
) -> None:
    """Replay published measurements.

    Prints predicted, measured and error by family; exits with 1 where a family misses its bar.
    """
    from railwright.cli.tables import print_words
    from railwright.measure import validate as replay

    if html is not None:
        _refuse(html, family)
    found = replay(family, processes=min(os.cpu_count() or 1, MOST))
    if html is not None:
        from railwright.export.files import write_new
        from railwright.measure.training.replay import fitted_families, records
        from railwright.report.pages.training import training_page

        write_new({html: training_page(found, {r["id"]: r for r in records()}, fitted_families())})
    for line in found.lines(detail=detail or family is not None):
        typer.echo(line)
    print_words(f"\n{LEGEND}")
    if html is not None:
        typer.echo(f"\n{html}")
    if not found.passed:
        raise typer.Exit(MISSED)


def _refuse(html: Path, family: str | None) -> None:
    """Before anything is computed: a family without a page, or a file that is there."""
    from railwright.errors import RailwrightError
    from railwright.export.files import refuse_existing

    if family != "training":
        raise RailwrightError(
            f"--html: only training is drawn; railwright validate training --html {html} writes the page"
        )
    refuse_existing([html])
