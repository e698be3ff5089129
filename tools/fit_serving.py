"""Fit serving/data/kernels/*.yaml to the op tables of the PyPI package aiconfigurator-core.

PYTHONPATH=src python tools/fit_serving.py WHEEL src/railwright/serving/data/kernels [GPU]
(WHEEL: an unpacked aiconfigurator_core-0.12.0, or the site-packages it is installed in; needs pyarrow.)

The fits are those of `railwright kernels` (measure/optables), of all engines at the versions below, with the
datasheets' speeds as they were then: each row carries the mean error of its fit [%] (`error`) and that on
what was left out of it (`left_out`: five folds over the shapes or head configurations).
Tables: Apache-2.0, NVIDIA; only the fitted constants are carried.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from railwright.measure.optables.attending import attention
from railwright.measure.optables.fitting import Fit, Found, Reduced, Subject, Tables
from railwright.measure.optables.package import Package, systems
from railwright.measure.optables.products import products
from railwright.measure.optables.routed import BESIDE_FP8, experts, reductions
from railwright.serving.kernels.constants import KNOTS
from railwright.serving.kernels.times import Speeds

Line = tuple[tuple[str, ...], str]
"""Path in the YAML, and the value at its end."""

SPEEDS = {
    "a100": ("a100_sxm", Speeds(312e12, 2.039e12, 108)),
    "h100": ("h100_sxm", Speeds(989.4e12, 3.35e12, 132)),
    "h200": ("h200_sxm", Speeds(989.4e12, 4.8e12, 132)),
    "b200": ("b200_sxm", Speeds(2250e12, 8e12, 148)),
    "gb200": ("gb200", Speeds(2500e12, 8e12, 148)),
    "l40s": ("l40s", Speeds(362.05e12, 0.864e12, 142)),
    "rtx-pro-6000": ("rtx_pro_6000_server", Speeds(480e12, 1.597e12, 188)),
}
"""GPU -> folder of its tables, bf16 peak [flop/s], memory bandwidth [byte/s], SMs (datasheets)."""

PEAK = {"bfloat16": 1.0, "fp8": 2.0, "fp8_block": 2.0, "nvfp4": 4.0, "w4a16_mxfp4": 1.0, "int4_wo": 1.0}
WIDTH = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "w4a16_mxfp4": 0.53, "int4_wo": 0.53}
PEAK[BESIDE_FP8], WIDTH[BESIDE_FP8] = 2.0, 0.53
"""By the tables' name of a type: peak over that of bf16, bytes of a weight with its scales."""

ENGINES = ("vllm", "trtllm", "sglang")
OF_A100 = {"vllm": "0.14.0", "trtllm": "1.0.0", "sglang": "0.5.10"}
LATEST = {"vllm": "0.24.0", "trtllm": "1.3.0rc20", "sglang": "0.5.14"}


def main(wheel: Path, folder: Path, only: str | None = None) -> None:
    """Write the file of every GPU, or of one, keeping the comment it begins with."""
    for gpu in SPEEDS:
        if only not in (None, gpu):
            continue
        file = folder / f"{gpu}.yaml"
        old = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        lines = [line for line in old if line.startswith("#")]
        shown: tuple[str, ...] = ()
        for path, text in sorted(_read(wheel, gpu)):
            for depth, key in enumerate(path[:-1]):
                if shown[: depth + 1] != path[: depth + 1]:
                    lines.append("  " * depth + f"{key}:")
            lines.append("  " * (len(path) - 1) + f"{path[-1]}: {text}")
            shown = path[:-1]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _read(wheel: Path, gpu: str) -> Iterator[Line]:
    folder, speeds = SPEEDS[gpu]
    subject = Subject(folder, speeds, float(systems()[folder]["cache"]), PEAK, WIDTH)
    package = Package(wheel / "aiconfigurator_core", "0.12.0")
    tables = Tables(package, OF_A100 if gpu == "a100" else LATEST, filled=False)
    yield from map(_line, products(tables, subject))
    yield from map(_line, attention(tables, subject, ENGINES))
    yield from map(_line, experts(tables, subject, ENGINES))
    yield from _knots(reductions(tables, subject, ENGINES))


def _line(found: Found) -> Line:
    return found.path, written(found.constants, found.fit, found.table)


def written(constants: Mapping[str, float], fit: Fit, table: str) -> str:
    """One row as YAML."""
    pairs = ", ".join(f"{name}: {value:.3e}" for name, value in constants.items())
    return (
        f"{{{pairs}, error: {fit.error:.1f}, left_out: {fit.left_out:.1f}, rows: {fit.rows}, table: {table}}}"
    )


def _knots(found: Iterable[Reduced]) -> Iterator[Line]:
    """All-reduces at the sizes of the shipped files, where all of them were measured."""
    for one in found:
        at = dict(zip(one.sizes.tolist(), one.seconds.tolist(), strict=True))
        if all(size in at for size in KNOTS):
            times = np.maximum.accumulate([at[size] for size in KNOTS])
            yield ("all_reduce", one.engine, str(one.ranks)), f"[{', '.join(f'{v:.2e}' for v in times)}]"


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
