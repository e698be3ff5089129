"""`railwright fabric check`, `host`: the real machine against its design, or against its own regularity."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from railwright.asbuilt import Inferred, Wiring
    from railwright.catalog.parts import Catalog
    from railwright.fabric.finding import Finding
    from railwright.fabric.graph import Fabric

SOMETHING_WRONG = 1
OPS = ("all_reduce", "all_to_all")
COST_SIZE = float(2**30)
"""Size at which defects are priced: large, so that bandwidth and not latency is compared [byte]."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def add_to(group: typer.Typer) -> None:
    """Hang the commands of this file on `railwright fabric`."""
    group.command("check")(check)
    group.command("host")(host)


def check(
    dump: Annotated[
        str, typer.Argument(help="Dump of the fabric: ibnetdiscover, iblinkinfo, LLDP, sheet, …")
    ],
    design: Annotated[str | None, typer.Option(help="Study (or template) it was built from.")] = None,
    names: Annotated[str | None, typer.Option(help="Node-name map of infiniband-diags.")] = None,
    server: Annotated[str | None, typer.Option(help="Catalogue name of the servers, for --cost.")] = None,
    cost: Annotated[bool, typer.Option("--cost", help="Say what the defects cost two collectives.")] = False,
    html: Annotated[Path | None, typer.Option(help="Also write this page, with the fabric drawn.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Read a dump of the real fabric and print what is wrong with it.

    Without a design, what the machine's own regularity proves; with one, the exact difference.
    Exit status 1 when anything is wrong.
    """
    from railwright.asbuilt import as_text, infer, is_wrong, punch_list, summary, tally
    from railwright.asbuilt.read import read
    from railwright.catalog import load_catalog

    wiring = read(dump, names)
    machine = infer(wiring)
    catalog = load_catalog()
    drawn = _design(design, wiring) if design is not None else None
    found = punch_list(machine, drawn)
    priced = _cost(machine, catalog, server) if cost else []
    if html is not None:
        _write_page(html, dump, machine, found, catalog, server)
    if as_json:
        import json
        from dataclasses import asdict

        text = {
            "source": wiring.source,
            "wrong": is_wrong(found),
            "findings": [asdict(f) for f in found],
            "notes": list(wiring.notes),
            "cost": [
                {"collective": op, "sound_busbw_bytes_per_second": a, "as_built_busbw_bytes_per_second": b}
                for op, a, b in priced
            ],
        }
        typer.echo(json.dumps(text, indent=1))
    else:
        for line in [*summary(machine), "", tally(found), *as_text(found), *_notes(wiring)]:
            typer.echo(line)
        for line in _cost_lines(priced):
            typer.echo(line)
    if is_wrong(found):
        raise typer.Exit(SOMETHING_WRONG)


def host(
    topology: Annotated[str, typer.Argument(help="NCCL topology XML, `nvidia-smi topo -m`, or hwloc XML.")],
    as_json: JsonOption = False,
) -> None:
    """Check one server from inside.

    NICs near their GPUs, PCIe fast enough, no NVLink missing.

    Exit status 1 when anything is wrong.
    """
    from railwright.asbuilt import as_text, is_wrong, tally
    from railwright.asbuilt.lint import lint
    from railwright.asbuilt.read import read_host

    inside = read_host(topology)
    found = lint(inside)
    if as_json:
        import json
        from dataclasses import asdict

        typer.echo(json.dumps({"source": inside.source, "findings": [asdict(f) for f in found]}, indent=1))
    else:
        typer.echo(f"{inside.source}: {len(inside.gpus)} GPUs, {len(inside.nics)} NICs")
        for line in [tally(found), *as_text(found), *(f"note: {text}" for text in inside.notes)]:
            typer.echo(line)
    if is_wrong(found):
        raise typer.Exit(SOMETHING_WRONG)


def _design(study: str, dump: Wiring) -> Wiring:
    """The study's fabric as a wiring, without its faults: what was to be built, of the study's own parts."""
    from railwright.asbuilt import to_wiring
    from railwright.asbuilt.trays import as_in_dump
    from railwright.catalog import load_catalog
    from railwright.cli.studies import open_study
    from railwright.fabric import build

    asked = open_study(study)
    catalog = load_catalog(asked.catalog)
    fabric = build(asked.cluster.model_copy(update={"faults": ()}), catalog)
    return as_in_dump(to_wiring(fabric, catalog), fabric, dump)


def _notes(wiring: Wiring) -> list[str]:
    return ["", *(f"note: {text}" for text in wiring.notes)] if wiring.notes else []


def _cost(machine: Inferred, catalog: Catalog, server: str | None) -> list[tuple[str, float, float]]:
    """(collective, busbw of the inferred sound machine, busbw as built) at 1 GiB [byte/s]."""
    from railwright.asbuilt import to_fabric
    from railwright.asbuilt.sound import sound_wiring
    from railwright.study.curves import busbw_on

    built = to_fabric(machine, catalog, server)
    sound = to_fabric(sound_wiring(machine), catalog, built.parts["server"])
    return [
        (op, busbw_on(sound, catalog, op, COST_SIZE), busbw_on(built, catalog, op, COST_SIZE)) for op in OPS
    ]


def _cost_lines(priced: list[tuple[str, float, float]]) -> list[str]:
    """What the defects cost, in words."""
    from railwright.units import show_rate, show_share

    lines = [""] if priced else []
    for op, sound, built in priced:
        loss = 1 - built / sound
        lines.append(
            f"{op} of 1 GiB: {show_rate(built)} a GPU as built, {show_rate(sound)} if it were sound "
            f"({show_share(loss)} lost)"
        )
    return lines


def _write_page(
    path: Path, dump: str, machine: Inferred, found: list[Finding], catalog: Catalog, server: str | None
) -> None:
    """The punch list as a page for people; refuses an existing file."""
    from railwright.asbuilt import summary
    from railwright.asbuilt.sound import marked_fabric
    from railwright.errors import PlanError
    from railwright.export.files import refuse_existing, write_new
    from railwright.report.pages.punch import punch_page

    refuse_existing([path])
    fabric: Fabric | None = None
    names: dict[str, str] = {}
    reason = ""
    try:
        fabric, names = marked_fabric(machine, catalog, server)
    except PlanError as no:
        reason = str(no)
    text = punch_page(f"As built: {Path(dump).name}", summary(machine), found, fabric, names, reason)
    write_new({path: text})
