"""Kernels of an H20 and an H800 as serving predicts them, beside measured ones (docs/serving/engine.md).

python tools/serving_h20.py FOLDER
(FOLDER: bench_data of alibaba/InferSim@f2293da, Apache-2.0.)
No constant of an H20 is among those that predict it but serving/kernels/cut.py's REACHED.  InferSim's grouped
products are DeepGEMM's, our experts SGLang's Triton kernels: on an H800, whose tensor cores do not bind them,
these take longer.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape
from railwright.serving.kernels.constants import Kernels, kernels_of
from railwright.serving.kernels.times import decode_seconds, experts_seconds, gemm_seconds, prefill_seconds

Pair = tuple[float, float]
"""Seconds predicted and measured."""
WIDTH = 128
"""Heads of others were not measured for our tables."""


def main(folder: Path) -> None:
    """Mean absolute error and bias of every kernel."""
    for gpu in ("h20", "h800"):
        kernels = kernels_of(load_catalog().gpus[gpu], "sglang")
        for least, most in ((1, 64), (128, 1024), (4096, 65536)):
            show(
                f"{gpu} fp8 products, {least} to {most} rows",
                list(products(kernels, folder, gpu, least, most)),
            )
        for phase in ("prefill", "decode"):
            show(f"{gpu} fp8 experts, {phase}", list(experts(kernels, folder, gpu, phase)))
            show(f"{gpu} attention, {phase}", list(attention(kernels, folder, gpu, phase)))


def show(what: str, pairs: list[Pair]) -> None:
    """One line; none where nothing was measured."""
    if pairs:
        off = np.array([told / seen - 1 for told, seen in pairs])
        print(f"{what:36} {len(off):4}  {np.abs(off).mean():6.1%} {off.mean():+7.1%}")


def products(kernels: Kernels, folder: Path, gpu: str, least: int, most: int) -> Iterator[Pair]:
    row, peak, width, _ = kernels.gemm("fp8_block")
    for one in _rows(folder / "gemm" / gpu / "data.csv"):
        m, n, k = (int(one[name]) for name in "mnk")
        if least <= m <= most:
            # measured without the pass that quantises
            told = gemm_seconds(Shape(m, n, k), row, kernels.speeds, peak, width, quantise=False)
            yield float(told), _seconds(one["latency_us"])


def experts(kernels: Kernels, folder: Path, gpu: str, phase: str) -> Iterator[Pair]:
    """Grouped products alone; ours pass activations and sum copies too."""
    row, peak, width = kernels.experts("fp8_block")
    for one in _rows(folder / "grouped_gemm" / phase / gpu / "data.csv"):
        here, all_of_them = int(one["num_local_experts"]), int(one["num_experts"])
        tokens = int(one.get("batch_size_per_gpu") or one["seq_len_per_gpu"]) * int(one["num_gpus"])
        rows = tokens * int(one["topk"]) * here / all_of_them
        hidden, inner = int(one["hidden_size"]), int(one["intermediate_size"])
        told = experts_seconds(rows, min(here, rows), hidden, inner, row, kernels.speeds, peak, width)
        yield float(told), _seconds(one["up_proj_us"]) + _seconds(one["down_proj_us"])


def attention(kernels: Kernels, folder: Path, gpu: str, phase: str) -> Iterator[Pair]:
    row = kernels.attention(phase, "bf16")
    for file in sorted((folder / "mha" / phase / gpu).glob(f"*-{WIDTH}.csv")):
        heads, kv, _ = map(int, file.stem.split("-"))
        for one in _rows(file):
            if heads > 64 or one["dtype"] != "bf16" or one.get("kv_dtype", "bf16") != "bf16":
                continue
            if phase == "prefill":
                told = prefill_seconds(1, int(one["seq_len"]), 0, heads, 4 * WIDTH, row, kernels.speeds, kv)
            else:
                size, context, cached = int(one["batch_size"]), int(one["kv_len"]), 4 * WIDTH
                told = decode_seconds(size, context, kv, cached, heads, 4 * WIDTH, row, kernels.speeds)
            yield float(told), _seconds(one["latency_us"])


def _rows(file: Path) -> list[dict[str, str]]:
    """Rows of a table; none where the GPU has no such table, or one that begins without its titles."""
    if not file.exists():
        return []
    with file.open(encoding="utf-8") as text:
        found = list(csv.DictReader(text))
    return found if found and any(name.endswith("_us") for name in found[0]) else []


def _seconds(microseconds: str) -> float:
    return float(microseconds) * 1e-6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
