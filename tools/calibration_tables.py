"""Tables of docs/training/calibration.md: errors by GPU and number format, as `railwright validate` prints
them into docs/validation.md, and by framework, as training/data/eras.yaml has them from the fit.

`readme.py write` puts them in; a test holds them to these two sources without validating anything.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from railwright.spec.training import Software
from railwright.training.software.eras import eras

WIDTHS = {"16-bit": "16 bits", "fp8": "fp8", "nvfp4": "NVFP4"}
GPUS = (
    *("H100", "H100-SXM-96", "H200", "L40S", "A100", "B200", "B300", "GB200", "GB300"),
    *("MI300X", "MI325X", "MI350X", "MI355X", "GH200"),
)
NAMES = {"H100-SXM-96": "H100 of 500 W"}
KINDS = {
    "dense": "Dense models:",
    "moe": "Mixtures of experts:",
    "linear": "Models with Mamba-2 layers, never fitted:",
}
ERAS: dict[Software, str] = {
    "nemo-2024": "NeMo up to 24.12",
    "megatron-2025": "Megatron of 2025 (NeMo, Megatron-Bridge; on AMD Primus and others)",
    "megatron-2026": "Megatron-Bridge since 26.06, MXFP8",
    "megatron-2026-06-01": "Megatron-Bridge 26.06.01, MXFP8",
    "megatron-2022": "Megatron of 2022 (Korthikanti)",
    "fsdp-2023": "FSDP of 2023 (llm-foundry)",
    "fsdp-2024-eager": "FSDP without compilation (torchtitan)",
    "fsdp-2024": "FSDP of 2024 (torchtitan; fms-fsdp on A100 and H100)",
    "fsdp-2025": "FSDP of 2025 (torchtitan)",
    "xla-2024": "JAX of 2024 (PaXML)",
    "xla-2025": "JAX of 2025 (MaxText)",
}
"""Eras with records of their own, in the order of the table."""
POOR = 10.0
"""Errors from which a cell of the first table is bold. [%]"""

FIGURES = re.compile(
    r"^(training|runs) (dense|moe|linear) (\S+) (\S+) +(\d+) +\d+ +[\d.]+% +([\d.]+)% +([\d.]+)%"
    r" +[-+][\d.]+% +([-+][\d.]+)%",
    re.MULTILINE,
)
UNSEEN = re.compile(
    r"^## (Training|Runs) (\S+ \S+ \S+)\n(?:(?!#).*\n)*?"
    r"  median where the fit has not seen the record: ([\d.]+)%",
    re.MULTILINE,
)
FITTED = re.compile(r"(\d+) records? of \d+ famil\w+: mean error ([\d.]+)% fitted, ([\d.]+)% with")

Key = tuple[str, str, str]
"""Kind of model, GPU, width."""


class Errors(NamedTuple):
    """One family of steps: how many, mean error, 90th percentile and worst [%] with the factors as shipped,
    and the median where the fit has not seen the record [%]."""

    steps: int
    mean: str
    p90: str
    worst: str
    unseen: str


def errors(validation: str, prefix: str = "training") -> dict[Key, Errors]:
    """What a page of validation says of families whose names begin so."""
    medians = {f"{name.lower()} {rest}": median for name, rest, median in UNSEEN.findall(validation)}
    return {
        (kind, gpu, width): Errors(int(steps), mean, p90, worst, medians[f"{prefix} {kind} {gpu} {width}"])
        for name, kind, gpu, width, steps, mean, p90, worst in FIGURES.findall(validation)
        if name == prefix
    }


def first(validation: str) -> list[str]:
    """A row for each GPU: the median error of models that the fit has not seen, by kind and width."""
    records, runs = errors(validation), errors(validation, "runs")
    columns = (("dense", "16-bit"), ("dense", "fp8"), ("moe", "16-bit"), ("moe", "fp8"))
    lines = ["| | dense, 16 bits | dense, fp8 | MoE, 16 bits | MoE, fp8 |", "|---|---|---|---|---|"]
    for gpu in GPUS:
        found = records if any(key[1] == gpu for key in records) else runs
        cells = [_median(found, (kind, gpu, width)) for kind, width in columns]
        if any(cell != "–" for cell in cells):
            name = gpu if found is records else f"{gpu} (no record)"
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _median(found: dict[Key, Errors], key: Key) -> str:
    kind, gpu, width = key
    narrow = {"fp8": ("", "nvfp4"), "16-bit": ("",)}[width]
    parts = []
    for other in narrow:
        one = found.get((kind, gpu, other or width))
        if one is not None:
            figure = f"**{one.unseen} %**" if float(one.unseen) >= POOR else f"{one.unseen} %"
            alone = " (one step)" if one.steps == 1 else ""
            parts.append(f"{WIDTHS[other] + ' ' if other else ''}{figure}{alone}")
    return ", ".join(parts) or "–"


def by_gpu(validation: str) -> list[str]:
    """Steps, errors and the worst one, a table for each kind of model."""
    found = errors(validation)
    lines: list[str] = []
    for kind, title in KINDS.items():
        lines += [
            title,
            "",
            "| GPU, width | steps | mean | p90 | unseen | worst |",
            "|---|---|---|---|---|---|",
        ]
        for gpu in GPUS:
            for width, name in WIDTHS.items():
                one = found.get((kind, gpu, width))
                if one is not None:
                    lines.append(
                        f"| {gpu}, {name} | {one.steps} | {one.mean} % | {one.p90} % | {one.unseen} % |"
                        f" {one.worst} % |"
                    )
        lines.append("")
    return lines[:-1]


def by_framework() -> list[str]:
    """Records and mean errors of every era's slices, fitted and left out."""
    lines = ["| era (software) | GPU, width | records | fitted | left out |", "|---|---|---|---|---|"]
    for era, label in ERAS.items():
        rows = []
        for key, pace in eras()[era].pace.items():
            told = FITTED.match(pace.source)
            if told is not None:
                gpu, width = key.upper().split(" ")
                rows.append((GPUS.index(gpu), list(WIDTHS).index(width.lower()), told.groups()))
        for nth, (gpu_at, width_at, (records, fitted, left_out)) in enumerate(sorted(rows)):
            gpu, width = GPUS[gpu_at], list(WIDTHS.values())[width_at]
            lines.append(
                f"| {'' if nth else label + ' '}| {NAMES.get(gpu, gpu)}, {width} | {records} | {fitted} % |"
                f" {left_out} % |"
            )
    return lines
