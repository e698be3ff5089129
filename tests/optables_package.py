"""An installed aiconfigurator-core made up of kernels whose constants are known, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape
from railwright.serving.kernels.times import (
    AttentionRow,
    ExpertRow,
    Floats,
    GemmRow,
    Speeds,
    decode_seconds,
    experts_seconds,
    gemm_seconds,
    prefill_seconds,
)

GPU = load_catalog().gpus["h100-sxm"]
SPEEDS = Speeds(GPU.peak_flops["bf16"], GPU.hbm_bandwidth, GPU.sms)
GEMM = GemmRow(4e-6, 0.7, 0.8, 100.0, 0.9, 0.8, 0.3)
DECODE = AttentionRow(fixed=1e-5, compute=0.5, memory=0.85, ramp=2e-6, unit=4e-9)
PREFILL = AttentionRow(fixed=1.2e-5, compute=0.5, memory=0.8, ramp=600.0, unit=1e-8)
EXPERTS = ExpertRow(fixed=2e-5, compute=0.5, memory=0.8, pad=40.0, row=5e-9, spread=8e-6)
NOISE = 0.05
"""Of every measurement, times a normal draw."""

ROWS = (1, 2, 4, 16, 64, 256, 1024, 4096, 16384)
WIDTHS = (2048, 4096, 8192, 14336, 28672)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)

Table = Mapping[str, Any]


def parquet() -> Any:
    """pyarrow's reader and writer; the test is skipped where it is absent."""
    return pytest.importorskip("pyarrow.parquet", reason="pyarrow (extra 'kernels') is not installed")


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, version: str = "0.12.9") -> Path:
    """Put the package into a folder on the path, before any other; answers its tables' folder."""
    about = folder / f"aiconfigurator_core-{version}.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: aiconfigurator-core\nVersion: {version}\n", encoding="utf-8"
    )
    package = folder / "aiconfigurator_core"
    data = package / "systems" / "data"
    (data / "h100_pcie").mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('none of its code is run')\n", encoding="utf-8")
    for name, table in tables().items():
        write(data / "h100_sxm" / name, table)
    monkeypatch.syspath_prepend(str(folder))
    return data


def write(path: Path, table: Table) -> None:
    """One table as a parquet file."""
    import pyarrow

    path.parent.mkdir(parents=True, exist_ok=True)
    parquet().write_table(pyarrow.table(dict(table)), path)


def tables() -> dict[str, Table]:
    """Every kind of table that is read, of vLLM 0.30.0 (products of 0.29.0 too, all-reduces of it only)."""
    return {
        "gemm/vllm/0.30.0/gemm_perf.parquet": products(),
        "gemm/vllm/0.29.0/gemm_perf.parquet": products(),
        "attention/vllm/0.30.0/generation_attention_perf.parquet": decodes(),
        "attention/vllm/0.30.0/context_attention_perf.parquet": prefills(),
        "moe/vllm/0.30.0/moe_perf.parquet": experts(),
        "comm/vllm/0.29.0/custom_allreduce_perf.parquet": reductions(),
    }


def products() -> Table:
    m, n, k = _grid(ROWS, WIDTHS, WIDTHS)
    seconds = gemm_seconds(Shape(m, n, k), GEMM, SPEEDS, 1.0, 2.0, False)
    return {"gemm_dtype": ["bfloat16"] * len(m), "m": m, "n": n, "k": k, "latency": _noisy(seconds, 1)}


def decodes() -> Table:
    b, c, heads, kv = _grid((1, 4, 16, 64, 256), (128, 512, 2048, 8192), (8, 16, 32), (1, 4, 8))
    seconds = decode_seconds(b, c, kv, 512.0, heads, 512.0, DECODE, SPEEDS)
    return {**_attention(b, heads, kv), "isl": b * 0 + 1, "step": c - 1, "latency": _noisy(seconds, 2)}


def prefills() -> Table:
    b, n, heads, kv = _grid((1, 2, 4, 8), (128, 512, 1024, 2048, 4096), (8, 16, 32), (1, 4, 8))
    seconds = prefill_seconds(b, n, 0.0, heads, 512.0, PREFILL, SPEEDS)
    return {**_attention(b, heads, kv), "isl": n, "step": b * 0, "latency": _noisy(seconds, 3)}


def _attention(b: Floats, heads: Floats, kv: Floats) -> Table:
    return {
        "kv_cache_dtype": ["bfloat16"] * len(b),
        "attn_dtype": ["bfloat16"] * len(b),
        "batch_size": b,
        "num_heads": heads,
        "num_key_value_heads": kv,
        "head_dim": b * 0 + 128,
        "window_size": b * 0,
    }


def experts() -> Table:
    tokens, number, hidden, inner, ep = _grid(TOKENS, (8, 64), (2048, 4096), (1024, 4096), (1, 2, 4))
    rows, inside = tokens * 2 / ep, number / ep
    active = np.minimum(inside, np.maximum(rows, 1.0))
    spread = (ep > 1).astype(float)
    seconds = experts_seconds(rows, active, hidden, inner, EXPERTS, SPEEDS, 1.0, 2.0, spread=spread)
    return {
        "moe_dtype": ["bfloat16"] * len(tokens),
        "kernel_source": ["triton"] * len(tokens),
        "distribution": ["balanced"] * len(tokens),
        "num_tokens": tokens,
        "topk": tokens * 0 + 2,
        "num_experts": number,
        "moe_tp_size": tokens * 0 + 1,
        "moe_ep_size": ep,
        "hidden_size": hidden,
        "inter_size": inner,
        "latency": _noisy(seconds, 4),
    }


def reductions() -> Table:
    ranks, size = _grid((2, 4, 8), tuple(2**p for p in range(10, 27, 2)))
    return {
        "kernel_source": ["graph"] * len(size),
        "num_gpus": ranks,
        "message_size": size,
        "latency": 5e-3 + size * 2.0 / 2e8,
    }


def _grid(*axes: tuple[int, ...]) -> tuple[Floats, ...]:
    return tuple(np.array(column, float) for column in zip(*product(*axes), strict=True))


def _noisy(seconds: Floats, seed: int) -> Floats:
    """Milliseconds, as the tables have them."""
    draw = np.random.default_rng(seed)
    return seconds * 1e3 * np.exp(NOISE * draw.standard_normal(len(seconds)))
