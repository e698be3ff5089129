"""Fit launch, ramp and error bands of every family of collectives to the published curves.

Prices the curves of `collectives_curves` by NCCL's own model plus launch + ramp x pipeline_root(steps,
bandwidth), fits both constants (`collectives_fit`), makes bands of left-out errors (`collectives_bands`), and
writes src/railwright/collectives/data/families.yaml and the tables of docs/collectives.md.
Run: python tools/fit_collectives.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from collectives_bands import LEVEL, RARE, band, coverage
from collectives_fit import Fitted, fitted
from ruamel.yaml import YAML

from railwright.collectives.family import BANDS, families
from railwright.measure.published.collectives import BANDS as REPLAYED
from railwright.measure.published.collectives import VIRTUAL, collective_rows
from railwright.measure.table import Row

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/collectives.md"
FAMILIES = ROOT / "src/railwright/collectives/data/families.yaml"


def rows(table: dict[str, Fitted]) -> dict[str, dict[str, Any]]:
    """What families.yaml says of each family."""
    answer = {}
    for family, of in table.items():
        num = len(of.inside)
        out = of.median(of.outside())
        answer[family] = {
            "launch": float(f"{of.how[0]:.3g}"),
            "ramp": float(f"{of.how[1]:.3g}"),
            **{
                key: [[float(f"{v:.3g}") for v in band(table, family, b, level)] for b in range(len(BANDS))]
                for key, level in (("bands", LEVEL), ("rare", RARE))
            },
            "median_error_in_sample": float(f"{of.median(of.inside):.3f}"),
            "median_error_left_out": None if out is None else float(f"{out:.3f}"),
            "points": int(sum(len(e) for e in of.inside.values())),
            "basis": f"{num} published curve{'s' if num > 1 else ''}",
            "curves": list(of.inside),
        }
    return answer


def main(check: bool) -> int:
    """Write families.yaml and the page's tables; with --check say whether they are what the curves give."""
    table = fitted()
    found = rows(table)
    if check:
        text = YAML(typ="safe").load(FAMILIES.read_text(encoding="utf-8"))["families"]
        same = set(text) == set(found) and all(abs(text[k]["ramp"] - found[k]["ramp"]) < 0.02 for k in found)
        print(
            f"families.yaml {'is what the curves give' if same else 'differs: run tools/fit_collectives.py'}"
        )
        return 0 if same else 1
    with FAMILIES.open("w", encoding="utf-8") as out_file:
        out_file.write(
            "# Written by tools/fit_collectives.py from measure/data/collectives.yaml; do not edit.\n"
            "# launch [s]; ramp: coefficient of the pipeline's root;\n"
            "# bands: 80 % band of measured/predicted, left out, up to 256 KiB, up to 128 MiB, above;\n"
            "# rare: the 98 % band, likewise;\n"
            "# errors: median of |predicted/measured - 1| on the fit's own curves and on each curve left\n"
            "# out in turn (null: one curve only), curves weighing by quality.\n"
        )
        writer = YAML()
        writer.width = 1000
        writer.dump({"families": found}, out_file)
    families.cache_clear()  # the fit priced its curves with the families of before
    page = PAGE.read_text(encoding="utf-8")
    for name, lines in (
        ("families", _family_lines(found)),
        ("coverage", _coverage_lines(table)),
        ("curves", _curve_lines()),
    ):
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        _, mark, after = rest.partition(f"<!-- end of {name} -->")
        assert mark, f"docs/collectives.md has no part '{name}'"
        page = f"{before}<!-- {name} -->\n" + "".join(f"{line}\n" for line in lines) + mark + after
        print("\n".join(lines))
    PAGE.write_text(page, encoding="utf-8")
    return 0


def _family_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    lines = [
        "| family | launch | ramp | in sample | left out | small | mid | large | curves |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, row in found.items():
        out = row["median_error_left_out"]
        bands = " | ".join(f"{low:.2f}-{high:.2f}" for low, high in row["bands"])
        lines.append(
            f"| {name} | {row['launch'] * 1e6:.1f} | {row['ramp']:.2f} "
            f"| {row['median_error_in_sample']:.1%} | {'-' if out is None else f'{out:.1%}'} | {bands} "
            f"| {len(row['curves'])} |"
        )
    return lines


def _coverage_lines(table: dict[str, Fitted]) -> list[str]:
    lines = ["| size | in the 80 % band | slower than it | in the 98 % band | curves | points |"]
    lines.append("|---|---|---|---|---|---|")
    for b, name in enumerate(("up to 256 KiB", "up to 128 MiB", "above")):
        share, above, num_curves, num_points = coverage(table, b, LEVEL)
        rare = coverage(table, b, RARE)[0]
        lines.append(f"| {name} | {share:.0%} | {above:.0%} | {rare:.0%} | {num_curves} | {num_points} |")
    return lines


def _curve_lines() -> list[str]:
    """Median signed error of every record by size, as `railwright validate collectives` replays it."""
    bands: dict[str, dict[str, list[float]]] = {}
    reason: dict[str, str] = {}
    for row in collective_rows():
        if isinstance(row, Row):
            band = row.family.removeprefix(f"{VIRTUAL} ").removeprefix("collectives ")
            bands.setdefault(row.record, {}).setdefault(band, []).append(row.error)
            reason[row.record] = row.reason
    names = [name for _, name in REPLAYED]
    lines = [
        "| record | small | mid | large | worst | more than half off because |",
        "|---|---|---|---|---|---|",
    ]
    for record, mine in bands.items():
        medians = " | ".join(f"{float(np.median(mine[n])):+.0%}" if n in mine else "-" for n in names)
        worst = max((e for errors_ in mine.values() for e in errors_), key=abs)
        why = reason[record] if abs(worst) > 0.5 else ""
        lines.append(f"| {record} | {medians} | {worst:+.0%} | {why} |")
    return lines


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))
