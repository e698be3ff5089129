"""What one GPU runs in an engine's step, layer by layer: everything but attention (engine/attention.py).

Legend: K batches by their tokens T (whole replica); t tensor, a attention-data, c context ranks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.compute.gemm import Shape
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import gate_width
from railwright.model.shape.pattern import stage_kinds
from railwright.serving.engine.exchange import (
    Place,
    all_reduce_seconds,
    bus_seconds,
    expert_seconds,
    gathers,
    nccl_seconds,
)
from railwright.serving.engine.memory import KV_BYTES, ONLY_EXPERTS
from railwright.serving.engine.pace import prompt_bus, prompt_pace
from railwright.serving.kernels.constants import Kernels
from railwright.serving.kernels.flash2 import WIDTH, TileRow
from railwright.serving.kernels.times import (
    Floats,
    Routed,
    experts_seconds,
    gemm_seconds,
)
from railwright.spec.serving import ServingJob, ServingLayout, Weights

ELEMENTWISE = 0.55
"""Fixed time of an element-wise kernel (norm, activation) over that of a matrix product: an estimate."""


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
        return stage_kinds(self.arch, self.layout.pipeline).count("moe")

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
    def tiles(self) -> TileRow | None:
        """FlashAttention 2 by its thread blocks, where it is what runs: neither latent attention nor an fp8
        cache, and heads as wide as those measured; None elsewhere."""
        runs = self.arch.attention != "mla" and KV_BYTES[self.job.kv] == 2.0 and self.arch.head_dim == WIDTH
        return self.kernels.tiles if runs else None

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
        """One kernel that moves so many bytes: from the level-2 cache, where it was measured so. [s]"""
        product, own = self.kernels.gemm("bf16")[0], self.kernels.elementwise
        memory = product.memory * self.kernels.speeds.bandwidth
        if own is None:
            return ELEMENTWISE * product.fixed + moved / memory
        cached = np.minimum(moved, own.cache)
        return np.asarray(own.fixed + cached / own.rate + (moved - cached) / memory)


def row_parts(stage: Stage, tokens: Floats, *, mixed: bool) -> dict[str, Floats]:
    """Seconds of the fullest stage in a step of `tokens` (K,), by part, without attention.

    mixed  the step holds prefill: prompts' tokens are split over context ranks, latent attention
           expands keys and values, and only each prompt's last token reaches the LM head
    Parts: attention products, mlp, experts, norms, collectives, head (with sampling), launches (host time
    that no kernel hides in a step without graphs).
    """
    arch, layout = stage.arch, stage.layout
    own = np.maximum(tokens / layout.attention_data / (layout.context if mixed else 1), 1.0)
    replayed = own if mixed else captured(own, stage.place.engine.graphs)
    tokens = np.maximum(tokens, 1.0)
    if gathers(stage.place, layout):
        # every group is padded alike, and what pads it goes to experts too
        tokens = np.maximum(tokens, replayed * layout.attention_data)
    layers, moe = stage.layers, stage.moe_layers
    parts = {"attention products": layers * _attention_products(stage, replayed, mixed=mixed)}
    dense = layers - moe
    gated = 2 if arch.gated else 1
    parts["mlp"] = dense * _mlp(stage, replayed, arch.ffn / layout.tensor, gated) if dense else 0 * own
    if moe:
        parts["experts"] = moe * _experts(stage, replayed, tokens)
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
            stage.place, stage.job, arch, layout, tokens
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


def rank_seconds(stage: Stage, own: Floats) -> Floats:
    """The part of a step with prompts that a group's own tokens decide, all but routed experts, (K,). [s]

    own  tokens of the attention-data group that has most: the others wait for it in every layer's exchange
    """
    parts = row_parts(stage, own * stage.layout.attention_data, mixed=True)
    return np.asarray(sum(v for k, v in parts.items() if k not in ("experts", "launches")))


def _norms(stage: Stage, rows: Floats) -> Floats:
    """The norms of one layer, each with its residual: inside the all-reduce they cost their bytes alone."""
    moved = rows * stage.arch.hidden * 8.0
    each = stage.elementwise(moved)
    reduced = rows * stage.arch.hidden * 2.0 * stage.layout.tensor
    inside = stage.fused & (reduced <= stage.place.engine.fused_bytes)
    both = min(stage.arch.norms_per_layer, 2) * (each - np.where(inside, stage.elementwise(0 * moved), 0.0))
    return both + each if stage.arch.qk_norm else both


def _attention_products(stage: Stage, rows: Floats, *, mixed: bool) -> Floats:
    arch, kind = stage.arch, stage.attention_type
    heads = stage.heads
    if arch.attention != "mla":
        gates = gate_width(arch) // arch.heads * heads
        inner = arch.head_dim * (heads + 2 * stage.kv_heads) + gates
        out = stage.product(rows, arch.hidden, heads * arch.head_dim, kind)
        if gates:
            # output and gates in, their product out: one kernel
            out = out + stage.elementwise(rows * (2 * heads * arch.head_dim + gates) * 2.0)
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
    work; the busiest GPU works `expert_load` times the mean.
    """
    arch, layout = stage.arch, stage.layout
    local = arch.experts / layout.expert
    group = layout.tensor * layout.attention_data
    inner = arch.expert_ffn * layout.expert / group
    busy = stage.job.expert_load(layout.expert)
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
        # vLLM's Triton experts work on buffers of all gathered copies (fused_moe.py, TritonExperts.apply)
        tokens * arch.experts_per_token
        if gathers(stage.place, layout) and stage.kernels.family == "vllm"
        else None,
        Routed(local, arch.experts_per_token, layout.expert),
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


def captured(rows: Floats, most: int) -> Floats:
    """Rows a replayed graph works on, padded as vLLM and SGLang do: 1, 2, 4, then the next multiple of 8, up
    to the largest captured."""
    padded = np.where(rows <= 1, 1, np.where(rows <= 2, 2, np.where(rows <= 4, 4, np.ceil(rows / 8) * 8)))
    return np.where(rows <= most, padded, rows)


def plan_pace(stage: Stage, what: str = "") -> float:
    """Time of prefill over that of the kernels measured: of 'collectives', else of products and attention."""
    kind = what or ("bf16" if stage.dense_type == "fp16" else stage.dense_type)
    return prompt_pace(stage.place.engine, stage.kernels.gpu, kind)


def draft_stage(stage: Stage, draft: Transformer) -> Stage:
    """The GPUs of a stage at work for a draft, which is not cut into stages."""
    return Stage(stage.place, stage.job, draft, stage.layout.model_copy(update={"pipeline": 1}))
