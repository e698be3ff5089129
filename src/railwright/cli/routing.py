"""`railwright fabric route`: forwarding tables, a subnet manager's or our own, and what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.fabric import JsonOption, VariantOption, open_fabric
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.fabric.graph import Fabric
    from railwright.measure.routing import Case, RoutingReport
    from railwright.network import Tables

SOMETHING_WRONG = 1


def add_to(group: typer.Typer) -> None:
    """Hang the command of this file on `railwright fabric`."""
    group.command("route")(route)


def route(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Study file or template; not with --machine.")
    ] = "",
    engine: Annotated[
        str, typer.Option(help="own, or opensm[:ftree|updn|minhop|dor]: OpenSM on a simulated subnet.")
    ] = "own",
    tables: Annotated[
        Path | None, typer.Option(help="Take these tables instead: dump_fts, ibroute, opensm-lfts.dump.")
    ] = None,
    machine: Annotated[
        str | None, typer.Option(help="ibnetdiscover of the real machine, instead of a study.")
    ] = None,
    server: Annotated[str | None, typer.Option(help="Catalogue name of the servers, with --machine.")] = None,
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Route a fabric by forwarding tables and say what they are worth.

    Destinations per up-port, busiest links, and bus bandwidth of an all-to-all and a ring all-reduce over
    all GPUs, against adaptive routing and our own static tables.
    Exit status 1 when a destination is not reached.
    """
    if bool(study) == bool(machine):
        raise RailwrightError("name a study, or the dump of a machine by --machine, and not both")
    if server and not machine:
        raise RailwrightError("--server says what a machine's servers are; a study names its own")
    name, _, flavour = engine.partition(":")
    if name not in ("own", "opensm") or (name == "own" and flavour):
        raise RailwrightError(
            f"no routing engine '{engine}'{nearest(engine, ('own', 'opensm')) or ';'} known are own and "
            "opensm[:ftree|updn|minhop|dor]"
        )
    if tables is not None and engine != "own":
        raise RailwrightError("--tables gives the routing; leave --engine away")
    fabric, found, notes = _routed(study, machine, server, variant, name, flavour or "ftree", tables)

    from railwright.measure.routing import examine

    report = examine(fabric, found)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"fabric": fabric.name, **asdict(report), "notes": notes}, indent=1))
    else:
        _show(fabric, report, notes)
    if not report.check.valid:
        raise typer.Exit(SOMETHING_WRONG)


def _routed(
    study: str,
    machine: str | None,
    server: str | None,
    variant: str | None,
    engine: str,
    flavour: str,
    dump: Path | None,
) -> tuple[Fabric, Tables, list[str]]:
    """The fabric, its tables, and what is to be told about them."""
    from railwright.measure import opensm
    from railwright.network import own_tables

    if machine:
        from railwright.asbuilt import infer, to_fabric
        from railwright.asbuilt.read import read
        from railwright.catalog import load_catalog

        catalog, inferred = load_catalog(), infer(read(machine))
        fabric = to_fabric(inferred, catalog, server)
        if dump is not None:
            taken, notes = opensm.machine_tables(dump, inferred, fabric)
            return fabric, taken, [*fabric.notes, *notes]
    else:
        _, catalog, fabric = open_fabric(study, variant)
        if dump is not None:
            taken, notes = opensm.design_tables(dump, fabric, catalog)
            return fabric, taken, notes
    told = list(fabric.notes) if machine else []
    if engine == "own":
        return fabric, own_tables(fabric), told
    routed = opensm.route(fabric, catalog, flavour)
    return fabric, routed.tables, [*told, *routed.notes]


def _show(fabric: Fabric, report: RoutingReport, notes: list[str]) -> None:
    from railwright.cli.tables import print_table

    check = report.check
    typer.echo(f"{fabric.name}: {report.source}")
    typer.echo(
        f"{check.reached:,} of {check.pairs:,} ways from a leaf to a NIC port arrive; {_shape(report)}"
    )
    for kind, count in check.failures.items():
        typer.echo(f"{kind}: {count:,} way{'s' if count > 1 else ''}")
    for sentence in check.examples:
        typer.echo(f"  {sentence}")
    if report.tiers:
        typer.echo("\nDestinations per up-port")
        print_table(
            ["tier", "up-ports", "min", "mean", "max", "max of ours"],
            [
                [t.tier, f"{t.up_ports:,}", str(t.least), f"{t.mean:.1f}", str(t.most), str(t.own_most)]
                for t in report.tiers
            ],
            right=True,
        )
    if report.cases:
        typer.echo("\nBus bandwidth over all GPUs, large messages")
        print_table(
            ["traffic", "these tables", "adaptive", "our static"],
            [[case.traffic, *_bandwidths(case)] for case in report.cases],
            right=True,
        )
        typer.echo("\nBusiest under these tables")
        for case in report.cases:
            typer.echo(f"{case.traffic}: {case.why}")
            for link in case.busiest:
                typer.echo(
                    f"  {link.name}: busy {100 * link.utilisation:.0f} %, "
                    f"{link.over_mean:.2f} x its tier's mean"
                )
    typer.echo("\nAgainst our own static tables")
    for sentence in report.words:
        typer.echo(sentence)
    for note in notes:
        typer.echo(f"note: {note}")


def _shape(report: RoutingReport) -> str:
    """Hops, detours, and whether packets can wait for one another in a circle."""
    check = report.check
    hops = ", ".join(f"{count:,} over {n} switch{'es' if n > 1 else ''}" for n, count in check.hops.items())
    longer = f"{check.longer:,} longer than the shortest" if check.longer else "none longer than the shortest"
    turns = (
        f"{check.turns:,} go up again after going down" if check.turns else "none goes up after going down"
    )
    circle = {
        None: "",
        False: "; no credit loop is possible",
        True: "; links wait for one another in a circle: a credit loop is possible",
    }[check.waits_in_circle]
    return f"{hops or 'none arrives'}; {longer}; {turns}{circle}"


def _bandwidths(case: Case) -> list[str]:
    from railwright.units import show_rate

    at_most = "<= " if case.bound else ""
    values = (case.busbw[name] for name in ("tables", "adaptive", "static"))
    return ["impossible" if v is None else f"{at_most}{show_rate(v)}" for v in values]
