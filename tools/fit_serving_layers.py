"""Fit the RTX 4090's rows (serving/data/kernels/rtx-4090.yaml) on layers measured one by one under vLLM.

Data: casys-kaist/LLMServingSim@5daddb2 (MIT), profiler/perf/RTX4090/meta-llama/Llama-3.1-8B/bf16/tp1.
Run: python tools/fit_serving_layers.py FOLDER-WITH-dense.csv-AND-attention.csv; prints the rows.
"""

from __future__ import annotations

import csv
import sys
from functools import partial
from pathlib import Path

import fit_serving as fit
import numpy as np

from railwright.serving.kernels import Floats, Speeds

SPEEDS = Speeds(165.2e12, 1008e9, 128)
LAYERS = {
    "qkv_proj": (6144, 4096),
    "o_proj": (4096, 4096),
    "gate_up_proj": (28672, 4096),
    "down_proj": (4096, 14336),
}
"""Llama 3.1 8B: columns and inner width of each product."""


def products(file: Path) -> str:
    """The row of bf16 products."""
    rows = [r for r in csv.DictReader(file.open()) if r["layer"] in LAYERS]
    m = np.array([float(r["tokens"]) for r in rows])
    n, k = (np.array([float(LAYERS[r["layer"]][i]) for r in rows]) for i in (0, 1))
    seconds = np.array([float(r["time_us"]) for r in rows]) * 1e-6
    at = fit.sample(np.arange(len(m)), m)
    model = partial(fit._gemm, speeds=SPEEDS, peak=1.0, width=2.0)
    start = np.log([4e-6, 0.8, 0.75, 100.0, 8.0, 4.0, 0.5])
    found = fit.fitted(
        model, (m[at], n[at], k[at]), seconds[at], start, fit.groups_of(n[at], k[at]), fit.GEMM_LIMITS
    )
    values = [*found[0][:4], *fit._shares(found[0][4:])]
    return "gemm bf16: " + fit.written(fit.GEMM_FIELDS, values, found, "vllm/0.19.0")


def attention(file: Path, *, prefill: bool) -> str:
    """The row of decode attention, or of prefill attention without cached tokens."""
    rows = list(csv.DictReader(file.open()))
    if prefill:
        rows = [r for r in rows if r["n_decode"] == "0" and r["kv_prefill"] == "0"]
    else:
        rows = [r for r in rows if r["prefill_chunk"] == "0"]
    length = np.array([float(r["prefill_chunk" if prefill else "kv_decode"]) for r in rows])
    batch = np.array([1.0 if prefill else float(r["n_decode"]) for r in rows])
    keep = (length >= 64) & (batch > 0)
    seconds = np.array([float(r["time_us"]) for r in rows])[keep] * 1e-6
    one = np.ones(int(keep.sum()))
    columns: tuple[Floats, ...] = (batch[keep], length[keep], 8 * one, 512 * one, 32 * one, 512 * one)
    model = partial(fit._prefill if prefill else fit._decode, speeds=SPEEDS)
    start = np.log([1e-5, 0.5, 500.0 if prefill else 1e-6, 0.85, 1e-8])
    found = fit.fitted(
        model, columns, seconds, start, fit.groups_of(columns[0], columns[4]), fit.ATTENTION_LIMITS
    )
    name = "prefill" if prefill else "decode"
    return f"{name}_bf16: " + fit.written(fit.ATTENTION_FIELDS, list(found[0]), found, "vllm/0.19.0")


def ungrouped(file: Path, heads: int) -> str:
    """What decode attention of 16 to 128 requests over 512 to 2,048 tokens draws beside a prompt [byte/s]."""
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    rows = csv.DictReader(file.open())
    at = {tuple(int(r[n]) for n in names): float(r["time_us"]) * 1e-6 for r in rows}
    rates = []
    for (chunk, cached, batch, context), both in at.items():
        alone = at.get((chunk, 0, 0, 0))
        if chunk and alone and not cached and 16 <= batch <= 128 and 512 <= context <= 2048:
            rates.append(batch * heads * context * 512.0 / (both - alone))
    low, middle, high = np.percentile(rates, (10, 50, 90))
    spread = f"{low:.2e} to {high:.2e}"
    return f"ungrouped: {{rate: {middle:.3e}, rows: {len(rates)}, table: vllm/0.19.0}}  # {spread}"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(ungrouped(folder / "attention.csv", 32))
    print(products(folder / "dense.csv"))
    for phase in (False, True):
        print(attention(folder / "attention.csv", prefill=phase))
