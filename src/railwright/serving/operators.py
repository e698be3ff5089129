"""What one GPU runs in an engine's step, layer by layer: everything but attention, and attention.

Legend: K batches by their tokens T (whole replica); t tensor, a attention-data, c context ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from railwright.compute.gemm import Shape
from railwright.model.architecture import Transformer
from railwright.serving.constants import Kernels
from railwright.serving.exchange import (
    Place,
    all_reduce_seconds,
    bus_seconds,
    expert_seconds,
    nccl_seconds,
)
from railwright.serving.kernels import (
    AttentionRow,
    Floats,
    decode_seconds,
    experts_seconds,
    gemm_seconds,
    prefill_seconds,
)
from railwright.serving.masked import masked_seconds, xqa_runs
from railwright.serving.memory import KV_BYTES, ONLY_EXPERTS
from railwright.serving.pace import prompt_bus, prompt_pace
from railwright.spec.serving import ServingJob, ServingLayout, Weights

LATENT_PREFILL = 2 * (192.0 + 128.0)
"""Flop per head and pair of tokens of latent attention on whole prompts: keys of 192, values of 128."""

ELEMENTWISE = 0.55
"""Fixed time of an element-wise kernel (norm, activation) over that of a matrix product: an estimate."""

ONE_BLOCK = 50e9
"""What one thread block of XQA draws from memory [byte/s], an estimate: 32 KiB of loads in flight, 650 ns."""

CAPTURED = (1, 2, 4)
"""Batches CUDA graphs are captured for below multiples of eight; others run padded (vLLM, SGLang)."""


@dataclass(frozen=True, eq=False)
class Stage:
    """One pipeline stage of one replica: what its GPUs hold and how they are cut."""

    place: Place
    job: ServingJob
    arch: Transformer
    layout: ServingLayout

    @property
    def kernels(self) -> Kernels:
        return self.place.kernels

    @property
    def layers(self) -> int:
        return -(-self.arch.layers // self.layout.pipeline)

    @property
    def moe_layers(self) -> int:
        if not self.arch.is_moe:
            return 0
        return self.layers - (self.arch.dense_layers if self.layout.pipeline == 1 else 0)

    @property
    def heads(self) -> int:
        """Query heads of one GPU."""
        return -(-self.arch.heads // self.layout.tensor)

    @property
    def kv_heads(self) -> int:
        """Key/value heads of one GPU: copied where GPUs outnumber them; one for latent attention."""
        if self.arch.attention == "mla":
            return 1
        return max(1, self.arch.kv_heads // self.layout.tensor)

    @property
    def dense_type(self) -> Weights:
        """Type of the weights outside attention and experts."""
        return "bf16" if self.job.weights in ONLY_EXPERTS and self.arch.is_moe else self.job.weights

    @property
    def attention_type(self) -> Weights:
        """Type of the weights of attention."""
        latent_fp4 = self.job.weights == "nvfp4" and self.arch.attention == "mla"
        return "bf16" if latent_fp4 else self.dense_type

    @property
    def fused(self) -> bool:
        """Whether norms, and quantising what they give, ride in the all-reduce before them."""
        return self.place.engine.fused_norms and self.layout.tensor > 1

    def product(
        self, rows: Floats, columns: float, inner: float, weights: Weights, *, normed: bool = False
    ) -> Floats:
        """One product of `rows` activations with a matrix of inner x columns. [s]

        normed  its input comes from a norm
        """
        engine = self.place.engine
        apart = engine.quantise_apart and not (normed and self.fused)
        row, peak, width, quantise = self.kernels.gemm(weights, apart=apart, static=engine.static_scales)
        shape = Shape(rows, np.full_like(rows, columns), np.full_like(rows, inner))
        return gemm_seconds(shape, row, self.kernels.speeds, peak, width, quantise)

    def elementwise(self, moved: Floats) -> Floats:
        """One kernel that moves so many bytes. [s]"""
        row = self.kernels.gemm("bf16")[0]
        return ELEMENTWISE * row.fixed + moved / (row.memory * self.kernels.speeds.bandwidth)


def row_parts(stage: Stage, tokens: Floats, *, mixed: bool) -> dict[str, Floats]:
    """Seconds of the fullest stage in a step of `tokens` (K,), by part, without attention.

    mixed  the step holds prefill: prompts' tokens are split over context ranks, latent attention
           expands keys and values, and only each prompt's last token reaches the LM head
    Parts: attention products, mlp, experts, norms, collectives, head (with sampling), launches (host time
    that no kernel hides in a step without graphs).
    """
    arch, layout = stage.arch, stage.layout
    own = np.maximum(tokens / layout.attention_data / (layout.context if mixed else 1), 1.0)
    replayed = own if mixed else _captured(own, stage.place.engine.graphs)
    layers, moe = stage.layers, stage.moe_layers
    parts = {"attention products": layers * _attention_products(stage, replayed, mixed=mixed)}
    dense = layers - moe
    gated = 2 if arch.gated else 1
    parts["mlp"] = dense * _mlp(stage, replayed, arch.ffn / layout.tensor, gated) if dense else 0 * own
    if moe:
        parts["experts"] = moe * _experts(stage, replayed, np.maximum(tokens, 1.0))
    parts["norms"] = layers * _norms(stage, replayed)
    wide = replayed * arch.hidden * 2.0
    reduced = all_reduce_seconds(stage.place, layout.tensor, wide)
    if mixed and (bus := prompt_bus(stage.place.engine, stage.kernels.gpu)):
        reduced = bus_seconds(stage.place, layout.tensor, wide, bus)
    # one more sums the parts of a split embedding
    met = meetings(stage) + 1
    waiting = met * _wait(stage, own, mixed=mixed)
    # an eager engine's collectives wait for launches, and hosts are ahead of GPUs that prompts keep busy
    launched_late = mixed and stage.place.engine.eager
    parts["collectives"] = met * reduced + (0.0 if launched_late else waiting)
    if moe:
        parts["collectives"] = parts["collectives"] + moe * expert_seconds(
            stage.place, stage.job, arch, layout, np.maximum(tokens, 1.0)
        )
    parts["head"] = _head(stage, own, mixed=mixed)
    if mixed:
        pace = {"collectives": plan_pace(stage, "collectives")}
        measured = stage.place.engine.prefill_time
        parts = {k: v * pace.get(k, plan_pace(stage)) * measured for k, v in parts.items()}
    host = launch_seconds(stage, mixed=mixed) + (waiting if launched_late else 0.0 * own)
    parts["launches"] = _launches(stage, own, np.asarray(sum(parts.values())), host, mixed=mixed)
    return parts


def meetings(stage: Stage) -> int:
    """All-reduces of a step's layers."""
    layers = stage.layers
    if stage.arch.parallel_blocks:
        return layers
    return 2 * layers if stage.layout.attention_data == 1 else layers + layers - stage.moe_layers


