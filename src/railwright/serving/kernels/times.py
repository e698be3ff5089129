"""Times of an engine's kernels on one GPU: products, attention and routed experts, for arrays of batches.

Every function takes arrays that broadcast, and constants as a row fitted on measured kernels
(serving/data/kernels/, `railwright kernels`).  A row may hold the points it was fitted on
(serving/kernels/points.py): its time is then the measured one where it was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from railwright.compute import gemm
from railwright.serving.kernels.points import Points

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Speeds:
    """What a GPU's datasheet promises.

    peak       dense bf16 peak [flop/s]; rows of other dtypes are multiples of it
    bandwidth  of the memory [byte/s]
    sms        multiprocessors
    """

    peak: float
    bandwidth: float
    sms: int


@dataclass(frozen=True)
class GemmRow:
    """Constants of products in one dtype, as `compute.gemm.gemm_seconds` takes them.

    even  share of products whose tiles a library deals so that no wave runs partly filled (persistent kernels
          that split the last tiles, odd tile shapes)
    points  what was measured: configurations (n, k), over m
    """

    fixed: float
    compute: float
    memory: float
    depth: float
    square: float
    small: float
    even: float = 0.0
    points: Points | None = None


@dataclass(frozen=True)
class AttentionRow:
    """Constants of one attention kernel.

    fixed    launch, rotary embedding, write of the new keys and values, merging of split contexts [s]
    compute  fraction of the dense bf16 peak reached
    memory   fraction of the memory bandwidth reached
    ramp     decode: more time until the memory streams [s]; prefill: prompt length of half speed [token]
    unit     time of one request's key/value head beyond its share of bytes and work [s]
    points   what was measured: configurations (kv_heads, heads, work), over requests and context, or over
             prompts and their length
    """

    fixed: float
    compute: float
    memory: float
    ramp: float
    unit: float
    points: Points | None = None


@dataclass(frozen=True)
class ExpertRow:
    """Constants of the routed experts of one layer: routing, permutation, two grouped products, activation.

    fixed    of all kernels together [s]
    compute  fraction of the dense peak of the dtype;  memory  fraction of the memory bandwidth
    pad      rows that a tile of every busy expert works beyond its own, at most (`padding`)
    row      time of one routed copy of a token beyond its share of bytes and work [s]
    spread   more fixed time where other GPUs have experts too, so that some tokens are another's [s]
    points   what was measured: configurations as `Routed` and widths, over tokens
    """

    fixed: float
    compute: float
    memory: float
    pad: float
    row: float
    spread: float = 0.0
    points: Points | None = None


SMALLEST_TILE, TIMES = 16.0, 4.0
"""Rows of the smallest tile (Triton's `tl.dot`; vLLM takes it for a token an expert and less), and how much
wider than its expert's rows a tile may be: engines choose tiles by the number of tokens.  Measured kernels
are fitted as well with this bound as without (errors within 0.4 points, on L40S 0.7): there a GPU's memory
takes as long as tiles that never shrink.  On one of half the arithmetic, as GeForce cards are, they would be
the longer."""


def padding(rows: ArrayLike, pad: float) -> Floats:
    """Rows that a tile works beyond those of its expert."""
    return np.minimum(pad, np.maximum(SMALLEST_TILE, TIMES * np.asarray(rows, float)))


@dataclass(frozen=True)
class Routed:
    """How a layer's experts are dealt, which measured points are found by.

    experts  of this GPU;  each  experts of a token, of all GPUs;  ranks  of expert parallelism
    """

    experts: float
    each: float
    ranks: float


@dataclass(frozen=True)
class ElementRow:
    """Constants of element-wise kernels (norms, activations) where they were measured.

    fixed  of one kernel, others that ride with it in (rotary embedding) [s]
    rate   of what the level-2 cache gives and takes [byte/s];  cache  what it holds of one kernel [byte]
    """

    fixed: float
    rate: float
    cache: float


RAMP_BYTES = 32e6
"""Bytes of keys and values over which decode attention comes to stream at full rate (the fits' scale)."""

QUANTISED = 3.0
"""Bytes moved per activation to quantise it before a product: two read, one written."""


def gemm_seconds(
    shape: gemm.Shape, row: GemmRow, speeds: Speeds, peak: float, width: float, quantise: bool
) -> Floats:
    """Time of y = x W with m rows of x. [s]

    peak      peak of the dtype over the bf16 one;  width  bytes of one weight, with its scales
    quantise  x is read and written once more before, in a kernel that the row's `fixed` includes
    With points in the row all products are of one n and k.
    Source of the form: compute/gemm.py.
    """
    m, n, k = (np.asarray(v, float) for v in (shape.m, shape.n, shape.k))
    narrow = min(width, 2.0) if quantise else 2.0
    moved = width * n * k + narrow * m * k + 2.0 * m * n
    time = gemm.gemm_seconds(
        shape,
        moved,
        2.0 * m * n * k,
        fixed=row.fixed,
        compute=row.compute * speeds.peak * peak,
        memory=row.memory * speeds.bandwidth,
        depth=row.depth,
        square=row.square,
        small=row.small,
        sms=speeds.sms,
    )
    dealt = row.fixed + np.maximum(
        2.0 * m * n * k / (row.compute * speeds.peak * peak), moved / (row.memory * speeds.bandwidth)
    )
    time = row.even * dealt + (1.0 - row.even) * time
    if quantise:
        time = time + QUANTISED * m * k / (row.memory * speeds.bandwidth)
    if row.points is not None:
        time = time * np.exp(row.points.log_ratio((float(n.flat[0]), float(k.flat[0])), m))
    return np.asarray(time)


def decode_seconds(
    requests: ArrayLike,
    context: ArrayLike,
    kv_heads: ArrayLike,
    cached: ArrayLike,
    heads: ArrayLike,
    work: ArrayLike,
    row: AttentionRow,
    speeds: Speeds,
) -> Floats:
    """Attention of one new token for each of `requests`, each over `context` tokens. [s]

    kv_heads, heads  of this GPU;  cached  bytes of one token's cache per kv head
    work     flop per query head and token of context: 2 x (width of a score + width of a value)
    Split-KV kernels keep all multiprocessors busy, so bytes decide, unless many query heads share one cache.
    """
    b, c = np.asarray(requests, float), np.asarray(context, float)
    moved = b * c * np.asarray(kv_heads) * np.asarray(cached)
    flops = b * c * np.asarray(heads) * np.asarray(work)
    streaming = row.ramp * -np.expm1(-moved / RAMP_BYTES)
    longest = np.maximum(moved / (row.memory * speeds.bandwidth), flops / (row.compute * speeds.peak))
    time = row.fixed + streaming + row.unit * b * np.asarray(kv_heads) + longest
    if row.points is not None:
        time = time * np.exp(row.points.log_ratio(_attention_config(kv_heads, heads, work), b, c))
    return np.asarray(time)


def prefill_seconds(
    prompts: ArrayLike,
    new: ArrayLike,
    cached: ArrayLike,
    heads: ArrayLike,
    work: ArrayLike,
    row: AttentionRow,
    speeds: Speeds,
    kv_heads: ArrayLike = 1.0,
) -> Floats:
    """Causal attention of `prompts` times `new` tokens, after `cached` ones already in the cache. [s]

    work  flop per query head and pair of tokens, as for decode; half the new pairs are masked
    Short prompts work slower, as training's do (compute/data/attention.yaml); each token's query and output
    cross the memory once.  Points were measured without a cache: those of a prompt of as much work are taken.
    """
    b, n, p, h = (np.asarray(v, float) for v in (prompts, new, cached, heads))
    w = np.asarray(work, float)
    flops = b * h * w * n * (p + n / 2.0)
    slow = 1.0 + row.ramp / (n + p)
    crossing = b * n * h * w / (row.memory * speeds.bandwidth)
    time = row.fixed + row.unit * b * h + flops * slow / (row.compute * speeds.peak) + crossing
    if row.points is not None:
        config = _attention_config(kv_heads, heads, work)
        time = time * np.exp(row.points.log_ratio(config, b, np.sqrt(n * (n + 2.0 * p))))
    return np.asarray(time)


def prompt_seconds(
    new: ArrayLike,
    cached: ArrayLike,
    heads: ArrayLike,
    work: ArrayLike,
    row: AttentionRow,
    speeds: Speeds,
    kv_heads: ArrayLike = 1.0,
) -> Floats:
    """What one prompt adds to a launch that computes all of a step: `prefill_seconds` less `fixed`. [s]

    Of points, those of as many prompts alike as take as long as their launch: one short prompt's time is
    nearly all launch, and says little of what another would add.
    """
    bare = replace(row, fixed=0.0, points=None)
    alone = prefill_seconds(1.0, new, cached, heads, work, bare, speeds)
    if row.points is None:
        return alone
    n, p = np.broadcast_arrays(np.asarray(new, float), np.asarray(cached, float))
    alike = np.clip(row.fixed / np.maximum(alone, 1e-12), 1.0, row.points.first[-1])
    config = _attention_config(kv_heads, heads, work)
    return np.asarray(alone * np.exp(row.points.log_ratio(config, alike, np.sqrt(n * (n + 2.0 * p)))))


def _attention_config(kv_heads: ArrayLike, heads: ArrayLike, work: ArrayLike) -> tuple[float, float, float]:
    return float(np.asarray(kv_heads)), float(np.asarray(heads)), float(np.asarray(work))


def experts_seconds(
    rows: ArrayLike,
    active: ArrayLike,
    hidden: ArrayLike,
    inner: ArrayLike,
    row: ExpertRow,
    speeds: Speeds,
    peak: float,
    width: float,
    matrices: float = 3.0,
    spread: ArrayLike = 0.0,
    copies: ArrayLike | None = None,
    routed: Routed | None = None,
) -> Floats:
    """Routed experts of one layer on one GPU. [s]

    rows    copies of tokens that this GPU's experts work on;  active  its experts that have any
    hidden, inner  widths of an expert (inner after tensor parallelism);  matrices  3 gated, 2 not
    spread  1 under expert parallelism, else 0
    copies  that pass the activation and are summed, other GPUs' among them; default: `rows`
    routed  how experts are dealt; default: unknown, and points are not looked for
    """
    r, a, h, i = (np.asarray(v, float) for v in (rows, active, hidden, inner))
    weights = matrices * h * i
    moved = a * weights * width + r * (4.0 * h + 2.0 * matrices * i)
    flops = 2.0 * (r + a * padding(r / np.maximum(a, 1.0), row.pad)) * weights
    longest = np.maximum(moved / (row.memory * speeds.bandwidth), flops / (row.compute * speeds.peak * peak))
    passed = r if copies is None else np.asarray(copies, float)
    time = row.fixed + row.spread * np.asarray(spread) + row.row * passed + longest
    if row.points is not None and routed is not None:
        dealt = (routed.experts, routed.each, routed.ranks)
        tokens = r * routed.ranks / routed.each
        time = time * np.exp(row.points.log_ratio((*dealt, float(h), float(i)), tokens))
    return np.asarray(time)
