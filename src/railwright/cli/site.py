"""`railwright site`: the room a cluster stands in: racks, power, cables, storage, of what parts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.groups import group
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.site import SitePlan
    from railwright.site.floor import Rack
    from railwright.spec.study import Study

StudyArgument = Annotated[str, typer.Argument(metavar="STUDY", help="Study file or template.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")]


def add_to(app: typer.Typer) -> None:
    """Hang the commands of this file on the application."""
    site = group("Racks, power, cooling, cables and storage of a room.")
    site.command("plan")(plan)
    site.command("power")(power)
    site.command("storage")(storage)
    site.command("parts")(parts)
    app.add_typer(site, name="site")


def plan(
    study: StudyArgument,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for CSV tables and SVG drawings.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Place racks, feed and cool them, and cut every cable to length; or say which limit forbids it."""
    made = _plan(study)
    if out is not None:
        _write(made, out)
    if as_json:
        typer.echo(json.dumps(made.to_dict(), indent=2))
        return
    from railwright.cli.tables import print_table
    from railwright.units import number, show_count, show_length, show_power

    air, liquid = sum(h.air for h in made.heat), sum(h.liquid for h in made.heat)
    hottest = max(made.racks, key=lambda rack: rack.power.watts)
    cfm, flow = sum(h.cfm for h in made.heat), sum(h.litres_per_minute for h in made.heat)
    rows = [
        ("racks", f"{len(made.racks)} ({made.kinds_told}) in {number(made.floor.rows, 'row')}"),
        ("room", f"{show_length(made.floor.length)} x {show_length(made.floor.depth)}"),
        ("servers a rack", str(made.fill.servers)),
        ("power of the machines", f"{show_power(made.power)}, peak {show_power(made.peak)}"),
        ("fullest rack", f"{hottest.name}, {show_power(hottest.power.watts)}"),
        ("heat to air", f"{show_power(air)}, {show_count(cfm)} CFM"),
        ("heat to coolant", f"{show_power(liquid)}, {show_count(flow)} l/min"),
        ("power of the site", f"{show_power(made.site_power)} (PUE {made.pue:.2f})"),
        *(
            (f"feed {'ABCDEFGH'[feed.feed]}", f"{show_power(feed.normal)}, at most {show_power(feed.worst)}")
            for feed in made.feeds
        ),
    ]
    if made.busways:
        rows.append(("busway runs", f"{sum(made.busways.values())} of {made.site.power.busway}"))
    print_table((made.study, ""), rows)
    typer.echo("")
    print_table(("cables", "", "longest", "of them", "bundles"), list(_cable_rows(made)))
    typer.echo("")
    for note in made.notes:
        typer.echo(f"- {note}.")
    if out is not None:
        typer.echo(f"\nTables and drawings are in {out}.")


def power(
    study: StudyArgument,
    as_json: AsJson = False,
) -> None:
    """Show the circuits of every kind of rack, with their limits, and what outlives the loss of a feed."""
    from railwright.site.floor import alike_racks

    made = _plan(study)
    found = alike_racks(made.racks)
    if as_json:
        typer.echo(json.dumps([_power_dict(rack, count) for rack, count in found], indent=2))
        return
    from railwright.cli.tables import print_table
    from railwright.units import show_power

    for rack, count in found:
        alike = f"{rack.name} and {count - 1} alike" if count > 1 else rack.name
        plugs = ", ".join(dict.fromkeys(c.plug.title for c in rack.power.circuits))
        typer.echo(f"{alike}: {rack.kind}, {show_power(rack.power.watts)}; {plugs}\n")
        print_table(
            ("circuit", "load", "lines", "worst line", "fullest bank"),
            list(_circuit_rows(rack)),
        )
        typer.echo("")
        for line in _survival_lines(rack):
            typer.echo(f"  {line}")
        typer.echo("")


