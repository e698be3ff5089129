"""Kernels of one GPU on another whose tensor cores are cut: H20 beside H100, L40 and GeForce beside L40S.

What a kernel reaches of a whole GPU's arithmetic is bounded by what feeds it (shared memory, issue,
exponentials), and that is not cut.  Where it runs beside the products, it hides behind them when they take
twice or four times as long: such a GPU is reached to a larger share, prologues are a smaller part of
products, and narrow tiles lose less.  Where it runs between them, as the softmax of FlashAttention 2, it
takes as long as before, and the products take longer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from railwright.catalog import load_catalog
from railwright.catalog.parts import Gpu
from railwright.serving.kernels.flash2 import KEYS, ROWS, WIDTH

MEASURED_ON = {"a100": "a100-sxm-80", "h100": "h100-sxm", "h200": "h200-sxm", "b200": "b200-sxm"}
"""Tables -> the GPU of the catalogue that they were measured on, where the names differ."""

CUT = 1.5
"""Peak of a multiprocessor over another's from which that one's tensor cores are cut: those of one generation
are otherwise within 1.2 of each other by their clocks; L40 and GeForce cards are at 2, H20 at 4."""

REACHED = 0.94
"""Share of their peak that cut tensor cores reach at most: attention of prompts on an H20 0.943, products in
fp8 0.93 (alibaba/InferSim@f2293da, bench_data, mha/prefill/h20/32-8-128.csv and gemm/h20/data.csv;
Apache-2.0, read 2026-11); products on an RTX 4090, at clocks above its data sheet's, 0.99."""

HIDDEN = ("hopper",)
"""Generations whose attention computes softmax beside products (FlashAttention 3, cuDNN 9): between them on
the others that have cut GPUs, which run FlashAttention 2 (arXiv 2407.08608, section 3.1)."""

SHARES = ("compute", "square", "small")
"""Constants of rows that are shares of the tensor cores' rate."""


def carried(tables: Mapping[str, Any], gpu: Gpu) -> dict[str, Any]:
    """Rows of kernels as they are on a GPU; each says in `of` whose tables it is from."""
    between = gpu.generation not in HIDDEN
    return {name: _carried(part, gpu, between and name == "attention") for name, part in tables.items()}


def _carried(part: Any, gpu: Gpu, between: bool) -> Any:
    if not isinstance(part, Mapping):
        return part
    if "of" not in part:
        return {name: _carried(deeper, gpu, between) for name, deeper in part.items()}
    kin = str(part["of"])
    whole, own = _each(load_catalog().gpus[MEASURED_ON.get(kin, kin)]), _each(gpu)
    if whole < CUT * own:
        return part
    return _between(part, whole, own) if between else _beside(part, whole / own)


def _beside(row: Mapping[str, Any], times: float) -> dict[str, Any]:
    """A row whose kernel hides all else behind products that take `times` as long."""
    reached = {name: max(row[name], min(REACHED, row[name] * times)) for name in SHARES if name in row}
    depth = {"depth": row["depth"] / times} if "depth" in row else {}
    return {**row, **reached, **depth}


def _between(row: Mapping[str, Any], whole: float, own: float) -> dict[str, Any]:
    """A row whose kernel computes all else between its products; of a multiprocessor's rates [flop/s]."""
    if "tile" in row:
        longer = 4.0 * ROWS * KEYS * WIDTH * (1.0 / own - 1.0 / whole)
        return {**row, "tile": row["tile"] + longer, "chain": row["chain"] + longer}
    if "compute" not in row:
        return dict(row)
    return {**row, "compute": 1.0 / (1.0 + (1.0 / row["compute"] - 1.0) * own / whole)}


def _each(gpu: Gpu) -> float:
    """Peak of one multiprocessor in 16 bits. [flop/s]"""
    return (gpu.peak_flops.get("bf16") or gpu.peak_flops["fp16"]) / gpu.sms
