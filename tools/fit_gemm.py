"""Fit the GEMM constants of compute/data/gemm.yaml to the op tables of the PyPI package aiconfigurator-core.

python tools/fit_gemm.py WHEEL       (an unpacked or zipped aiconfigurator_core-0.12.0 wheel; needs pyarrow)

Prints one line per GPU and dtype: the constants, the rows and the errors.  The product never needs it.
Tables: Apache-2.0, NVIDIA; only the fitted constants are carried.
"""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.compute.gemm import Shape, gemm_seconds

TABLES = {
    "a100": ("a100_sxm", "sglang/0.5.10", 312e12, 2.039e12, 108),
    "h100": ("h100_sxm", "trtllm/1.3.0rc20", 989.4e12, 3.35e12, 132),
    "h200": ("h200_sxm", "trtllm/1.3.0rc20", 989.4e12, 4.8e12, 132),
    "b200": ("b200_sxm", "trtllm/1.3.0rc20", 2250e12, 8e12, 148),
    "gb200": ("gb200", "trtllm/1.3.0rc20", 2500e12, 8e12, 148),
    "b300": ("b300_sxm", "trtllm/1.3.0rc20", 2250e12, 8e12, 148),
    "gb300": ("gb300", "trtllm/1.3.0rc20", 2500e12, 8e12, 148),
    "l40s": ("l40s", "trtllm/1.3.0rc20", 362.05e12, 0.864e12, 142),
    "rtx-pro-6000": ("rtx_pro_6000_server", "trtllm/1.3.0rc20", 480e12, 1.597e12, 188),
}
PEAK = {"bfloat16": 1.0, "fp8": 2.0, "fp8_block": 2.0, "nvfp4": 4.0}
OPERAND = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5}
SMALLEST = 256
"""Narrowest width fitted: narrower products are another kernel's (matrix times vector)."""

Floats = NDArray[np.float64]


def main(wheel: Path) -> None:
    """Fit and print every table."""
    for gpu, (folder, engine, peak, bandwidth, sms) in TABLES.items():
        for dtype, more in PEAK.items():
            rows = _rows(wheel, folder, engine, dtype)
            if len(rows):
                capped = dtype == "bfloat16" and gpu != "l40s"  # its fit would reach more than its peak
                found = _fitted(rows, peak * more, bandwidth, sms, OPERAND[dtype], capped)
                print(f"{gpu} {dtype}: {found}", flush=True)


def _fitted(rows: Floats, peak: float, bandwidth: float, sms: int, operand: float, capped: bool) -> str:
    """Constants of one table as YAML, with the errors of the fit.

    capped  with a rate that power sustains: only bare products show it, not those that quantise their input
    """
    from scipy.optimize import least_squares

    m, n, k, seconds = rows.T
    shape, flops, moved = Shape(m, n, k), 2.0 * m * n * k, operand * (m * k + k * n) + 2.0 * m * n

    def over(x: Floats) -> Floats:
        """Predicted over measured."""
        fixed, compute, memory, depth, square, small, *sustained = np.exp(x)
        rates = {"compute": compute * peak, "memory": memory * bandwidth, "fixed": fixed, "depth": depth}
        if sustained:
            rates["sustained"] = sustained[0] * peak
        tiles = {"square": square / (1 + square), "small": small / (1 + small), "sms": sms}
        found: Floats = gemm_seconds(shape, moved, flops, **rates, **tiles) / seconds
        return found

    start = np.log([4e-6, 0.9 if capped else 0.8, 0.75, 100.0, 8.0, 4.0, *([0.8] if capped else [])])
    fit = least_squares(lambda x: np.log(over(x)), start, loss="soft_l1", f_scale=0.1, x_scale=0.3)
    off = np.abs(over(fit.x) - 1)
    fixed, compute, memory, depth, square, small, *sustained = np.exp(fit.x)
    power = "".join(f"sustained: {rate:.3f}, " for rate in sustained)
    return (
        f"{{fixed: {fixed:.3e}, compute: {compute:.3f}, memory: {memory:.3f}, depth: {depth:.0f}, "
        f"square: {square / (1 + square):.3f}, small: {small / (1 + small):.3f}, {power}error: "
        f"{100 * off.mean():.1f}}}"
        f"  # {len(rows):,} rows, median {100 * np.median(off):.1f}"
    )


def op_table(wheel: Path, name: str) -> dict[str, list[Any]]:
    """Columns of one of the package's tables, by its place among them."""
    import pyarrow.parquet as parquet

    name = f"aiconfigurator_core/systems/data/{name}"
    raw = zipfile.ZipFile(wheel).read(name) if wheel.is_file() else (wheel / name).read_bytes()
    found: dict[str, list[Any]] = parquet.read_table(io.BytesIO(raw)).to_pydict()
    return found


def _rows(wheel: Path, folder: str, engine: str, dtype: str) -> Floats:
    """(rows, 4) m, n, k and the median seconds of one table."""
    table = op_table(wheel, f"{folder}/gemm/{engine}/gemm_perf.parquet")
    found: dict[tuple[int, int, int], list[float]] = {}
    for kind, m, n, k, ms in zip(*(table[c] for c in ("gemm_dtype", "m", "n", "k", "latency")), strict=True):
        if kind == dtype and min(n, k) >= SMALLEST:
            found.setdefault((m, n, k), []).append(ms / 1e3)
    return np.array([(*shape, float(np.median(times))) for shape, times in sorted(found.items())])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
