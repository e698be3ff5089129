"""The page's first why: all variants beside each other, and the fabric of each drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from railwright.fabric.counts import Counts
from railwright.report.drawings.fabric import draw_fabric
from railwright.report.parts.charts import badge
from railwright.report.parts.markup import Html, join, tag, unbroken
from railwright.report.words.figures import (
    job_names,
    job_of,
    large_point,
    letter,
    same_fabric,
    show_tokens,
    small_point,
    sweeps,
)
from railwright.study.result import Result, VariantResult
from railwright.training.lanes.result import StepResult
from railwright.units import (
    show_amount,
    show_bit_rate,
    show_count,
    show_power,
    show_rate,
    show_share,
    show_size,
    show_time,
)

Row = tuple[str, Sequence[float | None], Callable[[float], str], int]
"""Name, a value per variant (None where there is none), how to print it, and whether more (+1)
or less (-1) is better (0: neither)."""

PART_ROWS: tuple[tuple[str, Callable[[Counts], float | None], Callable[[float], str], int], ...] = (
    ("leaves", lambda c: c.leaves, show_count, 0),
    ("spines", lambda c: c.spines, show_count, 0),
    ("cores", lambda c: c.cores, show_count, 0),
    ("switches", lambda c: c.switches, show_count, -1),
    ("cables", lambda c: c.cables, show_count, -1),
    ("optical transceivers", lambda c: c.optics, show_count, -1),
    ("switch power, at most", lambda c: None if c.unrated else c.switch_power, show_power, -1),
    ("switches on the longest path", lambda c: c.hops_max, show_count, -1),
    ("bisection, one direction", lambda c: c.bisection if c.servers > 1 else None, show_bit_rate, 1),
)
STEP_ROWS: tuple[tuple[str, Callable[[StepResult], float], Callable[[float], str], int], ...] = (
    ("step time", lambda s: s.step_time, show_time, -1),
    ("80 % of measurements from", lambda s: s.step_time * s.error_low, show_time, 0),
    ("80 % of measurements to", lambda s: s.step_time * s.error_high, show_time, 0),
    ("tokens/s", lambda s: s.tokens_per_second, show_tokens, 1),
    ("model FLOPs utilisation", lambda s: s.mfu, show_share, 1),
    ("exposed communication", lambda s: s.exposed_share, show_share, -1),
    ("time for all tokens, nothing failing", lambda s: s.time_to_train, show_time, -1),
    ("GPU hours for it", lambda s: s.gpu_hours, show_amount, -1),
    ("reads of the data set", lambda s: s.feed.read / s.step_time if s.feed else 0.0, show_rate, 0),
)


def variants_section(result: Result) -> Html | None:
    """One column per variant, one row per figure; the best of a row is bold."""
    if not result.variants:
        return tag("p", "This study has no result to compare.", class_="soft")
    heads = (
        tag("th", badge(i, letter(i)), tag("br"), v.name, scope="col", class_="n-head")
        for i, v in enumerate(result.variants)
    )
    body: list[Html] = []
    for name, rows in _groups(result):
        width = len(result.variants) + 1
        body.append(tag("tr", tag("th", name, colspan=width, scope="colgroup"), class_="part"))
        body += [_row(row) for row in rows]
    table = tag(
        "table",
        tag("caption", tag("span", _caption(result))),
        tag("thead", tag("tr", tag("th", ""), *heads)),
        tag("tbody", *body),
        class_="compare stick",
        style=f"min-width:{8 + 6 * len(result.variants)}rem;max-width:{14 + 12 * len(result.variants)}rem",
    )
    return join([_whys(result), tag("div", table, class_="scroll"), _impossible(result)])


def fabric_section(result: Result) -> Html | None:
    """Every distinct fabric drawn; the first is open."""
    drawn: list[tuple[int, VariantResult]] = []
    parts: list[Html] = [
        tag(
            "p",
            "A line is a bundle of cables, the wider the more; hover for counts. "
            "Colours are rails (the same NIC of every server); red is failed or slow.",
            class_="note",
        )
    ]
    for index, variant in enumerate(result.variants):
        if variant.fabric is None:
            continue
        twin = next(
            (i for i, v in drawn if v.fabric is not None and same_fabric(v.fabric, variant.fabric)), None
        )
        if twin is not None:
            same = tag("span", f"the same fabric as {letter(twin)}", class_="soft")
            parts.append(
                tag("p", badge(index, letter(index)), tag("strong", variant.name), same, class_="variant")
            )
            continue
        title = f"Fabric of {variant.name}: {_in_words(variant)}"
        picture = draw_fabric(variant.fabric, name=f"fabric-{index}", title=title)
        notes = join(tag("p", note, class_="note") for note in variant.notes)
        parts.append(
            tag(
                "details",
                tag(
                    "summary",
                    badge(index, letter(index)),
                    variant.name,
                    tag("span", _in_words(variant), class_="soft"),
                ),
                tag("figure", tag("div", picture, class_="scroll"), notes),
                class_="variant",
                data_print="",
                open="" if not drawn else None,
            )
        )
        drawn.append((index, variant))
    return join(parts) if drawn else None


def _caption(result: Result) -> str:
    if len(result.variants) == 1:
        return "What the study as written takes, and what it reaches."
    return "Bold: the best of its row, where the variants differ."


def _groups(result: Result) -> list[tuple[str, list[Row]]]:
    counts = [v.counts for v in result.variants]
    parts: list[Row] = [
        (name, [None if c is None else of(c) for c in counts], show, better)
        for name, of, show, better in PART_ROWS
    ]
    groups = [("Parts", [row for row in parts if row[0] != "cores" or any(row[1])])]
    busbw: list[Row] = []
    for sweep in sweeps(result):
        curves = dict(sweep.curves)
        picks = (small_point, large_point)
        sizes = dict.fromkeys(pick(sweep.curves[0][1].points).size for pick in picks)
        for size in sizes:
            values = [
                next((p.busbw for p in curves[i].points if p.size == size), None) if i in curves else None
                for i in range(len(counts))
            ]
            busbw.append((f"{sweep.title}, {show_size(size)}", values, show_rate, 1))
    if busbw:
        groups.append(("Bus bandwidth", busbw))
    for name in job_names(result):
        found = [job_of(v, name) for v in result.variants]
        steps = [job.step if job is not None else None for job in found]
        unit = next((s.unit for s in steps if s is not None), "tokens")
        as_much = len({s.tokens for s in steps if s is not None}) <= 1
        rows: list[Row] = [
            # A step that gets less done is not better for being shorter.
            (
                title.replace("tokens", unit),
                [None if s is None else of(s) for s in steps],
                show,
                better if as_much or title != "step time" else 0,
            )
            for title, of, show, better in STEP_ROWS
        ]
        groups.append((f"Job: {name}", rows))
    return groups


def _row(row: Row) -> Html:
    """The best values are bold; what reads the same counts as the same."""
    name, values, show, better = row
    texts = ["–" if v is None else show(v) for v in values]
    known = [(better * v, text) for v, text in zip(values, texts, strict=True) if v is not None]
    best = max(known)[1] if better and len({text for _, text in known}) > 1 else None
    cells = (tag("td", text, class_="best" if text == best else None) for text in texts)
    return tag("tr", tag("th", unbroken(name), scope="row"), *cells)


def _whys(result: Result) -> Html:
    lines = [
        tag("p", badge(i, letter(i)), tag("strong", v.name), f": {v.why}" if v.why else "", class_="why")
        for i, v in enumerate(result.variants)
        if v.why and len(result.variants) > 1
    ]
    return join(lines)


def _impossible(result: Result) -> Html:
    """Variants and jobs that cannot work, with their reasons."""
    lines = []
    for index, variant in enumerate(result.variants):
        reasons = [variant.infeasible] if variant.infeasible else []
        reasons += [f"{job.name}: {job.infeasible}" for job in variant.jobs if job.infeasible]
        for reason in reasons:
            who = f"{variant.name} cannot work: "
            lines.append(tag("p", badge(index, letter(index)), tag("strong", who, class_="bad"), reason))
    return join(lines)


def _in_words(variant: VariantResult) -> str:
    """'rail-optimised, 30 servers, 8 leaves, 4 spines, 480 cables'."""
    assert variant.fabric is not None
    words = [variant.fabric.family]
    c = variant.counts
    if c is not None:
        words.append(f"{show_count(c.servers)} {'server' if c.servers == 1 else 'servers'}")
        for n, one, many in (
            (c.leaves, "leaf", "leaves"),
            (c.spines, "spine", "spines"),
            (c.cores, "core", "cores"),
        ):
            if n:
                words.append(f"{show_count(n)} {one if n == 1 else many}")
        words.append(f"{show_count(c.cables)} {'cable' if c.cables == 1 else 'cables'}")
    return ", ".join(words)
