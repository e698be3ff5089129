"""Fit rows of the RTX 4090 and RTX PRO 6000 on layers measured one by one under vLLM 0.19.

Data: casys-kaist/LLMServingSim@5daddb2 (MIT), profiler/perf/CARD/MODEL/bf16/tpN: dense, attention, skew, moe.
Run: python tools/fit_serving_layers.py PROFILER/perf RTX4090|RTXPRO6000; prints the rows (needs scipy).
Weights and caches that fit the level-2 cache, and so were read faster than the memory is, are left out.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from fit_serving import written

from railwright.compute.gemm import Shape
from railwright.measure.optables import attending, routed
from railwright.measure.optables import products as dense
from railwright.measure.optables.fitting import Fit, fitted, groups_of, sample
from railwright.serving.kernels.flash2 import (
    TileRow,
    beside_seconds,
    chunk_seconds,
    empty_seconds,
    splits,
    uneven_seconds,
)
from railwright.serving.kernels.times import ExpertRow, Floats, GemmRow, Speeds, experts_seconds, gemm_seconds

Products = dict[str, tuple[int, int]]
"""Layer -> columns and inner width."""


@dataclass(frozen=True)
class Bundle:
    """One folder of a card's tables: heads and key/value heads of a GPU, and its products."""

    folder: str
    heads: int
    kv_heads: int
    products: Products


def _dense(hidden: int, ffn: int, heads: int, kv: int) -> Products:
    return {
        "qkv_proj": ((heads + 2 * kv) * 128, hidden),
        "o_proj": (hidden, heads * 128),
        **({"gate_up_proj": (2 * ffn, hidden), "down_proj": (hidden, ffn)} if ffn else {}),
    }