def _norms(stage: Stage, rows: Floats) -> Floats:
    """The norms of one layer, each with its residual: inside the all-reduce they cost their bytes alone."""
    moved = rows * stage.arch.hidden * 8.0
    each = stage.elementwise(moved)
    reduced = rows * stage.arch.hidden * 2.0 * stage.layout.tensor
    inside = stage.fused & (reduced <= stage.place.engine.fused_bytes)
    both = 2 * (each - np.where(inside, stage.elementwise(0 * moved), 0.0))
    return both + each if stage.arch.qk_norm else both


def _attention_products(stage: Stage, rows: Floats, *, mixed: bool) -> Floats:
    arch, kind = stage.arch, stage.attention_type
    heads = stage.heads
    if arch.attention != "mla":
        inner = arch.head_dim * (heads + 2 * stage.kv_heads)
        out = stage.product(rows, arch.hidden, heads * arch.head_dim, kind)
        return stage.product(rows, inner, arch.hidden, kind, normed=True) + out
    down = stage.product(rows, arch.q_lora + arch.kv_lora + arch.rope_dim, arch.hidden, kind, normed=True)
    queries = stage.product(rows, heads * (arch.head_dim + arch.rope_dim), arch.q_lora or arch.hidden, kind)
    out = stage.product(rows, arch.hidden, heads * arch.v_head_dim, kind)
    if mixed:
        expand = stage.product(rows, heads * (arch.head_dim + arch.v_head_dim), arch.kv_lora, kind)
    else:
        # absorbed: one small product a head, from head to latent width and back, weights read once
        row, _, width, _ = stage.kernels.gemm("bf16")
        area = heads * arch.kv_lora * (arch.head_dim + arch.v_head_dim)
        moved = area * width + 2.0 * rows * heads * (arch.kv_lora * 2 + arch.head_dim + arch.v_head_dim)
        speeds = stage.kernels.speeds
        longest = np.maximum(
            moved / (row.memory * speeds.bandwidth), 2.0 * rows * area / (row.compute * speeds.peak)
        )
        expand = 2 * row.fixed + longest
    return down + queries + expand + out + 2 * stage.elementwise(rows * (arch.q_lora + arch.kv_lora) * 4.0)


