"""Fit serving/data/kernels/*.yaml to the op tables of the PyPI package aiconfigurator-core.

PYTHONPATH=src python tools/fit_serving.py WHEEL src/railwright/serving/data/kernels [GPU]
(WHEEL: an unpacked aiconfigurator_core-0.12.0; needs pyarrow and scipy, which the product never does.)

Each row carries the mean error of its fit [%] (`error`) and that on what was left out of it (`left_out`: five
folds over the shapes or head configurations).  Kernel measurements only: no end-to-end row is read.
Tables: Apache-2.0, NVIDIA; only the fitted constants are carried.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from railwright.compute.gemm import Shape
from railwright.serving.kernels import (
    AttentionRow,
    ExpertRow,
    GemmRow,
    Speeds,
    decode_seconds,
    experts_seconds,
    gemm_seconds,
    prefill_seconds,
)

Floats = NDArray[np.float64]
Columns = Mapping[str, NDArray[np.generic]]
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

CACHE = {"a100": 40e6, "h100": 50e6, "h200": 50e6, "b200": 126e6, "gb200": 126e6, "l40s": 96e6}
CACHE["rtx-pro-6000"] = 128e6
"""Level-2 caches [byte]: keys and values that fit stay there between runs, as they never do in an engine, so
rows around its size that beat the memory are left out."""

BESIDE_FP8 = "w4a8_mxfp4_mxfp8"
"""mxfp4 weights with mxfp8 activations: what TensorRT-LLM runs on Blackwell, and so its mxfp4 there."""

PEAK = {"bfloat16": 1.0, "fp8": 2.0, "fp8_block": 2.0, "nvfp4": 4.0, "w4a16_mxfp4": 1.0, "int4_wo": 1.0}
WIDTH = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "w4a16_mxfp4": 0.53, "int4_wo": 0.53}
NAMES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
NAMES |= {"w4a16_mxfp4": "mxfp4", "int4_wo": "int4", BESIDE_FP8: "mxfp4"}
PEAK[BESIDE_FP8], WIDTH[BESIDE_FP8] = 2.0, 0.53
"""By the tables' name of a dtype: peak over that of bf16, bytes of a weight with its scales, our name."""

GEMM = {
    "bfloat16": {"a100": "sglang/0.5.10", "": "vllm/0.24.0"},
    "fp8": {"b200": "sglang/0.5.14", "gb200": "sglang/0.5.14", "": "vllm/0.24.0"},
    "fp8_block": {"l40s": "", "rtx-pro-6000": "", "": "sglang/0.5.14"},
    "nvfp4": {"": "vllm/0.24.0"},
}
"""dtype -> GPU -> table: the engine whose kernels run without a pause of the host between them ('': none)."""
APART = {"fp8": "trtllm/1.3.0rc20", "nvfp4": "trtllm/1.3.0rc20"}
"""dtype -> table whose products quantise their activations in a kernel of its own ('fp8_apart')."""
STATIC = {"fp8": "trtllm/1.3.0rc20"}
"""dtype -> table from whose products the time of finding scales is taken ('fp8_static'): TensorRT plans
quantise by the checkpoint's scales."""
WORST_STATIC = 15.0
"""Error from which such a difference of two tables is refused [%]."""

OF_A100 = ("vllm/0.14.0", "trtllm/1.0.0", "sglang/0.5.10")
LATEST = ("vllm/0.24.0", "trtllm/1.3.0rc20", "sglang/0.5.14")
MIN_LATENCY = "moe_torch_flow_min_latency"
"""TensorRT-LLM's kernels for nvfp4 experts on Blackwell, in the table of several."""

KNOTS = tuple(float(2**p) for p in (11, 15, 17, 18, 19, 20, 21, 22, 23, 25, 27, 29))
"""Sizes at which all-reduces are tabulated [byte]; the tables count elements of two bytes."""

FOLDS = 5
SAMPLE = 2500


def _limits(low: list[float], high: list[float]) -> tuple[Floats, Floats]:
    return np.log(low), np.log(high)


