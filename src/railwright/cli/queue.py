"""`railwright queue`: the jobs of many people on this cluster, under each way of placing them."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import StudyArgument
from railwright.errors import RailwrightError
from railwright.units import DAY

if TYPE_CHECKING:
    from railwright.queueing import Job, Outcome

DEFAULT = ("any", "pack", "tree", "block", "rails")
FILLED = 3.0
"""Mean durations after which a cluster is as full as it gets: e^-3, 5 %, of what it began without is left."""


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("queue")(queue)


def queue(
    study: StudyArgument,
    trace: Annotated[
        str | None, typer.Option("--trace", "-t", help="File of jobs: submit,gpus,duration; sacct; Philly; …")
    ] = None,
    most: Annotated[
        int | None, typer.Option("--jobs", help="Take so many jobs of it, or draw so many.")
    ] = None,
    sizes: Annotated[
        str, typer.Option("--sizes", help="Without a trace: GPUs:share of the jobs drawn.")
    ] = "1:40,4:20,8:20,16:12,64:8",
    load: Annotated[
        float, typer.Option("--load", help="Without a trace: work asked for over capacity.")
    ] = 0.85,
    hours: Annotated[float, typer.Option("--hours", help="Without a trace: mean duration.")] = 4.0,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", "-p", help="any, pack, tree, block or rails; repeatable.")
    ] = None,
    failures: Annotated[
        float, typer.Option("--failures", help="Host failures per 1,000 node-days, e.g. 4.2.")
    ] = 0.0,
    repair: Annotated[float, typer.Option("--repair-hours", help="Mean time until a host is back.")] = 24.0,
    checkpoint: Annotated[
        float, typer.Option("--checkpoint-hours", help="Between checkpoints; 0: a killed job starts over.")
    ] = 1.0,
    seed: Annotated[int, typer.Option("--seed", help="Of failures and drawn jobs.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")] = False,
) -> None:
    """Put a queue of jobs on this cluster, placed in different ways.

    How long do jobs wait, how much lies idle in pieces, how far apart do jobs sit, and what does that
    leave of their bandwidth on this fabric?
    """
    from railwright.cli.studies import open_study
    from railwright.export.sheet import Sheet
    from railwright.queueing import Failures, drawn, outcome, read_jobs, site_of
    from railwright.queueing.place import policy_named
    from railwright.study.evaluate import Workshop

    if failures < 0 or repair <= 0 or checkpoint < 0:
        raise RailwrightError(
            "--failures and --checkpoint-hours cannot be below 0, --repair-hours must be above"
        )
    if most is not None and most < 1:
        raise RailwrightError("--jobs must be at least 1")
    wanted = [policy_named(name) for name in policy or DEFAULT]
    asked = open_study(study)
    workshop = Workshop.of(asked)
    machine = workshop.machine(asked)
    site = site_of(Sheet(machine.network.fabric, workshop.catalog, asked.name))
    if trace is not None:
        jobs = read_jobs(trace, most)
    else:
        jobs = drawn(_sizes(sizes, site.capacity), load, hours * 3600, site.capacity, most or 2000, seed)
    breakage = Failures(failures / 1000 / DAY, repair * 3600, checkpoint * 3600)
    found = [
        outcome(site, jobs, one, machine.network, machine.nccl.pxn, breakage, seed)
        for one in dict.fromkeys(wanted)
    ]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    source = trace or f"drawn, load {load:g}"
    _print(found, jobs, site.capacity, len(site.hosts), source)


def _sizes(text: str, capacity: int) -> dict[int, float]:
    found: dict[int, float] = {}
    for part in text.split(","):
        gpus, colon, share = part.partition(":")
        try:
            found[int(gpus)] = float(share) if colon else 1.0
        except ValueError:
            raise RailwrightError(f"--sizes '{text}': '{part}' is no GPUs:share, like 8:30") from None
    usable = {gpus: share for gpus, share in found.items() if gpus <= capacity}
    if not usable:
        raise RailwrightError(f"--sizes '{text}': the cluster has {capacity} GPUs, fewer than any of them")
    return usable


def _print(found: list[Outcome], jobs: tuple[Job, ...], capacity: int, hosts: int, source: str) -> None:
    from railwright.cli.tables import print_table
    from railwright.queueing import POLICIES
    from railwright.units import show_time

    first = found[0]
    asked = sum(job.gpus * job.duration for job in jobs)
    span = max(job.submit for job in jobs)
    typer.echo(
        f"{len(jobs):,} jobs ({source}) over {show_time(span)} on {capacity:,} GPUs in {hosts:,} hosts; "
        f"they ask for {100 * asked / (capacity * span):.0f} % of it."
        if span
        else f"{len(jobs):,} jobs ({source}), all at once, on {capacity:,} GPUs in {hosts:,} hosts."
    )
    mean = sum(job.duration for job in jobs) / len(jobs)
    if 0 < span < FILLED * mean:
        enough = round(len(jobs) * FILLED * mean / span, -2)
        typer.echo(
            f"! They come within {show_time(span)} and take {show_time(mean)} in the mean: the last one "
            "comes while the cluster still fills, so waits and GPUs at work are those of an empty one. Give "
            f"larger jobs (--sizes) or some {enough:,.0f} of them (--jobs)."
        )
    typer.echo("")

    def wait(seconds: float) -> str:
        return show_time(seconds) if seconds >= 1e-3 else "none"

    def percent(value: float) -> str:
        return f"{100 * value:.1f} %"

    rows: list[tuple[str, list[str]]] = [
        ("wait, mean", [wait(o.wait_mean) for o in found]),
        ("wait, median", [wait(o.wait_p50) for o in found]),
        ("wait, p90", [wait(o.wait_p90) for o in found]),
        ("wait, p99", [wait(o.wait_p99) for o in found]),
    ]
    for i, (low, high, count, _) in enumerate(first.by_size):
        name = f"wait, {low} GPU" + ("s" if low > 1 else "") if low == high else f"wait, {low} to {high} GPUs"
        if all(len(o.by_size) == len(first.by_size) for o in found):
            rows.append((f"{name} ({count:,} jobs)", [wait(o.by_size[i][3]) for o in found]))
    rows += [
        ("GPUs at work", [percent(o.utilisation) for o in found]),
        ("idle in pieces", [percent(o.fragmented) for o in found]),
    ]
    if any(o.kills for o in found):
        rows += [
            ("jobs killed by failures", [f"{o.kills:,}" for o in found]),
            ("work lost to failures", [percent(o.lost) for o in found]),
        ]
    if any(o.refused for o in found):
        rows.append(("jobs that can never run", [f"{o.refused:,}" for o in found]))
    if any(o.spread for o in found):
        rows += [
            ("large jobs under one switch", [percent(o.spread.one_unit) if o.spread else "–" for o in found]),
            ("switches over the fewest", [f"{o.spread.fewest:.2f} x" if o.spread else "–" for o in found]),
            ("ring bandwidth, alone", [percent(o.spread.alone) if o.spread else "–" for o in found]),
            (
                "ring bandwidth, all at once",
                [percent(o.spread.bandwidth) if o.spread else "–" for o in found],
            ),
            ("the worst 5 %", [percent(o.spread.worst) if o.spread else "–" for o in found]),
        ]
    print_table(("", *(o.policy for o in found)), [(name, *cells) for name, cells in rows])
    typer.echo("")
    for one in found:
        typer.echo(f"{one.policy}: {POLICIES[one.policy]}.")
    typer.echo(
        "Idle in pieces: GPUs idle although no fewer were idle than the first in line asked for.  Ring "
        "bandwidth: of jobs on several hosts, over the same job alone and packed; all at once is the worst "
        "moment.  Durations are known to the scheduler, which fills gaps (EASY backfilling)."
    )
