"""`railwright fabric`: from a requirement to a design, its parts, its worth, and files for other tools."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.groups import group
from railwright.cli.opened import remember
from railwright.cli.places import placed
from railwright.cli.studies import StudyArgument, open_study

if TYPE_CHECKING:
    from railwright.catalog.parts import Catalog
    from railwright.fabric.graph import Fabric
    from railwright.spec.study import Study
    from railwright.traffic.demand import Communicator

VariantOption = Annotated[
    str | None,
    typer.Option("--variant", help="Name of a variant of the study; default the study as written."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file, and those on machines as built, on the application."""
    from railwright.cli import asbuilt, routing, whatif

    commands = group("Design, audit and export fabrics; check real ones.")
    commands.command("design")(design)
    commands.command("count")(count)
    commands.command("audit")(audit)
    commands.command("export")(export)
    routing.add_to(commands)
    whatif.add_to(commands)
    asbuilt.add_to(commands)
    app.add_typer(commands, name="fabric")


def design(
    gpus: Annotated[int, typer.Option("--gpus", help="How many GPUs the fabric must join.")],
    server: Annotated[str, typer.Option("--server", help="Catalogue name of the server.")] = "dgx-h100",
    oversubscription: Annotated[
        float, typer.Option(help="Most leaf down-link over up-link bandwidth.")
    ] = 1.0,
    grow_to: Annotated[int, typer.Option("--grow-to", help="GPUs it shall be able to grow to.")] = 0,
    spines_lost: Annotated[int, typer.Option(help="Spines that may be dead without loss.")] = 0,
    leaf_lost: Annotated[bool, typer.Option("--leaf-lost", help="No server may hang on one leaf.")] = False,
    family: Annotated[
        list[str] | None, typer.Option("--family", help="Only this family (repeatable).")
    ] = None,
    switch: Annotated[
        list[str] | None, typer.Option("--switch", help="Only this switch (repeatable).")
    ] = None,
    catalog_file: Annotated[str | None, typer.Option("--catalog", help="Your own parts (YAML).")] = None,
) -> None:
    """Size fabrics from a requirement, side by side.

    The feasible ones first, by switches, cables and hops; then the others with the reason.
    """
    from railwright.catalog import load_catalog
    from railwright.fabric import Requirement, lines
    from railwright.fabric import design as size_up

    wanted = Requirement(
        gpus=gpus,
        server=server,
        oversubscription=oversubscription,
        grow_to=grow_to,
        spines_lost=spines_lost,
        leaf_lost=leaf_lost,
        families=tuple(family or ()),
        switches=tuple(switch or ()),
    )
    for line in lines(size_up(wanted, load_catalog(catalog_file))):
        typer.echo(line)


def count(study: StudyArgument) -> None:
    """Count switches, cables and optics.

    Of the study as written and of every variant, side by side; then of the study's other networks
    (storage, in-band and out-of-band management), where it has them.
    """
    asked = open_study(study)

    from railwright.catalog import load_catalog
    from railwright.cli.tables import print_table
    from railwright.errors import PlanError
    from railwright.fabric import build
    from railwright.fabric import count as count_parts
    from railwright.spec import override
    from railwright.study.networks import network_doubts
    from railwright.units import show_bit_rate, show_count, show_power

    studies = [(asked.as_written, asked)]
    studies += [(variant.name, override(asked, variant.set)) for variant in asked.variants]
    columns: list[list[str]] = []
    impossible: list[str] = []
    for name, one in studies:
        try:
            catalog = load_catalog(one.catalog)
            parts = count_parts(build(one.cluster, catalog), catalog)
        except PlanError as error:
            remember(study, asked, name if one is not asked else None)
            impossible.append(f"{name}: {placed(error)}")
            continue
        numbers = (
            parts.servers, parts.gpus, parts.leaves, parts.spines, parts.cores, parts.switches,
            parts.node_leaf, parts.leaf_spine, parts.spine_core, parts.cables, parts.optics, parts.hops_max,
        )  # fmt: skip
        power = show_power(parts.switch_power) if parts.switch_power else "unknown"
        if parts.unrated and parts.switch_power:
            power = f"above {power}"
        columns.append([name, *map(show_count, numbers), power, show_bit_rate(parts.bisection)])
    rows = [
        "", "servers", "GPUs", "leaf switches", "spine switches", "core switches", "switches in all",
        "cables server-leaf", "cables leaf-spine", "cables spine-core", "cables in all", "optics",
        "switches on longest way", "switch power, max", "bisection",
    ]  # fmt: skip
    if columns:
        header, *lines = zip(rows, *columns, strict=True)
        print_table(header, lines, right=True)
    for reason in impossible:
        typer.echo(f"impossible: {reason}")
    if not columns:
        raise PlanError(f"none of the {len(studies)} designs of '{study}' can be built")
    _count_others(asked)
    for doubt in network_doubts(asked):
        typer.echo(f"! {doubt}")