def storage(
    study: StudyArgument,
    as_json: AsJson = False,
) -> None:
    """Size shared storage from checkpoints, restarts and datasets, and compare what it could be built of."""
    made = _plan(study, need_storage=True)
    if as_json:
        typer.echo(json.dumps(made.to_dict()["storage"], indent=2))
        return
    from railwright.cli.tables import print_table
    from railwright.units import show_rate, show_size

    assert made.storage is not None
    need = made.storage.need
    rows = [
        ("checkpoint", show_size(need.checkpoint)),
        ("write, in bursts", f"{show_rate(need.write)} (on average {show_rate(need.mean_write)})"),
        ("read after a restart", show_rate(need.restart_read)),
        ("read of datasets", show_rate(need.dataset_read)),
        ("most for one server", show_rate(need.per_node)),
        ("capacity", show_size(need.capacity)),
        ("storage network", show_rate(need.network) if need.network else "none"),
    ]
    print_table(("need", ""), rows)
    typer.echo("")
    options = [
        (
            option.kind.title,
            option.refusal
            or f"{option.servers} servers, decided by {option.binding}: "
            f"read {show_rate(option.read)}, write {show_rate(option.write)}, {show_size(option.usable)}",
        )
        for option in made.storage.options
    ]
    print_table(("option", ""), options)
    typer.echo("")
    for note in made.storage.notes:
        typer.echo(f"- {note}.")