GEMM_LIMITS = _limits([1.5e-6, 0.1, 0.2, 1.0, 0.05, 0.05, 0.01], [2e-5, 1.0, 1.0, 600.0, 1e3, 1e3, 1e2])
ATTENTION_LIMITS = _limits([3e-6, 0.02, 1e-9, 0.3, 1e-12], [1e-4, 1.0, 1e4, 1.0, 1e-6])
EXPERT_LIMITS = _limits([1e-6, 0.02, 0.2, 0.1, 1e-13, 1e-8], [3e-4, 1.0, 1.0, 300.0, 1e-6, 1e-4])
"""What a constant can be on any machine: no fraction above one, no kernel without a launch."""


def main(wheel: Path, folder: Path, only: str | None = None) -> None:
    """Write the file of every GPU, or of one, keeping the comment it begins with."""
    for gpu in SPEEDS:
        if only not in (None, gpu):
            continue
        file = folder / f"{gpu}.yaml"
        old = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        lines = [line for line in old if line.startswith("#")]
        shown: tuple[str, ...] = ()
        for path, text in sorted(line for part in PARTS for line in part(wheel, gpu)):
            for depth, key in enumerate(path[:-1]):
                if shown[: depth + 1] != path[: depth + 1]:
                    lines.append("  " * depth + f"{key}:")
            lines.append("  " * (len(path) - 1) + f"{path[-1]}: {text}")
            shown = path[:-1]
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def gemms(wheel: Path, gpu: str) -> Iterator[Line]:
    """Dense products of 1 to 16,384 rows by dtype, quantising the activations included.

    Matrices of 8 to 268 million weights, at most eight times as long as wide, as layers have.
    """
    folder, speeds = SPEEDS[gpu]
    chosen = [(dtype, NAMES[dtype], tables.get(gpu, tables[""])) for dtype, tables in GEMM.items()]
    apart = [(d, f"{d}_apart", e) for d, e in APART.items()]
    for dtype, name, engine in [*chosen, *apart, *((d, f"{d}_static", e) for d, e in STATIC.items())]:
        table = read(wheel, f"{folder}/gemm/{engine}/gemm_perf.parquet") if engine else None
        if table is None:
            continue
        m, n, k, seconds = (np.asarray(table[c], float) for c in ("m", "n", "k", "latency"))
        keep = (table["gemm_dtype"] == dtype) & (np.minimum(n, k) >= 1024) & (m <= 16384)
        keep &= (n * k >= 2**23) & (n * k <= 2**28) & (np.maximum(n, k) <= 8 * np.minimum(n, k))
        static = name.endswith("_static")
        if static:
            scales = _scales(wheel, f"{folder}/quantize/{engine}", m, k)
            if scales is None:
                continue
            seconds = seconds - scales
            # little of it left: the two tables were not measured alike
            keep &= seconds > 0.1 * scales
        at = sample(np.flatnonzero(keep), m)
        if len(at):
            model = partial(
                _gemm, speeds=speeds, peak=PEAK[dtype], width=WIDTH[dtype], quantise=WIDTH[dtype] < 2.0
            )
            start = np.log([4e-6, 0.8, 0.75, 100.0, 8.0, 4.0, 0.5])
            shape = (m[at], n[at], k[at])
            found = fitted(model, shape, seconds[at] / 1e3, start, groups_of(n[at], k[at]), GEMM_LIMITS)
            if static and found[1] > WORST_STATIC:
                continue
            yield (
                ("gemm", name),
                written(GEMM_FIELDS, [*found[0][:4], *_shares(found[0][4:])], found, engine),
            )


GEMM_FIELDS = "fixed compute memory depth square small even"
ATTENTION_FIELDS = "fixed compute ramp memory unit"
EXPERT_FIELDS = "fixed compute memory pad row spread"


def _shares(odds: Floats) -> Floats:
    return odds / (1 + odds)


def _gemm(
    x: Floats, m: Floats, n: Floats, k: Floats, *, speeds: Speeds, peak: float, width: float, quantise: bool
) -> Floats:
    row = GemmRow(*x[:4], *_shares(x[4:]))
    return gemm_seconds(Shape(m, n, k), row, speeds, peak, width, quantise=quantise)


