"""`railwright goodput`: what failures cost a job, in words, then in tables."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import StudyArgument, open_study
from railwright.units import show_share

if TYPE_CHECKING:
    from railwright.reliability import Goodput

SHOWN = 5e-4
"""Smallest share of the wall time with a row of its own."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("goodput")(goodput)


def goodput(
    study: StudyArgument,
    network: Annotated[
        bool,
        typer.Option("--network/--no-network", help="Simulate the step under failed switches and NICs."),
    ] = True,
    every: Annotated[bool, typer.Option("--all", help="Every row, and every contradiction known.")] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Say what failures cost the first job of a study.

    How often it is interrupted and by what, how much of the time it trains, when it ends, which checkpoint
    interval and how many spares it should have, and what a spare cluster switch is worth.
    """
    from rich.console import Console

    from railwright.reliability import goodput as ask
    from railwright.reliability.published import contradictions
    from railwright.study.evaluate import Workshop

    asked = open_study(study)
    workshop = Workshop.of(asked)
    console = Console(stderr=True)
    with console.status("fabric") if console.is_terminal and not quiet else _Silent() as status:
        result = ask(asked, workshop.machine(asked), workshop.catalog, status.update, network)
    if as_json:
        from dataclasses import asdict

        from railwright.report.files.plain import finite

        typer.echo(json.dumps(finite(asdict(result)), indent=1))
        return
    _show(result, every)
    known = contradictions(result.gpus, result.rates, everything=every)
    typer.echo("\nPublished figures that disagree")
    for one in known:
        typer.echo(f"! {one.name}: {one.text}\n  {one.explanation}")


class _Silent:
    """A status that says nothing."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, what: str) -> None:
        """Nothing is shown."""


def _show(g: Goodput, every: bool) -> None:
    for sentence in g.answer:
        typer.echo(sentence)
    _show_losses(g, every)
    _show_components(g, every)
    _show_recovery(g)
    _show_run(g)
    _show_network(g)
    _show_tornado(g, every)
    if g.notes:
        typer.echo("\nNotes")
        for note in g.notes:
            typer.echo(f"- {note}")


def _show_losses(g: Goodput, every: bool) -> None:
    from railwright.cli.tables import print_table

    typer.echo("\nWhere the time goes")
    rows = [
        ("training", show_share(g.goodput)),
        *((what, show_share(share)) for what, share in g.losses if every or share >= SHOWN),
    ]
    print_table(("", "of the wall time"), rows, right=True)
    typer.echo("\nThe same by each published definition")
    print_table(("", "", "formula"), [(d.name, f"{d.value:.3f}", d.formula) for d in g.definitions])


def _show_components(g: Goodput, every: bool) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_amount, show_time

    typer.echo(f"\nWhat breaks (rates: {g.rates}; nodes of eight GPUs)")
    ordered = sorted(g.components, key=lambda c: (-c.share, -c.per_1000_node_days))
    rows = [
        (
            c.name,
            show_amount(c.units),
            f"{100 * c.rate:.3g}",
            f"{100 * c.low:.2g}-{100 * c.high:.2g}",
            f"{c.per_1000_node_days:.3f}",
            show_time(c.mtti) if math.isfinite(c.mtti) else "never",
            show_share(c.share) if c.stops else "goes on",
        )
        for c in ordered
        if every or c.rate * c.units
    ]
    header = ("", "units", "%/year", "range", "per 1,000 node-days", "one every", "share")
    print_table(header, rows, right=True)
    if g.nodes < 10:
        return
    worst = f"The worst tenth of the servers causes {show_share(g.lemons)} of the server failures (lemons)."
    typer.echo(worst)


def _show_recovery(g: Goodput) -> None:
    from railwright.units import show_rate, show_stored, show_time

    r, c = g.recovery, g.checkpoint
    typer.echo(
        f"\nRecovery: detect {show_time(r.detect)}, diagnose {show_time(r.diagnose)}, swap the server "
        f"{show_time(r.reschedule)}, restart {show_time(r.restart)}, load {show_time(r.load)}, warm up "
        f"{show_time(r.warmup)}: {show_time(r.hardware)} after hardware, "
        f"{show_time(r.software)} after software."
    )
    typer.echo(
        f"Checkpoint ({c.kind}): {show_stored(c.size)} at {show_rate(c.bandwidth)} ({c.limit}); training "
        f"waits {show_time(c.block)}, it is whole after {show_time(c.lag)}.\n"
        f"Interval: {show_time(c.interval)}; best {show_time(c.best)}, Young {show_time(c.young)}, Daly "
        f"{show_time(c.daly)}"
        + (f"; one in {c.storage_every} reaches storage." if c.storage_every > 1 else ".")
    )


def _show_run(g: Goodput) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_amount, show_time

    run = g.forecast
    typer.echo(
        f"\nThe run, {run.samples:,} simulated ({show_amount(run.interruptions)} interruptions each, in "
        f"bursts as in StepFun's trace; {show_share(run.waiting)} of the time waiting for a server)"
    )
    names = ("p10", "p50", "p90", "p99", "mean")
    spare = ", with spares" if g.spares else ""
    rows = [
        ("wall time", *map(show_time, run.wall)),
        ("with the step's range", *map(show_time, run.wall_measured)),
        ("million GPU-hours" + spare, *(f"{hours / 1e6:.3g}" for hours in run.gpu_hours))
        if run.gpu_hours[0] >= 1e6
        else ("GPU-hours" + spare, *map(show_amount, run.gpu_hours)),
        ("time spent training", *map(show_share, run.ettr[:3]), "", show_share(run.ettr[3])),
    ]
    print_table(("", *names), rows, right=True)
    typer.echo("\nSpare nodes of eight GPUs")
    print_table(
        ("of the time", "replayed", "fails together", "independent"),
        [(show_share(w.share), f"{w.replayed}", f"{w.scaled}", f"{w.independent}") for w in g.wanted],
        right=True,
    )


def _show_network(g: Goodput) -> None:
    from railwright.cli.tables import print_table
    from railwright.reliability.words import fate
    from railwright.units import show_count, show_time

    if g.network is None:
        return
    found = g.network
    typer.echo(f"\nFailed network elements (step on the sound fabric: {show_time(found.healthy)})")
    rows = [
        (
            row.what, row.element, fate(row),
            f"{100 * row.expected:.3f} %", row.why,
        )
        for row in found.faults
    ]  # fmt: skip
    print_table(("", "first", "step", "of the time", "why"), rows)
    for sentence in found.words:
        typer.echo(sentence)
    if found.spares:
        print_table(
            ("spare spines", "spines a pod", "this step loses", "a spine-bound job", "GPU-hours a year"),
            [
                (
                    f"{s.spares}", f"{s.spines}", f"{100 * s.loss:.4f} %", f"{100 * s.bound_loss:.4f} %",
                    show_count(round(s.gpu_hours)),
                )
                for s in found.spares
            ],
            right=True,
        )  # fmt: skip


def _show_tornado(g: Goodput, every: bool) -> None:
    from railwright.cli.tables import print_table

    typer.echo("\nWhat the goodput hangs on")
    shown = g.tornado if every else g.tornado[:8]
    print_table(
        ("", "from", "to", "goodput from", "to"),
        [(s.name, s.low, s.high, show_share(s.at_low), show_share(s.at_high)) for s in shown],
    )
