"""Attention: from rows of `attention` and `mla` tables to constants and points."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from railwright.measure.optables.fitting import (
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
from railwright.measure.optables.package import Columns
from railwright.serving.kernels.measured import LATENT_CACHE
from railwright.serving.kernels.times import AttentionRow, Speeds, decode_seconds, prefill_seconds

FIELDS = ("fixed", "compute", "ramp", "memory", "unit")
LIMITS = limits([3e-6, 0.02, 1e-9, 0.3, 1e-12], [1e-4, 1.0, 1e4, 1.0, 1e-6])
NAMES = {"bfloat16": "bf16"}
LONGEST = 0.02
"""Kernels that take longer are left out: no step of a serving engine holds them [s]."""
LEAST = 50
"""Rows below which nothing is fitted."""


def attention(tables: Tables, subject: Subject, engines: tuple[str, ...]) -> Iterator[Found]:
    """Decode and prefill by engine and cached type, with grouped heads and latent (MLA)."""
    for engine in engines:
        for latent, room in ((False, "attention"), (True, "mla")):
            kind = "mla" if latent else "attention"
            for prefill, phase in ((False, "generation"), (True, "context")):
                wanted = ("kv_cache_dtype", "num_heads", "batch_size", "isl", "step", "latency")
                grouped = () if latent else ("num_key_value_heads",)
                optional = ("head_dim", "window_size", "attn_dtype")
                file = f"{phase}_{kind}_perf"
                found = tables.of(subject, room, engine, file, (*wanted, *grouped), optional)
                for kv in sorted(set(found[0]["kv_cache_dtype"].astype(str))) if found else ():
                    assert found is not None
                    name = f"{'mla_' if latent else ''}{'prefill' if prefill else 'decode'}"
                    path = ("attention", engine, f"{name}_{NAMES.get(kv, kv)}")
                    line = _attention(subject, *found, kv, path, latent=latent, prefill=prefill)
                    if line is not None:
                        yield line


def _attention(
    subject: Subject,
    columns: Columns,
    table: str,
    kv: str,
    path: tuple[str, ...],
    *,
    latent: bool,
    prefill: bool,
) -> Found | None:
    speeds, cache = subject.speeds, subject.cache
    heads, batch = np.asarray(columns["num_heads"], float), np.asarray(columns["batch_size"], float)
    shared = heads * 0 + 1 if latent else np.asarray(columns["num_key_value_heads"], float)
    shared = np.where(shared == 0, heads, shared)
    wide = np.asarray(columns["head_dim"], float) if "head_dim" in columns else heads * 0 + 128.0
    length = np.asarray(columns["isl"] if prefill else columns["step"], float) + (0 if prefill else 1)
    seconds = np.asarray(columns["latency"], float) / 1e3
    byte = 1.0 if "fp8" in kv else 2.0
    # one token of the cache: keys and values of one head, or the latent vector with its rotary part
    cached = LATENT_CACHE * byte + 0 * heads if latent else 2 * wide * byte
    # 2 x (width of a score + width of a value) for every query head and key
    work = (2 * (192.0 + 128) if prefill else 2 * (576.0 + 512)) + 0 * heads if latent else 4 * wide
    keep = (columns["kv_cache_dtype"].astype(str) == kv) & (seconds < LONGEST) & (length >= 64)
    keep &= np.isin(wide, (64.0, 128.0))
    if "window_size" in columns:
        keep &= np.nan_to_num(np.asarray(columns["window_size"], float)) == 0
    if "attn_dtype" in columns:
        keep &= columns["attn_dtype"].astype(str) == "bfloat16"
    if not prefill:
        # faster than the memory could feed it, so fed by the cache; what is slower is the kernel's own
        total = batch * length * shared * cached
        beyond = keep & (total > 3 * cache) & (total / seconds > 1.1 * speeds.bandwidth)
        if beyond.sum() > 0.02 * keep.sum():
            return None  # the table reads less than it says: faster than the memory is
        held = seconds < 9e-6 + 1.15 * total / speeds.bandwidth
        keep &= (total < 0.1 * cache) | (total > 1.5 * cache) | ~held
    at = sample(np.flatnonzero(keep), batch * length)
    if len(at) < LEAST:
        return None
    inputs = tuple(c[at] for c in (batch, length, shared, cached, heads, work))
    groups = groups_of(heads[at], shared[at], cached[at])
    start = np.log([1e-5, 0.5, 500.0 if prefill else 1e-6, 0.85, 1e-8])
    model = partial(_prefill if prefill else decode_model, speeds=speeds)
    found = fitted(model, inputs, seconds[at], start, groups, LIMITS)
    configs = np.column_stack((shared, heads, work))[keep]
    measured = Measured(configs, batch[keep], length[keep], seconds[keep])
    return Found(path, dict(zip(FIELDS, found.values, strict=True)), found, table, measured)


def _row(x: Floats) -> AttentionRow:
    return AttentionRow(fixed=x[0], compute=x[1], ramp=x[2], memory=x[3], unit=x[4])


def _prefill(
    x: Floats, b: Floats, n: Floats, s: Floats, c: Floats, h: Floats, w: Floats, *, speeds: Speeds
) -> Floats:
    return prefill_seconds(b, n, 0.0, h, w, _row(x), speeds)


def decode_model(
    x: Floats, b: Floats, n: Floats, s: Floats, c: Floats, h: Floats, w: Floats, *, speeds: Speeds
) -> Floats:
    """Seconds of decode attention by constants."""
    return decode_seconds(b, n, s, c, h, w, _row(x), speeds)
