"""How far to trust the page: assumptions, expected error, what is not modelled, how it was made."""

from __future__ import annotations

import json

from railwright.report.parts.markup import Child, Html, join, tag, unbroken
from railwright.report.parts.table import data_table
from railwright.report.words.figures import job_names, job_of, op_title, served_bands
from railwright.study.result import Result
from railwright.units import show_size, show_time

BASIS = "error band: "
"""How a note of a collective begins that says what its band was made of."""


def sources_section(result: Result) -> Html | None:
    """Every constant and choice the answer rests on."""
    if not result.assumptions:
        return None
    cells: list[list[Child]] = [
        [a.name, unbroken(a.value), tag("span", unbroken(a.source), class_="soft wrap")]
        for a in result.assumptions
    ]
    return data_table(
        "Constants and choices this answer rests on", ("assumption", "value", "source"), cells, wide=(1, 2)
    )


def error_section(result: Result) -> Html:
    """The bands that measurements should fall in, what each was made of, and the warnings."""
    rows = [*_steps(result), *_collectives(result), *_served(result)]
    parts: list[Html] = []
    if rows:
        caption = "Measured over predicted time: the band that 80 % of measurements are expected in"
        heads = ("prediction", "measured ÷ predicted", "made of")
        parts.append(data_table(caption, heads, rows, numbers=(1,), wide=(2,)))
    else:
        parts.append(tag("p", "Nothing was predicted, so there is no error to state."))
    notes = dict.fromkeys([*result.warnings, *_notes(result)])
    if notes:
        parts += [tag("h3", "Warnings and notes"), tag("ul", *(tag("li", note) for note in notes))]
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
            tag(
                "details", tag("summary", "The study, all defaults filled in"), tag("pre", tag("code", study))
            ),
        ]
    )


def _band(low: float, high: float) -> str:
    return f"{low:.2f} to {high:.2f}"


def _steps(result: Result) -> list[list[Child]]:
    """A row for each job, or for each band where its variants differ in GPUs or formats."""
    rows: dict[tuple[str, str, str], None] = {}
    for name in job_names(result):
        for variant in result.variants:
            job = job_of(variant, name)
            if job is not None and (step := job.step) is not None:
                band = _band(step.error_low, step.error_high)
                rows[(f"step time of {name}", band, step.error_source)] = None
    return [[what, band, _soft(source)] for what, band, source in rows]


def _collectives(result: Result) -> list[list[Child]]:
    """A row for each collective, algorithm and band, with the sizes it holds for."""
    sizes: dict[tuple[str, str, str, str], list[float]] = {}
    for variant in result.variants:
        for curve in variant.curves:
            for p in curve.points:
                made = "; ".join(n.removeprefix(BASIS) for n in p.notes if n.startswith(BASIS))
                key = (op_title(p.op), p.algorithm, _band(p.error_low, p.error_high), made)
                sizes.setdefault(key, []).append(p.size)
    ordered = sorted(sizes.items(), key=lambda item: (item[0][0], min(item[1])))
    return [
        [f"{op} ({algorithm}), {_range(found)}", band, _soft(made)]
        for (op, algorithm, band, made), found in ordered
    ]


def _served(result: Result) -> list[list[Child]]:
    """A row for each mean latency of each serving job."""
    made = _soft("published means of served models (docs/validation.md)")
    return [
        [f"mean {what} of {job}", _band(low, high), made] for what, job, low, high in served_bands(result)
    ]


def _range(sizes: list[float]) -> str:
    low, high = show_size(min(sizes)), show_size(max(sizes))
    return low if low == high else f"{low} to {high}"


def _soft(text: str) -> Html:
    return tag("span", text, class_="soft")


def _notes(result: Result) -> list[str]:
    """Notes of the collectives, each once, but for those that say what a band was made of."""
    found: dict[str, None] = {}
    for variant in result.variants:
        for curve in variant.curves:
            for p in curve.points:
                notes = (note for note in p.notes if not note.startswith(BASIS))
                found |= dict.fromkeys(f"{op_title(p.op)}: {note}" for note in notes)
    return list(found)
