"""`railwright crosscheck`: the same problem given to SimGrid, htsim, ASTRA-sim and SimAI, beside ours."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.fabric import JsonOption, VariantOption, open_fabric
from railwright.cli.studies import StudyArgument

if TYPE_CHECKING:
    from railwright.crosscheck import CrossCheck, Row
    from railwright.network.routing.solution import RoutingName

USUAL_RANKS = 64
"""Ranks where nothing else is asked for: packet simulators take seconds then, and minutes for 256."""

SOMETHING_WRONG = 1


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("crosscheck")(crosscheck)


def crosscheck(
    study: StudyArgument,
    pattern: Annotated[str, typer.Option(help="all-to-all, pxn (one through relays), ring or send-recv.")] = (
        "all-to-all"
    ),
    ranks: Annotated[
        int | None,
        typer.Option(help=f"GPUs that take part, from the first; default all, at most {USUAL_RANKS}."),
    ] = None,
    size: Annotated[str, typer.Option(help="Bytes per rank (all-to-all) or per message.")] = "16MiB",
    routing: Annotated[
        str | None, typer.Option(help="adaptive, ecmp or static; default: the study's.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the problem files.")] = Path(
        "crosscheck"
    ),
    only: Annotated[
        str, typer.Option(help="Some simulators, by comma: simgrid, htsim, astra-sim, simai.")
    ] = "",
    limit: Annotated[float, typer.Option(help="Seconds each simulator may take.")] = 600.0,
    force: Annotated[bool, typer.Option("--force", help="Write into a folder that is not empty.")] = False,
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give the same problem to other simulators.

    Writes fabric and traffic in the formats of SimGrid, htsim, ASTRA-sim and SimAI, runs those that are
    installed, and prints their times beside ours.  Exit status 1 when one that is installed fails.
    """
    from railwright.errors import RailwrightError, among

    asked, catalog, fabric = open_fabric(study, variant)

    from railwright.crosscheck import crosscheck as check
    from railwright.crosscheck import make_problem
    from railwright.network import Network
    from railwright.units import parse_test_size

    compute = asked.cluster.compute
    known: dict[str, RoutingName] = {"adaptive": "adaptive", "ecmp": "ecmp", "static": "static"}
    chosen = routing or compute.routing
    if chosen not in known:
        raise RailwrightError(f"no routing '{chosen}'{among(chosen, known)}")
    if limit <= 0:
        raise RailwrightError(f"--limit {limit:g} leaves no time; give seconds above 0")
    number = min(fabric.num_gpus, USUAL_RANKS) if ranks is None else ranks
    try:
        asked_size = parse_test_size(size)
    except RailwrightError as error:
        raise RailwrightError(f"--size: {error}") from None
    network = Network(fabric, known[chosen], compute.seed)
    problem = make_problem(asked.name, network, catalog, pattern, number, asked_size)
    names = [name.strip() for name in only.split(",") if name.strip()]
    result = check(problem, out, names, limit, force)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps(asdict(result), indent=1))
    else:
        _show(result)
    if any(row.status == "failed" for row in result.rows):
        raise typer.Exit(SOMETHING_WRONG)


def _show(result: CrossCheck) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_size, show_time

    typer.echo(
        f"{result.study}: {result.pattern}, {result.ranks} ranks, {show_size(result.size)}, {result.routing} "
        f"routing, {result.demands:,} demands"
    )
    typer.echo(
        f"railwright: {show_time(result.time)} (bandwidth; latency up to {show_time(result.latency)} more), "
        f"{show_time(result.cpu)} of processor time, {result.engine}"
    )
    typer.echo("")
    header = ["simulator", "version", "us", "ours us", "counted as", "ours over it", "CPU s", "MiB"]
    print_table(header, [_cells(row) for row in result.rows], right=True)
    typer.echo("")
    for row in result.rows:
        for note in row.notes:
            typer.echo(f"{row.simulator}: {'' if row.status == 'ran' else row.status + ': '}{note}")
    typer.echo(f"files: {result.folder}")


def _cells(row: Row) -> list[str]:
    if row.time is None or row.ours is None or row.cpu is None:
        return [row.simulator, row.version, *["-"] * 6]
    return [
        row.simulator,
        row.version,
        f"{row.time * 1e6:.2f}",
        f"{row.ours * 1e6:.2f}",
        row.counts,
        f"{row.difference:+.2%}" if row.difference is not None else "-",
        f"{row.cpu:.3f}",
        f"{row.memory / 2**20:.0f}" if row.memory is not None else "-",
    ]