def parts(
    kind: Annotated[
        str | None, typer.Argument(metavar="[KIND]", help="pdus, plugs, racks, media, storage, …")
    ] = None,
    study: Annotated[
        str | None, typer.Option("--study", help="With the parts of this study's `site.parts`.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the parts of rooms with what they carry and where the figures come from."""
    from dataclasses import asdict, fields

    from railwright.site import SiteParts, load_site_parts

    known = load_site_parts(_open(study).site.parts if study and _open(study).site else None)  # type: ignore[union-attr]
    names = [f.name for f in fields(SiteParts)]
    if kind is not None and kind not in names:
        raise RailwrightError(
            f"no kind of part '{kind}'{nearest(kind, names) or ';'} kinds are {', '.join(names)}"
        )
    wanted = [kind] if kind else names
    if as_json:
        tree = {name: {k: asdict(v) for k, v in getattr(known, name).items()} for name in wanted}
        typer.echo(json.dumps(tree, indent=2))
        return
    from railwright.cli.tables import print_table

    for name in wanted:
        rows = [
            (part.name, _figures(part, known), f"{part.source} [{part.status}]")
            for part in getattr(known, name).values()
        ]
        print_table((name, "", "source"), rows)
        typer.echo("")


def _figures(part: Any, known: Any) -> str:
    """What a part carries, in a few words."""
    from railwright.site.circuits import pdu_capacity
    from railwright.site.electrical import single_phase, three_phase
    from railwright.site.parts import Busway, CableKind, Intake, Outlet, Pdu, Plug, RackKind
    from railwright.units import show_length, show_power

    if isinstance(part, Pdu):
        capacity = pdu_capacity(part, known.plugs[part.plug], 0.8)
        c13, c19 = sum(b.c13 for b in part.banks), sum(b.c19 for b in part.banks)
        carries = f"{capacity.power / 1e3:.2f} kVA at 80 %, {capacity.binding} bind"
        return f"{part.plug}; {carries}; {c13} C13, {c19} C19"
    if isinstance(part, Plug):
        va = (three_phase if part.phases == 3 else single_phase)(part.volts, part.amps, 0.8)
        carries = f"{part.volts:g} V, {part.amps:g} A: {va / 1e3:.2f} kVA at 80 %"
        return f"{part.title} into {part.receptacle}; {carries}"
    if isinstance(part, Outlet):
        return f"takes {part.plug.upper()}; {part.amps_nec:g} A (NEC), {part.amps_iec:g} A (IEC)"
    if isinstance(part, RackKind):
        return f"{part.units} units, {show_length(part.width)} wide, {part.pdu_slots} PDUs"
    if isinstance(part, Busway):
        va = three_phase(part.volts, part.amps, 0.8)
        return f"{part.volts:g} V, {part.amps:g} A: {va / 1e3:.0f} kVA at 80 %"
    if isinstance(part, Intake):
        return f"{part.supplies} x {show_power(part.watts)}, {part.inlet}"
    if isinstance(part, CableKind):
        return f"{part.kind}, {part.technology} {part.rate * 8e-9:g} Gb/s, to {show_length(part.reach)}"
    return str(part.title)


def _plan(name: str, need_storage: bool = False) -> SitePlan:
    from railwright.site import plan_site
    from railwright.spec.site import StorageNeed
    from railwright.study.rooms import checkpoint

    study = _open(name)
    site = study.site
    if need_storage and (site is None or site.storage is None):
        from railwright.spec.site import Site

        study = study.model_copy(
            update={"site": (site or Site()).model_copy(update={"storage": StorageNeed()})}
        )
    return plan_site(study, checkpoint=checkpoint(study))


def _open(name: str) -> Study:
    from railwright.cli.checking import refuse_unknown_names
    from railwright.cli.studies import open_study

    study = open_study(name)
    refuse_unknown_names(study, name)
    return study


def _write(made: SitePlan, folder: Path) -> None:
    from railwright.export.files import write_new
    from railwright.report.drawings.site import draw_elevations, draw_floor, draw_one_line
    from railwright.site import csv_files

    files = csv_files(made)
    files["site.json"] = json.dumps(made.to_dict(), indent=2) + "\n"
    files["elevations.svg"] = str(draw_elevations(made))
    files["floor.svg"] = str(draw_floor(made))
    files["one-line.svg"] = str(draw_one_line(made))
    for row in range(made.floor.rows):
        racks = sorted((rack for rack in made.racks if rack.row == row), key=lambda rack: rack.place)
        files[f"row-{row + 1:02d}.svg"] = str(draw_elevations(made, racks, per_line=8))
    write_new({folder / name: text for name, text in files.items()})


def _cable_rows(made: SitePlan) -> Iterator[tuple[str, ...]]:
    from railwright.units import show_count, show_length

    for name, run in made.runs.items():
        by_kind: dict[str, int] = {}
        for index, kind in enumerate(run.media):
            count = run.count(index)
            if count:
                by_kind[kind.kind] = by_kind.get(kind.kind, 0) + count
        words = ", ".join(f"{count} {kind}" for kind, count in by_kind.items())
        modules = sum(module.count for module in run.modules)
        longest = show_length(float(run.length.max(initial=0.0)))
        words += f"; {show_count(modules)} transceivers" if modules else ""
        yield name, show_count(len(run.pieces)), longest, words, show_count(run.bundles)


def _circuit_rows(rack: Rack) -> Iterator[tuple[str, ...]]:
    from railwright.units import show_power

    derate = rack.power.supplying.derate
    for circuit in rack.power.circuits:
        worst = max(max(lines) for lines in circuit.lines)
        fullest = max(circuit.banks, key=lambda load: max(load.amps) / load.bank.breaker, default=None)
        bank = ""
        if fullest is not None:
            limit = fullest.bank.breaker * derate
            bank = f"{max(fullest.amps):.1f} of {limit:g} A ({fullest.bank.legs})"
        yield (
            circuit.name,
            show_power(circuit.watts[0]),
            " ".join(f"{amps:.1f}" for amps in circuit.lines[0]) + " A",
            f"{worst:.1f} of {circuit.plug.amps * derate:g} A",
            bank,
        )


def _survival_lines(rack: Rack) -> Iterator[str]:
    """What each kind of machine keeps when the feed dies that costs it most."""
    from railwright.site.circuits import feed_name
    from railwright.units import show_power

    worst: dict[str, tuple[Any, Any]] = {}
    for machine, feeds in zip(rack.power.machines, rack.power.survival, strict=True):
        left = min(feeds, key=lambda one: one.supplies)
        if machine.part not in worst or left.supplies < worst[machine.part][1].supplies:
            worst[machine.part] = machine, left
    for part, (machine, left) in worst.items():
        yield (
            f"{part} without feed {feed_name(left.feed)}: {left.supplies} of {machine.intake.supplies} "
            f"supplies, which give {show_power(left.watts)} for {show_power(machine.watts)}: "
            + ("stays up" if left.enough else "stops")
        )


def _power_dict(rack: Rack, count: int) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "rack": rack.name,
        "alike": count,
        "kind": rack.kind,
        "power": rack.power.watts,
        "peak": rack.power.peak,
        "circuits": [
            {
                "name": circuit.name,
                "feed": circuit.feed,
                "plug": circuit.plug.name,
                "watts": list(circuit.watts),
                "lines": [list(lines) for lines in circuit.lines],
                "banks": [{"legs": load.bank.legs, "amps": list(load.amps)} for load in circuit.banks],
            }
            for circuit in rack.power.circuits
        ],
        "survival": [
            {"machine": machine.part, "feeds": [asdict(left) for left in feeds]}
            for machine, feeds in zip(rack.power.machines, rack.power.survival, strict=True)
        ],
    }
