"""`railwright catalog`: the parts and software eras Railwright knows, every value with its source."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.groups import group
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.training.software.eras import Era

SOFTWARE = "software"
"""The kind that is no part: what a training job names under `software`."""

UserFile = Annotated[
    Path | None, typer.Option("--catalog", metavar="FILE", help="Your own parts, merged over the shipped.")
]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    commands = group("List parts and software eras, every value with its source.")
    commands.command("list")(list_parts)
    commands.command("show")(show)
    app.add_typer(commands, name="catalog")


def list_parts(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="[KIND]", help="gpus, nics, switches, servers or software; default: all."),
    ] = None,
    catalog: UserFile = None,
) -> None:
    """List all parts and software eras, or those of one kind."""
    from railwright.catalog import KINDS, load_catalog, rows
    from railwright.cli.tables import print_table

    known = load_catalog(catalog)
    every = (*KINDS, SOFTWARE)
    kinds = every if kind is None else (_plural(kind, every),)
    for index, one in enumerate(kinds):
        if len(kinds) > 1:
            typer.echo(f"{chr(10) if index else ''}{one}")
        if one == SOFTWARE:
            _list_software()
            continue
        listed = rows(known, one)
        titles = _fitting(listed)
        print_table(titles, [[row[title] for title in titles] for row in listed])


def show(name: Annotated[str, typer.Argument(metavar="NAME")], catalog: UserFile = None) -> None:
    """Show a part, or a software era, with all its sources.

    Every value with where it is from, the date it was read, and how far it was checked.
    """
    from railwright.catalog import KINDS, describe, find, load_catalog
    from railwright.cli.tables import print_table
    from railwright.training.software.eras import eras

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
    for era in eras().values():
        if era.name == name.lower():
            _show_software(era)
            return
    if not shown:
        names = [*(part for kind in KINDS for part in getattr(known, kind)), *eras()]
        hint = nearest(name, names) or "; `railwright catalog list` shows them all"
        raise RailwrightError(f"there is no part '{name}' in the catalogue{hint}")


def _list_software() -> None:
    """Every era, who should choose it, and the GPUs with published steps behind its factors."""
    from railwright.cli.tables import print_table, print_words
    from railwright.training.software.words import DEFAULT, known

    heads, lines = known()
    print_table(heads, lines)
    print_words(
        f"A job that names none gets {DEFAULT}. `railwright catalog show {DEFAULT}`: how it runs a step, and "
        "its factors by GPU."
    )


def _show_software(era: Era) -> None:
    """How an era runs a step, and its factors by GPU and width with what each was fitted on."""
    from railwright.cli.tables import print_table, print_words
    from railwright.training.software.words import differences, titled
    from railwright.units import show_time

    typer.echo(f"{era.name} (software)")
    print_table(("field", "value"), [("software", era.what), ("choose it when", era.when), *differences(era)])
    typer.echo("")
    print_words(
        f"Its factors{f', those of {era.like}' if era.like else ''}: a kernel's time in a step over that "
        "alone, a call of the host over its source's; gap: between two kernels "
        "(docs/training/calibration.md)."
    )
    sources: dict[str, int] = {}
    lines = []
    for key, pace in era.pace.items():
        number = sources.setdefault(pace.source, len(sources) + 1)
        times = (f"{factor:.2f}" for factor in (pace.gemm, pace.attention, pace.memory, pace.host))
        lines.append((titled(key), *times, show_time(pace.gap), str(pace.records), f"[{number}]"))
    heads = ("GPU and width", "products", "attention", "memory", "host", "gap", "steps", "source")
    print_table(heads, lines, right=True)
    for source, number in sources.items():
        typer.echo(f"[{number}] {source}")


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
    raise RailwrightError(f"'{kind}' is not a kind of the catalogue; kinds are {', '.join(kinds)}")