def _scales(wheel: Path, folder: str, m: Floats, k: Floats) -> Floats | None:
    """Time of finding the scales of m x k activations [ms], linear between the table's sizes."""
    table = read(wheel, f"{folder}/computescale_perf.parquet")
    if table is None:
        return None
    rows, widths, each = (np.asarray(table[c], float) for c in ("m", "k", "latency"))
    order = np.argsort(rows * widths)
    return np.interp(m * k, (rows * widths)[order], each[order])


def attention(wheel: Path, gpu: str) -> Iterator[Line]:
    """Attention by engine: decode and prefill, of cached bf16 or fp8, with grouped heads and latent (MLA)."""
    for engine in OF_A100 if gpu == "a100" else LATEST:
        for latent, room in ((False, "attention"), (True, "mla")):
            kind = "mla" if latent else "attention"
            for prefill, phase in ((False, "generation"), (True, "context")):
                table = read(wheel, f"{SPEEDS[gpu][0]}/{room}/{engine}/{phase}_{kind}_perf.parquet")
                for kv in sorted(set(table["kv_cache_dtype"].astype(str))) if table else ():
                    line = _attention(table or {}, gpu, engine, kv, latent=latent, prefill=prefill)
                    if line is not None:
                        name = f"{'mla_' if latent else ''}{'prefill' if prefill else 'decode'}"
                        yield ("attention", engine.split("/")[0], f"{name}_{NAMES.get(kv, kv)}"), line


def _attention(table: Columns, gpu: str, engine: str, kv: str, *, latent: bool, prefill: bool) -> str | None:
    speeds = SPEEDS[gpu][1]
    heads, batch = np.asarray(table["num_heads"], float), np.asarray(table["batch_size"], float)
    shared = heads * 0 + 1 if latent else np.asarray(table["num_key_value_heads"], float)
    shared = np.where(shared == 0, heads, shared)
    wide = np.asarray(table["head_dim"], float) if "head_dim" in table else heads * 0 + 128.0
    length = np.asarray(table["isl"] if prefill else table["step"], float) + (0 if prefill else 1)
    seconds = np.asarray(table["latency"], float) / 1e3
    byte = 1.0 if "fp8" in kv else 2.0
    # one token of the cache: keys and values of one head, or the latent vector with its rotary part
    cached = 576.0 * byte + 0 * heads if latent else 2 * wide * byte
    # 2 x (width of a score + width of a value) for every query head and key
    work = (2 * (192.0 + 128) if prefill else 2 * (576.0 + 512)) + 0 * heads if latent else 4 * wide
    keep = (table["kv_cache_dtype"].astype(str) == kv) & (seconds < 0.02) & (length >= 64)
    keep &= np.isin(wide, (64.0, 128.0))
    if "window_size" in table:
        keep &= np.nan_to_num(np.asarray(table["window_size"], float)) == 0
    if "attn_dtype" in table:
        keep &= table["attn_dtype"].astype(str) == "bfloat16"
    if not prefill:
        # faster than the memory could feed it, so fed by the cache; what is slower is the kernel's own
        total = batch * length * shared * cached
        beyond = keep & (total > 3 * CACHE[gpu]) & (total / seconds > 1.1 * speeds.bandwidth)
        if beyond.sum() > 0.02 * keep.sum():
            return None  # the table reads less than it says: faster than the memory is
        held = seconds < 9e-6 + 1.15 * total / speeds.bandwidth
        keep &= (total < 0.1 * CACHE[gpu]) | (total > 1.5 * CACHE[gpu]) | ~held
    at = sample(np.flatnonzero(keep), batch * length)
    if len(at) < 50:
        return None
    columns = tuple(c[at] for c in (batch, length, shared, cached, heads, work))
    groups = groups_of(heads[at], shared[at], cached[at])
    start = np.log([1e-5, 0.5, 500.0 if prefill else 1e-6, 0.85, 1e-8])
    model = partial(_prefill if prefill else _decode, speeds=speeds)
    found = fitted(model, columns, seconds[at], start, groups, ATTENTION_LIMITS)
    return written(ATTENTION_FIELDS, list(found[0]), found, engine)


