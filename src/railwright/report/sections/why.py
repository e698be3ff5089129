"""What moves the answer, published effects, the step's communication and its memory."""

from __future__ import annotations

from railwright.report.parts.charts import PART_LOOKS, colour_key, diverging_bar, part_looks, stacked_bar
from railwright.report.parts.markup import Child, Html, join, tag, unbroken
from railwright.report.parts.table import data_table
from railwright.report.words.figures import (
    critical_sentences,
    job_names,
    job_of,
    largest_first,
    letter,
    main_change,
    op_title,
    show_effect,
    told_first,
)
from railwright.report.words.host import in_host_memory
from railwright.study.result import Result
from railwright.training.lanes.critical import CriticalPath
from railwright.training.lanes.result import StepResult, UsedCollective
from railwright.training.memory.cached import Reserved
from railwright.units import show_change, show_count, show_rate, show_share, show_size, show_time

MOST_PARTS = 12
"""Parts of a critical path that are listed; the rest is summed up."""


def sensitivity_section(result: Result) -> Html | None:
    """The study's changed assumptions, then the changes anyone would ask about; the largest effect first."""
    tables = [table for table in (_assumptions(result), _what_ifs(result)) if table is not None]
    if tables and any(step.unit == "tokens" for _, _, step in _first_steps(result)):
        text = (
            "Other layouts: 'railwright search' finds the fastest of all and says why they beat this one; "
            "--framework and --space narrow it."
        )
        tables.append(tag("p", text, class_="note"))
    return join(tables) if tables else None


def _assumptions(result: Result) -> Html | None:
    """One changed assumption a row."""
    rows = largest_first(result.sensitivity)
    if not rows:
        return None
    reach = max((abs(row.effect) for row in rows if row.effect is not None), default=0.0)
    cells: list[list[Child]] = []
    for row in rows:
        why = tag("span", f" {row.why}", class_="soft") if row.why else None
        name = join([row.name, why])
        if row.effect is None or row.step_time is None:
            cells.append([name, "–", tag("span", row.note or "cannot run", class_="soft"), "–", "–"])
            continue
        bar = tag(
            "div",
            diverging_bar(row.effect, reach, label=f"{row.name}: {show_change(row.effect)}"),
            class_="diverge",
        )
        gain = show_change(row.pxn_gain) if row.pxn_gain is not None else "–"
        cells.append([name, show_change(row.effect), bar, show_time(row.step_time), gain])
    job = next(iter(job_names(result)), "the first job")
    heads = ("changed assumption", "throughput", "loss · gain", "step time", "PXN gains then")
    caption = f"One assumption changed at a time: throughput of {job} against the study as written"
    return data_table(caption, heads, cells, numbers=(1, 3, 4), wide=(2,))


def _what_ifs(result: Result) -> Html | None:
    """One change a row, each simulated again: throughput, step, and the shares that moved."""
    rows = largest_first(result.what_ifs)
    if not rows:
        return None
    saved = {row.name: 1 - 1 / (1 + row.effect) for row in rows if row.effect is not None}
    reach = max(map(abs, saved.values()), default=0.0)
    cells: list[list[Child]] = []
    for row in rows:
        name = join([row.name, tag("span", f" {row.why}", class_="soft")])
        if row.effect is None or row.step_time is None:
            cells.append([name, "–", tag("span", row.note or "cannot run", class_="soft"), "–", "–"])
            continue
        label = f"{row.name}: {show_change(-saved[row.name])} of the step's time"
        bar = tag("div", diverging_bar(saved[row.name], reach, label=label), class_="diverge")
        cells.append([name, show_effect(row.effect), bar, show_time(row.step_time), main_change(row)])
    job = next(iter(job_names(result)), "the first job")
    heads = ("what if", "throughput", "step longer · shorter", "step time", "share that moves most")
    base = result.variants[result.recommended].name if result.variants else ""
    against = f"'{base}'" if len(result.variants) > 1 else "the study as written"
    caption = f"What if: one thing changed and {job} simulated again, against {against}"
    return data_table(caption, heads, cells, numbers=(1, 3, 4), wide=(2,))


