"""Keep the README true: run its commands, and keep the figures it quotes equal to what the tool prints.

readme.py command run|test   print the one-line command under that marker, for .ci/run
readme.py write              put `railwright validate`'s table into README.md and docs/validation.md, what
                             it finds of training steps, drawn, into docs/training/validation.md, the
                             example's answer into README.md, the software eras into docs/training/eras.md,
                             errors by GPU and framework into docs/training/calibration.md,
                             whole runs beside what is said of them into docs/training/demand.md,
             how pairs of layouts compare into docs/training/search.md,
                             and the bands of the training families, and how pairs of layouts compare,
                             into src/railwright/training/data/error_band.yaml and choices.yaml
readme.py check              exit 1 if any of them differs from what `write` would put there
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

if TYPE_CHECKING:
    from railwright.measure.table import ValidationTable
    from railwright.measure.training.errors import Records, Table
    from railwright.study.result import Result

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
VALIDATION = ROOT / "docs" / "validation.md"
TRAINING = ROOT / "docs" / "training"
BANDS = ROOT / "src" / "railwright" / "training" / "data" / "error_band.yaml"
CHOICES = BANDS.with_name("choices.yaml")
EXAMPLE = ROOT / "examples" / "mixtral-240-h100.yaml"


def command(name: str) -> str:
    """The shell line in the code block after `<!-- command: name -->`."""
    match = re.search(
        rf"<!-- command: {name} -->\s*```(?:sh|bash)?\n(.+?)\n```", README.read_text(encoding="utf-8")
    )
    if match is None:
        raise SystemExit(f"README.md has no one-line command marked '<!-- command: {name} -->'")
    return match.group(1)


def filled(text: str, block: str, lines: list[str], fence: str = "```") -> str:
    """The text with the block between its two markers replaced; `fence` '' leaves it Markdown."""
    begin, end = f"<!-- {block} -->", f"<!-- /{block} -->"
    if begin not in text or end not in text:
        raise SystemExit(f"the markers '{begin}' and '{end}' are missing")
    before, rest = text.split(begin, 1)
    after = rest.split(end, 1)[1]
    inside = [f"{fence}text", *lines, fence] if fence else ["", *lines, ""]
    return f"{before}{begin}\n" + "\n".join(inside) + f"\n{end}{after}"


def example_effects(result: Result) -> list[str]:
    """Published effects of rails and PXN beside the prediction, and under each changed assumption."""
    effects = result.published
    names = dict.fromkeys(name for effect in effects for name, _ in effect.under)
    rows = [
        ["", *(effect.name for effect in effects)],
        ["---" for _ in range(len(effects) + 1)],
        ["published", *(effect.published for effect in effects)],
        ["**predicted, as written**", *(f"**{effect.predicted}**" for effect in effects)],
        *([name, *(dict(effect.under).get(name, "") for effect in effects)] for name in names),
    ]
    return ["| " + " | ".join(row) + " |" for row in rows]


def example_headline(result: Result) -> list[str]:
    """The first two sentences of the example's answer, what to build and what holds it back, quoted."""
    first, second, *_ = result.answer
    return [f"> {first}", ">", f"> {second}"]


def example_answer(result: Result) -> list[str]:
    """What `railwright run` prints for the example, without the list of files."""
    from rich.console import Console

    import railwright

    console = Console(width=80, file=StringIO(), color_system=None)
    railwright.summary(result, console)
    return [line.rstrip() for line in console.file.getvalue().strip().splitlines()]  # type: ignore[attr-defined]


def sections(lines: list[str]) -> list[str]:
    """The detailed table as Markdown: the summary and the bars, then a heading for every family."""
    blocks = [block.split("\n") for block in "\n".join(lines).split("\n\n")]
    found: list[str] = []
    for block in blocks:
        name = block[0].removesuffix(":")
        if name != block[0]:
            found += [f"## {name[0].upper()}{name[1:]}", "", "```text", *block[1:], "```", ""]
        else:
            found += ["```text", *block, "```", ""]
    return found[:-1]


