"""What lies in a GPU's memory under an engine: weights, working memory, and room for keys and values."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import gate_width
from railwright.model.shape.pattern import full_layers, layer_kinds, stage_kinds
from railwright.serving.engine.draft import draft_of
from railwright.serving.engine.profiles import Engine
from railwright.serving.kernels.constants import WIDTH
from railwright.spec.serving import ServingJob, ServingLayout, Weights
from railwright.units import GIB

KV_BYTES = {"bf16": 2.0, "fp8": 1.0}
ONLY_EXPERTS = ("mxfp4",)
"""Formats that published checkpoints keep for routed experts only, the rest in bf16 (gpt-oss)."""


@dataclass(frozen=True)
class EngineMemory:
    """Memory of one GPU of one replica. [byte]

    weights, working, reserve  beside keys and values; weights: a draft's too; working: activations and logits
                of the largest step
    kv          what is left for keys and values, of `allowed`;  capacity  of the GPU
    token       keys and values of one token on one GPU, all layers of its stage, and a draft's
    kv_tokens   tokens that fit in the replica, over all its attention-data and context ranks
    """

    weights: float
    working: float
    reserve: float
    kv: float
    allowed: float
    capacity: float
    token: float
    kv_tokens: int


def engine_memory(
    job: ServingJob, arch: Transformer, engine: Engine, gpu: Gpu, layout: ServingLayout | None = None
) -> EngineMemory:
    """Memory of the fullest GPU of a replica, and how many tokens' keys and values fit.

    layout  default: the job's (a prefill pool has its own)
    Raises PlanError where the model does not fit, or leaves no room for one request, saying what would do.
    """
    cut = layout or job.layout
    draft = draft_of(job, arch)
    weights = _weights(job, arch, draft, cut)
    working = working_bytes(job, arch, engine, gpu, cut)
    fraction = job.memory_fraction or engine.memory_fraction
    reserve = engine.reserve + (engine.reserve_group if cut.gpus > 1 else 0.0)
    if engine.of_free:
        allowed = fraction * (gpu.hbm_bytes - weights - working - reserve)
        room = allowed
    else:
        allowed = fraction * gpu.hbm_bytes
        room = allowed - weights - working - reserve
    token = kv_token_bytes(arch, job, engine, cut)
    if draft is not None:
        token += kv_token_bytes(draft, job, engine, _whole(cut))
    tokens = int(max(room, 0.0) / token) // engine.block * engine.block
    ranks = cut.attention_data * cut.context
    least = engine.block * 2
    if tokens < least:
        beside = working + reserve
        raise PlanError(_too_big(job, arch, draft, gpu, cut, weights, beside, fraction, engine.of_free))
    return EngineMemory(weights, working, reserve, room, allowed, gpu.hbm_bytes, token, tokens * ranks)


def _weights(job: ServingJob, arch: Transformer, draft: Transformer | None, layout: ServingLayout) -> float:
    """Of the model and of its draft, which lies whole beside the last stage; one more layer of its own has
    the model's embeddings and LM head. [byte]

    vLLM's v1/worker/gpu_model_runner.py loads the drafter behind the model, before it counts blocks.
    """
    own = weight_bytes(arch, job.weights, layout)
    if draft is None:
        return own
    more = weight_bytes(draft, job.weights, _whole(layout))
    named = job.speculative is not None and job.speculative.draft is not None
    return own + more - (0.0 if named else end_bytes(draft, _whole(layout)))


def _whole(layout: ServingLayout) -> ServingLayout:
    return layout.model_copy(update={"pipeline": 1})


def weight_bytes(arch: Transformer, weights: Weights, layout: ServingLayout) -> float:
    """Weights on the fullest GPU (the last stage, which has the LM head). [byte]

    Embeddings, LM head, router and norms stay in bf16, as engines keep them; attention of a latent-attention
    model in nvfp4 too (DeepSeek-R1's published checkpoint), and all but experts in mxfp4.
    """
    width, plain = WIDTH[weights], 2.0
    dense_width = plain if weights in ONLY_EXPERTS and arch.is_moe else width
    attention_width = plain if weights == "nvfp4" and arch.attention == "mla" else dense_width
    kinds = stage_kinds(arch, layout.pipeline)
    layers, dense, moe = len(kinds), kinds.count("dense"), kinds.count("moe")
    matrices = 3 if arch.gated else 2
    group = layout.tensor * layout.attention_data
    per = layers * attention_width * attention_parameters(arch, layout.tensor)
    per += dense * dense_width * matrices * arch.hidden * arch.ffn / layout.tensor
    if moe:
        shared = matrices * arch.hidden * arch.shared_ffn / layout.tensor
        routed = arch.experts * matrices * arch.hidden * arch.expert_ffn / group
        per += moe * (dense_width * shared + width * routed + plain * arch.hidden * arch.experts)
    return per + end_bytes(arch, layout) + layers * 2 * arch.hidden * plain


def end_bytes(arch: Transformer, layout: ServingLayout) -> float:
    """Embeddings and LM head, in bf16, of the last stage's GPU. [byte]"""
    both = layout.pipeline == 1 and not arch.tied_embeddings
    return arch.vocab * arch.hidden / layout.tensor * 2.0 * (2 if both else 1)


def attention_parameters(arch: Transformer, tensor: int) -> float:
    """Weights of one layer's attention on one GPU; key/value heads are copied where GPUs outnumber them."""
    heads = -(-arch.heads // tensor)
    if arch.attention == "mla":
        down = arch.hidden * (arch.q_lora + arch.kv_lora + arch.rope_dim)
        queries = (arch.q_lora or arch.hidden) * heads * (arch.head_dim + arch.rope_dim)
        values = arch.kv_lora * heads * (arch.head_dim + arch.v_head_dim)
        return float(down + queries + values + heads * arch.v_head_dim * arch.hidden)
    shared = max(1, arch.kv_heads // tensor)
    gates = gate_width(arch) / arch.heads * heads
    return float(arch.hidden * (arch.head_dim * (2 * heads + 2 * shared) + gates))


def kv_token_bytes(arch: Transformer, job: ServingJob, engine: Engine, layout: ServingLayout) -> float:
    """Keys and values of one token on one GPU of a stage. [byte]

    Layers with a sliding window count by the window over the mean length of a request, where the engine drops
    what has left the window.
    """
    layers = -(-arch.layers // layout.pipeline)
    if arch.attention == "mla":
        return layers * (arch.kv_lora + arch.rope_dim) * KV_BYTES[job.kv]
    heads = max(1, arch.kv_heads // layout.tensor)
    whole = 2.0 * heads * arch.head_dim * KV_BYTES[job.kv]
    windowed = 0
    if arch.sliding_window and engine.windowed_cache:
        windowed = layers - full_layers(arch, layout.pipeline)
    mean = (job.client.input + job.client.output / 2) * (1 - job.client.spread / 2)
    share = min(1.0, (arch.sliding_window + engine.block) / mean) if windowed else 1.0
    return whole * (layers - windowed + windowed * share)


def working_bytes(
    job: ServingJob, arch: Transformer, engine: Engine, gpu: Gpu, layout: ServingLayout
) -> float:
    """Activations of the largest step on one GPU, or its logits, whichever are more. [byte]

    An engine measures the peak of a run of its token budget before it counts blocks; the widest moment is an
    MLP or the experts' copies, beside two residual streams in bf16, or the sampling of as many requests as
    run at once, when the layers' activations are freed.
    """
    tokens, requests = engine.limits(job, gpu)
    if engine.scheduler == "static":
        tokens = job.client.input * (job.client.concurrency or 1)
    tokens = min(tokens, job.client.input * max(requests, 1)) // max(layout.context, 1)
    tokens = min(tokens, 65536)
    wide = 3.0 * arch.ffn / layout.tensor
    if arch.is_moe:
        ranks = layout.tensor * layout.attention_data
        copies = arch.experts_per_token / layout.expert
        inner = 3.0 * arch.expert_ffn * layout.expert / ranks
        wide = max(wide if "dense" in layer_kinds(arch) else 0.0, copies * (2 * arch.hidden + inner))
    logits = engine.logit * arch.vocab * min(requests, tokens, 1024)
    return max(2.0 * tokens * (4 * arch.hidden + wide), logits)


def _too_big(
    job: ServingJob,
    arch: Transformer,
    draft: Transformer | None,
    gpu: Gpu,
    layout: ServingLayout,
    weights: float,
    beside: float,
    fraction: float,
    of_free: bool,
) -> str:
    room = gpu.hbm_bytes if of_free else fraction * gpu.hbm_bytes
    missing = weights + beside - room
    models = f"{arch.name} with its draft" if draft else arch.name
    what = (
        f"{job.name}: {models} in {job.weights} needs {weights / GIB:.1f} GiB of weights and "
        f"{beside / GIB:.1f} GiB beside them on each GPU of {layout.gpus}, but the engine may use "
        f"{room / GIB:.1f} GiB of {gpu.name}"
    )
    missed = (
        f": {missing / GIB:.1f} GiB too much" if missing > 0 else " and no block of keys and values is left"
    )
    for tensor in (2, 4, 8, 16, 32, 64):
        smaller = _weights(job, arch, draft, layout.model_copy(update={"tensor": tensor}))
        if tensor > layout.tensor and smaller + beside < 0.9 * room:
            return what + missed + f". Raise layout.tensor to {tensor}, or take narrower weights."
    return what + missed + ". Raise layout.tensor or layout.pipeline, or take narrower weights."
