"""A training job's log on the command line: `compare` of its steps."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import typer

from railwright.errors import RailwrightError
from railwright.units import GIB

if TYPE_CHECKING:
    from railwright.measure.compare.steps import ComparedSteps
    from railwright.spec.study import Study


def show_steps(file: Path, study: Study, job: str | None, as_json: bool, html: Path | None) -> None:
    """A log's steps beside the predicted one, as text or JSON."""
    from railwright.cli.jobs import training_job
    from railwright.measure.compare.steps import compare_steps
    from railwright.measure.steplog import read_step_log
    from railwright.measure.study_machine import study_machine
    from railwright.model import load_model

    if html is not None:
        raise RailwrightError(
            "--html draws curves of collectives; a training log's steps have none; leave it out"
        )
    log = read_step_log(file)
    chosen = training_job(study, job, "a training log")
    found = compare_steps(log, chosen, load_model(chosen.model), study_machine(study))
    if as_json:
        typer.echo(json.dumps(plain(found), indent=1, ensure_ascii=False))
        return
    _show(found)


def plain(found: ComparedSteps) -> dict[str, Any]:
    """Compared steps in base units."""
    step, spread = found.predicted, found.spread
    return {
        "file": found.log.file,
        "framework": found.log.framework,
        "job": found.job,
        "steps": {"first": found.first, "last": found.last, "lines": found.count},
        "step_seconds": {
            "measured": found.measured,
            "predicted": step.step_time,
            "low": step.step_time * step.error_low,
            "high": step.step_time * step.error_high,
        },
        "verdict": found.verdict,
        "reserved_bytes": None
        if found.held is None
        else dict(zip(("measured", "predicted"), found.held, strict=True)),
        "flop_per_gpu": None
        if found.flops is None
        else {"logged": found.flops.logged, "counted": dict(found.flops.counted)},
        "spread": {
            "moving_averages": found.log.blurred,
            "p95_over_median": spread.p95,
            "drift": spread.drift,
            "slow_steps": spread.slow,
            "slow_every": spread.every,
            "time_lost_in_slow_steps": spread.lost,
        },
        "explanations": [
            {"change": one.name, "what": one.why, "predicted_seconds": one.seconds, "fits": one.fits}
            for one in found.explanations
        ],
        "words": _words(found),
    }


def _show(found: ComparedSteps) -> None:
    from railwright.cli.tables import print_table
    from railwright.units import number, show_time

    step = found.predicted
    steps = f"steps {found.first} to {found.last}" if found.last > found.first else f"step {found.first}"
    typer.echo(
        f"{found.log.framework}: {steps} "
        f"({number(found.count, 'line')} of the log), beside training job '{found.job}'\n"
    )
    tokens = step.tokens / found.measured
    rows = [
        (
            "step, median",
            show_time(found.measured),
            show_time(step.step_time),
            f"{found.ratio:.2f}",
            found.verdict,
        ),
        ("80 % of measurements", "", _range(found), "", ""),
        ("tokens/s", f"{tokens:,.0f}", f"{step.tokens_per_second:,.0f}", f"{1 / found.ratio:.2f}", ""),
    ]
    if found.held is not None:
        ran, ours = found.held
        rows.append(
            ("reserved memory", f"{ran / GIB:.1f} GiB", f"{ours / GIB:.1f} GiB", f"{ran / ours:.2f}", "")
        )
    print_table(("", "measured", "predicted", "ratio", "verdict"), rows)
    if found.explanations:
        typer.echo("")
        print_table(
            ("predicted under one change", "step", "over measured", "what changes"),
            [
                (one.name, show_time(one.seconds), f"{one.seconds / found.measured:.2f}", one.why)
                for one in found.explanations
            ],
        )
    typer.echo("")
    for sentence in _words(found):
        for line in wrap(sentence, 80, initial_indent="- ", subsequent_indent="  "):
            typer.echo(line)


def _range(found: ComparedSteps) -> str:
    from railwright.units import show_time

    step = found.predicted
    return f"{show_time(step.step_time * step.error_low)} to {show_time(step.step_time * step.error_high)}"


def _words(found: ComparedSteps) -> list[str]:
    """What the comparison says, in sentences."""
    from railwright.measure.compare.step_words import words

    return words(found)
