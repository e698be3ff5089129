"""Dense products: from rows of a `gemm` table to constants and points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np

from railwright.compute.gemm import Shape
from railwright.measure.optables.fitting import (
    Fit,
    Floats,
    Found,
    Measured,
    Subject,
    Tables,
    fitted,
    groups_of,
    limits,
    sample,
)
from railwright.measure.optables.package import Columns, settings
from railwright.serving.kernels.times import GemmRow, Speeds, gemm_seconds

NAMES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
FIELDS = ("fixed", "compute", "memory", "depth", "square", "small", "even")
LIMITS = limits([1.5e-6, 0.1, 0.2, 1.0, 0.05, 0.05, 0.01], [2e-5, 1.0, 1.0, 600.0, 1e3, 1e3, 1e2])
"""No fraction above one, no kernel without a launch; shares as odds."""

WORST_STATIC = 15.0
"""Error from which a difference of two tables is refused [%]."""

CACHED = 1.05
"""Rate of reading the weights, over the memory's, from which they came from the level-2 cache instead."""


def products(tables: Tables, subject: Subject, engine: str | None = None) -> Iterator[Found]:
    """Dense products by type, quantising the activations included; `engine`: those that it runs."""
    said = settings()
    chosen = [(dtype, NAMES[dtype], by.get(subject.system, by[""])) for dtype, by in said["gemm"].items()]
    for suffix in ("apart", "static"):
        chosen += [(d, f"{d}_{suffix}", e) for d, e in said[suffix].items() if engine in (None, e)]
    for dtype, name, whose in chosen:
        found = tables.of(subject, "gemm", whose, "gemm_perf", ("gemm_dtype", "m", "n", "k", "latency"))
        line = found and _product(tables, subject, found[0], found[1], dtype, name)
        if line:
            yield line


def _product(
    tables: Tables, subject: Subject, columns: Columns, table: str, dtype: str, name: str
) -> Found | None:
    m, n, k, times = (np.asarray(columns[c], float) for c in ("m", "n", "k", "latency"))
    there = columns["gemm_dtype"].astype(str) == dtype
    static = name.endswith("_static")
    if static:
        scales = _scales(tables, subject, table, m, k)
        if scales is None:
            return None
        times = times - scales
        # little of it left: the two tables were not measured alike
        there &= times > 0.1 * scales
    # matrices of 8 to 268 million weights, at most eight times as long as wide, as layers have
    keep = there & (np.minimum(n, k) >= 1024) & (m <= 16384)
    keep &= (n * k >= 2**23) & (n * k <= 2**28) & (np.maximum(n, k) <= 8 * np.minimum(n, k))
    at = sample(np.flatnonzero(keep), m)
    if not len(at):
        return None
    width = subject.widths[dtype]
    model = partial(
        product_model, speeds=subject.speeds, peak=subject.peaks[dtype], width=width, quantise=width < 2.0
    )
    start = np.log([4e-6, 0.8, 0.75, 100.0, 8.0, 4.0, 0.5])
    shape = (m[at], n[at], k[at])
    found = fitted(model, shape, times[at] / 1e3, start, groups_of(n[at], k[at]), LIMITS)
    if static and found.left_out > WORST_STATIC:
        return None
    # points are of every shape, but weights that the level-2 cache gave
    there &= width * n * k / (times / 1e3 + 1e-12) < CACHED * subject.speeds.bandwidth
    measured = Measured(
        np.column_stack((n, k))[there], m[there], np.ones(int(there.sum())), times[there] / 1e3
    )
    return Found(("gemm", name), _constants(found), found, table, measured)


def _constants(fit: Fit) -> Mapping[str, float]:
    values = [*fit.values[:4], *shares(fit.values[4:])]
    return dict(zip(FIELDS, values, strict=True))


def shares(odds: Floats) -> Floats:
    """Shares of one, by which constants are, from the odds that are sought."""
    return odds / (1 + odds)


def product_model(
    x: Floats, m: Floats, n: Floats, k: Floats, *, speeds: Speeds, peak: float, width: float, quantise: bool
) -> Floats:
    """Seconds of products by constants, the last three as odds."""
    row = GemmRow(*x[:4], *shares(x[4:]))
    return gemm_seconds(Shape(m, n, k), row, speeds, peak, width, quantise=quantise)


def _scales(tables: Tables, subject: Subject, table: str, m: Floats, k: Floats) -> Floats | None:
    """Time of finding the scales of m x k activations [ms], linear between the table's sizes."""
    name = f"{subject.system}/quantize/{table}/computescale_perf.parquet"
    found = tables.package.read(name, ("m", "k", "latency"))
    if found is None:
        return None
    rows, widths, each = (np.asarray(found[c], float) for c in ("m", "k", "latency"))
    order = np.argsort(rows * widths)
    return np.asarray(np.interp(m * k, (rows * widths)[order], each[order]))
