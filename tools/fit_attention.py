"""Fit attention's forward rows of compute/data/attention.yaml to the op tables of aiconfigurator-core.

python tools/fit_attention.py WHEEL   (an unpacked or zipped aiconfigurator_core-0.12.0 wheel; needs pyarrow)

Prints one line per GPU and head width: the constants, the rows, the mean error and medians by sequence.  The
product never needs it.  Tables: Apache-2.0, NVIDIA; only the fitted constants are carried.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from fit_gemm import op_table
from numpy.typing import NDArray

TABLES = {
    "a100": ("a100_sxm", "sglang/0.5.10", "flash_attention", 312e12),
    "l40s": ("l40s", "vllm/0.24.0", "vllm_flash_attn_fa2", 362.05e12),
    "rtx-pro-6000": ("rtx_pro_6000_server", "vllm/0.24.0", "vllm_flash_attn_fa2", 480e12),
}
"""Folder, engine, kernel and 16-bit peak [flop/s]."""
WIDTHS = (64, 128)
SHORTEST = 1024
"""Shortest prompt fitted [token]: training's sequences are no shorter."""
TILES = 1500
"""Fewest blocks of 128 queries: below, multiprocessors stand idle."""

Floats = NDArray[np.float64]


def main(wheel: Path) -> None:
    """Fit and print every table."""
    for gpu, (folder, engine, kernel, peak) in TABLES.items():
        for width in WIDTHS:
            rows = _rows(wheel, folder, engine, kernel, width)
            if len(rows):
                print(f"{gpu} {width}: {_fitted(rows, width, peak)}", flush=True)


def _fitted(rows: Floats, width: int, peak: float) -> str:
    """`compute` and `short` of one table, robust least squares on the logarithm."""
    from scipy.optimize import least_squares

    batch, tokens, heads, seconds = rows.T
    rate = 2.0 * batch * heads * tokens**2 * width / seconds  # two products of which a mask leaves half

    def over(x: Floats) -> Floats:
        compute, short = np.exp(x)
        found: Floats = compute * peak * tokens / (tokens + short) / rate
        return found

    fit = least_squares(lambda x: np.log(over(x)), np.log([0.6, 300.0]), loss="soft_l1", f_scale=0.05)
    compute, short = np.exp(fit.x)
    medians = [
        f"{np.median(rate[tokens == at]) / 1e12:.0f}"
        for at in (1024, 2048, 4096, 8192, 16384)
        if (tokens == at).any()
    ]
    error = np.abs(over(fit.x) - 1).mean()
    return (
        f"{{compute: {compute:.3f}, short: {short:.0f}}}  # {len(rows):,} rows, "
        f"mean error {100 * error:.1f} %, TFLOP/s {' '.join(medians)}"
    )


def _rows(wheel: Path, folder: str, engine: str, kernel: str, width: int) -> Floats:
    """(rows, 4) batch, tokens, heads and seconds of causal passes in 16 bits without a window or a cache."""
    table = op_table(wheel, f"{folder}/attention/{engine}/context_attention_perf.parquet")
    count = len(table["latency"])
    window = table.get("window_size", ["0"] * count)
    found = [
        (*(float(table[c][i]) for c in ("batch_size", "isl", "num_heads")), float(table["latency"][i]) / 1e3)
        for i in range(count)
        if table["kernel_source"][i] == kernel
        and int(table["head_dim"][i]) == width
        and table["attn_dtype"][i] == table["kv_cache_dtype"][i] == "bfloat16"
        and str(window[i]) == str(table["step"][i]) == "0"
    ]
    return np.array([r for r in found if r[1] >= SHORTEST and r[0] * r[1] * r[2] / 128 >= TILES])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
