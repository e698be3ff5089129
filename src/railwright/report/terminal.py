"""The summary in the terminal: the question, the answer, the variants, what moves the answer, the files."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from railwright.report.files.trace import traced
from railwright.report.words.figures import (
    critical_sentences,
    job_names,
    job_of,
    large_point,
    largest_first,
    letter,
    main_change,
    op_title,
    served_bands,
    show_band,
    show_effect,
    show_tokens,
    small_point,
    sweeps,
)
from railwright.report.words.host import in_host_memory
from railwright.report.words.money import money_words
from railwright.study.result import Result, VariantResult
from railwright.training.lanes.result import StepResult
from railwright.training.software.words import DEFAULT
from railwright.units import (
    number,
    show_amount,
    show_change,
    show_count,
    show_power,
    show_rate,
    show_share,
    show_size,
    show_time,
)

TOP_ROWS = 6

Cells = tuple[str, str, list[str]]
"""A variant's letter, what the row is called, and its figures."""


def summary(result: Result, console: Console, folder: str | Path | None = None) -> None:
    """Print what a person wants to know first; fits 80 columns, and reads as well in a pipe.

    folder  where `write` has put the files, when it has
    """
    console.print()
    console.print(Text(result.study.name, style="bold"))
    if result.study.question:
        console.print(Text(" ".join(result.study.question.split()), style="dim"))
    console.print()
    for nth, sentence in enumerate(result.answer):
        console.print(Text(sentence, style="bold" if nth == 0 else ""))
    _variants(result, console)
    _other_jobs(result, console)
    _whole_runs(result, console)
    _critical(result, console)
    _sensitivity(result, console)
    _what_ifs(result, console)
    _published(result, console)
    _rooms(result, console)
    _error(result, console)
    for warning in result.warnings:
        console.print(Text(f"! {warning}", style="yellow"))
    if folder is not None:
        console.print()
        console.print(Text("Files", style="bold"))
        about = {
            "report.html": "the whole report, for any browser",
            "result.json": "every number",
            "trace.json": _of_trace(result),
            "cables.csv": f"every cable{_on(result, result.recommended, ' of')}, port by port",
            "sweeps.csv": "every point of the curves" if sweeps(result) else "no points: no sweep runs",
        }
        width = max(len(str(Path(folder) / name)) for name in about)
        for name, what in about.items():
            file = f"  {Path(folder) / name!s:<{width}}"
            console.print(Text(file, style="cyan"), Text(f" {what}", style="dim"), soft_wrap=True)
    console.print()


def _of_trace(result: Result) -> str:
    """What the trace holds, and of a long step what it leaves out."""
    _, job = traced(result) or (0, None)
    if job is None or job.step is None:
        return "no events: no job runs"
    if job.step.timeline.coarse is None:
        return "one training step, for ui.perfetto.dev"
    begin, end = map(show_time, job.step.timeline.coarse)
    return f"one step for ui.perfetto.dev, whole passes {begin} to {end}"


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Rule(Text(text, style="bold"), align="left", style="dim"))


def _variants(result: Result, console: Console) -> None:
    """One row per variant: its parts, one collective small and large, the first job's step."""
    if not result.variants:
        return
    _heading(console, "Variants")
    jobs = job_names(result)
    swept = {s.op: s for s in reversed(sweeps(result))}
    shown = swept.get("all_to_all") or next(iter(sweeps(result)), None)
    curves = dict(shown.curves) if shown is not None else {}
    heads = ["switches", "cables"]
    picks = [small_point, large_point]
    if shown is not None:
        first = shown.curves[0][1].points
        # A sweep that ends at its small size has one column.
        picks = picks[: len({pick(first).size for pick in picks})]
        heads += [show_size(pick(first).size) for pick in picks]
    if jobs:
        heads += ["step", f"{_unit(result, jobs[0])}/s", "exposed"]
    rows: list[Cells] = []
    for index, variant in enumerate(result.variants):
        counts = variant.counts
        cells = [show_count(counts.switches), show_count(counts.cables)] if counts is not None else ["–", "–"]
        if shown is not None:
            points = curves[index].points if index in curves else ()
            cells += [show_rate(pick(points).busbw) if points else "–" for pick in picks]
        if jobs:
            cells += _job_cells(variant, jobs[0])
        rows.append((letter(index), variant.name, cells))
    _compared(heads, rows, console)
    about = [f"Sizes: {op_title(shown.op)} bus bandwidth at that total size."] if shown is not None else []
    if jobs and (shown is not None or len(jobs) > 1):
        about.append(f"Step, {_unit(result, jobs[0])}/s and exposed communication: {jobs[0]}.")
    if about:
        console.print(Text(" ".join(about), style="dim"))
    for index, variant in enumerate(result.variants):
        for reason in _reasons(variant):
            console.print(Text(f"{letter(index)} cannot work: {reason}", style="red"))


