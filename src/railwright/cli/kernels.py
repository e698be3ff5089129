"""`railwright kernels`: op tables of an installed package as a file of measured kernels for serving jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from railwright.measure.optables.package import Package
    from railwright.measure.optables.source import Source


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("kernels")(kernels)


def kernels(
    gpu: Annotated[
        str | None,
        typer.Argument(metavar="GPU", help="Catalogue name; without one, what there is is listed."),
    ] = None,
    engine: Annotated[
        str, typer.Option("--engine", metavar="E", help="Whose kernels: vllm, trtllm or sglang.")
    ] = "vllm",
    version: Annotated[
        str | None,
        typer.Option("--version", metavar="V", help="Of the engine; default: the package's current one."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write a file that serving jobs name (`kernels:`)."),
    ] = None,
) -> None:
    """Read measured kernels of an installed aiconfigurator-core.

    Constants are fitted to its tables of one GPU and engine, and kept with the measurements, which correct
    them where they were made. Shows for each kernel what was read and how far it is off.
    """
    from railwright.catalog import find, load_catalog
    from railwright.export.files import refuse_existing, write_new
    from railwright.measure.optables.package import installed

    if out is not None:
        refuse_existing([out])
    package = installed()
    if gpu is None:
        _list(package)
        return
    from railwright.measure.optables.source import read_source

    typer.echo(f"Fitting {engine}'s kernels on {gpu}; this takes up to a minute.\n", err=True)
    source = read_source(package, find(load_catalog().gpus, gpu), engine, version)
    _show(source)
    if out is not None:
        write_new({out: source.text()})
        typer.echo(f"wrote {out}; name it in a serving job: `kernels: {out.name}`")


def _list(package: Package) -> None:
    from railwright.cli.tables import print_table
    from railwright.measure.optables.package import ENGINES, NAME, systems

    typer.echo(f"{NAME} {package.version}: versions measured by GPU and engine; those named first are read\n")
    rows = []
    for system in package.systems():
        gpu = systems().get(system, {}).get("gpu") or "-"
        versions = [_versions(package, system, engine) for engine in ENGINES]
        rows.append((gpu, system, *versions))
    print_table(("GPU", "folder", *ENGINES), rows)
    typer.echo("\n-: not in the catalogue, or not measured\n")


def _versions(package: Package, system: str, engine: str) -> str:
    """The current version first, then the others from the newest on."""
    current = package.current(system, engine)
    if current is None:
        return "-"
    others = [v for v in reversed(package.all_versions(system, engine)) if v != current]
    return f"{current} ({', '.join(others)})" if others else current


def _show(source: Source) -> None:
    from railwright.cli.tables import print_table
    from railwright.measure.optables.package import NAME

    typer.echo(
        f"{source.gpu}, {source.engine} {source.version}: {NAME} {source.package.version}, "
        f"{source.subject.system}\n"
    )
    header = ("kernel", "table", "points", "fit", "left out", "with points")
    rows = [
        (
            " ".join(part for part in line.found.path if part != source.engine),
            line.found.table,
            f"{line.judged.points:,}",
            f"{line.judged.fit:.1f} %",
            f"{line.found.fit.left_out:.1f} %",
            f"{line.judged.near:.1f} %",
        )
        for line in source.lines
    ]
    rows += [
        (f"all_reduce over {one.ranks}", one.table, str(len(one.sizes)), "", "", "") for one in source.reduced
    ]
    print_table(header, rows, right=True)
    typer.echo(
        "\nfit: mean error of the constants at all points; left out: at shapes left out of the fit, of those "
        "that\nlayers have; with points: at shapes left out of the points (at a measured shape the time is "
        "the\nmeasured one).\n"
    )
