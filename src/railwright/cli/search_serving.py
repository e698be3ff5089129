"""`railwright search --serving`: the fewest GPUs that keep a serving job's SLO, and how to run them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.search.serving.result import Point, ServingSearchResult
    from railwright.search.serving.space import ServingSpace, Setting
    from railwright.spec.serving import ServingJob
    from railwright.spec.study import Study

FORMS = ("vllm", "sglang", "trtllm", "study")
PRECISIONS = {"weights": ("bf16", "fp8"), "kv": ("bf16", "fp8")}
"""Types that --dtypes tries beside the job's own."""


def serving_wanted(asked: Study, job: str | None, serving: bool) -> bool:
    """Whether the search is of a serving job: asked for, named, or all there is. Says so if both are."""
    if serving or not asked.serving:
        return serving
    if job is not None:
        return job in [s.name for s in asked.serving] and job not in [j.name for j in asked.jobs]
    if not asked.jobs:
        return True
    typer.echo(
        f"Searching for training job '{asked.jobs[0].name}'; --serving searches for serving job "
        f"'{asked.serving[0].name}', --job NAME for any.\n",
        err=True,
    )
    return False


def search_serving_job(
    asked: Study,
    file: str,
    name: str | None,
    gpus: int | None,
    top: int,
    space: Path | None,
    front: int,
    export: str | None,
    as_json: bool,
    quiet: bool,
    rate: float | None,
    dtypes: bool,
) -> None:
    """The command, for a serving job."""
    if export is not None and export not in FORMS:
        hint = nearest(export, FORMS) or f"; for a serving job choose one of {', '.join(FORMS)}"
        raise RailwrightError(f"--export: there is no '{export}'{hint}")
    chosen = _job(asked, name, rate)
    result = _run(asked, chosen, file, _space(space, chosen, dtypes), gpus, front, quiet)
    written = ""
    if export is not None:
        from railwright.search.serving.export import export as exported

        written = exported(result, export)
        if export == "study":
            from railwright.cli.exported_study import in_study
            from railwright.cli.studies import study_text

            written = in_study(study_text(file), "serving", chosen.name, written, rate)
    if as_json:
        found = plain(result, top, _dollars(asked, result))
        typer.echo(json.dumps(found | ({"export": written} if written else {}), indent=2))
    elif written:
        typer.echo(written, nl=False)
    else:
        _show(result, top, _dollars(asked, result))


def _job(asked: Study, name: str | None, rate: float | None) -> ServingJob:
    if not asked.serving:
        raise RailwrightError("the study has no serving job to search for; give it one under 'serving:'")
    names = [one.name for one in asked.serving]
    if name is not None and name not in names:
        hint = nearest(name, names) or f"; they are {', '.join(names)}"
        raise RailwrightError(f"the study has no serving job '{name}'{hint}")
    job = asked.serving[names.index(name) if name else 0]
    if rate is None:
        return job
    client = job.client.model_copy(update={"kind": "poisson", "rate": rate, "concurrency": None})
    if job.client.kind == "trace":
        raise RailwrightError("--rate: the client replays a trace; its `speed` sets how fast")
    return job.model_copy(update={"client": client})


def _space(file: Path | None, job: ServingJob, dtypes: bool) -> ServingSpace:
    from railwright.cli.spaces import space_of
    from railwright.search.serving.space import ServingSpace

    own = {"weights": job.weights, "kv": job.kv}
    tried = {axis: [own[axis], *(x for x in v if x != own[axis])] for axis, v in PRECISIONS.items()}

    def space(given: Any) -> ServingSpace:
        both = {**tried, **given} if dtypes and isinstance(given, dict) else given
        return ServingSpace.of(both, str(file or "--dtypes"))

    return space({}) if file is None else space_of(file, space)


def _run(
    asked: Study,
    job: ServingJob,
    file: str,
    space: ServingSpace,
    gpus: int | None,
    front: int,
    quiet: bool,
) -> ServingSearchResult:
    from railwright.cli.progress import progress
    from railwright.model import load_model
    from railwright.search.serving.searching import search_serving
    from railwright.study.evaluate import Workshop

    arch = load_model(job.model)
    machine = Workshop.of(asked).machine(asked)
    folder = Path(file).parent if Path(file).exists() else None
    with progress(quiet) as tell:
        return search_serving(job, arch, machine, space, gpus=gpus, front=front, folder=folder, progress=tell)


def _dollars(asked: Study, result: ServingSearchResult) -> tuple[float, str] | None:
    """Of a million output tokens in the cheapest way of having the GPUs, and which; None without `money`."""
    if asked.money is None:
        return None
    from railwright.cost.priced import Served
    from railwright.study.evaluate import Workshop
    from railwright.study.rooms import money

    alone = asked.model_copy(update={"jobs": (), "serving": ()})
    way = money(alone, Workshop.of(asked)).best
    return Served(result.job.name, 3600 * result.best.per_gpu).cost(way), way.name


