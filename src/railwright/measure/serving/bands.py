"""80 % bands of TTFT and TPOT, made of published means over ours, each group weighing the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.measure.bands import band
from railwright.measure.serving.cases import cases, engine_group, gpu_of, model_of
from railwright.measure.table import Row, quantile
from railwright.model.configs.hf_config import load_model
from railwright.serving.engine.bands import ENGINES, LATENCIES

FEWEST = 3
"""A kind of model on one engine with fewer groups (model, GPU) gets the band of its kind of model."""
STEADY = ("dense", "MoE", "static", "replay")
"""Slices the bands are made of.  MLPerf's are at the edge of what the engine can do, where a capacity a tenth
too low makes a queue that never ends; those with prefill apart are few, and one names no concurrency."""


def written(rows: Sequence[Row]) -> str:
    """The bands as YAML: serving/data/error_bands.yaml.

    rows  of `railwright validate serving`; means of online, static and replayed runs are taken
    """
    by_id = {case["id"]: case for case in cases()}
    lines = [
        "# Written by tools/serving_bands.py from `railwright validate serving`; do not edit.",
        "# 80 % band of measured over predicted means; every group (model, GPU) weighs the same.  No",
        "# constant is fitted to these cases, but mechanisms and four estimates were chosen after a look",
        "# (docs/serving/record.md, After looking).  An engine is here with at least",
        f"# {FEWEST} groups of its own; others get the band of their kind of model.",
        "bands:",
    ]
    for kind in ("dense", "moe"):
        for engine in ("", *ENGINES.values()):
            for latency in LATENCIES:
                chosen = [
                    r
                    for r in rows
                    if r.family.endswith(f": {latency}")
                    and r.family.split(": ")[0].removeprefix("serving ") in STEADY
                    and ("MoE" in r.family or _is_moe(by_id[r.record])) == (kind == "moe")
                    and (not engine or engine_group(by_id[r.record]).endswith(engine))
                ]
                groups = {r.record: f"{model_of(by_id[r.record])} {gpu_of(by_id[r.record])}" for r in chosen}
                count = len(set(groups.values()))
                if count < (FEWEST if engine else 1):
                    continue
                name = " ".join(part for part in (kind, engine, latency) if part)
                ratios = [r.measured / r.predicted for r in chosen]
                low, high = band(ratios, [groups[r.record] for r in chosen])
                lines += [
                    f"  {name}:",
                    f"    low: {low:.2f}",
                    f"    high: {high:.2f}",
                    f'    source: "railwright validate serving: {len(chosen)} cases of {count} groups, '
                    f'median {quantile(ratios, 0.5):.2f}"',
                ]
    return "\n".join(lines) + "\n"


def _is_moe(case: Mapping[str, str]) -> bool:
    return load_model(model_of(case)).is_moe
