"""Time of one matrix product: waves of tiles over the multiprocessors, power or memory, by the longest."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

Number = float | NDArray[np.float64]

TILES = ((256, 128), (128, 256), (128, 128), (64, 256), (256, 64), (64, 128), (128, 64), (64, 64))
"""Rows and columns of the output that one thread block computes: cuBLAS's and CUTLASS's usual ones."""

SPLITS = (1, 2, 4, 8)
"""Parts into which the inner dimension may be cut where the output alone has too few tiles (split-K)."""

FULL = 128 * 256
"""Area of a tile whose operands are reused well enough to reach `compute`."""


@dataclass(frozen=True)
class Shape:
    """m x k times k x n, `batch` times over; numbers, or arrays of one length."""

    m: Number
    n: Number
    k: Number
    batch: Number = 1


def gemm_seconds(
    shape: Shape,
    moved: Number,
    flops: Number,
    *,
    fixed: float,
    compute: float,
    memory: float,
    depth: float,
    square: float,
    small: float,
    sms: int,
    sustained: float = inf,
) -> Number:
    """Time of a product by the best of the tiles and splits, which a library chooses by heuristics. [s]

    moved    HBM traffic [byte]
    flops    of the whole product [flop]; where it is not 2 m n k (a masked or padded one) time scales with it
    fixed    launch and ramp [s]
    compute  rate of full tiles, all multiprocessors busy [flop/s]
    memory   HBM rate [byte/s]
    depth    prologue and epilogue of a tile in steps of its inner dimension
    square   rate of a 128 x 128 tile over a full one; `small` of the smaller ones
    sms      multiprocessors: ceil(tiles / sms) waves are run
    sustained  rate at which power holds the whole GPU [flop/s]: it binds products that fill the GPU, not
             those that leave multiprocessors idle

    Source of the form: NVIDIA, "Matrix Multiplication Background User's Guide", tile and wave quantisation.
    """
    m, n, k, batch = (np.asarray(x, np.float64)[..., None] for x in (shape.m, shape.n, shape.k, shape.batch))
    tiles = np.ceil(m / _ROWS) * np.ceil(n / _COLUMNS) * batch
    waves = np.ceil(tiles * _PARTS / sms)
    rate = compute / sms * np.where(_AREA >= FULL, 1.0, np.where(_AREA >= FULL // 2, square, small))
    together = np.where(_PARTS > 1, 4.0 * m * n * batch * (_PARTS + 1) / memory, 0.0)
    best = np.min(waves * 2.0 * _AREA * (k / _PARTS + depth) / rate + together, axis=-1)
    whole = (2.0 * m * n * k * batch)[..., 0]
    scaled = best * np.divide(flops, whole, out=np.ones_like(whole), where=whole > 0)
    answer = fixed + np.maximum(np.maximum(scaled, flops / sustained), moved / memory)
    return answer if np.ndim(answer) else float(answer)


_GRID = [(rows, columns, parts) for rows, columns in TILES for parts in SPLITS]
_ROWS, _COLUMNS, _PARTS = (np.array(column, np.float64) for column in zip(*_GRID, strict=True))
_AREA = _ROWS * _COLUMNS