def training_page(table: ValidationTable, records: Records) -> Iterator[tuple[Path, str]]:
    """docs/training/validation.md and its two drawings: what `railwright validate training --html` shows."""
    from railwright.measure.training import bars as training_bars
    from railwright.measure.training.errors import by_family, in_short, left_out, steps_of, worst
    from railwright.measure.training.replay import fitted_families
    from railwright.report.pages.training import errors_drawing, steps_drawing
    from railwright.report.parts.scatter import picture

    steps = steps_of(table.rows, records)
    page = (TRAINING / "validation.md").read_text(encoding="utf-8")
    page = filled(page, "short", [in_short(steps)], fence="")
    goals = training_bars.reached(table.rows, table.skipped, records)
    page = filled(page, "goals", training_bars.lines(goals))
    for block, found in (
        ("worst", worst(steps)),
        ("families", by_family(steps, records, fitted_families())),
        ("left-out", left_out(table.skipped)),
    ):
        page = filled(page, block, markdown(found), fence="")
    yield TRAINING / "validation.md", page
    yield TRAINING / "validation-steps.svg", picture(steps_drawing(steps, records))
    yield TRAINING / "validation-errors.svg", picture(errors_drawing(steps, records))


def eras_page() -> tuple[Path, str]:
    """docs/training/eras.md: the tables of training/data/eras.yaml."""
    from railwright.training.software.words import behind, differing, known

    page = (TRAINING / "eras.md").read_text(encoding="utf-8")
    for block, found in (("known", known()), ("differing", differing()), ("behind", behind())):
        page = filled(page, block, markdown(found), fence="")
    return TRAINING / "eras.md", page


def calibration_page(validation: str) -> tuple[Path, str]:
    """docs/training/calibration.md: errors by GPU and by framework.

    validation  docs/validation.md as it should read
    """
    from calibration_tables import by_framework, by_gpu, first

    page = (TRAINING / "calibration.md").read_text(encoding="utf-8")
    found = {"first": first(validation), "by-gpu": by_gpu(validation), "by-framework": by_framework()}
    for block, lines in found.items():
        page = filled(page, block, lines, fence="")
    return TRAINING / "calibration.md", page


def demand_page() -> tuple[Path, str]:
    """docs/training/demand.md: whole runs and Llama 2 70B's fleet beside what `railwright demand` says."""
    from railwright.catalog import load_catalog
    from railwright.model import load_model
    from railwright.training.demand.budget import Demand, Equipment, TokenBudget, demand, usual_server
    from railwright.training.demand.whole_runs import WholeRun, whole_runs

    catalog = load_catalog()

    def asked(run: WholeRun, gpus: int | None = None, days: float | None = None) -> Demand:
        gpu = catalog.gpus[run.gpu]
        budget = TokenBudget(load_model(run.model), run.tokens, run.sequence, run.dtype)
        return demand(budget, Equipment(gpu, usual_server(catalog, gpu)), gpus=gpus, days=days)

    rows = []
    for run in whole_runs():
        hours = asked(run).gpu_hours
        source = f"{run.gpu_hours:,.0f}" + (", from memory" if run.status == "memory" else "")
        middle, low, high = (f"{round(h, -3):,.0f}" for h in (hours.middle, hours.low, hours.high))
        ratio = f"{run.gpu_hours / hours.middle:.2f}"
        rows.append(
            [
                run.run,
                f"{run.tokens / 1e12:g} trillion",
                run.gpu + ("" if run.dtype == "bf16" else f", {run.dtype}"),
                source,
                f"{middle} ({low} to {high})",
                ratio,
            ]
        )
    heads = ["run", "tokens", "GPU", "published GPU-hours", "ours, middle (80 % range)", "published / middle"]
    (large,) = (run for run in whole_runs() if run.run == "Llama 2 70B")
    days, day = asked(large, gpus=2000).days, asked(large, days=1)
    peak = day.fleet_peak
    fleet = [
        f"70B on 2,000 A100 takes {days.middle:.0f} days ({days.low:.0f} to {days.high:.0f}; Meta's hours "
        f"make {large.gpu_hours / 2000 / 24:.0f}).",
        f"In one day it takes {day.sustained.middle / 1e18:.1f} EFLOP/s sustained, which is "
        f"{peak.middle / 1e18:.0f} EFLOP/s of A100 peak ({peak.low / 1e18:.0f} to {peak.high / 1e18:.0f}).",
    ]
    page = (TRAINING / "demand.md").read_text(encoding="utf-8")
    page = filled(page, "whole-runs", markdown((tuple(heads), [tuple(row) for row in rows])), fence="")
    return TRAINING / "demand.md", filled(page, "fleet", fleet, fence="")


