"""FlashAttention 2 over a paged cache, by its thread blocks: unequal contexts, decodes beside prompts.

vLLM runs it on GPUs without kernels of a later generation (Ampere, Ada, consumer Blackwell).  A thread block
takes up to ROWS queries of one head and sweeps the request's keys in tiles of KEYS, one block at a time on a
multiprocessor.  Sources: Dao-AILab/flash-attention (vLLM's fork), csrc/flash_attn/src:
flash_fwd_launch_template.h (run_mha_fwd_splitkv_dispatch: kBlockM 64, kBlockN 128 for heads of 128; a grid of
the longest prompt's blocks times requests times heads), flash_fwd_kernel.h (a block beyond its request's
queries ends at once), flash_api.cpp (num_splits_heuristic; seqlenq_ngroups_swapped).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.serving.kernels.times import Floats

ROWS, KEYS, WIDTH = 64.0, 128.0, 128
"""Queries and keys of one tile, for heads of this width."""

FILLED = 0.8 * 2.0
"""Thread blocks a multiprocessor from which contexts are not split (num_splits_heuristic, called with twice
the number of multiprocessors)."""


@dataclass(frozen=True)
class TileRow:
    """Constants of the kernel on one GPU (tools/fit_serving_layers.py). [s]

    fixed  of a launch in a step with prompts
    tile   of a multiprocessor, for one tile;  open  beside its tiles, for a block that has any
    empty  of a multiprocessor, for a block without queries
    chain  of one tile in a decode, of a thread block that no other holds up
    """

    fixed: float
    tile: float
    open: float
    empty: float
    chain: float


def chunk_seconds(new: Floats, cached: Floats, heads: float, row: TileRow, sms: int) -> Floats:
    """Attention of `new` tokens of one prompt after `cached` ones, without the launch. [s]"""
    blocks = np.ceil(new / ROWS)
    # block j sees the cached keys and its own (j + 1) * ROWS, the last tile half filled on average
    tiles = blocks * cached / KEYS + blocks * (blocks * ROWS / KEYS + 1.0) / 2.0
    return np.asarray(heads * (tiles * row.tile + blocks * row.open) / sms)


def beside_seconds(requests: Floats, context: Floats, heads: float, row: TileRow, sms: int) -> Floats:
    """Decodes in a step with prompts: every query head sweeps whole tiles for the one row it has. [s]"""
    tiles = np.maximum(context / KEYS + 0.5, 1.0)
    return np.asarray(requests * heads * (tiles * row.tile + row.open) / sms)


def empty_seconds(heads: float, row: TileRow, sms: int) -> float:
    """What one decode beside a prompt adds for each token of the longest one: blocks that end at once. [s]"""
    return heads * row.empty / sms / ROWS


def uneven_seconds(requests: Floats, context: Floats, longest: Floats, row: TileRow, sms: int) -> Floats:
    """What unequal contexts take longer than equal ones of the same mean, where none is split. [s]

    context, longest  mean and longest context of the batch [token]
    Blocks start head by head, requests in any order within one.  The longest request's block of the last
    head begins while the other requests of that head, on average half of them, are still to be read: it does
    as many tiles meanwhile as fall on each multiprocessor, the rest alone.
    """
    alone = np.maximum(longest - context, 0.0) / KEYS
    meanwhile = requests * context / KEYS / sms
    # mean of max(alone - u * meanwhile, 0), u uniform in [0, 1]
    share = np.minimum(alone / np.maximum(meanwhile, 1e-9), 1.0)
    left = np.where(share < 1.0, alone * share / 2.0, alone - meanwhile / 2.0)
    return np.asarray(row.chain * left)


def splits(requests: Floats, kv_heads: float, sms: int) -> NDArray[np.bool_]:
    """Whether decodes without prompts split contexts: where blocks are too few for all multiprocessors."""
    return np.asarray(requests * kv_heads < FILLED * sms)