def _count_others(asked: Study) -> None:
    """The networks beside compute, one column each."""
    from railwright.catalog import load_catalog
    from railwright.cli.tables import print_table
    from railwright.fabric import build_networks, count_networks
    from railwright.units import show_count

    cluster = asked.cluster
    if not (cluster.storage or cluster.inband or cluster.oob):
        return
    catalog = load_catalog(asked.catalog)
    counts = count_networks(build_networks(cluster, catalog), catalog)
    names = [name for name in counts if name != "compute"]
    rows = [
        ("leaf switches", [counts[n].leaves for n in names]),
        ("spine switches", [counts[n].spines for n in names]),
        ("cables to leaves", [counts[n].node_leaf for n in names]),
        ("cables leaf-spine", [counts[n].leaf_spine for n in names]),
        ("cables in all", [counts[n].cables for n in names]),
    ]
    typer.echo(f"\nBeside compute ({asked.as_written})")
    print_table(["", *names], [[label, *map(show_count, values)] for label, values in rows], right=True)


def audit(
    study: StudyArgument,
    variant: VariantOption = None,
    group: Annotated[
        list[str] | None,
        typer.Option("--group", help="Devices that fail together: NAME=DEVICE,DEVICE… (repeatable)."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a fabric is worth.

    Oversubscription, bisection, paths, blast radius, who can reach whom.

    With the groups of the study's first job: which pairs meet directly, through PXN, or not at all, and
    the NCCL settings that follow.  Faults of the study count.
    """
    asked, catalog, fabric = open_fabric(study, variant)

    import json
    from dataclasses import asdict

    from railwright import audit as room
    from railwright.fabric import doubts

    result = room.audit(fabric, catalog, _failing_together(group or []))
    found = room.findings(result)
    reach = room.reachability(fabric, _groups(asked, fabric)) if asked.jobs else None
    settings = room.nccl_settings(fabric, reach) if reach is not None else []
    warnings = [f"{section}: {text}" for section, text in doubts(asked.cluster, catalog)]
    if as_json:
        text = {"audit": asdict(result), "findings": [asdict(f) for f in found], "warnings": warnings}
        if reach is not None:
            text |= {"reachability": asdict(reach), "nccl_settings": [list(s) for s in settings]}
        typer.echo(json.dumps(text, indent=1))
        return
    for line in room.lines(result):
        typer.echo(line)
    for warning in warnings:
        typer.echo(f"! {warning}")
    if found:
        from railwright.asbuilt import as_text

        typer.echo("\nFindings")
        for line in as_text(found):
            typer.echo(line)
    if reach is not None:
        typer.echo(f"\nGroups of job '{asked.jobs[0].name}'")
        for line in room.reach_lines(reach, settings):
            typer.echo(line)


def _failing_together(groups: list[str]) -> dict[str, list[str]]:
    """'pdu-a=server-01,leaf-02' as name -> devices; such groups share a power feed, a rack, a breaker."""
    from railwright.errors import RailwrightError

    found: dict[str, list[str]] = {}
    for text in groups:
        name, equals, devices = text.partition("=")
        members = [device.strip() for device in devices.split(",") if device.strip()]
        if not (name and equals and members):
            raise RailwrightError(f"--group '{text}' is not NAME=DEVICE,DEVICE, e.g. pdu-a=server-01,leaf-02")
        found[name] = members
    return found


def export(
    study: StudyArgument,
    format: Annotated[
        str, typer.Argument(metavar="[FORMAT]", help="Format; without one, they are listed.")
    ] = "",
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder (or file) to write.")] = Path("export"),
    variant: VariantOption = None,
    network: Annotated[
        str, typer.Option(help="compute, storage, inband or oob, where the study has it.")
    ] = "compute",
) -> None:
    """Write the fabric in another tool's format; nothing is overwritten."""
    from railwright.errors import RailwrightError, nearest
    from railwright.export import EXPORTS, write

    if not format:
        width = max(map(len, EXPORTS))
        for name, form in EXPORTS.items():
            typer.echo(f"{name:<{width}}  {form.description}")
        return
    asked, catalog, fabric = open_fabric(study, variant)
    if network != "compute":
        from railwright.fabric import build_networks

        others = build_networks(asked.cluster, catalog)
        if network not in others:
            raise RailwrightError(
                f"the study has no network '{network}'; it has {', '.join(others)}{nearest(network, others)}"
            )
        fabric = others[network]
    for path in write(fabric, format, out, asked.name, catalog):
        typer.echo(str(path))


def open_fabric(study: str, variant: str | None) -> tuple[Study, Catalog, Fabric]:
    """The study (or one variant of it), its catalogue and its fabric."""
    from railwright.catalog import load_catalog
    from railwright.errors import RailwrightError, nearest
    from railwright.fabric import build
    from railwright.spec import override

    asked = open_study(study)
    if variant is not None:
        names = {v.name: v for v in asked.variants}
        if variant not in names:
            known = ", ".join(f"'{name}'" for name in names) or "none"
            raise RailwrightError(f"no variant '{variant}'; the study has {known}{nearest(variant, names)}")
        remember(study, asked, variant)
        asked = override(asked, names[variant].set)
    catalog = load_catalog(asked.catalog)
    return asked, catalog, build(asked.cluster, catalog)


def _groups(study: Study, fabric: Fabric) -> list[Communicator]:
    """The communicators of the study's first job: tensor, expert, data and pipeline groups."""
    from railwright.training import place

    groups = place(study.jobs[0], fabric)
    return [comm for kind in (groups.tp, groups.ep, groups.dp, groups.pp) for comm in kind]
