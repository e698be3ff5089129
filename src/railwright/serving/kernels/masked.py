"""Decode attention of TensorRT-LLM up to 0.12, which does not split a context over multiprocessors.

Two kernels take turns (cpp/tensorrt_llm/kernels/decoderMaskedMultiheadAttention):
masked  one thread block for each query head of each request; a block reads its head's whole cache, and blocks
        beyond the number of multiprocessors come in further waves;
XQA     one thread block for each key/value head, for groups of eight query heads (Llama 2 and 3 70B), from so
        many requests on that its blocks are a quarter of the multiprocessors (mayHavePerfGain,
        kEnableMinBlockFactor 4).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from railwright.shipped import read_data

Floats = NDArray[np.float64]

XQA_GROUP = 8
"""Query heads of a key/value head for which XQA was built: docs/source/gpt_attention.md of 0.9 names Llama 2
70B; decode times of Llama 3 8B (groups of four) follow the masked kernel at any batch (data/masked.yaml)."""
XQA_FROM = 0.25
"""Blocks of XQA over multiprocessors from which it runs (decoderXQARunner.h, kEnableMinBlockFactor 4)."""

HEAD = 128
"""Width of the heads that data/masked.yaml was measured on; a block's work a token is proportional to it."""


def xqa_runs(requests: ArrayLike, heads: int, kv_heads: int, sms: int) -> NDArray[np.bool_]:
    """Whether so many requests' decode attention is computed by XQA."""
    enough = np.asarray(requests, float) * kv_heads >= XQA_FROM * sms
    return np.asarray(enough & (heads == XQA_GROUP * kv_heads))


def masked_seconds(
    requests: ArrayLike,
    context: ArrayLike,
    heads: int,
    width: int,
    cached: float,
    sms: int,
    generation: str,
    kv: str,
) -> Floats:
    """Decode attention of one layer by the masked kernel, without its fixed time. [s]

    context  tokens of each request;  heads, width  query heads of this GPU, and of one of them
    cached   bytes of one token's keys and values of one head;  sms  multiprocessors
    generation, kv  of the GPU, and type of the cache
    The longest of blocks in waves, and of what all of them draw through the level-2 cache.
    """
    row = _blocks(generation)
    token = row["token"].get(kv, row["token"]["bf16"]) * width / HEAD
    blocks, seen = np.asarray(requests, float) * heads, np.asarray(context, float)
    return np.asarray(np.maximum(np.ceil(blocks / sms) * token, blocks * cached / row["cache"]) * seen)


@cache
def _blocks(generation: str) -> dict[str, Any]:
    rows: dict[str, dict[str, Any]] = read_data("serving", "masked.yaml")
    return rows.get(generation, rows["hopper"])
