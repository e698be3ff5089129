"""Attention of an engine's step on one GPU, all layers of a stage: decodes, prompts, and both in one step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from railwright.model.shape.pattern import full_layers
from railwright.serving.engine.exchange import nccl_seconds
from railwright.serving.engine.memory import KV_BYTES
from railwright.serving.engine.operators import Stage, captured, plan_pace
from railwright.serving.kernels.flash2 import (
    beside_seconds,
    chunk_seconds,
    empty_seconds,
    splits,
    uneven_seconds,
)
from railwright.serving.kernels.masked import masked_seconds, xqa_runs
from railwright.serving.kernels.times import AttentionRow, Floats, decode_seconds, prompt_seconds

LATENT_PREFILL = 2 * (192.0 + 128.0)
"""Flop per head and pair of tokens of latent attention on whole prompts: keys of 192, values of 128."""

ONE_BLOCK = 50e9
"""What one thread block of XQA draws from memory [byte/s], an estimate: 32 KiB of loads in flight, 650 ns."""


def decode_attention(stage: Stage, requests: Floats, context: Floats) -> Floats:
    """Attention of `requests` decoding with `context` tokens each, all layers of the stage. [s]"""
    arch, layout = stage.arch, stage.layout
    latent = arch.attention == "mla"
    row = stage.kernels.attention("mla_decode" if latent else "decode", stage.job.kv)
    each = KV_BYTES[stage.job.kv]
    cached = (arch.kv_lora + arch.rope_dim if latent else 2.0 * arch.head_dim) * each
    work = 2.0 * (2 * arch.kv_lora + arch.rope_dim) if latent else 4.0 * arch.head_dim
    own = np.ceil(requests / layout.attention_data)
    spread = layout.context

    def layer(seen: Floats) -> Floats:
        split = decode_seconds(
            own, seen / spread, stage.kv_heads, cached, stage.heads, work, row, stage.kernels.speeds
        )
        if stage.place.engine.splits_context:
            return split
        sms, gpu = stage.kernels.speeds.sms, stage.kernels.gpu
        streams = np.ceil(own * stage.kv_heads / sms) * (seen / spread) * cached / ONE_BLOCK
        alone = masked_seconds(
            own, seen / spread, stage.heads, arch.head_dim, cached, sms, gpu.generation, stage.job.kv
        )
        xqa = xqa_runs(own, stage.heads, stage.kv_heads, sms)
        return np.maximum(split, row.fixed + np.where(xqa, streams, alone))

    time = stage.place.engine.attention_pace * _by_window(stage, context, layer)
    if spread > 1:
        # partial outputs of every head meet, with their weights (decode context parallelism)
        met = np.asarray(own * stage.heads * (arch.kv_lora if latent else arch.head_dim) * 2.0, float)
        time = time + stage.layers * nccl_seconds(stage.place, "all_reduce", spread, met * np.ones_like(time))
    return time


def uneven_attention(
    stage: Stage, requests: Floats, context: Floats, longest: Floats, *, mixed: bool
) -> Floats:
    """What decode attention takes longer where contexts are unequal, all layers; 0 where unknown. [s]

    longest  context of a batch's longest request [token];  mixed  the step holds prompts
    """
    row, arch, sms = stage.tiles, stage.arch, stage.kernels.speeds.sms
    if row is None or stage.layout.context > 1:
        return np.zeros(np.broadcast(requests, context).shape)
    own = np.ceil(requests / stage.layout.attention_data)
    windows = float(arch.sliding_window or np.inf)
    more = longest / np.maximum(context, 1.0)

    def layer(seen: Floats) -> Floats:
        most = np.minimum(seen * more, np.where(seen < context, windows, np.inf))
        return uneven_seconds(own, seen, most, row, sms)

    # a replayed graph splits as it did when it was captured, for its padded batch
    split = ~np.array(mixed) & splits(captured(own, stage.place.engine.graphs), stage.kv_heads, sms)
    return np.where(split, 0.0, _by_window(stage, np.asarray(context, float), layer))


def beside_prompts(stage: Stage, requests: Floats, context: Floats) -> Floats:
    """Decode attention by FlashAttention 2 in a step that holds prompts, where it was measured; else 0. [s]

    Its variable-length kernel gathers the query heads of a group only where every request has one query
    (flash_api.cpp, seqlenq_ngroups_swapped: max_seqlen_q == 1).
    """
    row, sms = stage.tiles, stage.kernels.speeds.sms
    if row is None:
        return np.zeros(np.broadcast(requests, context).shape)
    own = np.ceil(requests / stage.layout.attention_data)
    context = np.asarray(context, float) / stage.layout.context
    return _by_window(stage, context, lambda seen: beside_seconds(own, seen, stage.heads, row, sms))


def empty_blocks(stage: Stage) -> float:
    """What each decode beside a prompt adds for each token of the longest one, all layers. [s]"""
    row = stage.tiles
    if row is None:
        return 0.0
    return stage.layers * empty_seconds(stage.heads, row, stage.kernels.speeds.sms)


def prefill_attention(stage: Stage, new: Floats, cached: Floats) -> Floats:
    """Attention of one chunk of `new` tokens after `cached` ones, all layers, without launches. [s]

    Of attention-data groups the one that the prompt was dealt to computes it.
    Over context ranks the chunk's queries are shared, and keys and values of all of them are gathered.
    """
    arch, layout = stage.arch, stage.layout
    latent = arch.attention == "mla"
    row = _prefill_row(stage)
    tiles = stage.tiles
    work = LATENT_PREFILL if latent else 4.0 * arch.head_dim

    def layer(seen: Floats) -> Floats:
        # of a windowed layer each query sees `seen` keys at most: the same work as after so many cached ones
        longest = cached + new
        before = np.where(seen >= longest, cached, np.maximum(np.minimum(seen, longest) - new / 2.0, 0.0))
        if tiles is not None:
            return chunk_seconds(new, before, stage.heads / layout.context, tiles, stage.kernels.speeds.sms)
        return prompt_seconds(
            new, before, stage.heads / layout.context, work, row, stage.kernels.speeds, stage.kv_heads
        )

    time = plan_pace(stage) * _by_window(stage, cached + new, layer)
    if layout.context > 1:
        size = new * (arch.kv_lora + arch.rope_dim if latent else 2.0 * stage.kv_heads * arch.head_dim)
        gathered = nccl_seconds(stage.place, "all_gather", layout.context, size * KV_BYTES[stage.job.kv])
        time = time + stage.layers * gathered
    return time


def prefill_launches(stage: Stage) -> float:
    """Fixed time of the attention of all prompts of a step: one kernel a layer computes them together. [s]"""
    tiles = stage.tiles
    return stage.layers * (_prefill_row(stage).fixed if tiles is None else tiles.fixed)


def _prefill_row(stage: Stage) -> AttentionRow:
    kind = "mla_prefill" if stage.arch.attention == "mla" else "prefill"
    return stage.kernels.attention(kind, stage.job.kv if stage.place.engine.narrow_prefill else "bf16")


def _by_window(stage: Stage, context: Floats, layer: Callable[[Floats], Floats]) -> Floats:
    """All layers' time: those with a sliding window see no more than it; of a chunk, half on average."""
    arch = stage.arch
    windowed = stage.layers - full_layers(arch, stage.layout.pipeline)
    whole = (stage.layers - windowed) * layer(context) if windowed < stage.layers else 0.0
    if not windowed:
        return np.asarray(whole)
    window = float(arch.sliding_window)
    seen = np.minimum(context, window)
    if arch.window_chunked:
        seen = np.where(context <= window, context, window / 2.0)
    return np.asarray(whole + windowed * layer(seen))
