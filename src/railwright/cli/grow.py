"""`railwright grow`: from people and jobs to equipment, one step at a time."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.amounts import tokens_option
from railwright.errors import RailwrightError
from railwright.units import GIB

if TYPE_CHECKING:
    from railwright.growth.result import Growth, Pace, Rung
    from railwright.ranges import Range


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("grow")(grow)


def grow(
    model: Annotated[str, typer.Option("--model", "-m", help="Bundled name or config.json.")],
    users: Annotated[int | None, typer.Option("--users", "-u", help="People who share the GPUs.")] = None,
    gpu_hours: Annotated[
        float | None, typer.Option("--gpu-hours", help="GPU-hours of one user in a week.")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="Of inference, in their place: requests a second at the busiest time."),
    ] = None,
    task: Annotated[str, typer.Option("--task", help="inference, lora, finetune or pretrain.")] = "finetune",
    job_gpus: Annotated[int, typer.Option("--job-gpus", help="GPUs of a usual job.")] = 1,
    sequence: Annotated[
        int, typer.Option("--sequence", "-s", help="Tokens of a sequence, or of a request with its answer.")
    ] = 4096,
    tokens: Annotated[float | None, tokens_option("Tokens of one run, e.g. 2e8; default: not said.")] = None,
    growth: Annotated[
        float, typer.Option("--growth", help="Growth of the load in a year, 0.5 for half as much again.")
    ] = 0.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")] = False,
) -> None:
    """Say which equipment fits now, and what comes after it.

    Workstation, server, rack or cluster; when to move on (memory, waiting, traffic between servers), owned or
    rented, which network at each step, what is reused, tokens a second, power, plugs and prices.
    """
    from railwright.catalog import load_catalog
    from railwright.cost import price_book
    from railwright.growth import Ask
    from railwright.growth import grow as path
    from railwright.model import load_model

    _check_load(users, gpu_hours, rate)
    ask = Ask(users or 0, gpu_hours or 0.0, model, task, job_gpus, sequence, tokens, growth, rate)  # type: ignore[arg-type]
    found = path(ask, load_model(model), load_catalog(), price_book())
    if as_json:
        typer.echo(json.dumps(_plain(found), indent=2))
        return
    _show(found)


def _check_load(users: int | None, gpu_hours: float | None, rate: float | None) -> None:
    """Raises RailwrightError for a load that is not stated, or stated in two ways."""
    given = [name for name, value in (("--users", users), ("--gpu-hours", gpu_hours)) if value is not None]
    if rate is not None and given:
        raise RailwrightError(f"--rate stands in the place of --users and --gpu-hours; leave out {given[0]}")
    if rate is None and len(given) < 2:
        missing = "--gpu-hours" if given == ["--users"] else "--users"
        raise RailwrightError(
            f"{missing} is missing: give people and GPU-hours of each in a week, or, of inference, --rate"
        )


def _show(found: Growth) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_bit_rate, show_power, show_share, show_time

    for sentence in found.words:
        typer.echo(sentence)
    typer.echo("")
    titles = [("> " if i == found.now else "") + r.title for i, r in enumerate(found.rungs)]
    rows: list[tuple[str, list[str]]] = [
        ("machines", [f"{r.machines:,} x {r.server}" for r in found.rungs]),
        ("GPUs", [f"{r.gpus:,} x {r.gpu}" for r in found.rungs]),
        ("a job", [_fit(r) for r in found.rungs]),
        _busy(found),
        ("outgrown", [_outgrown(r) for r in found.rungs]),
        ("network", [(r.network or "none is enough") if r.fit else "-" for r in found.rungs]),
        ("tokens/s a GPU", [_pace(r.pace) for r in found.rungs]),
        ("power", [show_power(r.power) for r in found.rungs]),
        ("plug of a machine", [r.outlet for r in found.rungs]),
        ("price", [_money(r.price) for r in found.rungs]),
        ("a GPU-hour, full", [_money(r.hourly) for r in found.rungs]),
        ("rented", [_rented(r) for r in found.rungs]),
        ("owning pays", [_pays(r) for r in found.rungs]),
    ]
    if found.ask.tokens is not None:
        rows += [
            ("one run", [show_time(r.run_time.middle) if r.run_time else "-" for r in found.rungs]),
            ("one run costs", [_money(r.run_cost) for r in found.rungs]),
        ]
    print_table(("", *titles), [(name, *cells) for name, cells in rows])
    gpus, servers = found.across
    if found.networks:
        typer.echo("")
        inside = found.ask.task == "inference" and not found.spans
        what = "Replicas inside one server" if inside else f"A job on {servers} servers ({gpus:,} GPUs)"
        layouts = list(dict.fromkeys(row.layout for row in found.networks))
        typer.echo(f"{what}, {layouts[0]}, by network:" if len(layouts) == 1 else f"{what}, by network:")
        print_table(
            (
                "network", "a server sends", "GPUs wait", "speed", "save or load",
                *(["layout"] if len(layouts) > 1 else []),
            ),
            [
                (
                    f"{row.name}{'' if row.enough else ' *'}", show_bit_rate(row.rate),
                    show_share(row.exposed), f"{100 * row.relative:.0f} %", show_time(row.saving),
                    *([row.layout] if len(layouts) > 1 else []),
                )
                for row in found.networks
            ],
        )  # fmt: skip
        if not all(row.enough for row in found.networks):
            typer.echo("* too slow for this job")
    typer.echo("")
    typer.echo("What is reused:")
    for step, reuse, can in found.reused:
        keeps = reuse.becomes if can else "stays as it is: it has too few adapter slots for the network"
        typer.echo(f"- {reuse.what} ({step}): {keeps}")
    typer.echo("")
    notes = [
        *dict.fromkeys(f"Throughput of {r.gpu}, {r.pace.kind}: {r.pace.note}." for r in found.rungs if r.pace)
    ]
    for note in [*notes, *found.notes]:
        typer.echo(note)


def _fit(rung: Rung) -> str:
    if rung.fit is None:
        return "does not fit"
    fit = rung.fit
    gpus = f"{fit.gpus:,} GPU{'s' if fit.gpus > 1 else ''}"
    return f"{gpus}, {fit.memory / GIB:.0f} of {fit.capacity / GIB:.0f} GiB, {fit.layout}"


def _busy(found: Growth) -> tuple[str, list[str]]:
    """How a step bears the load of today."""
    from railwright.growth.words import percent, wait_words

    if found.ask.rate is None:
        return "wait / length today", [wait_words(r.wait) if r.fit else "-" for r in found.rungs]
    return "busy today", [percent(r.load / r.gpus) if r.fit else "-" for r in found.rungs]


def _outgrown(rung: Rung) -> str:
    from railwright.growth.words import years_words

    return years_words(rung.outgrown) if rung.fit else "-"


def _pace(pace: Pace | None) -> str:
    if pace is None:
        return "-"
    rate = pace.rate
    if rate.low == rate.high:
        return f"{rate.middle:,.0f}, one {pace.kind} run"  # which has no range
    return f"{rate.middle:,.0f} ({rate.low:,.0f} to {rate.high:,.0f}), {pace.kind}"


def _money(span: Range | None) -> str:
    from railwright.growth.words import dollars

    if span is None:
        return "-"
    return f"{dollars(span.middle)} ({dollars(span.low)[1:]} to {dollars(span.high)[1:]})"


def _rented(rung: Rung) -> str:
    from railwright.growth.words import dollars

    if rung.rent is None:
        return "-"
    return f"{dollars(rung.rent.price)} ({rung.rent.cloud}) to {dollars(rung.rent.dearest)}"


def _pays(rung: Rung) -> str:
    from railwright.growth.words import gpus_words

    if rung.rent is None or rung.fit is None:
        return "-"
    return f"above {gpus_words(rung.rent.pays)} GPUs in use" if math.isfinite(rung.rent.pays) else "never"


def _plain(found: Growth) -> dict[str, Any]:
    """For JSON: infinite is null, jobs are their layout in words."""
    from railwright.report.files.plain import finite

    def of(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: of(inner) for key, inner in value.items() if key != "job"}
        if isinstance(value, list | tuple):
            return [of(inner) for inner in value]
        return finite(value)

    return {
        "ask": asdict(found.ask),
        "now": found.rungs[found.now].name,
        "words": list(found.words),
        "notes": list(found.notes),
        "steps": [of({**asdict(r), "fit": _fit_plain(r)}) for r in found.rungs],
        "across": {"gpus": found.across[0], "servers": found.across[1], "spans": found.spans},
        "networks": [of(asdict(row)) for row in found.networks],
        "reused": [
            {"step": step, "what": reuse.what, "becomes": reuse.becomes, "can": can, "source": reuse.source}
            for step, reuse, can in found.reused
        ],
    }


def _fit_plain(rung: Rung) -> dict[str, Any] | None:
    fit = rung.fit
    if fit is None:
        return None
    return {"gpus": fit.gpus, "layout": fit.layout, "memory": fit.memory, "capacity": fit.capacity}
