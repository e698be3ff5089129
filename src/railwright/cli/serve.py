"""`railwright serve`: time to the first token, time per token and tokens per second of a serving job."""

from __future__ import annotations

import json
from dataclasses import asdict
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from railwright.cli.studies import open_study
from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.serving.result import Parts, ServingResult
    from railwright.serving.simulator.metrics import Distribution
    from railwright.spec.serving import ServingJob
    from railwright.spec.study import Study


def add_to(app: typer.Typer) -> None:
    """Hang the command of this file on the application."""
    app.command("serve")(serve)


def serve(
    study: Annotated[
        str, typer.Argument(metavar="STUDY", help="Study file with a serving job, or template.")
    ],
    job: Annotated[
        str | None, typer.Option("--job", help="Which serving job of the study; default: the first.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures, in base units.")
    ] = None,
    timeline: Annotated[
        Path | None,
        typer.Option(
            "--timeline", metavar="FILE", help="Write steps, queues and requests for Perfetto (JSON)."
        ),
    ] = None,
    lose: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N@FROM-UNTIL",
            help="Replica N is lost for a while, e.g. 0@10-60 (seconds); repeatable. Prefill ones first.",
        ),
    ] = None,
) -> None:
    """Say what users of a served model see.

    TTFT, time per token and their percentiles, tokens a second, whether the SLO is kept, where the time goes
    and whether the network is in the way.
    """
    from railwright.export.files import refuse_existing
    from railwright.measure.study_machine import study_machine
    from railwright.model import load_model
    from railwright.serving.predict import serve as predict

    refuse_existing([file for file in (as_json, timeline) if file is not None])
    asked = open_study(study)
    chosen = _job(asked, job, study)
    arch = load_model(chosen.model)
    machine = study_machine(asked)
    folder = Path(study).parent if Path(study).exists() else None
    result = predict(chosen, arch, machine, outages=[_outage(text) for text in lose or ()], folder=folder)
    _show(result, arch.is_moe)
    if as_json is not None:
        from railwright.report.files.plain import finite

        _write(as_json, finite(plain(result)))
    if timeline is not None:
        from railwright.serving.simulator.metrics import perfetto

        _write(timeline, perfetto(result.run))


def plain(result: ServingResult) -> dict[str, Any]:
    """All figures of a result but the requests', in base units."""
    return {
        "job": result.name,
        "model": result.model,
        "engine": result.engine,
        "gpu": result.gpu,
        "gpus": result.gpus,
        "replicas": result.replicas,
        "prefill_replicas": result.prefill_replicas,
        "requests": result.requests,
        "ttft_seconds": asdict(result.ttft),
        "tpot_seconds": asdict(result.tpot),
        "itl_seconds": asdict(result.itl),
        "end_to_end_seconds": asdict(result.end_to_end),
        "throughput": asdict(result.throughput),
        "output_tokens_per_second": result.tokens_per_second,
        "output_tokens_per_second_per_gpu": result.tokens_per_second_per_gpu,
        "output_tokens_per_second_per_user": result.tokens_per_second_per_user,
        "slo_kept": result.kept,
        "slo": [{**asdict(p), "kept": p.kept} for p in result.promises],
        "requests_within_slo": result.good,
        "goodput_requests_per_second": result.goodput,
        "kv_cache": asdict(result.cache),
        "ttft_parts_seconds": result.ttft_parts.parts,
        "tpot_parts_seconds": result.tpot_parts.parts,
        "power_watts": result.power,
        "joules_per_output_token": result.joules_per_token,
        "kernels": asdict(result.kernels),
        "words": list(result.words),
    }


def _job(study: Study, name: str | None, file: str) -> ServingJob:
    if not study.serving:
        raise RailwrightError(f"{file}: has no serving job; write one under `serving:` (docs/serving)")
    if name is None:
        return study.serving[0]
    for one in study.serving:
        if one.name == name:
            return one
    known = [one.name for one in study.serving]
    hint = nearest(name, known) or f"; known are {', '.join(known)}"
    raise RailwrightError(f"--job: there is no serving job '{name}'{hint}")


