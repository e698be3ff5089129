"""Write the error bands and the tables of docs/serving/validation.md from one run of the serving validation.

Run after `railwright validate serving` has changed: python tools/serving_bands.py.  Takes some minutes.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean

from railwright.measure.serving.bands import written
from railwright.measure.serving.bars import left_out, lines, reached, spread
from railwright.measure.serving.cases import slice_of
from railwright.measure.serving.replay import score
from railwright.measure.table import Row, Skipped, quantile

ROOT = Path(__file__).parent.parent
BANDS = ROOT / "src" / "railwright" / "serving" / "data" / "error_bands.yaml"
PAGE = ROOT / "docs" / "serving" / "validation.md"
WORST = 20


def main() -> None:
    """Both files."""
    scored = list(score())
    rows = [row for one in scored for row in one.rows]
    skipped = [Skipped(f"serving {slice_of(s.case)}", s.case["id"], s.refused) for s in scored if s.refused]
    BANDS.write_text(written(rows), encoding="utf-8")
    model = {s.case["id"]: s.group[0] for s in scored}
    gpu = {s.case["id"]: s.group[1] for s in scored}
    made = "\n".join(_tables(rows, skipped, model, gpu))
    page = PAGE.read_text(encoding="utf-8")
    marked = re.compile(r"(<!-- tables -->\n).*(<!-- end of tables -->)", re.DOTALL)
    PAGE.write_text(marked.sub(lambda m: f"{m.group(1)}{made}\n{m.group(2)}", page), encoding="utf-8")
    print(f"{len(rows)} rows, {len(skipped)} refused")


def _tables(rows: list[Row], skipped: list[Skipped], model: dict[str, str], gpu: dict[str, str]) -> list[str]:
    out = ["", "### Bars", "", "```", *lines(reached(rows, skipped)), "```", "", "### By slice", ""]
    out += ["| slice | cases | mean abs | median abs | p90 | bias | worst |", "|---|---|---|---|---|---|---|"]
    families = sorted({r.family for r in rows})
    for family in families:
        errors = [r.error for r in rows if r.family == family]
        sizes = [abs(e) for e in errors]
        out.append(
            f"| {family.removeprefix('serving ')} | {len(errors)} | {mean(sizes):.1%} | "
            f"{quantile(sizes, 0.5):.1%} | {quantile(sizes, 0.9):.1%} | {mean(errors):+.1%} | "
            f"{max(errors, key=abs):+.1%} |"
        )
    out += ["", "### One model, or one GPU, left out", ""]
    out += [
        "| slice | as predicted | one factor, in sample | a model left out | a GPU left out |",
        "|---|---|---|---|---|",
    ]
    for family in families:
        mine = [r for r in rows if r.family == family]
        if len(mine) < 8:
            continue
        plain, seen, by_model = left_out(mine, model)
        by_gpu = left_out(mine, gpu)[2]
        name = family.removeprefix("serving ")
        out.append(f"| {name} | {plain:.1%} | {seen:.1%} | {by_model:.1%} | {by_gpu:.1%} |")
    out += ["", "### Spread over models and GPUs", "", "| slice | group | cases | mean abs | bias |"]
    out.append("|---|---|---|---|---|")
    for family in families:
        mine = [r for r in rows if r.family == family]
        if len(mine) < 8 or not family.endswith((": TTFT", ": TPOT")):
            continue
        for group in (model, gpu):
            for name, count, size, bias in spread(mine, group):
                short = family.removeprefix("serving ")
                out.append(f"| {short} | {name} | {count} | {size:.1%} | {bias:+.1%} |")
    out += ["", f"### The {WORST} worst", "", "| error | predicted | measured | case | why |"]
    out.append("|---|---|---|---|---|")
    for row in sorted(rows, key=lambda r: -abs(r.error))[:WORST]:
        what, unit = row.family.split(": ")[1], row.unit
        out.append(
            f"| {row.error:+.0%} | {row.predicted:.4g} | {row.measured:.4g} {unit} | {what}: {row.what} | "
            f"{row.reason or 'not known'} |"
        )
    out += ["", "### Refused", ""]
    reasons: dict[str, int] = {}
    for one in skipped:
        reasons[one.reason] = reasons.get(one.reason, 0) + 1
    out += [f"- {count}: {reason}" for reason, count in reasons.items()] or ["None."]
    out.append("")
    return out


if __name__ == "__main__":
    main()
