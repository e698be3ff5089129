"""Load generators' results on the command line: `compare` and `calibrate` of serving jobs."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer

from railwright.errors import RailwrightError

if TYPE_CHECKING:
    from railwright.measure.compare.serving import ComparedRun
    from railwright.spec.study import Study


def show_compared(file: Path, study: Study, job: str | None, as_json: bool, html: Path | None) -> None:
    """Each run of a result file beside its prediction, as text or JSON."""
    from railwright.measure.compare.serving import compare_serving
    from railwright.measure.loadgen import read_results

    if html is not None:
        raise RailwrightError(
            "--html draws curves of collectives; a load generator's result has none; leave it out"
        )
    found = compare_serving(read_results(file), study, job)
    if as_json:
        typer.echo(json.dumps([plain(one) for one in found], indent=1, ensure_ascii=False))
        return
    for number, one in enumerate(found):
        if number:
            typer.echo("")
        _show(one)


def plain(one: ComparedRun) -> dict[str, Any]:
    """A compared run in base units."""
    run = one.run
    return {
        "file": run.file,
        "tool": run.tool,
        "run": run.label,
        "job": one.job,
        "load": one.load,
        "assumed": list(one.assumed),
        "latencies_seconds": [{**asdict(p), "ratio": p.ratio} for p in one.points],
        "output_tokens_per_second": None
        if one.tokens is None
        else dict(zip(("measured", "predicted"), one.tokens, strict=True)),
        "words": list(one.words),
    }


def _show(one: ComparedRun) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import show_time

    run = one.run
    title = f"{run.tool}{f', {run.label}' if run.label else ''}: {one.load}"
    typer.echo(f"{title}, beside serving job '{one.job}'")
    if one.assumed:
        typer.echo(f"not in the file, so as in the study: {', '.join(one.assumed)}")
    typer.echo("")
    rows = [
        (p.what, p.statistic, show_time(p.measured), show_time(p.predicted), f"{p.ratio:.2f}", p.verdict)
        for p in one.points
    ]
    if one.tokens is not None:
        measured, predicted = one.tokens
        rows.append(
            ("output", "tokens/s", f"{measured:,.0f}", f"{predicted:,.0f}", f"{measured / predicted:.2f}", "")
        )
    print_table(("", "", "measured", "predicted", "ratio", "verdict"), rows)
    typer.echo("")
    for sentence in one.words:
        for line in wrap(sentence, 80, initial_indent="- ", subsequent_indent="  "):
            typer.echo(line)


def fit_engine(files: list[str], study: Study, job: str | None, out: Path | None) -> None:
    """An engine profile fitted to load generators' results, and written where `out` says."""
    from railwright.measure.calibrate.serving import calibrate_engine
    from railwright.measure.loadgen import read_results

    runs = [run for file in files for run in read_results(Path(file))]
    found = calibrate_engine(runs, study, job)
    for line in found.lines():
        typer.echo(line)
    if out is None:
        return
    try:
        out.write_text(found.yaml(), encoding="utf-8")
    except OSError as error:
        raise RailwrightError(
            f"{out} cannot be written: {error.strerror or error}; name another file"
        ) from None
    typer.echo(f"\n{out}")
