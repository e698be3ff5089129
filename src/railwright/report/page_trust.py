"""How far to trust the page: assumptions, expected error, what is not modelled, how it was made."""

from __future__ import annotations

import json

from railwright.report.figures import job_names, op_title
from railwright.report.markup import Child, Html, join, tag
from railwright.report.page_table import data_table
from railwright.study.result import Result
from railwright.units import show_time


def sources_section(result: Result) -> Html | None:
    """Every constant and choice the answer rests on."""
    if not result.assumptions:
        return None
    cells: list[list[Child]] = [
        [a.name, a.value, tag("span", a.source, class_="soft wrap")] for a in result.assumptions
    ]
    return data_table(
        "Constants and choices this answer rests on", ("assumption", "value", "source"), cells, wide=(1, 2)
    )


def error_section(result: Result) -> Html:
    """The bands that measurements should fall in, and the warnings."""
    bands: dict[tuple[str, str], None] = {}
    for name in job_names(result):
        for variant in result.variants:
            for job in variant.jobs:
                if job.name == name and job.step is not None:
                    bands[(f"step time of {name}", _band(job.step.error_low, job.step.error_high))] = None
    for variant in result.variants:
        for curve in variant.curves:
            for p in curve.points:
                bands[(f"{op_title(p.op)} ({p.algorithm})", _band(p.error_low, p.error_high))] = None
    parts: list[Html] = []
    if bands:
        caption = "Measured over predicted time: the band that 80 % of measurements are expected in"
        parts.append(data_table(caption, ("prediction", "measured ÷ predicted"), list(bands), numbers=(1,)))
    else:
        parts.append(tag("p", "Nothing was predicted, so there is no error to state."))
    notes = dict.fromkeys([*result.warnings, *_notes(result)])
    if notes:
        parts += [
            tag("h3", "What the bands rest on, and warnings"),
            tag("ul", *(tag("li", note) for note in notes)),
        ]
    return join(parts)


def made_section(result: Result) -> Html:
    """Version, hash, models, and the study itself: enough to make it again."""
    rows: list[list[Child]] = [
        ["Railwright", result.version],
        ["study, SHA-256", tag("code", result.spec_hash, class_="wrap")],
        ["models", join([tag("div", model) for model in result.models_used])],
        ["time to compute", show_time(result.seconds)],
    ]
    study = json.dumps(result.study.model_dump(mode="json"), indent=2, ensure_ascii=False)
    return join(
        [
            data_table("What made this page", ("", ""), rows),
            tag("details", tag("summary", "The study, in base units"), tag("pre", tag("code", study))),
        ]
    )


def _band(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"


def _notes(result: Result) -> list[str]:
    """Notes of the collectives, each once."""
    found: dict[str, None] = {}
    for variant in result.variants:
        for curve in variant.curves:
            for p in curve.points:
                found |= dict.fromkeys(f"{op_title(p.op)}: {note}" for note in p.notes)
    return list(found)