def _mlp(stage: Stage, rows: Floats, inner: float, gated: int) -> Floats:
    up = stage.product(rows, gated * inner, stage.arch.hidden, stage.dense_type, normed=True)
    active = stage.elementwise(rows * inner * (gated + 1) * 2.0)
    return up + active + stage.product(rows, stage.arch.hidden, inner, stage.dense_type)


def _experts(stage: Stage, own: Floats, tokens: Floats) -> Floats:
    """Router, routed experts and shared ones of one layer.

    Experts are chosen by chance: of E on this GPU's part E (1 - (1 - k/E)^T) have
    work; the busiest GPU works `expert_imbalance` times the mean.
    """
    arch, layout = stage.arch, stage.layout
    local = arch.experts / layout.expert
    group = layout.tensor * layout.attention_data
    inner = arch.expert_ffn * layout.expert / group
    busy = stage.job.expert_imbalance or 1.0
    rows = tokens * arch.experts_per_token / layout.expert * busy
    active = local * -np.expm1(tokens * np.log1p(-arch.experts_per_token / arch.experts))
    row, peak, width = stage.kernels.experts(stage.job.weights)
    matrices = 3.0 if arch.gated else 2.0
    routed = experts_seconds(
        rows,
        active,
        arch.hidden,
        inner,
        row,
        stage.kernels.speeds,
        peak,
        width,
        matrices,
        float(layout.expert > 1),
    )
    router = stage.product(own, arch.experts, arch.hidden, "bf16")
    if not arch.shared_ffn:
        return routed + router
    gated = 2 if arch.gated else 1
    return routed + router + _mlp(stage, own, arch.shared_ffn / layout.tensor, gated)


def _head(stage: Stage, own: Floats, *, mixed: bool) -> Floats:
    """Embedding, LM head, gathering of logits and sampling; a prompt needs logits of its last token alone."""
    arch, layout, engine = stage.arch, stage.layout, stage.place.engine
    rows = np.minimum(own, 32.0) if mixed else own
    columns = arch.vocab / layout.tensor
    logits = rows * arch.vocab * 2.0
    gathered = nccl_seconds(stage.place, "all_gather", layout.tensor, logits)
    sampled = stage.elementwise(rows * arch.vocab * 4.0 * 3.0)
    return stage.product(rows, columns, arch.hidden, "bf16") + gathered + sampled + engine.step


def _launches(stage: Stage, own: Floats, busy: Floats, host: Floats, *, mixed: bool) -> Floats:
    """Host time of launching a step's kernels beyond the GPU's time, where no graph replays them. [s]"""
    covered = stage.place.engine.mixed_graphs if mixed else stage.place.engine.graphs
    return np.where(own <= covered, 0.0, np.maximum(host - busy, 0.0))


def launch_seconds(stage: Stage, *, mixed: bool) -> float:
    """Host time of launching a step's kernels one by one. [s]"""
    engine = stage.place.engine
    collectives = 2 * stage.layers if stage.layout.tensor > 1 else 0
    each = engine.launches * engine.launch + (engine.prompt_launch if mixed else 0.0)
    return stage.layers * each + collectives * engine.launch_collective


def _wait(stage: Stage, own: Floats, *, mixed: bool) -> Floats:
    """What one collective waits for the latest process, outside graphs. [s]"""
    engine, ranks = stage.place.engine, stage.layout.tensor
    late = engine.collective_wait * sum(1.0 / n for n in range(2, ranks + 1))
    return np.where(own <= (engine.mixed_graphs if mixed else engine.graphs), 0.0, late)


