"""FLOPs of one token: the closed form that published TFLOP/s figures are made with."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.mixers import mixer_macs, state_flops
from railwright.model.shape.pattern import (
    PARTS,
    Layer,
    layer_kinds,
    made_as,
    num_layers,
    takes_keys,
    windowed_share,
)

Scores = Literal["full", "causal"]


@dataclass(frozen=True)
class ForwardBackward:
    """FLOPs per token [flop]; the backward pass is twice the forward one (input and weight gradients)."""

    forward: float
    backward: float

    @property
    def total(self) -> float:
        return self.forward + self.backward


def flops_per_token(arch: Transformer, sequence: int, scores: Scores = "full") -> ForwardBackward:
    """Model FLOPs of one token: 6 per active weight of a matrix product, plus the attention scores. [flop]

    sequence  tokens in one sequence
    scores    'full' counts every key for every query (Megatron SC'21, NeMo); 'causal' half of them
              (Megatron-Bridge from 25.09)

    F = 6*(layers*(attention + active MLP) + hidden*vocab) + 3*layers*scores.  Linear mixers count their
    products and their states (`mixers.FORMS`), whatever their kernels compute beside.  An indexer scores all
    keys forward and learns from the chosen ones; no gradient flows through its inputs.  A second pass for
    recompute, extra multi-token-prediction layers and element-wise work are not in it.
    Source: Narayanan et al., SC'21, section 5.1 and appendix; per-family conventions were checked on more
    than 500 published rows.
    """
    if arch.window_heads:
        return _by_layer(arch, sequence, scores)
    attending = num_layers(arch, mixer="attention")
    attention = attention_macs(arch) * attending
    mlp = sum(mlp_macs(arch, kind) * num_layers(arch, mlp=PARTS[kind].mlp) for kind in ("mlp", "experts"))
    keys = attended_keys(arch, sequence, scores) * attending
    forward = 2.0 * (attention + mlp + arch.hidden * arch.vocab) + score_flops_per_key(arch) * keys
    if arch.linear:
        forward += (2.0 * mixer_macs(arch) + state_flops(arch.linear)) * num_layers(arch, mixer="linear")
    if not arch.index_topk:
        return ForwardBackward(forward=forward, backward=2.0 * forward)
    whole = float(sequence) if scores == "full" else sequence / 2.0
    kinds = layer_kinds(arch)[: arch.layers]
    choosing = sum(PARTS[k].mixer == "attention" and not takes_keys(k) for k in kinds)
    products, each = 2.0 * index_macs(arch) * choosing, index_flops_per_key(arch) * choosing
    return ForwardBackward(
        forward=forward + products + each * whole,
        backward=2.0 * forward + products + 2.0 * each * attended_keys(arch, sequence, scores),
    )


def _by_layer(arch: Transformer, sequence: int, scores: Scores) -> ForwardBackward:
    """The same where layers differ in their heads: each as if all layers were like it, over all of them."""
    head = 2.0 * arch.hidden * arch.vocab
    found = 0.0
    for kind in layer_kinds(arch)[: arch.layers]:
        alike = replace(made_as(arch, kind), pattern=(kind,) * arch.layers)
        found += (flops_per_token(alike, sequence, scores).forward - head) / arch.layers
    return ForwardBackward(forward=found + head, backward=2.0 * (found + head))


def product_macs(arch: Transformer) -> float:
    """Multiply-adds of one token in all products with weights = the weights that a token meets; those of a
    weight gradient are as many again."""
    head = float(arch.hidden * arch.vocab)
    if arch.window_heads:
        kinds = layer_kinds(arch)[: arch.layers]
        alike = (replace(made_as(arch, kind), pattern=(kind,) * arch.layers) for kind in kinds)
        return head + sum(product_macs(one) - head for one in alike) / arch.layers
    found = head + attention_macs(arch) * num_layers(arch, mixer="attention")
    found += sum(mlp_macs(arch, kind) * num_layers(arch, mlp=PARTS[kind].mlp) for kind in ("mlp", "experts"))
    if arch.linear:
        found += mixer_macs(arch) * num_layers(arch, mixer="linear")
    if arch.index_topk:
        kinds = layer_kinds(arch)[: arch.layers]
        found += index_macs(arch) * sum(PARTS[k].mixer == "attention" and not takes_keys(k) for k in kinds)
    return found


def attention_macs(arch: Transformer) -> int:
    """Multiply-adds of one token in the projections of one attention block = their weights."""
    h, heads = arch.hidden, arch.heads
    if arch.attention == "mla":
        query = heads * (arch.head_dim + arch.rope_dim)
        down = h * arch.q_lora + arch.q_lora * query if arch.q_lora else h * query
        latent = h * (arch.kv_lora + arch.rope_dim)
        up = arch.kv_lora * heads * (arch.head_dim + arch.v_head_dim)
        return down + latent + up + heads * arch.v_head_dim * h + h * gate_width(arch)
    own = (heads + arch.kv_heads) * arch.head_dim + value_columns(arch, arch.kv_heads)
    return h * (own + heads * value_width(arch) + gate_width(arch))


def value_columns(arch: Transformer, kv_heads: int) -> int:
    """Columns of the product that makes the values of so many heads; 0 where the keys' makes them."""
    return 0 if arch.shared_values else kv_heads * value_width(arch)


def value_width(arch: Transformer) -> int:
    """Width of one head's values: that of its keys unless the model says otherwise."""
    return arch.v_head_dim or arch.head_dim


def gate_width(arch: Transformer) -> int:
    """Gates of one token's attention output in one layer, of all heads; 0 without."""
    each = {"": 0, "head": 1, "element": value_width(arch)}
    return arch.heads * each[arch.attention_gate]


def mlp_macs(arch: Transformer, layer: Layer) -> int:
    """Multiply-adds of one token in the MLP of a layer; with experts those of its chosen and shared experts,
    router, and products to latents and back."""
    matrices, mlp = 3 if arch.gated else 2, PARTS[layer].mlp
    if not mlp:
        return 0
    if mlp == "dense":
        return matrices * arch.hidden * arch.ffn
    routed = matrices * arch.experts_per_token * arch.expert_ffn * arch.expert_width
    around = matrices * arch.shared_ffn + arch.experts + arch.shared_gate + 2 * arch.expert_latent
    return routed + arch.hidden * around


def score_flops_per_key(arch: Transformer) -> int:
    """Forward FLOPs of one query against one key in all heads: its score and its share of the values.

    Chosen keys are met in the latent space.
    """
    if arch.index_topk:
        return 2 * arch.heads * (2 * arch.kv_lora + arch.rope_dim)
    if arch.attention == "mla":
        return 2 * arch.heads * (arch.head_dim + arch.rope_dim + arch.v_head_dim)
    return 2 * arch.heads * (arch.head_dim + value_width(arch))


def attended_keys(arch: Transformer, sequence: int, scores: Scores = "full") -> float:
    """Keys one query meets, averaged over queries and over windowed and full layers.

    Full layers: s, or s/2 when causal.  Windowed ones: `windowed_keys`.
    """
    whole = float(sequence) if scores == "full" else sequence / 2.0
    if arch.index_topk:
        return selected_keys(arch, sequence, scores)
    if not 0 < arch.sliding_window < sequence:
        return whole
    share = windowed_share(arch)
    return share * windowed_keys(arch, sequence, scores) + (1.0 - share) * whole


def index_macs(arch: Transformer) -> int:
    """Multiply-adds of one token in the products of an indexer = their weights; 0 without."""
    width = arch.index_heads * arch.index_dim
    return arch.q_lora * width + arch.hidden * (arch.index_dim + arch.index_heads)


def index_flops_per_key(arch: Transformer) -> int:
    """Forward FLOPs of one query against one key in all heads of an indexer."""
    return 2 * arch.index_heads * arch.index_dim


def selected_keys(arch: Transformer, sequence: int, scores: Scores = "causal") -> float:
    """Keys one query meets of those an indexer chooses, averaged over queries: k, or k*(1 - k/(2s)) when
    causal, which counts the shorter prefixes at the start of the sequence."""
    best = min(arch.index_topk, sequence)
    return float(best) if scores == "full" else best * (1.0 - best / (2.0 * sequence))


def windowed_keys(arch: Transformer, sequence: int, scores: Scores = "causal") -> float:
    """Keys one query meets in a windowed layer, averaged over queries; the window w is below the sequence s.

    w, or w*(1 - w/(2s)) when causal, which counts the shorter windows at the start of the sequence.
    In chunks of w: a chunk's own queries and keys, w, or w/2 when causal, and the last chunk's, which may be
    shorter.
    """
    window = arch.sliding_window
    if not arch.window_chunked:
        return float(window) if scores == "full" else window * (1.0 - window / (2.0 * sequence))
    last = sequence % window
    own = (window * (sequence - last) + last * last) / sequence
    return own if scores == "full" else own / 2.0
