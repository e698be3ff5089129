"""`railwright demand`: what a training run takes, before or after somebody has laid it out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from railwright.cli.amounts import tokens_option
from railwright.cli.jobs import training_job
from railwright.errors import RailwrightError, among
from railwright.units import DAY, JOULES_PER_KWH

if TYPE_CHECKING:
    from railwright.ranges import Range
    from railwright.training.demand.budget import Demand

DEFAULT_GPU = "h100-sxm"
DEFAULT_DTYPE = "bf16"
DEFAULT_SEQUENCE = 4096


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("demand")(demand)


def demand(
    study: Annotated[
        str | None,
        typer.Argument(metavar="[STUDY]", help="Study file or template: its predicted step counts."),
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Without a study: bundled name or config.json.")
    ] = None,
    tokens: Annotated[float | None, tokens_option("Token budget, e.g. 2e12; default: the job's.")] = None,
    days: Annotated[float | None, typer.Option("--days", help="Deadline: how many GPUs?")] = None,
    gpus: Annotated[int | None, typer.Option("--gpus", help="Fleet: how many days?")] = None,
    gpu: Annotated[
        list[str] | None, typer.Option("--gpu", "-g", help=f"GPU, several to compare; default {DEFAULT_GPU}.")
    ] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="Server, for its power; default: the GPU's usual one.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option("--dtype", help=f"Type of the products: bf16, fp16 or fp8; default {DEFAULT_DTYPE}."),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option("--sequence", "-s", help=f"Sequence length in tokens; default {DEFAULT_SEQUENCE}."),
    ] = None,
    job: Annotated[
        str | None, typer.Option("--job", help="Which job of the study; default: the first.")
    ] = None,
    pue: Annotated[float, typer.Option("--pue", help="Power of the site over that of the machines.")] = 1.0,
    availability: Annotated[
        float, typer.Option("--availability", help="Share of the time at work (failures, restarts).")
    ] = 1.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in base units.")] = False,
) -> None:
    """Say what a training run takes.

    FLOPs, GPU-hours, the fleet for a deadline or the days with a fleet, power and energy.  With a study the
    pace is that of its predicted step; without, that of published runs on the same GPU.
    """
    if study is not None:
        if gpu or any(given is not None for given in (model, server, dtype, sequence)):
            raise RailwrightError(
                "a study says its own model, GPU, server, type and sequence length; leave --model, --gpu, "
                "--server, --dtype and --sequence out"
            )
        found = [_of_study(study, job, tokens, days, gpus, pue, availability)]
    elif model is None or tokens is None:
        raise RailwrightError("give a study, or both --model and --tokens")
    elif job is not None:
        raise RailwrightError("--job chooses among the jobs of a study; give a study, or leave it out")
    else:
        found = _of_model(
            model,
            tokens,
            days,
            gpus,
            gpu or [DEFAULT_GPU],
            server,
            dtype or DEFAULT_DTYPE,
            DEFAULT_SEQUENCE if sequence is None else sequence,
            pue,
            availability,
        )
    if as_json:
        typer.echo(json.dumps([asdict(one) for one in found], indent=2))
        return
    _print(found, alone=study is None and days is None and gpus is None, of_study=study is not None)


def _of_model(
    model: str,
    tokens: float,
    days: float | None,
    gpus: int | None,
    names: list[str],
    server: str | None,
    dtype: str,
    sequence: int,
    pue: float,
    availability: float,
) -> list[Demand]:
    from railwright.catalog import find, load_catalog
    from railwright.model import load_model
    from railwright.model.shape.pattern import kind_of
    from railwright.training.demand.budget import Equipment, TokenBudget, usual_server
    from railwright.training.demand.budget import demand as needed
    from railwright.training.demand.whole_runs import over_middle
    from railwright.training.software.formats import DTYPES

    if dtype not in DTYPES:
        raise RailwrightError(f"--dtype: there is no '{dtype}'{among(dtype, DTYPES)}")
    arch, catalog = load_model(model), load_catalog()
    found = []
    for name in names:
        gpu = find(catalog.gpus, name)
        box = find(catalog.servers, server) if server is not None else usual_server(catalog, gpu)
        if box.gpu != gpu.name:
            raise RailwrightError(f"the server {box.name} holds {box.gpu}, not {gpu.name}")
        budget, on = TokenBudget(arch, tokens, sequence, dtype), Equipment(gpu, box, idle_share=_idle_share())
        one = needed(budget, on, days=days, gpus=gpus, pue=pue, availability=availability)
        runs = over_middle(gpu, kind_of(arch))
        found.append(replace(one, runs=tuple((run.run, ratio) for run, ratio in runs)))
    return found


def _of_study(
    name: str,
    job_name: str | None,
    tokens: float | None,
    days: float | None,
    gpus: int | None,
    pue: float,
    availability: float,
) -> Demand:
    from railwright.catalog import find
    from railwright.cli.checking import refuse_unknown_names
    from railwright.cli.studies import open_study
    from railwright.fabric import count
    from railwright.model import load_model
    from railwright.study.evaluate import Workshop
    from railwright.training import simulate
    from railwright.training.demand.budget import Equipment, TokenBudget
    from railwright.training.demand.budget import demand as needed
    from railwright.training.demand.model_flops import job_flops_per_token
    from railwright.training.demand.throughput import predicted_pace
    from railwright.training.layout.sizes import domain_of, job_gpus

    asked = open_study(name)
    refuse_unknown_names(asked, name)
    job = training_job(asked, job_name, "demand of a study")
    workshop = Workshop.of(asked)
    machine = workshop.machine(asked)
    arch = load_model(job.model)
    fabric = machine.network.fabric
    used = job_gpus(job, fabric)
    step = simulate(job, arch, machine, most_events=0)
    server = find(workshop.catalog.servers, asked.cluster.server)
    # the switch of a single server carries nothing
    counts = count(fabric, workshop.catalog)
    switches = counts.switch_power if fabric.num_servers > 1 else 0.0
    budget = TokenBudget(
        arch,
        tokens if tokens is not None else job.tokens,
        job.attended,
        job.dtype,
        flops_each=job_flops_per_token(job, arch),
    )
    on = Equipment(
        machine.gpu,
        server,
        per_server=domain_of(job, fabric),
        network_power=switches / fabric.num_gpus,
        idle_share=_idle_share(asked.money.prices if asked.money is not None else None),
    )
    found = needed(
        budget,
        on,
        days=days,
        gpus=gpus if gpus is not None or days is not None else used,
        pace=predicted_pace(step, used),
        pue=pue,
        availability=availability,
    )
    warnings = step.warnings
    if counts.unrated and fabric.num_servers > 1:
        warnings += (
            f"Power and energy are without {counts.unrated:,} of {counts.switches:,} switches, whose power "
            "no source gives; `power_max` in your own `catalog` counts it.",
        )
    if found.gpus.high > used:
        warnings += (
            f"More GPUs than the {used:,} of the job are taken to be as fast each; with the same global "
            "batch each is slower, so a study of that size says whether they do.",
        )
    return replace(found, warnings=warnings)


def _idle_share(prices: str | None = None) -> float:
    """Share of its maximum that a machine draws which does nothing; the high end, as all power here."""
    from railwright.cost.prices import find_price, price_book

    return find_price(price_book(prices), "power-idle").high


def _print(found: list[Demand], *, alone: bool, of_study: bool) -> None:
    from railwright.cli.tables import print_table

    if len(found) > 1:
        _print_beside(found)
    for one in found:
        print_table(("", one.gpu), _rows(one))
        typer.echo("")
    _print_told(found, alone=alone, of_study=of_study)


def _print_beside(found: list[Demand]) -> None:
    """The middles of several GPUs, one a line, which 80 columns hold; the ranges come below."""
    from railwright.cli.tables import print_table
    from railwright.units import show_amount, show_count, show_flop_rate, show_power, show_time

    header = ("middle", "each sustains", "GPUs", "GPU-hours", "time", "power", "kWh")
    lines = [
        (
            one.gpu,
            show_flop_rate(one.pace.flops.middle),
            show_count(one.gpus.middle),
            show_amount(one.gpu_hours.middle),
            show_time(one.days.middle * DAY),
            show_power(one.power.middle),
            show_amount(one.energy.middle / JOULES_PER_KWH),
        )
        for one in found
    ]
    print_table(header, lines, right=True)
    typer.echo("")


def _rows(one: Demand) -> list[tuple[str, str]]:
    from railwright.units import show_amount, show_count, show_flop_rate, show_power, show_time

    return [
        ("model", f"{one.model}, {show_count(one.tokens)} tokens"),
        ("model FLOPs", f"{one.flops:.4g} ({one.flops_per_token:.4g} per token)"),
        ("server", f"{one.server}, {one.dtype}"),
        ("model FLOPs a second and GPU", _range(one.pace.flops, show_flop_rate)),
        ("of the dense peak", _range(one.mfu, lambda x: f"{100 * x:.0f} %")),
        ("GPU-hours", _range(one.gpu_hours, show_amount)),
        ("GPUs", _range(one.gpus, show_count)),
        ("time", _range(one.days, lambda x: show_time(x * DAY))),
        ("dense peak of the fleet", _range(one.fleet_peak, show_flop_rate)),
        ("sustained, whole fleet", _range(one.sustained, show_flop_rate)),
        ("power", _range(one.power, show_power)),
        ("energy", _range(one.energy, _kwh)),
    ]


def _kwh(joules: float) -> str:
    from railwright.units import show_amount

    return f"{show_amount(joules / JOULES_PER_KWH)} kWh"


def _print_told(found: list[Demand], *, alone: bool, of_study: bool) -> None:
    """Where the pace is from, and what else belongs to the figures."""
    from railwright.cli.tables import print_words

    first = found[0]
    for source in dict.fromkeys(f"{one.gpu}: {one.pace.source}" for one in found):
        print_words(f"Pace of {source}.")
    print_words(
        f"Middle first, then the range of 80 % of such runs. Power: servers at their catalogued maximum, "
        f"PUE {first.pue:g}; availability {first.availability:g}"
        + (": nothing fails." if first.availability == 1.0 else ".")
    )
    for words in dict.fromkeys(_beside(one, of_study) for one in found):
        if words:
            print_words(words)
    for warning in (w for one in found for w in one.warnings):
        print_words(f"! {warning}")
    for one in found:
        if one.idle.high:
            print_words(
                f"The run on {one.gpu} leaves {_idle(one.idle)} of its servers idle, at "
                f"{100 * one.idle_share:.0f} % of their part of the power; where other work has them, that "
                "is not this run's."
            )
    if alone:
        print_words("One server; give --days for the fleet that a deadline takes, or --gpus for its days.")


def _beside(one: Demand, of_study: bool) -> str:
    """What whole published runs took beside figures like these; '' where none is known."""
    from railwright.training.demand.whole_runs import over_benchmarks

    if of_study:
        return f"{over_benchmarks()}."
    if not one.runs:
        return ""
    told = ", ".join(f"{run} {ratio:.2f}" for run, ratio in one.runs)
    return (
        f"Whole runs on {one.gpu} took more GPU-hours than the middle says of them: {told} times; what "
        "their makers count beside steps is not published."
    )


def _idle(gpus: Range) -> str:
    """'1 GPU', '4 (0 to 6) GPUs'."""
    from railwright.units import number, show_count

    return number(1, "GPU") if gpus.ends == (1, 1, 1) else f"{_range(gpus, show_count)} GPUs"


def _range(value: Range, show: Callable[[float], str]) -> str:
    """'1.5 million (1.3 million to 2.1 million)'; one figure where the range has no width."""
    if value.high <= value.low * (1 + 1e-9):
        return show(value.middle)
    return f"{show(value.middle)} ({show(value.low)} to {show(value.high)})"