def _other_jobs(result: Result, console: Console) -> None:
    """The steps of every job but the first, which stands among the variants."""
    names = job_names(result)[1:]
    for unit in dict.fromkeys(_unit(result, name) for name in names):
        _heading(console, "Other jobs" if unit == "tokens" else f"Other jobs, by {unit}")
        rows = [
            (letter(index), name, _job_cells(variant, name))
            for name in names
            if _unit(result, name) == unit
            for index, variant in enumerate(result.variants)
        ]
        _compared(["step", f"{unit}/s", "exposed"], rows, console)


def _whole_runs(result: Result, console: Console) -> None:
    """What every job takes for its token budget, and what a GPU of it does and holds."""
    names = job_names(result)
    steps = [
        (letter(index), name, variant.name, job.step)
        for name in names
        for index, variant in enumerate(result.variants)
        if (job := job_of(variant, name)) is not None and job.step is not None
    ]
    if not steps:
        return
    _heading(console, "The whole run")
    heads = ["time", "80 % of measurements", "GPU hours", "MFU", "memory"]
    _compared(
        heads, [(mark, v if len(names) == 1 else name, _run_cells(s)) for mark, name, v, s in steps], console
    )
    budgets: dict[str, dict[str, None]] = {}
    for _, name, _, step in steps:
        budgets.setdefault(f"{show_count(step.tokens_total)} {step.unit}", {})[name] = None
    told = [f"{b} ({', '.join(of)})" for b, of in budgets.items()] if len(budgets) > 1 else list(budgets)
    # Variants may have other GPUs.
    held_by: dict[str, dict[str, None]] = {}
    for mark, _, _, step in steps:
        held_by.setdefault(show_size(step.memory.capacity), {})[mark] = None
    has = [f"{c} ({', '.join(of)})" for c, of in held_by.items()] if len(held_by) > 1 else list(held_by)
    console.print(
        Text(
            f"For {', '.join(told)}, nothing failing; memory of the fullest GPU, which has {', '.join(has)}.",
            style="dim",
        )
    )
    for name, held in {name: step.memory.host for _, name, _, step in steps if step.memory.host}.items():
        whose = f"{name}: " if len(names) > 1 else ""
        console.print(Text(whose + in_host_memory(held), style="dim"))
    for era, jobs in _eras(result).items():
        whose = f" of {', '.join(jobs)}" if len(jobs) < len(names) else ""
        default = ", the default" if era == DEFAULT else ""
        line = f"Software{whose}: {era}{default} (others: railwright catalog list software)."
        console.print(Text(line, style="dim"))


def _run_cells(step: StepResult) -> list[str]:
    band = show_band(step.time_to_train, step.error_low, step.error_high, show_time)
    size = show_size(step.memory.total)
    return [show_time(step.time_to_train), band, show_amount(step.gpu_hours), show_share(step.mfu), size]


def _eras(result: Result) -> dict[str, list[str]]:
    """Jobs of the recommended design by their software era."""
    found: dict[str, list[str]] = {}
    for job in result.design.jobs:
        found.setdefault(job.software, []).append(job.name)
    return found


def _compared(heads: list[str], rows: list[Cells], console: Console) -> None:
    """A row each, or a block each where a table would have no room for their names."""
    table = _side_by_side(heads, rows)
    if console.measure(table, options=console.options.update(max_width=1000)).minimum <= console.width:
        console.print(table)
    else:
        _one_by_one(heads, rows, console)


def _side_by_side(heads: list[str], rows: list[Cells]) -> Table:
    """A table; the names share what room the figures leave."""
    table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", collapse_padding=True)
    table.add_column("", no_wrap=True)
    table.add_column("", ratio=1, min_width=14)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for mark, name, cells in rows:
        table.add_row(Text(mark, style="bold cyan"), Text(name), *cells)
    return table


def _one_by_one(heads: list[str], rows: list[Cells], console: Console) -> None:
    """A block per row."""
    for mark, name, cells in rows:
        console.print(Text.assemble((mark, "bold cyan"), f" {name}"))
        block = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, show_header=False)
        block.add_column(style="dim", no_wrap=True)
        block.add_column(justify="right", no_wrap=True)
        for head, cell in zip(heads, cells, strict=True):
            block.add_row(f"  {head}", cell)
        console.print(block)


def _unit(result: Result, name: str) -> str:
    """What a step of a job counts: tokens or samples."""
    found = (job_of(variant, name) for variant in result.variants)
    return next((job.step.unit for job in found if job is not None and job.step is not None), "tokens")


def _job_cells(variant: VariantResult, name: str) -> list[str]:
    job = job_of(variant, name)
    if job is None or job.step is None:
        return ["–", "–", "–"]
    step = job.step
    return [show_time(step.step_time), show_tokens(step.tokens_per_second), show_share(step.exposed_share)]


def _reasons(variant: VariantResult) -> list[str]:
    """Why the variant, one of its sweeps or one of its jobs is impossible."""
    reasons = [variant.infeasible] if variant.infeasible else []
    if variant.fabric is not None:
        reasons += [note for note in variant.notes if note not in variant.fabric.notes]
    return reasons + [f"{job.name}: {job.infeasible}" for job in variant.jobs if job.infeasible]