def _bundles(model: str, hidden: int, ffn: int, heads: int, kv: int) -> Iterator[Bundle]:
    for cut in (1, 2):
        own = _dense(hidden, ffn // cut, heads // cut, kv // cut)
        yield Bundle(f"{model}/bf16/tp{cut}", heads // cut, kv // cut, own)


LLAMA = ("meta-llama/Llama-3.1-8B", 4096, 14336, 32, 8)
MOE = "Qwen/Qwen3-30B-A3B-Instruct-2507"
CARDS: dict[str, tuple[Speeds, float, tuple[Bundle, ...]]] = {
    "RTX4090": (Speeds(165.2e12, 1008e9, 128), 72e6, tuple(_bundles(*LLAMA))[:1]),
    "RTXPRO6000": (
        Speeds(480e12, 1.597e12, 188),
        128e6,
        (
            *_bundles(*LLAMA),
            *_bundles("Qwen/Qwen3-32B", 5120, 25600, 64, 8),
            *_bundles(MOE, 2048, 0, 32, 4),
        ),
    ),
}
"""Card -> speeds, level-2 cache [byte], tables."""

REPEATS = 3.0
"""skew.csv holds the sum of its three runs (attention.csv, at the same batches, a third of it)."""


def rows_of(file: Path) -> list[dict[str, str]]:
    with file.open() as opened:
        return list(csv.DictReader(opened))


def products(root: Path, speeds: Speeds, bundles: tuple[Bundle, ...]) -> tuple[GemmRow, str]:
    """The row of bf16 products, and as text."""
    found: list[tuple[float, ...]] = []
    for bundle in bundles:
        for r in rows_of(root / bundle.folder / "dense.csv"):
            if r["layer"] in bundle.products:
                columns, inner = bundle.products[r["layer"]]
                found.append((float(r["tokens"]), columns, inner, float(r["time_us"]) * 1e-6))
    m, n, k, seconds = np.array(found, float).T
    at = np.flatnonzero(2.0 * n * k / seconds < speeds.bandwidth)
    at = at[sample(np.arange(len(at)), m[at])]
    model = partial(dense.product_model, speeds=speeds, peak=1.0, width=2.0, quantise=False)
    start = np.log([4e-6, 0.8, 0.75, 100.0, 8.0, 4.0, 0.5])
    best = fitted(model, (m[at], n[at], k[at]), seconds[at], start, groups_of(n[at], k[at]), dense.LIMITS)
    values = [*best.values[:4], *dense.shares(best.values[4:])]
    return GemmRow(*values), "gemm bf16: " + _row(" ".join(dense.FIELDS), values, best)


def elements(root: Path, speeds: Speeds, bundles: tuple[Bundle, ...], gemm: GemmRow) -> str:
    """The row of element-wise kernels: the sum of a layer's norms, rotary embedding and activation.

    Bytes as serving/engine/operators.py counts them: eight a value of each norm, six one of the activation.
    """
    found: list[tuple[float, ...]] = []
    for bundle in bundles:
        times: dict[str, dict[int, float]] = {}
        for r in rows_of(root / bundle.folder / "dense.csv"):
            times.setdefault(r["layer"], {})[int(r["tokens"])] = float(r["time_us"]) * 1e-6
        ffn = bundle.products["down_proj"][1] if "down_proj" in bundle.products else 0
        own = ["layernorm", "layernorm", "rotary_emb", *(["act_fn"] if ffn else [])]
        own += ["qk_norm"] if "qk_norm" in times else []
        for n in set.intersection(*(set(times[layer]) for layer in own)):
            norms = 8.0 * bundle.products["qkv_proj"][1] * n, 2 + ("qk_norm" in times)
            found.append((*norms, 6.0 * ffn * n, ffn > 0, sum(times[layer][n] for layer in own)))
    *columns, seconds = np.array(found, float).T
    memory = gemm.memory * speeds.bandwidth

    def model(x: Floats, *at: Floats) -> Floats:
        def one(moved: Floats) -> Floats:
            cached = np.minimum(moved, x[2])
            return np.asarray(x[0] + cached / x[1] + (moved - cached) / memory)

        norm, norms, active, acts = at
        return np.asarray(norms * one(norm) + acts * one(active))

    limits = (np.log([1e-7, 1e11, 1e6]), np.log([1e-4, 1e14, 1e9]))
    groups = groups_of(columns[0])
    best = fitted(model, tuple(columns), seconds, np.log([2e-6, 3e12, 4e7]), groups, limits)
    return "elementwise: " + _row("fixed rate cache", best.values, best)


def decodes(root: Path, speeds: Speeds, cache: float, bundles: tuple[Bundle, ...]) -> str:
    """The row of decode attention."""
    found: list[tuple[float, ...]] = []
    for bundle in bundles:
        for r in rows_of(root / bundle.folder / "attention.csv"):
            batch, length = float(r["n_decode"]), float(r["kv_decode"])
            read = batch * length * bundle.kv_heads * 512.0
            if r["prefill_chunk"] == "0" and batch and length >= 64 and not cache / 8 < read < cache:
                shape = (batch, length, bundle.kv_heads, 512.0, bundle.heads, 512.0)
                found.append((*shape, float(r["time_us"]) * 1e-6))
    *columns, seconds = np.array(found, float).T
    model = partial(attending.decode_model, speeds=speeds)
    start = np.log([1e-5, 0.5, 1e-6, 0.85, 1e-8])
    groups = groups_of(columns[0], columns[2])
    best = fitted(model, tuple(columns), seconds, start, groups, attending.LIMITS)
    return "decode_bf16: " + _row(" ".join(attending.FIELDS), best.values, best)


def tiles(root: Path, speeds: Speeds, cache: float, bundles: tuple[Bundle, ...]) -> str:
    """The row of FlashAttention 2's thread blocks: steps with prompts, and the longest context left alone."""
    found: list[tuple[float, ...]] = []
    for bundle in bundles:
        for r in rows_of(root / bundle.folder / "attention.csv"):
            new, cached, batch, context = (
                float(r[c]) for c in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
            )
            # one head's keys and values stay in the cache; blocks outnumber multiprocessors by far
            fits = batch * context * 512.0 < 0.75 * cache
            if new >= 128 and fits and cached <= 4096 and batch >= 16:
                shape = (new, cached, batch, context, bundle.heads)
                found.append((*shape, float(r["time_us"]) * 1e-6))
    *columns, seconds = np.array(found, float).T

    def model(x: Floats, *at: Floats) -> Floats:
        fixed, tile, opened, empty = x
        row = TileRow(fixed, tile, opened, empty, 0.0)
        new, cached, batch, context, heads = at
        own = chunk_seconds(new, cached, 1.0, row, speeds.sms)
        own = own + beside_seconds(batch, context, 1.0, row, speeds.sms)
        empty = batch * np.maximum(new - 64.0, 0.0) * empty_seconds(1.0, row, speeds.sms)
        return np.asarray(row.fixed + heads * (own + empty))

    limits = (np.log([1e-6] + 3 * [1e-8]), np.log([5e-5] + 3 * [1e-4]))
    groups = groups_of(columns[0], columns[2])
    best = fitted(model, tuple(columns), seconds, np.log([5e-6, 3e-6, 3e-6, 3e-7]), groups, limits)
    chain = _chain(root, speeds, bundles)
    return "tiles: " + _row("fixed tile open empty chain", [*best.values, chain], best)


def _chain(root: Path, speeds: Speeds, bundles: tuple[Bundle, ...]) -> float:
    """Seconds of a tile in the longest context's block, least squares over batches that are not split."""
    once, more = [], []
    unit = TileRow(0.0, 0.0, 0.0, 0.0, 1.0)
    for bundle in bundles:
        for r in rows_of(root / bundle.folder / "skew.csv"):
            n, big, mean = (np.array(float(r[c])) for c in ("n", "kv_big", "kv_mean"))
            # the longest come first here, so that all the others of their head are read meanwhile: twice the
            # mean of a random order
            left = float(uneven_seconds(2.0 * n, mean, big, unit, speeds.sms))
            whole = not splits(n, bundle.kv_heads, speeds.sms)
            if r["regime"] == "pure" and whole and n * mean / speeds.sms < big - mean:
                once.append(left)
                more.append((float(r["t_skew_us"]) - float(r["t_mean_us"])) / REPEATS * 1e-6)
    x, y = np.array(once), np.array(more)
    print(f"# chain: {len(x)} batches, residual {np.sqrt(np.mean((y - x * (x @ y) / (x @ x)) ** 2)):.1e} s")
    return float(x @ y / (x @ x))


def experts(root: Path, speeds: Speeds, cache: float, gemm: GemmRow) -> str:
    """The row of bf16 experts, the router's product taken off: 128 of 2,048 x 768, eight a token."""
    found = [
        (float(r["tokens"]), float(r["activated_experts"]), float(r["time_us"]) * 1e-6)
        for r in rows_of(root / f"{MOE}/bf16/tp1" / "moe.csv")
        if float(r["activated_experts"]) * 3 * 2048 * 768 * 2 > cache
    ]
    tokens, active, seconds = np.array(found).T

    wide = np.full_like(tokens, 2048.0)
    router = gemm_seconds(Shape(tokens, wide / 16, wide), gemm, speeds, 1.0, 2.0, False)

    def model(x: Floats, rows: Floats, busy: Floats) -> Floats:
        return experts_seconds(rows, busy, 2048.0, 768.0, ExpertRow(*x), speeds, 1.0, 2.0)

    limits = (routed.LIMITS[0][:5], routed.LIMITS[1][:5])
    start = np.log([3e-5, 0.4, 0.85, 64.0, 1e-9])
    groups = groups_of(active)
    best = fitted(model, (8.0 * tokens, active), seconds - router, start, groups, limits)
    return "experts bf16: " + _row("fixed compute memory pad row", best.values, best)


def _row(names: str, values: Iterable[float], fit: Fit) -> str:
    """One row as YAML, of constants in the order of their names."""
    return written(dict(zip(names.split(), values, strict=True)), fit, "vllm/0.19.0")


if __name__ == "__main__":
    base, card = Path(sys.argv[1]) / sys.argv[2], sys.argv[2]
    own_speeds, own_cache, own = CARDS[card]
    gemm_row, text = products(base, own_speeds, own)
    print(text)
    print(elements(base, own_speeds, own, gemm_row))
    print(decodes(base, own_speeds, own_cache, own))
    print(tiles(base, own_speeds, own_cache, own))
    if card == "RTXPRO6000":
        print(experts(base, own_speeds, own_cache, gemm_row))