def _show(result: ServingSearchResult, top: int, dollars: tuple[float, str] | None) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_power, show_time

    effort = result.effort
    typer.echo(
        f"{effort.settings:,} settings of a replica, {effort.priced} step tables; {effort.simulated} runs "
        f"with {effort.requests:,} requests, in {show_time(effort.seconds)}.\n"
    )
    header = ("", "GPUs", "plan", "TTFT", "TPOT", "tokens/s/GPU", "tokens/s/user")
    best = [result.best, *result.next[: top - 1]]
    rows = [_row(str(i + 1), one) for i, one in enumerate(best)]
    own = result.own
    if own is not None:
        from railwright.search.serving.words import layout_words

        ahead = f" behind {own.prefill_replicas} that prefill" if own.prefill_replicas else ""
        plan = f"{own.replicas} x {layout_words(result.job.layout)}{ahead}"
        values = {x.what: x.value for x in own.promises}
        cells = [show_time(values[w]) if w in values else "" for w in ("TTFT", "TPOT")]
        title = "as written" if own.kept else "as written, MISSED"
        per_gpu = (result.best.per_gpu * result.best.plan.gpus) / own.gpus if own.kept else 0.0
        paces = (f"{per_gpu or own.tokens_per_second_per_gpu:,.0f}", f"{own.tokens_per_second_per_user:,.1f}")
        rows.append((title, str(own.gpus), plan, *cells, *paces))
    print_table(header, rows)
    if effort.untried:
        typer.echo(f"and {effort.untried} as cheap that were not simulated")
    if len(result.front) > 1:
        typer.echo("\nWhat more GPUs buy at this load:\n")
        print_table(header, [_row("", one) for one in result.front])
    typer.echo("")
    for sentence in result.words:
        typer.echo(sentence)
    found = result.result
    joules = found.power / result.best.verdict.tokens
    typer.echo(
        f"Power {show_power(found.power)} at the servers' maximum, {joules:.2g} J per output token."
        + (f" A million output tokens cost {dollars[0]:.2f} USD ({dollars[1]})." if dollars else "")
    )


def _row(title: str, one: Point) -> tuple[str, ...]:
    from railwright.search.serving.words import plan_words
    from railwright.units import show_time

    values = one.verdict.values
    cells = [show_time(values[w]) if w in values else "" for w in ("TTFT", "TPOT")]
    pace = (f"{one.per_gpu:,.0f}", f"{one.per_user:,.1f}")
    return (title, str(one.plan.gpus), plan_words(one.plan), *cells, *pace)


def plain(
    result: ServingSearchResult, top: int = 10, dollars: tuple[float, str] | None = None
) -> dict[str, Any]:
    """The result in base units, for a script."""
    from railwright.cli.serve import plain as served

    effort = result.effort
    return {
        "job": result.job.name,
        "gpus": result.best.plan.gpus,
        "best": _point(result.best),
        "best_in_full": served(result.result),
        "next": [_point(p) for p in result.next[: top - 1]],
        "front": [_point(p) for p in result.front],
        "own": None if result.own is None else served(result.own),
        "own_refused": result.own_refused,
        "ruled_out": dict(result.ruled_out),
        "nearest": None if result.nearest is None else _point(result.nearest),
        "rate_at_most": result.rate,
        "rate_limit": result.limit,
        "joules_per_output_token": result.result.power / result.best.verdict.tokens,
        "usd_per_million_output_tokens": dollars[0] if dollars else None,
        "settings": effort.settings,
        "simulated": effort.simulated,
        "untried": effort.untried,
        "words": list(result.words),
    }


def _point(one: Point) -> dict[str, Any]:
    strain = one.verdict.strain
    return {
        "gpus": one.plan.gpus,
        "replicas": one.plan.replicas,
        "replica": _setting(one.plan.setting),
        "prefill_replicas": one.plan.prefill_replicas,
        "prefill": None if one.plan.prefill is None else _setting(one.plan.prefill),
        "latency_seconds": one.verdict.values,
        "strain": strain if strain < float("inf") else None,
        "missed": one.verdict.failed,
        "output_tokens_per_second_per_gpu": one.per_gpu,
        "output_tokens_per_second_per_user": one.per_user,
    }


def _setting(one: Setting) -> dict[str, Any]:
    return {
        **one.layout.model_dump(),
        "max_batched_tokens": one.max_batched_tokens,
        "max_requests": one.max_requests,
        "chunked_prefill": one.chunked,
        "weights": one.weights,
        "kv": one.kv,
    }
