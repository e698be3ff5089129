"""`railwright catalog`: the parts Railwright knows, every value with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from railwright.cli.groups import group
from railwright.errors import RailwrightError, nearest

UserFile = Annotated[
    Path | None, typer.Option("--catalog", metavar="FILE", help="Your own parts, merged over the shipped.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    commands = group("List parts, every value with its source.")
    commands.command("list")(list_parts)
    commands.command("show")(show)
    app.add_typer(commands, name="catalog")


def list_parts(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="gpus, nics, switches or servers; default: all.")
    ] = None,
    catalog: UserFile = None,
) -> None:
    """List all parts, or those of one kind."""
    from railwright.catalog import KINDS, load_catalog, rows
    from railwright.cli.tables import print_table

    known = load_catalog(catalog)
    kinds = KINDS if kind is None else (_plural(kind, KINDS),)
    for index, one in enumerate(kinds):
        listed = rows(known, one)
        if len(kinds) > 1:
            typer.echo(f"{chr(10) if index else ''}{one}")
        titles = _fitting(listed)
        print_table(titles, [[row[title] for title in titles] for row in listed])


def show(name: Annotated[str, typer.Argument(metavar="NAME")], catalog: UserFile = None) -> None:
    """Show a part with all its sources.

    Every value with where it is from, the date it was read, and how far it was checked.
    """
    from railwright.catalog import KINDS, describe, find, load_catalog
    from railwright.cli.tables import print_table

    known = load_catalog(catalog)
    shown = False
    for kind in KINDS:
        parts = getattr(known, kind)
        try:
            part = find(parts, name)
        except RailwrightError:
            continue
        typer.echo(f"{chr(10) if shown else ''}{part.name} ({kind})")
        documents: dict[str, int] = {}
        lines = []
        for field, value, source in describe(part):
            number = documents.setdefault(source.document, len(documents) + 1)
            place = f"[{number}] {source.where}".rstrip()
            lines.append((field, value, source.status.replace("_", " "), source.date, place))
        print_table(("field", "value", "checked", "date", "source"), lines)
        for document, number in documents.items():
            typer.echo(f"[{number}] {document}")
        shown = True
    if not shown:
        names = [part for kind in KINDS for part in getattr(known, kind)]
        hint = nearest(name, names) or "; `railwright catalog list` shows them all"
        raise RailwrightError(f"there is no part '{name}' in the catalogue{hint}")


def _fitting(listed: list[dict[str, str]]) -> list[str]:
    """The columns that fit the terminal without breaking a cell; the least telling ones go first."""
    from rich.console import Console

    if not listed:
        return ["name"]
    titles = [title for title in listed[0] if title != "sources"]
    for dispensable in ("vendor", "rack units", "CPU", "PCIe"):
        width = sum(max(len(title), *(len(row[title]) for row in listed)) + 2 for title in titles) - 2
        if width > Console().width and dispensable in titles:
            titles.remove(dispensable)
    return titles


def _plural(kind: str, kinds: tuple[str, ...]) -> str:
    """'gpu', 'GPUs' and 'switch' as the kinds of the catalogue."""
    lowered = kind.lower()
    for known in kinds:
        if lowered in (known, known.removesuffix("s"), known.removesuffix("es")):
            return known
    raise RailwrightError(f"'{kind}' is not a kind of part; kinds are {', '.join(kinds)}")