def _captured(rows: Floats, most: int) -> Floats:
    """Rows a replayed graph works on: 1, 2, 4, then the next multiple of 8, up to the largest captured."""
    padded = np.where(rows <= 1, 1, np.where(rows <= 2, 2, np.where(rows <= 4, 4, np.ceil(rows / 8) * 8)))
    return np.where(rows <= most, padded, rows)


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


def ungrouped_attention(stage: Stage, requests: Floats, context: Floats) -> Floats:
    """Decode attention by FlashAttention 2 in a step that holds prompts, where it was measured; else 0. [s]

    Its variable-length kernel gathers the query heads of a group only where every request has one query
    (flash_api.cpp, seqlenq_ngroups_swapped: max_seqlen_q == 1): beside a prompt each query head draws its
    group's keys and values again, at what the level-2 cache gives.
    """
    rate = stage.kernels.ungrouped
    arch, each = stage.arch, KV_BYTES[stage.job.kv]
    if not rate or arch.attention == "mla" or stage.heads == stage.kv_heads:
        return np.zeros(np.broadcast(requests, context).shape)
    drawn = np.ceil(requests / stage.layout.attention_data) * stage.heads * 2.0 * arch.head_dim * each / rate
    return _by_window(stage, np.asarray(context, float), lambda seen: drawn * seen / stage.layout.context)


def prefill_attention(stage: Stage, new: Floats, cached: Floats) -> Floats:
    """Attention of one chunk of `new` tokens after `cached` ones, all layers, without launches. [s]

    Over context ranks the chunk's queries are shared, and keys and values of all of them are gathered.
    """
    arch, layout = stage.arch, stage.layout
    latent = arch.attention == "mla"
    row = replace(_prefill_row(stage), fixed=0.0)
    work = LATENT_PREFILL if latent else 4.0 * arch.head_dim

    def layer(seen: Floats) -> Floats:
        # of a windowed layer each query sees `seen` keys at most: the same work as after so many cached ones
        longest = cached + new
        before = np.where(seen >= longest, cached, np.maximum(np.minimum(seen, longest) - new / 2.0, 0.0))
        return prefill_seconds(
            1.0, new, before, stage.heads / layout.context, work, row, stage.kernels.speeds
        )

    time = plan_pace(stage) * _by_window(stage, cached + new, layer) / layout.attention_data
    if layout.context > 1:
        size = new * (arch.kv_lora + arch.rope_dim if latent else 2.0 * stage.kv_heads * arch.head_dim)
        gathered = nccl_seconds(stage.place, "all_gather", layout.context, size * KV_BYTES[stage.job.kv])
        time = time + stage.layers * gathered
    return time


def prefill_launches(stage: Stage) -> float:
    """Fixed time of the attention of all prompts of a step: one kernel a layer computes them together. [s]"""
    return stage.layers * _prefill_row(stage).fixed / stage.layout.attention_data


def plan_pace(stage: Stage, what: str = "") -> float:
    """Time of prefill over that of the kernels measured: of 'collectives', else of products and attention."""
    kind = what or ("bf16" if stage.dense_type == "fp16" else stage.dense_type)
    return prompt_pace(stage.place.engine, stage.kernels.gpu, kind)


def _prefill_row(stage: Stage) -> AttentionRow:
    kind = "mla_prefill" if stage.arch.attention == "mla" else "prefill"
    return stage.kernels.attention(kind, stage.job.kv if stage.place.engine.narrow_prefill else "bf16")


def _by_window(stage: Stage, context: Floats, layer: Callable[[Floats], Floats]) -> Floats:
    """All layers' time: those with a sliding window see no more than it."""
    arch = stage.arch
    windowed = stage.layers // arch.window_every if arch.sliding_window else 0
    whole = (stage.layers - windowed) * layer(context) if windowed < stage.layers else 0.0
    if not windowed:
        return np.asarray(whole)
    return np.asarray(whole + windowed * layer(np.minimum(context, float(arch.sliding_window))))


def draft_stage(stage: Stage, draft: Transformer | None) -> Stage:
    """What drafts tokens for a model: another model on the same GPUs, or one more layer of its own (MTP)."""
    arch = stage.arch
    own = replace(arch, layers=1, dense_layers=0 if arch.is_moe else arch.dense_layers)
    layout = stage.layout.model_copy(update={"pipeline": 1})
    return Stage(stage.place, stage.job, draft or own, layout)