def critical_section(result: Result) -> Html | None:
    """What sets the length of a step: sentences, and what the path consists of."""
    parts: list[Html] = []
    sentences = critical_sentences(result)
    for found in sentences:
        if len(sentences) > 1:
            parts.append(tag("h3", f"Job: {found.job}"))
        who = f"{found.job} on {letter(found.variant)} {result.variants[found.variant].name}"
        parts.append(tag("p", unbroken(" ".join(found.told))))
        rows = _path_rows(found.path)
        several = len({where for where, _, _, _ in rows}) > 1
        cells: list[list[Child]] = [
            [
                what,
                *([where.replace(" ", "\u00a0")] if several else []),
                show_time(share * found.path.span),
                show_share(share),
                stacked_bar([(f"k-{lane}", share, what)], 1.0, label=f"{what}: {show_share(share)}"),
            ]
            for where, what, lane, share in rows[:MOST_PARTS]
        ]
        heads = ("task", *(["where"] if several else []), "on the path", "of the step", "")
        numbers = (2, 3) if several else (1, 2)
        caption = f"{who}: the chain of tasks that sets the step's length; its parts add up to the step"
        parts.append(data_table(caption, heads, cells, numbers=numbers, wide=(len(heads) - 1,)))
        if len(rows) > MOST_PARTS:
            rest = sum(share for _, _, _, share in rows[MOST_PARTS:])
            together = show_share(rest) if rest >= 0.0005 else "less than 0.1 %"
            parts.append(tag("p", f"All smaller parts together: {together}.", class_="note"))
    if any(lane == "host" for found in sentences for _, _, lane, _ in _path_rows(found.path)):
        text = (
            "Kernel launches are on the path where the GPU runs what was launched last; it may compute "
            "meanwhile, so their share is larger than the host's exposed time under 'Where the time goes'."
        )
        parts.append(tag("p", text, class_="note"))
    if parts:
        whose = f" of {sentences[0].job}" if len(sentences) > 1 else ""
        text = (
            f"The path{whose} is a process of its own in trace.json; its tasks are marked 'critical' there."
        )
        parts.append(tag("p", text, class_="note"))
    return join(parts) if parts else None


def _path_rows(path: CriticalPath) -> list[tuple[str, str, str, float]]:
    """(where, what, lane, share of the step): the main stage and all others together, the largest first."""
    shares: dict[tuple[str, str, str], float] = {}
    for p in path.parts:
        key = (f"stage {p.rank}" if p.rank == path.main else "other stages", p.what, p.lane)
        shares[key] = shares.get(key, 0.0) + p.share
    return sorted(((*key, share) for key, share in shares.items()), key=lambda row: (-row[3], row[:3]))


def published_section(result: Result) -> Html | None:
    """What others measured beside what this study predicts."""
    if not result.published:
        return None
    cells: list[list[Child]] = [
        [
            p.name,
            p.published,
            tag("strong", unbroken(p.predicted)),
            p.why,
            tag("span", p.source, class_="soft wrap"),
        ]
        for p in result.published
    ]
    heads = ("effect", "published", "predicted here", "why", "source")
    parts = [data_table("Published effects and this study's prediction", heads, cells, wide=(3, 4))]
    names = list(dict.fromkeys(name for p in result.published for name, _ in p.under))
    if names:
        rows: list[list[Child]] = [
            [name, *(dict(p.under).get(name, "") for p in result.published)] for name in names
        ]
        caption = "The same predictions with one assumption changed at a time"
        numbers = range(1, len(result.published) + 1)
        parts.append(data_table(caption, ("assumption", *(p.name for p in result.published)), rows, numbers))
    return join(parts)


def used_section(result: Result) -> Html | None:
    """Every kind of communication that a step of the recommended variant makes."""
    parts: list[Html] = []
    for name, who, step in _first_steps(result):
        if not step.collectives:
            continue
        cells: list[list[Child]] = []
        for used, count, time in _alike(step.collectives):
            p = used.prediction
            groups = f" × {show_count(p.groups)} groups" if p.groups > 1 else ""
            what = tag("div", f"{op_title(p.op)}, {p.ranks} ranks{groups}", class_="soft")
            cells.append(
                [
                    join([used.purpose, what]),
                    show_size(p.size),
                    show_count(count),
                    f"{p.algorithm}/{p.protocol}",
                    show_time(time / count) if count else show_time(p.time),
                    show_time(time),
                    show_rate(p.busbw),
                    p.bottleneck.name if p.bottleneck is not None else "–",
                ]
            )
        heads = (
            "purpose",
            "size",
            "times",
            "algorithm",
            "each",
            "in all",
            "bus bandwidth",
            "busiest link",
        )
        caption = f"{name} on {who}: what one rank communicates in a step, before any overlap"
        parts.append(data_table(caption, heads, cells, numbers=(1, 2, 4, 5, 6), wide=(7,)))
    return join(parts) if parts else None