def _outage(text: str) -> Any:
    from railwright.serving.simulator.fleet import Outage

    replica, _, span = text.partition("@")
    start, _, end = span.partition("-")
    try:
        return Outage(int(replica), float(start), float(end))
    except ValueError:
        raise RailwrightError(
            f"--lose '{text}': write the replica's number and its seconds, like 0@10-60"
        ) from None


def _show(result: ServingResult, moe: bool) -> None:
    from railwright.cli.tables import print_table
    from railwright.serving.engine.bands import error_bands
    from railwright.units import show_power, show_time

    typer.echo(
        f"{result.name}: {result.model} on {result.gpus} {result.gpu}, {result.engine}, "
        f"{result.requests:,} requests"
    )
    typer.echo("")
    bands = error_bands(result.engine, moe)
    rows = (
        ("time to first token", result.ttft, "TTFT"),
        ("time per token", result.tpot, "TPOT"),
        ("between tokens", result.itl, ""),
        ("end to end", result.end_to_end, ""),
    )
    header = ("", "mean", "p50", "p90", "p99", "promised")
    print_table(header, [_row(result, title, latency) for title, latency, _ in rows], right=True)
    known = [
        f"{show_time(latency.mean * low)} to {show_time(latency.mean * high)} ({title})"
        for title, latency, short in rows
        for low, high in ([bands[short]] if short in bands and not isnan(latency.mean) else [])
    ]
    if known:
        typer.echo(f"\n80 % of published means lie, where these are predicted, in {', '.join(known)}.")
    typer.echo("")
    done = result.throughput
    pairs = [
        ("output tokens/s", f"{result.tokens_per_second:,.0f}"),
        ("per GPU", f"{result.tokens_per_second_per_gpu:,.0f}"),
        ("per user", f"{result.tokens_per_second_per_user:,.1f}".replace("inf", "-")),
        ("requests/s", f"{done.requests:.3g}"),
    ]
    if result.goodput is not None:
        pairs.append(
            ("within the SLO", f"{result.goodput:.3g} requests/s ({100 * (result.good or 0):.1f} %)")
        )
    pairs += [
        ("requests decoding", f"{done.running:.1f} per replica; its GPUs are busy {100 * done.busy:.0f} %"),
        (
            "keys and values",
            f"{100 * result.cache.peak:.0f} % of {result.cache.tokens:,} tokens in use at most; "
            f"{100 * result.cache.hits:.0f} % of prompts cached; {result.cache.preemptions} preemptions",
        ),
        (
            "power",
            f"{show_power(result.power)} at the servers' maximum, {result.joules_per_token:.2g} J per token",
        ),
        ("kernels", result.kernels.line()),
    ]
    for name, value in pairs:
        typer.echo(f"{name:<18} {value}")
    if result.kernels.note:
        typer.echo(f"{'note':<18} {result.kernels.note}")
    typer.echo("")
    for title, parts in (("TTFT", result.ttft_parts), ("time per token", result.tpot_parts)):
        typer.echo(f"{title}: {_parts(parts)}" if parts.parts else f"{title}: no answer has a second token")
    typer.echo("")
    for sentence in result.words:
        typer.echo(sentence)


def _row(result: ServingResult, title: str, latency: Distribution) -> tuple[str, ...]:
    from railwright.units import show_time

    every = (latency.mean, latency.p50, latency.p90, latency.p99)
    values = ["-" if isnan(v) else show_time(v) for v in every]
    names = {"time to first token": "TTFT", "time per token": "TPOT", "end to end": "end to end"}
    promised = [p for p in result.promises if p.what == names.get(title)]
    verdict = [
        f"{show_time(p.bound)} at p{p.percentile:g}: {'kept' if p.kept else 'MISSED'}" for p in promised
    ]
    return (title, *values, " ".join(verdict))


def _parts(parts: Parts) -> str:
    from railwright.units import show_time

    ranked = sorted(parts.parts.items(), key=lambda part: -part[1])
    return ", ".join(f"{name} {show_time(seconds)}" for name, seconds in ranked if seconds > 0.0)


def _write(file: Path, content: Any) -> None:
    from railwright.export.files import write_new

    write_new({file: json.dumps(content, indent=1) + "\n"})
    typer.echo(f"wrote {file}")
