"""Figures that people read first are today's: docs/training/calibration.md and unseen.md say what
docs/validation.md (`railwright validate`, checked in CI), the eras and the runs of other people say."""

from __future__ import annotations

import re
import runpy
from collections.abc import Iterator
from pathlib import Path

from railwright.training.software.eras import eras

ROOT = Path(__file__).parents[2]
TRAINING = ROOT / "docs" / "training"
KINDS = {
    "Dense models:": "dense",
    "Mixtures of experts:": "moe",
    "Models with Mamba-2 layers, never fitted:": "linear",
}
WIDTHS = {"16 bits": "16-bit", "fp8": "fp8", "NVFP4": "nvfp4"}
ERAS = {
    "NeMo up to 24.12": "nemo-2024",
    "Megatron of 2025 (NeMo, Megatron-Bridge)": "megatron-2025",
    "Megatron-Bridge since 26.06, MXFP8": "megatron-2026",
    "Megatron-Bridge 26.06.01, MXFP8": "megatron-2026-06-01",
    "Megatron of 2022 (Korthikanti)": "megatron-2022",
    "FSDP of 2023 (llm-foundry)": "fsdp-2023",
    "FSDP of 2024": "fsdp-2024",
    "FSDP of 2025 (torchtitan)": "fsdp-2025",
    "JAX of 2024 (PaXML)": "xla-2024",
    "JAX of 2025 (MaxText)": "xla-2025",
    "Megatron of 2025 on AMD": "megatron-2025",
}
SOURCE = re.compile(r"(\d+) records? of \d+ famil\w+: mean error ([\d.]+)% fitted, ([\d.]+)% with")


def page(name: str) -> str:
    return (TRAINING / name).read_text(encoding="utf-8")


def table(text: str, start: str) -> list[list[str]]:
    """Rows of the first table behind a heading or sentence, without its head."""
    lines = text[text.index(start) + len(start) :].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    rows = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def validated() -> dict[tuple[str, str, str], tuple[str, ...]]:
    """(kind, GPU, width) -> steps, mean, 90th percentile, worst; median where the fit has not seen it."""
    text = (ROOT / "docs" / "validation.md").read_text(encoding="utf-8")
    rows = re.findall(
        r"^training (dense|moe|linear) (\S+) (\S+) +(\d+) +\d+ +[\d.]+% +([\d.]+)% +([\d.]+)%"
        r" +[-+][\d.]+% +([-+][\d.]+)%",
        text,
        re.MULTILINE,
    )
    unseen = dict(
        re.findall(
            r"^#+ [Tt]raining (\S+ \S+ \S+)\n(?:(?!#).*\n)*?"
            r"  median where the fit has not seen the record: ([\d.]+)%",
            text,
            re.MULTILINE,
        )
    )
    return {(k, gpu, w): (*figures, unseen[f"{k} {gpu} {w}"]) for k, gpu, w, *figures in rows}


def by_gpu() -> Iterator[tuple[tuple[str, str, str], list[str]]]:
    for title, kind in KINDS.items():
        for where, *figures in table(page("calibration.md"), title):
            gpu, width = where.split(", ")
            yield (kind, gpu, WIDTHS[width]), figures


def percent(cell: str) -> str:
    return cell.removesuffix(" %")


def test_errors_by_gpu_and_width_are_what_validate_prints() -> None:
    said = {
        key: (steps, percent(mean), percent(p90), percent(worst), percent(unseen))
        for key, (steps, mean, p90, unseen, worst) in by_gpu()
    }
    found = {key: figures for key, figures in validated().items() if not key[1].startswith(("MI", "L40S"))}
    assert said == found


def test_the_first_table_has_the_medians_where_the_fit_has_not_seen() -> None:
    columns = (("dense", "16-bit"), ("dense", "fp8"), ("moe", "16-bit"), ("moe", "fp8"))
    found = validated()
    for gpu, *cells in table(page("calibration.md"), "**By GPU and format**"):
        if gpu.startswith("GH200"):
            continue
        for (kind, width), cell in zip(columns, cells, strict=True):
            figures = re.findall(r"(NVFP4 )?([\d.]+) %", cell)
            said = {"nvfp4" if narrow else width: figure for narrow, figure in figures}
            assert said == {
                w: found[kind, gpu, w][-1]
                for w in (width, *(("nvfp4",) if width == "fp8" else ()))
                if (kind, gpu, w) in found
            }, (gpu, kind)


def test_errors_by_framework_are_those_of_the_eras() -> None:
    era, said = "", set()
    for name, where, records, fitted, left_out in table(page("calibration.md"), "### By framework"):
        era = ERAS.get(name, era)
        if not era:
            continue
        gpu, width = re.sub(r" \(\S+\)$", "", where).replace("H100 of 500 W", "h100-sxm-96").split(", ")
        said.add((era, f"{gpu.lower()} {WIDTHS[width]}", records, percent(fitted), percent(left_out)))
    found = {
        (name, key, *told.groups())
        for name, one in eras().items()
        for key, pace in one.pace.items()
        if (told := SOURCE.match(pace.source))
    }
    assert said == found


def test_other_people_s_runs_are_as_far_off_as_their_test_holds() -> None:
    held = runpy.run_path(str(ROOT / "tests" / "validation" / "test_training_unseen_runs.py"))
    text = page("unseen.md")
    rows = table(text, "Since they were first scored, these errors count")
    said = [(float(percent(error)), float(percent(bias))) for _, _, error, bias, _ in rows]
    assert said == list(held["GROUPS"].values())
    for words in (
        f"| 26 series, now | {held['ALL_GROUPS']} % | {held['ALL_BIAS']} % |",
        f"| 138 steps, now | {held['ALL_RUNS']:.1f} % | | {held['IN_RANGE']:.0f} % |",
    ):
        assert words in text
    assert f"which no fit has seen, are {held['ALL_GROUPS']} % off" in page("calibration.md")


def test_how_good_it_is_in_one_sentence() -> None:
    short = r"(\d+) published training steps are predicted ([\d.]+)% off in the mean, ([\d.]+)%"
    steps, mean, left_out = re.search(short, page("validation.md")).groups()
    said = f"{int(steps):,} published steps are predicted {mean} % off in the mean, and {left_out} % off"
    assert said in page("calibration.md")
