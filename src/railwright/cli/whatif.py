"""`railwright fabric whatif`: what the failure of any one element, or any k, costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.fabric import JsonOption, VariantOption, open_fabric
from railwright.cli.studies import StudyArgument
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.fabric.graph import Fabric
    from railwright.network.whatif.pattern import Pattern
    from railwright.network.whatif.sets import RandomFailures
    from railwright.network.whatif.single import Comparison, Effect, WhatIf
    from railwright.network.whatif.spares import SpareSpines
    from railwright.spec.study import Study
    from railwright.traffic.demand import Communicator

GROUPS = ("world", "tp", "ep", "dp", "pp")
COMPARISONS = ("relays", "routings")


def add_to(group: typer.Typer) -> None:
    """Hang the command of this file on `railwright fabric`."""
    group.command("whatif")(whatif)


def whatif(
    study: StudyArgument,
    pattern: Annotated[
        str, typer.Option("--pattern", help="all-to-all, ring, tree (all-reduces) or bisection.")
    ] = "all-to-all",
    pxn: Annotated[
        bool | None, typer.Option("--pxn/--no-pxn", help="Relay by PXN; default: as the study says.")
    ] = None,
    groups: Annotated[
        str, typer.Option("--groups", help="Who runs it: world, or tp, ep, dp, pp of the first job.")
    ] = "world",
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", help="What fails: nic,cable,slow-cable,leaf,spine,core,server; default all."),
    ] = None,
    slow: Annotated[float, typer.Option("--slow", help="Share of its rate a slow cable keeps.")] = 0.5,
    k: Annotated[int, typer.Option("--k", help="How many elements fail together.")] = 1,
    samples: Annotated[int, typer.Option("--samples", help="Sets drawn where all are too many.")] = 200,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the draw.")] = 0,
    routing: Annotated[
        str | None, typer.Option("--routing", help="adaptive, static or ecmp; default: the study's.")
    ] = None,
    top: Annotated[int, typer.Option("--top", help="How many rows to print.")] = 20,
    compare: Annotated[
        str | None,
        typer.Option("--compare", help="relays: PXN and moving NICs, on and off; routings: all three."),
    ] = None,
    spares: Annotated[bool, typer.Option("--spares", help="What spare spines are worth.")] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Solve a second member of every class of alike elements.")
    ] = False,
    variant: VariantOption = None,
    as_json: JsonOption = False,
) -> None:
    """Fail any one element, or any k, and rank what it costs.

    Slowdowns are of one traffic pattern against the fabric as it is; the study's own faults count as there
    before.  GPUs that a failure takes away are counted, and the others go on without their servers.
    """
    if k > 1 and (compare or check):
        raise RailwrightError("--compare and --check are about single failures; leave --k out")
    if spares and (compare or check or k > 1 or kind):
        raise RailwrightError("--spares fails spines only; leave --k, --kind, --compare and --check out")
    _known("--groups", groups, GROUPS)
    if compare is not None:
        _known("--compare", compare, COMPARISONS)
    if routing is not None:
        _known("--routing", routing, ("adaptive", "static", "ecmp"))
    if top < 1:
        raise RailwrightError(f"--top {top} prints nothing; give 1 or more")
    asked, catalog, fabric = open_fabric(study, variant)

    from dataclasses import replace

    from railwright.network import Network
    from railwright.network.whatif import single as room
    from railwright.network.whatif.pattern import Pattern
    from railwright.traffic import can_relay

    compute = asked.cluster.compute
    chosen = routing or compute.routing
    qps = asked.nccl.qps_per_connection or 1
    network = Network(fabric, chosen, compute.seed, qps=qps)  # type: ignore[arg-type]
    relayed = can_relay(fabric)
    if pxn and not relayed:
        raise RailwrightError(
            "--pxn: PXN needs several servers whose GPUs are joined by NVLink and sit on several rails; "
            "leave --pxn out"
        )
    sent = Pattern(
        pattern, _communicators(asked, fabric, groups), relayed and (asked.nccl.pxn if pxn is None else pxn)
    )
    kinds = [one.strip() for text in kind or [] for one in text.split(",") if one.strip()]
    if spares:
        from railwright.network.whatif.spares import spare_spines

        cluster = asked.cluster.model_copy(update={"compute": compute.model_copy(update={"routing": chosen})})
        _out(
            spare_spines(cluster, catalog, lambda other: sent, compute.seed, qps), sent, chosen, as_json, top
        )
    elif compare is not None:
        setups = (room.relays if compare == "relays" else room.routings)(network, sent)
        only = kinds or (["nic", "leaf"] if compare == "relays" else [])
        _out(room.compare(setups, only, slow), sent, chosen, as_json, top)
    elif k == 1:
        found = room.single_failures(network, sent, kinds, slow, check=check)
        _out(replace(found, effects=found.effects[:top]) if as_json else found, sent, chosen, as_json, top)
    else:
        from railwright.network.whatif.sets import random_failures

        _out(random_failures(network, sent, k, samples, seed, kinds, slow), sent, chosen, as_json, top)


def _known(option: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        known = f"{', '.join(allowed)}{nearest(value, allowed)}"
        raise RailwrightError(f"no {option} '{value}'; known are {known}")


def _communicators(asked: Study, fabric: Fabric, groups: str) -> tuple[Communicator, ...]:
    from railwright.network.whatif.pattern import world

    if groups == "world":
        return world(fabric)
    if not asked.jobs:
        raise RailwrightError(f"the study has no job, so it has no {groups} groups; take --groups world")
    from railwright.training import place

    return tuple(getattr(place(asked.jobs[0], fabric), groups))


def _out(
    result: WhatIf | RandomFailures | Comparison | SpareSpines,
    pattern: Pattern,
    routing: str,
    as_json: bool,
    top: int,
) -> None:
    if as_json:
        import json
        from dataclasses import asdict

        about = {"pattern": pattern.name, "pxn": pattern.pxn, "routing": routing}
        typer.echo(json.dumps(about | asdict(result), indent=1))
        return
    from railwright.network.whatif.sets import RandomFailures
    from railwright.network.whatif.single import Comparison, WhatIf

    if isinstance(result, WhatIf):
        _show_single(result, top)
    elif isinstance(result, RandomFailures):
        _show_random(result)
    elif isinstance(result, Comparison):
        typer.echo(f"{_traffic(pattern.name, None, '')}; slowdowns against each column's own time")
        _show_comparison(result, top)
    else:
        typer.echo(_traffic(pattern.name, pattern.pxn, routing))
        _show_spares(result)


def _show_single(result: WhatIf, top: int) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_count, show_time

    total = sum(effect.count for effect in result.effects)
    traffic = _traffic(result.pattern, result.pxn, result.routing)
    typer.echo(f"{result.fabric}: {traffic}, {result.gpus:,} GPUs")
    typer.echo(f"healthy: {show_time(result.time)}; {result.why}")
    typer.echo(
        f"{total:,} single failures, {sum(e.solved for e in result.effects):,} solved: the others are alike; "
        f"a slow cable keeps {100 * result.slow:g} %\n"
    )
    shown = result.effects[:top]
    print_table(
        ["first", "kind", "alike", "slowdown", "GPUs lost", "work left"],
        [
            [
                f"{i}. {e.elements[0]}",
                e.what,
                f"{e.count:,}",
                _slowdown(e),
                show_count(e.lost_gpus),
                f"{100 * e.work:.1f} %",
            ]
            for i, e in enumerate(shown, 1)
        ],
        right=True,
    )
    if len(shown) < len(result.effects):
        typer.echo(f"and {len(result.effects) - len(shown)} more rows; --top shows them")
    typer.echo("\nWhy")
    for i, effect in enumerate(shown, 1):
        typer.echo(f"{i}. {effect.why}")
    if not result.exact:
        typer.echo(
            f"\nnote: routing '{result.routing}' follows no symmetry: each row is a mean over members"
            f"{' and seeds' if result.routing == 'ecmp' else ''}, with the least and the most of them"
        )


def _show_random(result: RandomFailures) -> None:
    from railwright.units import show_time

    over = "all" if result.exact else "a sample of"
    traffic = _traffic(result.pattern, result.pxn, result.routing)
    typer.echo(f"{result.fabric}: {traffic}, {result.gpus:,} GPUs")
    typer.echo(f"healthy: {show_time(result.time)}")
    typer.echo(
        f"any {result.k} of {result.pool:,} elements: {over} {result.sets:,} sets, {result.solved:,} solved\n"
        f"({', '.join(result.kinds)})"
    )
    for name, value in (("p50", result.p50), ("p90", result.p90), ("p99", result.p99)):
        typer.echo(f"{name:<6} {_times(value)}")
    kinds = result.worst.what.split(" + ")
    worst = " and ".join(f"{e} ({kind})" for e, kind in zip(result.worst.elements, kinds, strict=True))
    lost = f", {result.worst.lost_gpus:,} GPUs lost" if result.worst.lost_gpus else ""
    typer.echo(
        f"worst  {_times(result.worst.slowdown)}{lost}, {100 * result.worst.work:.1f} % of the work left"
    )
    typer.echo(f"       {worst}")
    typer.echo(f"       {result.worst.why}")
    typer.echo(f"{100 * result.losing:.1f} % of the sets take GPUs away; the others go on without them")


def _show_comparison(result: Comparison, top: int) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_time

    rows = [["healthy", "", "", *(show_time(time) for time in result.times)]]
    for row in result.rows[:top]:
        first = row[0]
        cells = [_slowdown(e) + (f", {e.lost_gpus:,} GPUs lost" if e.lost_gpus else "") for e in row]
        rows.append([first.elements[0], first.what, f"{first.count:,}", *cells])
    print_table(["first", "kind", "alike", *result.setups], rows, right=True)
    if len(result.rows) > top:
        typer.echo(f"and {len(result.rows) - top} more rows; --top shows them")


def _show_spares(result: SpareSpines) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_time

    typer.echo(
        f"as written: {show_time(result.time)}; slowdowns against it, dead spines in one pod and plane"
    )
    dead = max(len(row.slowdown) for row in result.rows)
    print_table(
        ["spares", "spines", *(f"{n} dead" for n in range(dead))],
        [
            [
                f"{row.spares}{' as written' if row.spares == result.as_written else ''}",
                f"{row.total}" if row.total else "impossible",
                *(_times(value) for value in row.slowdown),
            ]
            for row in result.rows
        ],
        right=True,
    )
    for sentence in result.words:
        typer.echo(sentence)


def _traffic(pattern: str, pxn: bool | None, routing: str) -> str:
    relayed = "" if pxn is None else " with PXN" if pxn else " without PXN"
    return f"{pattern}{relayed}" + (f", {routing} routing" if routing else "")


def _slowdown(effect: Effect) -> str:
    if effect.least is None or effect.most is None or effect.most - effect.least < 5e-4:
        return _times(effect.slowdown)
    return f"{_times(effect.slowdown)} ({effect.least:.3f}-{effect.most:.3f})"


def _times(slowdown: float | None) -> str:
    return "nothing left" if slowdown is None else f"{slowdown:.3f} x"