def _attention_row(x: Floats) -> AttentionRow:
    return AttentionRow(fixed=x[0], compute=x[1], ramp=x[2], memory=x[3], unit=x[4])


def _prefill(
    x: Floats, b: Floats, n: Floats, s: Floats, c: Floats, h: Floats, w: Floats, *, speeds: Speeds
) -> Floats:
    return prefill_seconds(b, n, 0.0, h, w, _attention_row(x), speeds)


def _decode(
    x: Floats, b: Floats, n: Floats, s: Floats, c: Floats, h: Floats, w: Floats, *, speeds: Speeds
) -> Floats:
    return decode_seconds(b, n, s, c, h, w, _attention_row(x), speeds)


def experts(wheel: Path, gpu: str) -> Iterator[Line]:
    """Routed experts of one layer by engine and dtype, where the table shows how many experts have tokens."""
    for engine in OF_A100 if gpu == "a100" else LATEST:
        table = read(wheel, f"{SPEEDS[gpu][0]}/moe/{engine}/moe_perf.parquet")
        found = set(table["moe_dtype"].astype(str)) & set(WIDTH) if table else set()
        unused = "w4a16_mxfp4" if engine.startswith("trtllm") and BESIDE_FP8 in found else BESIDE_FP8
        for dtype in sorted(found - {unused}):
            line = _experts(table or {}, gpu, engine, dtype)
            if line is not None:
                yield ("experts", engine.split("/")[0], NAMES[dtype]), line


def _experts(table: Columns, gpu: str, engine: str, dtype: str) -> str | None:
    names = ("num_tokens", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "hidden_size", "inter_size")
    tokens, topk, number, tp, ep, hidden, inner = (np.asarray(table[n], float) for n in names)
    seconds = np.asarray(table["latency"], float) / 1e3
    source, dealt = table["kernel_source"].astype(str), table["distribution"].astype(str)
    keep = (table["moe_dtype"].astype(str) == dtype) & (hidden >= 2048) & (topk <= 10) & (inner / tp >= 128)
    # other activations than the models' here have kernels of their own
    keep &= (np.char.find(source, "nongated") < 0) & (np.char.find(source, "situ") < 0) & (seconds < 0.03)
    if (keep & (source == MIN_LATENCY)).any():
        keep &= source == MIN_LATENCY
    # dealt evenly, each copy to another expert until all have one (above 160 experts the tables deal
    # otherwise); or by a power law, with so many tokens that every expert has some
    even = (dealt == "balanced") & (number <= 160)
    skewed = (dealt == "power_law_1.01") & (number > 160) & (ep == 1) & (tokens * topk >= 16 * number)
    keep &= even | skewed
    at = sample(np.flatnonzero(keep), tokens)
    if len(at) < 50:
        return None
    rows = tokens * topk / ep
    active = np.minimum(number / ep, np.maximum(rows, 1.0))
    columns = tuple(c[at] for c in (rows, active, hidden, inner / tp, (ep > 1).astype(float)))
    model = partial(_grouped, speeds=SPEEDS[gpu][1], peak=PEAK[dtype], width=WIDTH[dtype])
    # tiles that round up far and a memory that is not reached look alike: the better of both is kept
    starts = [np.log([3e-5, 0.4, memory, pad, 1e-9, 1e-6]) for memory, pad in ((0.85, 64.0), (0.5, 2.0))]
    groups = groups_of(hidden[at], inner[at])
    found = min(
        (fitted(model, columns, seconds[at], start, groups, EXPERT_LIMITS) for start in starts),
        key=lambda fit: fit[1],
    )
    return written(EXPERT_FIELDS, list(found[0]), found, engine)


def _grouped(
    x: Floats,
    r: Floats,
    a: Floats,
    h: Floats,
    i: Floats,
    e: Floats,
    *,
    speeds: Speeds,
    peak: float,
    width: float,
) -> Floats:
    return experts_seconds(r, a, h, i, ExpertRow(*x), speeds, peak, width, spread=e)


