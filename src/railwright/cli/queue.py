"""`railwright queue`: the jobs of many people on this cluster, under each way of placing them."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.studies import StudyArgument
from railwright.errors import RailwrightError
from railwright.units import DAY, HOUR

if TYPE_CHECKING:
    from railwright.queueing import Job, Outcome

SIZES, LOAD, HOURS = "1:40,4:20,8:20,16:12,64:8", 0.85, 4.0
DEFAULT = ("any", "pack", "tree", "block", "rails")
FILLED = 3.0
"""Mean durations after which a cluster is as full as it gets: e^-3, 5 %, of what it began without is left."""
SHOWN = 1e-3
"""Waits below are none. [s]"""


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
        str | None,
        typer.Option("--sizes", help=f"Without a trace: GPUs:share of the jobs drawn; default {SIZES}."),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option("--load", help=f"Without a trace: work asked for over capacity; default {LOAD:g}."),
    ] = None,
    hours: Annotated[
        float | None, typer.Option("--hours", help=f"Without a trace: mean duration; default {HOURS:g}.")
    ] = None,
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

    if not (0 <= failures < math.inf and 0 < repair < math.inf and 0 <= checkpoint < math.inf):
        raise RailwrightError(
            "--failures and --checkpoint-hours cannot be below 0, --repair-hours must be above, all finite"
        )
    if most is not None and most < 1:
        raise RailwrightError("--jobs must be at least 1")
    if seed < 0:
        raise RailwrightError(f"--seed is {seed}; give a whole number from 0")
    if trace is not None and any(given is not None for given in (sizes, load, hours)):
        raise RailwrightError(
            "a trace says its own sizes, load and durations; leave --sizes, --load and --hours out"
        )
    wanted = [policy_named(name) for name in policy or DEFAULT]
    asked = open_study(study)
    workshop = Workshop.of(asked)
    machine = workshop.machine(asked)
    site = site_of(Sheet(machine.network.fabric, workshop.catalog, asked.name))
    drawn_load = LOAD if load is None else load
    if trace is not None:
        jobs = read_jobs(trace, most)
    else:
        length = (HOURS if hours is None else hours) * HOUR
        shares = _sizes(sizes or SIZES, site.capacity, told=not as_json)
        jobs = drawn(shares, drawn_load, length, site.capacity, most or 2000, seed)
    breakage = Failures(failures / 1000 / DAY, repair * HOUR, checkpoint * HOUR)
    found = [
        outcome(site, jobs, one, machine.network, machine.nccl.pxn, breakage, seed)
        for one in dict.fromkeys(wanted)
    ]
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    _print(found, jobs, site.capacity, len(site.hosts), trace or f"drawn, load {drawn_load:g}")
    if trace is None:
        _print_draw(found[0])


def _sizes(text: str, capacity: int, told: bool) -> dict[int, float]:
    """GPUs -> share of the jobs; those that the cluster cannot hold are left out, said where `told`."""
    found: dict[int, float] = {}
    for part in text.split(","):
        gpus, colon, share = part.partition(":")
        try:
            number, value = int(gpus), float(share) if colon else 1.0
        except ValueError:
            raise RailwrightError(f"--sizes '{text}': '{part}' is no GPUs:share, like 8:30") from None
        if number in found:
            raise RailwrightError(f"--sizes '{text}': {number} GPUs are there twice; add the shares up")
        found[number] = value
    usable = {gpus: share for gpus, share in found.items() if gpus <= capacity}
    if not usable:
        raise RailwrightError(f"--sizes '{text}': the cluster has {capacity} GPUs, fewer than any of them")
    if told and len(usable) < len(found):
        larger = ", ".join(str(gpus) for gpus in found if gpus not in usable)
        typer.echo(f"! No jobs of {larger} GPUs are drawn: the cluster has {capacity:,}.")
    return usable


def _print_draw(one: Outcome) -> None:
    """How far the mean wait of one draw is to be trusted."""
    from railwright.units import show_time

    if not one.wait_mean >= SHOWN:
        return
    fifths = ", ".join(show_time(wait) if wait >= SHOWN else "none" for wait in one.wait_fifths)
    typer.echo(
        f"The jobs are one draw. Of its fifths, as they come, the mean wait under {one.policy} is {fifths}: "
        "another --seed moves it as far; more --jobs steady it."
    )


def _print(found: list[Outcome], jobs: tuple[Job, ...], capacity: int, hosts: int, source: str) -> None:
    from railwright.cli.tables import print_table
    from railwright.queueing import POLICIES
    from railwright.units import show_time

    first = found[0]
    asked = sum(job.gpus * job.duration for job in jobs)
    span = max(job.submit for job in jobs)
    many = f"{len(jobs):,} job{'s' if len(jobs) > 1 else ''} ({source})"
    typer.echo(
        f"{many} over {show_time(span)} on {capacity:,} GPUs in {hosts:,} hosts; "
        f"they ask for {100 * asked / (capacity * span):,.0f} % of it."
        if span
        else f"{many}, all at once, on {capacity:,} GPUs in {hosts:,} hosts."
    )
    mean = sum(job.duration for job in jobs) / len(jobs)
    if asked > capacity * span > 0 and sum(job.gpus for job in jobs) > capacity:
        typer.echo(
            "! They ask for more than the cluster has: the line grows as long as they come, so waits are "
            "those of this many jobs and say nothing of the next ones."
        )
    elif 0 < span < FILLED * mean:
        enough = round(len(jobs) * FILLED * mean / span, -2)
        typer.echo(
            f"! They come within {show_time(span)} and take {show_time(mean)} in the mean: the last one "
            "comes while the cluster still fills, so waits and GPUs at work are those of an empty one. Give "
            f"larger jobs (--sizes) or some {enough:,.0f} of them (--jobs)."
        )
    typer.echo("")

    def wait(seconds: float) -> str:
        return show_time(seconds) if seconds >= SHOWN else "none"

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
