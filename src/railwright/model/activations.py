"""Activation memory: what one GPU keeps from a microbatch's forward pass until its backward pass."""

from __future__ import annotations

from typing import Literal

from railwright.model.architecture import Transformer
from railwright.model.kernels import ELEMENT
from railwright.model.operators import Cut, Layer, check_cut

Recompute = Literal["none", "selective", "full"]
Attention = Literal["flash", "unfused"]


def layer_activation_bytes(
    arch: Transformer,
    layer: Layer,
    rows: int,
    sequence: int,
    *,
    tp: int = 1,
    sequence_parallel: bool = False,
    ep: int = 1,
    expert_tp: int | None = None,
    imbalance: float = 1.0,
    recompute: Recompute = "none",
    attention: Attention = "flash",
    dropout: float = 0.0,
) -> float:
    """Bytes one layer keeps for one microbatch on one GPU. [byte]

    rows       tokens of the microbatch in the tensor-parallel group (micro_batch * sequence)
    attention  'flash' keeps the output and one fp32 log-sum-exp per head and row; 'unfused' keeps the score
               matrix, its softmax and its dropout mask (5 bytes per score)
    dropout    masks of one byte per element are kept where it is above 0
    recompute  'selective' drops what the core attention keeps inside; 'full' keeps the layer's input only

    Kept is the input of every operator whose backward needs it, in 16 bits.  For GPT with dropout this is
    Korthikanti et al. 2022 (arXiv 2205.05198), section 4: rows*hidden*(34 + 5*heads*sequence/hidden) split as
    10 + 24/tp, or all over tp with sequence parallelism.  The same counting gives grouped-query, latent and
    gated variants; docs/models.md lists the terms.
    """
    check_cut(arch, layer, Cut(tp, sequence_parallel, ep, expert_tp, imbalance))
    split = tp if sequence_parallel else 1
    if recompute == "full":
        return rows * ELEMENT * arch.hidden / split
    masks = arch.hidden if dropout > 0 else 0.0
    spread, parted = _attention(arch, tp)
    spread += masks
    if recompute == "none":
        per_head = 4.0 if attention == "flash" else 5.0 * sequence
        parted += per_head * arch.heads / tp
    if layer == "dense":
        spread += 2 * ELEMENT * arch.hidden + masks
        parted += ELEMENT * _inner(arch) * arch.ffn / tp
    else:
        more, kept = _experts(arch, tp, expert_tp or tp, imbalance)
        spread += more + masks
        parted += kept
    spread += (arch.norms_per_layer - 2) * ELEMENT * arch.hidden
    return rows * (spread / split + parted)


def head_activation_bytes(
    arch: Transformer, rows: int, *, tp: int = 1, sequence_parallel: bool = False
) -> float:
    """Bytes the final norm, LM head and loss keep on one GPU of the last stage. [byte]

    The norm's and the head's inputs, and the softmax over this GPU's columns in fp32.
    Source: Korthikanti et al. 2022, section 4.3 (4*rows*hidden/tp*(1 + vocab/hidden)).
    """
    split = tp if sequence_parallel else 1
    return rows * (2 * ELEMENT * arch.hidden / split + 4.0 * arch.vocab / tp)


def _attention(arch: Transformer, tp: int) -> tuple[float, float]:
    """Bytes per row: (inputs of norm and projections on every rank, parts cut by heads)."""
    spread = 2 * ELEMENT * arch.hidden
    heads = arch.heads / tp
    if arch.attention == "mla":
        spread += 2 * ELEMENT * (arch.q_lora + arch.kv_lora) + ELEMENT * arch.rope_dim
        width = 2 * (arch.head_dim + arch.rope_dim) + 2 * arch.v_head_dim
        return spread, ELEMENT * heads * width
    keys = max(arch.kv_heads / tp, 1.0)
    parted = ELEMENT * arch.head_dim * (2 * heads + 2 * keys)
    if arch.qk_norm:
        parted += ELEMENT * arch.head_dim * (heads + keys)
    return spread, parted


def _experts(arch: Transformer, tp: int, expert_tp: int, imbalance: float) -> tuple[float, float]:
    """Bytes per row: (norm and router, spread like norms; what this GPU's experts and shared expert keep).

    A GPU receives experts_per_token * expert_tp/tp rows per row on average, `imbalance` times that at worst.
    Each keeps its input, the activation's input and output, and its output (for the router's gradient).
    """
    top = arch.experts_per_token
    spread = 2 * ELEMENT * arch.hidden + 2 * 4.0 * arch.experts
    received = top * expert_tp / tp * imbalance
    expert = ELEMENT * (2 * arch.hidden + _inner(arch) * arch.expert_ffn / expert_tp)
    return spread, received * expert + ELEMENT * _inner(arch) * arch.shared_ffn / tp


def _inner(arch: Transformer) -> int:
    """Elements kept per unit of MLP width: the activation's input (twice when gated) and its output."""
    return 3 if arch.gated else 2