def reductions(wheel: Path, gpu: str) -> Iterator[Line]:
    """Seconds of each engine's own all-reduce at KNOTS inside a CUDA graph, by number of GPUs."""
    for engine in OF_A100 if gpu == "a100" else LATEST:
        table = read(wheel, f"{SPEEDS[gpu][0]}/comm/{engine}/custom_allreduce_perf.parquet")
        if table is None:
            continue
        graph = np.char.find(table["kernel_source"].astype(str), "eager") < 0
        for ranks in sorted(set(table["num_gpus"].tolist())):
            keep = graph & (table["num_gpus"] == ranks)
            sizes, times = (
                2.0 * np.asarray(table["message_size"], float)[keep],
                np.asarray(table["latency"])[keep],
            )
            found = [np.median(times[sizes == s]) / 1e3 for s in KNOTS if (sizes == s).any()]
            if len(found) == len(KNOTS):
                text = ", ".join(f"{v:.2e}" for v in np.maximum.accumulate(found))
                yield ("all_reduce", engine.split("/")[0], str(ranks)), f"[{text}]"


PARTS: tuple[Callable[[Path, str], Iterator[Line]], ...] = (gemms, attention, experts, reductions)

Fit = tuple[Floats, float, float, int]
"""Constants, mean error, mean error on what was left out [%], rows."""


def fitted(
    model: Callable[..., Floats],
    columns: tuple[Floats, ...],
    seconds: Floats,
    start: Floats,
    groups: NDArray[np.intp],
    limits: tuple[Floats, Floats],
) -> Fit:
    """Robust least squares on the logarithm of predicted over measured."""
    from scipy.optimize import least_squares

    def solve(at: NDArray[np.bool_], begin: Floats, most: int) -> Floats:
        own, wanted = tuple(c[at] for c in columns), seconds[at]

        def off(x: Floats) -> Floats:
            return np.asarray(np.log(model(np.exp(x), *own) / wanted))

        inside = np.clip(begin, limits[0] + 1e-6, limits[1] - 1e-6)
        found = least_squares(
            off, inside, bounds=limits, loss="soft_l1", f_scale=0.1, x_scale=0.3, max_nfev=most
        )
        return np.asarray(found.x)

    everything = np.ones(len(seconds), bool)
    best = solve(everything, start, 80)
    error = np.abs(model(np.exp(best), *columns) / seconds - 1).mean()
    left: list[Floats] = []
    for fold in range(FOLDS):
        out = groups % FOLDS == fold
        if out.any() and not out.all():
            x = solve(~out, best, 15)
            left.append(np.abs(model(np.exp(x), *(c[out] for c in columns)) / seconds[out] - 1))
    beyond = float(np.concatenate(left).mean()) if left else float(error)
    return np.exp(best), 100 * float(error), 100 * beyond, len(seconds)


def written(names: str, values: list[float], found: Fit, engine: str) -> str:
    """One row as YAML."""
    pairs = ", ".join(f"{n}: {v:.3e}" for n, v in zip(names.split(), values, strict=True))
    _, error, beyond, rows = found
    return f"{{{pairs}, error: {error:.1f}, left_out: {beyond:.1f}, rows: {rows}, table: {engine}}}"


def groups_of(*columns: Floats) -> NDArray[np.intp]:
    """A number for every combination of the columns' values."""
    return np.asarray(np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel())


def sample(found: NDArray[np.intp], size: Floats) -> NDArray[np.intp]:
    """At most SAMPLE rows, as many from every octave pair of `size`: small batches weigh as much as large."""
    if len(found) <= SAMPLE:
        return found
    rng = np.random.default_rng(0)
    octaves = np.floor(np.log2(np.maximum(size[found], 1)) / 2)
    share = SAMPLE // len(set(octaves))
    return np.concatenate([rng.permutation(found[octaves == d])[:share] for d in sorted(set(octaves))])


def read(wheel: Path, name: str) -> Columns | None:
    """One table as columns, or None where the wheel has none."""
    import pyarrow.parquet as parquet

    path = wheel / "aiconfigurator_core/systems/data" / name
    if not path.exists():
        return None
    table = parquet.read_table(path)
    return {c: np.asarray(table.column(c).to_pylist()) for c in table.column_names}


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:])