def memory_section(result: Result) -> Html | None:
    """Peak memory of the fullest GPU, by what fills it, and the peaks of all pipeline stages."""
    parts: list[Html] = []
    for name, who, step in _first_steps(result):
        m = step.memory
        held = _reserved(result, name)
        # Smaller parts than there are colours for are grey.
        largest = sorted(m.parts, key=lambda part: -m.parts[part])[: len(PART_LOOKS)]
        looks = part_looks(part for part in m.parts if part in largest)
        pieces = [
            (looks.get(part, "m-rest"), size, f"{part}: {show_size(size)}") for part, size in m.parts.items()
        ]
        full = max(m.capacity, m.total)
        label = f"{show_size(m.total)} of {show_size(m.capacity)}"
        used = f"{show_size(m.total)} of {show_size(m.capacity)}, {show_share(m.total / m.capacity)}"
        parts += [
            tag("p", tag("strong", used), f" on the fullest GPU: {name} on {who}."),
            tag("figure", stacked_bar(pieces, full, label=label)),
            colour_key((look, tip) for look, _, tip in pieces),
        ]
        if held is not None:
            parts.append(tag("p", _allocator(held, len(m.stages))))
        if m.host is not None:
            parts.append(tag("p", in_host_memory(m.host)))
        if len(m.stages) > 1:
            cells = [
                (str(s.stage), show_size(s.total), show_share(s.total / m.capacity), s.moment, str(s.passes))
                for s in m.stages
            ]
            heads = ("stage", "peak", "of the GPU", "at", "forward passes held")
            caption = f"{name} on {who}: the peak of one GPU of every pipeline stage"
            parts.append(data_table(caption, heads, cells, numbers=(1, 2, 4)))
    return join(parts) if parts else None


def _reserved(result: Result, name: str) -> Reserved | None:
    """What PyTorch's allocator holds for a job on the recommended variant."""
    job = job_of(result.variants[result.recommended], name)
    return None if job is None else job.reserved


def _allocator(held: Reserved, stages: int) -> str:
    where = f"a GPU of stage {held.stage}" if stages > 1 else "it"
    told = (
        f"PyTorch's allocator holds {show_size(held.reserved)}, {show_size(held.holes)} of them in holes "
        f"between tensors; with CUDA and NCCL, nvidia-smi shows {show_size(held.reserved + held.system)} of "
        f"{where} in use."
    )
    if held.growing < held.reserved:
        told += f" With expandable_segments:True it would be {show_size(held.growing + held.system)}."
    return told


def _alike(collectives: tuple[UsedCollective, ...]) -> list[tuple[UsedCollective, float, float]]:
    """(one of them, times a step, time in all [s]) of those that read the same, the longest in all first.

    The buckets of a gradient differ by a few bytes; a reader sees the same row twice and wonders why.
    """
    rows: dict[tuple[object, ...], tuple[UsedCollective, float, float]] = {}
    for used in collectives:
        p = used.prediction
        size = show_size(p.size)
        key = (used.purpose, p.op, size, p.ranks, p.groups, p.algorithm, p.protocol)
        first, count, time = rows.get(key, (used, 0.0, 0.0))
        rows[key] = (first, count + used.count, time + used.count * p.time)
    return sorted(rows.values(), key=lambda row: -row[2])


def _first_steps(result: Result) -> list[tuple[str, str, StepResult]]:
    """(job, variant, step) of each job on the recommended variant, or the first where it runs."""
    found = []
    for name in job_names(result):
        for index in told_first(result):
            job = job_of(result.variants[index], name)
            if job is not None and job.step is not None:
                found.append((name, f"{letter(index)} {result.variants[index].name}", job.step))
                break
    return found