def _sensitivity(result: Result, console: Console) -> None:
    rows = largest_first(result.sensitivity)
    if not rows:
        return
    _heading(console, "What moves the answer most")
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("changed assumption", ratio=1)
    table.add_column("throughput", justify="right", no_wrap=True)
    table.add_column("PXN gain", justify="right", no_wrap=True)
    for row in rows[:TOP_ROWS]:
        effect = show_change(row.effect) if row.effect is not None else "cannot run"
        table.add_row(Text(row.name), effect, show_change(row.pxn_gain) if row.pxn_gain is not None else "–")
    console.print(table)
    if len(rows) > TOP_ROWS:
        console.print(Text(_more(len(rows) - TOP_ROWS), style="dim"))


def _critical(result: Result, console: Console) -> None:
    """What sets the length of the first job's step on the recommended variant, in sentences."""
    sentences = next(iter(critical_sentences(result)), None)
    if sentences is None:
        return
    _heading(console, f"What sets the step of {sentences.job}{_on(result, sentences.variant)}")
    for sentence in sentences.told:
        console.print(Text(sentence))


def _on(result: Result, index: int, how: str = ", with") -> str:
    """', with C', where there are several variants."""
    return f"{how} {letter(index)}" if len(result.variants) > 1 else ""


def _more(rows: int) -> str:
    """How many rows are not shown."""
    return f"{rows} smaller ones are in the report." if rows > 1 else "A smaller one is in the report."


def _what_ifs(result: Result, console: Console) -> None:
    rows = largest_first(result.what_ifs)
    if not rows:
        return
    _heading(console, f"What if{_on(result, result.recommended)}")
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("change", ratio=1)
    table.add_column("throughput", justify="right", no_wrap=True)
    table.add_column("most of it", justify="right", no_wrap=True)
    for row in rows[:TOP_ROWS]:
        effect = show_effect(row.effect) if row.effect is not None else "cannot run"
        table.add_row(Text(row.name), effect, main_change(row))
    console.print(table)
    if len(rows) > TOP_ROWS:
        console.print(Text(_more(len(rows) - TOP_ROWS), style="dim"))


def _published(result: Result, console: Console) -> None:
    if not result.published:
        return
    _heading(console, "Published effects")
    table = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, header_style="dim")
    table.add_column("effect", ratio=2)
    table.add_column("published", ratio=1)
    table.add_column("predicted here", ratio=1)
    for effect in result.published:
        table.add_row(Text(effect.name), Text(effect.published), Text(effect.predicted))
    console.print(table)


def _rooms(result: Result, console: Console) -> None:
    """Serving, failures, the room and money in their own sentences, where the study has them."""
    found, on = result.rooms, _on(result, result.recommended)
    for job in found.serving:
        _heading(console, f"Serving {job.name}{on}")
        for sentence in job.words:
            console.print(Text(sentence))
    if found.goodput is not None:
        _heading(console, f"Failures{on}")
        for sentence in found.goodput.answer:
            console.print(Text(sentence))
    if (site := found.site) is not None:
        _heading(console, f"The room{on}")
        text = (
            f"{number(len(site.racks), 'rack')} ({site.kinds_told}), {show_power(site.power)} of machines, "
        )
        console.print(Text(f"{text}{show_power(site.site_power)} of the site (PUE {site.pue:.2f})."))
    if found.money is not None:
        _heading(console, f"Money{on}")
        for sentence in money_words(found.money):
            console.print(Text(sentence))


def _error(result: Result, console: Console) -> None:
    """How far off the predictions may be: of each job's step, or else of the curves; of what users see."""
    _heading(console, "Expected error")
    points = [p for v in result.variants for curve in v.curves for p in curve.points]
    names: dict[tuple[float, float], list[str]] = {}
    for name in job_names(result):
        for variant in result.variants:
            if (job := job_of(variant, name)) is not None and job.step is not None:
                names.setdefault((job.step.error_low, job.step.error_high), []).append(name)
                break
    told = [
        _told(f"Step times of {', '.join(jobs)}" if len(names) > 1 else "Step times", low, high)
        for (low, high), jobs in names.items()
    ]
    if points and not names:
        # Bands differ by size and algorithm; the widest holds for each, and the report lists them.
        low, high = min(p.error_low for p in points), max(p.error_high for p in points)
        told.append(_told("Collectives, in the widest of their bands", low, high))
    told += [_told(f"Mean {what} of {job}", low, high) for what, job, low, high in served_bands(result)]
    for line in told or ["Nothing was predicted, so there is no error to state."]:
        console.print(Text(line))


def _told(subject: str, low: float, high: float) -> str:
    """'Step times: 80 % of measurements are expected at 0.88 to 1.20 times the predicted time.'"""
    lean = " Predictions of this kind tend to be too fast." if low > 1 else ""
    lean = " Predictions of this kind tend to be too slow." if high < 1 else lean
    band = f"{low:.2f} to {high:.2f} times the predicted time"
    return f"{subject}: 80 % of measurements are expected at {band}.{lean}"
