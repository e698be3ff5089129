"""Routed experts and all-reduces: from rows of `moe` and `comm` tables to constants and points."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from railwright.measure.optables.fitting import (
    Floats,
    Found,
    Measured,
    Reduced,
    Subject,
    Tables,
    fitted,
    groups_of,
    limits,
    sample,
)
from railwright.measure.optables.package import Columns, settings
from railwright.serving.kernels.times import ExpertRow, Speeds, experts_seconds

FIELDS = ("fixed", "compute", "memory", "pad", "row", "spread")
LIMITS = limits([1e-6, 0.02, 0.2, 0.1, 1e-13, 1e-8], [3e-4, 1.0, 1.0, 300.0, 1e-6, 1e-4])

BESIDE_FP8 = "w4a8_mxfp4_mxfp8"
"""mxfp4 weights with mxfp8 activations: what TensorRT-LLM runs on Blackwell, and so its mxfp4 there."""
NAMES = {"bfloat16": "bf16", "fp8": "fp8", "fp8_block": "fp8_block", "nvfp4": "nvfp4"}
NAMES |= {"w4a16_mxfp4": "mxfp4", "int4_wo": "int4", BESIDE_FP8: "mxfp4"}
"""The tables' name of a type -> ours."""

MIN_LATENCY = "moe_torch_flow_min_latency"
"""TensorRT-LLM's kernels for nvfp4 experts on Blackwell, in the table of several."""

LONGEST = 0.03
"""Kernels that take longer are left out [s]."""
LEAST = 50
"""Rows below which nothing is fitted."""
FEW = 64
"""Tokens of a decode step: where no row has so few, rows say nothing of the memory, and nothing is fitted."""

WANTED = ("moe_dtype", "kernel_source", "distribution", "latency")
SIZES = ("num_tokens", "topk", "num_experts", "moe_tp_size", "moe_ep_size", "hidden_size", "inter_size")


def experts(tables: Tables, subject: Subject, engines: tuple[str, ...]) -> Iterator[Found]:
    """Routed experts of one layer by engine and type, where the table shows how many experts have tokens.

    A type of which the engine's version has too few rows is that of the newest version before it that has
    them.
    """
    for engine in engines:
        there: set[str] = set()
        lines: dict[str, Found] = {}
        for columns, table in tables.upto(subject, "moe", engine, "moe_perf", (*WANTED, *SIZES)):
            types = set(columns["moe_dtype"].astype(str)) & set(NAMES)
            there |= types
            unused = "w4a16_mxfp4" if engine == "trtllm" and BESIDE_FP8 in there else BESIDE_FP8
            for dtype in sorted(types - {unused}):
                if NAMES[dtype] in lines:
                    continue
                line = _experts(subject, columns, table, dtype, ("experts", engine, NAMES[dtype]))
                if line is not None:
                    lines[NAMES[dtype]] = line
        yield from lines.values()


def _experts(
    subject: Subject, columns: Columns, table: str, dtype: str, path: tuple[str, ...]
) -> Found | None:
    tokens, topk, number, tp, ep, hidden, inner = (np.asarray(columns[n], float) for n in SIZES)
    seconds = np.asarray(columns["latency"], float) / 1e3
    source, dealt = columns["kernel_source"].astype(str), columns["distribution"].astype(str)
    keep = (columns["moe_dtype"].astype(str) == dtype) & (hidden >= 2048) & (topk <= 10)
    keep &= inner / tp >= 128
    # other activations than the models' here have kernels of their own
    keep &= (np.char.find(source, "nongated") < 0) & (np.char.find(source, "situ") < 0) & (seconds < LONGEST)
    for one in settings()["left_out"]:
        if subject.system in one["systems"] and table.startswith(f"{one['engine']}/"):
            keep &= (source != one["kernel"]) | (one["dtype"] != dtype)
    if (keep & (source == MIN_LATENCY)).any():
        keep &= source == MIN_LATENCY
    # dealt evenly, each copy to another expert until all have one (above 160 experts the tables deal
    # otherwise); or by a power law, with so many tokens that every expert has some
    even = (dealt == "balanced") & (number <= 160)
    skewed = (dealt == "power_law_1.01") & (number > 160) & (ep == 1) & (tokens * topk >= 16 * number)
    keep &= even | skewed
    at = sample(np.flatnonzero(keep), tokens)
    if len(at) < LEAST or tokens[at].min() > FEW:
        return None
    rows = tokens * topk / ep
    active = np.minimum(number / ep, np.maximum(rows, 1.0))
    inputs = tuple(c[at] for c in (rows, active, hidden, inner / tp, (ep > 1).astype(float)))
    peak, width = subject.peaks[dtype], subject.widths[dtype]
    model = partial(_model, speeds=subject.speeds, peak=peak, width=width)
    # tiles that round up far and a memory that is not reached look alike: the better of both is kept
    starts = [np.log([3e-5, 0.4, memory, pad, 1e-9, 1e-6]) for memory, pad in ((0.85, 64.0), (0.5, 2.0))]
    groups = groups_of(hidden[at], inner[at])
    found = min(
        (fitted(model, inputs, seconds[at], start, groups, LIMITS) for start in starts),
        key=lambda fit: fit.error,
    )
    configs = np.column_stack((number / ep, topk, ep, hidden, inner / tp))[keep]
    measured = Measured(configs, tokens[keep], np.ones(int(keep.sum())), seconds[keep])
    constants = dict(zip(FIELDS, found.values, strict=True))
    if dtype == BESIDE_FP8:
        constants["peak"] = peak  # not that of mxfp4, whose products are others' in bf16
    return Found(path, constants, found, table, measured)


def _model(
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


def reductions(tables: Tables, subject: Subject, engines: tuple[str, ...]) -> Iterator[Reduced]:
    """Each engine's own all-reduce inside a CUDA graph, by number of GPUs, from 2 KiB on.

    The tables count elements of two bytes.
    """
    for engine in engines:
        wanted = ("kernel_source", "num_gpus", "message_size", "latency")
        read = tables.of(subject, "comm", engine, "custom_allreduce_perf", wanted)
        if read is None:
            continue
        columns, table = read
        graph = np.char.find(columns["kernel_source"].astype(str), "eager") < 0
        for ranks in sorted(set(columns["num_gpus"].tolist())):
            keep = graph & (columns["num_gpus"] == ranks)
            sizes = 2.0 * np.asarray(columns["message_size"], float)[keep]
            times = np.asarray(columns["latency"], float)[keep]
            knots = np.unique(sizes[sizes >= 2048])
            if len(knots) > 1:
                seconds = np.array([np.median(times[sizes == s]) / 1e3 for s in knots])
                yield Reduced(engine, int(ranks), knots, seconds, table)