def search_page(compared: str) -> tuple[Path, str]:
    """docs/training/search.md: how pairs of published layouts compare, from the text of choices.yaml."""
    from railwright.units import number

    many = re.search(r"# ([\d,]+ pairs of \d+ families)", compared)
    assert many is not None
    gains = yaml.safe_load(compared)["gains"]
    rows = list[tuple[str, ...]]()
    for row, above in zip(gains, [*(g["from"] for g in gains[1:]), None], strict=True):
        low, high = 100 * row["from"], f"{100 * above:g} %" if above is not None else ""
        gain = f"less than {high}" if not low else f"{low:g} to {high}" if high else f"{low:g} % and more"
        half, most = (number(round(100 * row[key]), "point") for key in ("half", "most"))
        rows.append((gain, f"{row['pairs']:,}", f"{row['right']:.0%}".replace("%", " %"), half, most))
    heads = ("predicted gain", "pairs", "measured in that order", "half are measured within", "80 % within")
    lines = [*markdown((heads, rows)), "", f"{many[1]}."]
    text = (TRAINING / "search.md").read_text(encoding="utf-8")
    return TRAINING / "search.md", filled(text, "choices", lines, fence="")


def markdown(table: Table) -> list[str]:
    """A head and rows as a Markdown table."""
    heads, rows = table
    return ["| " + " | ".join(row) + " |" for row in (heads, ["---"] * len(heads), *rows)]


def wanted() -> Iterator[tuple[Path, str]]:
    """Each file as it should read; the bands first, because the example quotes them once they are written."""
    import railwright
    from railwright.measure import validate
    from railwright.measure.training.bands import bands
    from railwright.measure.training.bars import belonging, ranged
    from railwright.measure.training.choices import choices
    from railwright.measure.training.replay import records
    from railwright.training.software.constants import band_for

    table = validate(processes=min(os.cpu_count() or 1, 4))
    carried = {r["id"]: r for r in records()}
    yield BANDS, bands(ranged(table.rows, carried), *belonging(carried))
    band_for.cache_clear()
    compared = choices(table.rows, carried)
    yield CHOICES, compared
    yield search_page(compared)
    result = railwright.run(railwright.load_study(EXAMPLE))
    readme = filled(README.read_text(encoding="utf-8"), "headline", example_headline(result), fence="")
    readme = filled(readme, "answer", example_answer(result))
    readme = filled(readme, "effects", example_effects(result), fence="")
    yield README, filled(readme, "validate", table.lines())
    page = VALIDATION.read_text(encoding="utf-8")
    page = filled(page, "validate-detail", sections(table.lines(detail=True)), fence="")
    yield VALIDATION, page
    yield calibration_page(page)
    yield from training_page(table, carried)
    yield eras_page()
    yield demand_page()


def main(arguments: list[str]) -> int:
    """Run one of the three calls."""
    if arguments[:1] == ["command"] and len(arguments) == 2:
        print(command(arguments[1]))
        return 0
    if arguments == ["write"]:
        for path, text in wanted():
            path.write_text(text, encoding="utf-8")
        return 0
    if arguments == ["check"]:
        stale = [p.name for p, text in wanted() if not p.exists() or p.read_text(encoding="utf-8") != text]
        if stale:
            print(f"stale: {', '.join(stale)}; run `.venv/bin/python tools/readme.py write` and commit")
        return bool(stale)
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
