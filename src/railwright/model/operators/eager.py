"""Small kernels of a layer: as one fused kernel, or as eager PyTorch runs them, one kernel per operation.

The fused kernels are Transformer Engine's and Megatron-LM's; frameworks before them, and jobs that leave them
off, launch dozens of kernels for the same result (`TrainingJob.unfused`).
"""

from __future__ import annotations

from typing import Literal

from railwright.model.operators.kernels import Block, elementwise
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.flops import value_width

Part = Literal["rotary", "router", "loss", "norm", "activation", "experts"]
"""What eager software runs operation by operation; `norms`, `mlp_kernels` and `looped` have the last
three."""

Loss = Literal["fused", "compiled", "torch", "torch, cut", "eager", "traced"]
"""How the cross-entropy passes over the logits."""

LOSS_MOVED: dict[Loss, tuple[float, float, float]] = {
    "fused": (2.0, 1.0, 2.0),
    "compiled": (5.0, 4.0, 5.0),
    "torch": (7.0, 4.0, 13.0),
    "torch, cut": (11.0, 8.0, 19.0),
    "eager": (11.0, 8.0, 7.0),
    "traced": (3.0, 1.0, 6.0),
}
"""Logits read and written forward, and moved backward, in 16-bit elements (two for fp32).
fused: read for the maximum and the sum of exponentials, read again and replaced by their gradient; backward
that is scaled in place.  Source: Transformer Engine, common/triton/cross_entropy.py.
compiled: one pass each for cast, maximum, and normalised probabilities, which are kept; an estimate.
torch: PyTorch's own cross entropy: a cast to fp32, whose log-softmax reads each row three times; backward
zeros for the gradient, the log-softmax's from two readings of it and one of the result, and a cast.  Source:
ATen, native/cuda/SoftMax.cu (cunn_SoftMaxForward, cunn_SoftMaxBackward) and Loss.cu.
torch, cut: PyTorch's loss_parallel over tensor ranks: cast, maximum, difference, exponential, sum and
difference again each their own kernel, in fp32; backward zeros, exponential, sum, product and a cast. Source:
PyTorch 2.13, distributed/tensor/parallel/loss.py.
eager: cast, maximum, difference, exponential, sum and quotient each their own kernel, in fp32; backward the
product with the incoming gradient and a cast.  Source: Megatron-LM, core/tensor_parallel/cross_entropy.py.
traced: PyTorch's softmax over the sequence in 16 bits, which reads three times forward and four times
backward, and zeros for the gradient, as vTrain's profiler runs it (src/trainer.py: labels as long as the
vocabulary)."""

Rotation = Literal["megatron", "megatron, latent", "halves", "complex"]
"""Whose code turns queries and keys by their positions where no fused kernel does."""

TURN_LAUNCHES: dict[Rotation, tuple[int, int]] = {
    "megatron": (12, 7),
    "megatron, latent": (13, 12),
    "halves": (5, 9),
    "complex": (3, 4),
}
"""Kernels that turn one tensor by its positions, forward and backward.
megatron: cosine and sine of the angles, each scaled and cast (6), two products, a half with its sign changed,
two joins and a sum (6); backward two products, the sign, a join, two sums and zeros for the part that is not
turned.  Source: Megatron-LM core 0.12, models/common/embeddings/rope_utils.py, _apply_rotary_pos_emb_bshd.
megatron, latent: the same behind a join of even and odd columns, whose gradients are zeros with one half each
(4) and a sum; there (multi_latent_attention).
halves: of these the two products, the sign, a join and a sum; cosine and sine are made once for all layers;
backward the gradients of two slices are zeros with a half each (4).  Source: Hugging Face's transformers,
models/llama/modeling_llama.py, apply_rotary_pos_emb and rotate_half.
complex: a cast to fp32, a product of complex numbers, a cast back; backward the conjugate of what was
multiplied with too.  torch.compile leaves that product to PyTorch ("Torchinductor does not support code
generation for complex operators", torchtitan issue 15).  Source: torchtitan 9dec370 (26 December 2024),
models/llama/model.py, apply_rotary_emb, as in Llama's own code.
tests/oracle/test_model_eager_pytorch.py counts every operation of PyTorch's autograd."""

TURN_MOVED: dict[Rotation, tuple[float, float]] = {
    "megatron": (12.0, 14.0),
    "megatron, latent": (14.0, 21.0),
    "halves": (10.0, 15.0),
    "complex": (10.0, 10.0),
}
"""Times all elements of that tensor are read or written forward and backward, one in fp32 counted as two."""

LATENT_JOINS = (3, 3)
"""Kernels that put latent attention's heads together: query and key out of their turned and plain parts, a
contiguous copy of the values; backward the gradients of query and key/value, and a sum over the heads that
share the turned key.  Counted in core/transformer/multi_latent_attention.py, get_query_key_value_tensors."""

FUSED_CHOICE = (7, 6)
"""Kernels around the router forward and backward: scores with top-k, the map, and the auxiliary loss (counts
per expert, mean scores, their product).  Counted in Megatron-LM, core/transformer/moe/router.py and
moe_utils.py, with Transformer Engine's fused router kernels (2.7 and newer)."""

EAGER_CHOICE = (23, 14)
"""The same without fused kernels: input and weight cast to fp32 and back (2 + 2), softmax and top-k (3), the
gates and the map scattered into zeros (8), tokens per expert (1), the auxiliary loss: scores, sums, products
and its log (9).  Counted at Megatron-LM core 0.12, topk_softmax_with_capacity,
switch_load_balancing_loss_func and apply_load_balancing_loss; backward their gradients by autograd."""

GROUPED, BIASED = (12, 1), (13, 10)
"""What DeepSeek's choices launch beyond that: the best two of each group, the best groups and the mask of all
others (V2, V3); and a bias, scores gathered, normalised and scaled, counts for the bias (V3).  Counted there
in group_limited_topk and topk_softmax_with_capacity (sigmoid, expert_bias)."""

SCORE_PASSES = (2.0, 3.0)
"""Times each of those kernels reads or writes the scores, in 32 bits: one in, one out; backward also what it
multiplies by."""


def rotary(
    arch: Transformer, rows: int, heads: int, kv_heads: int, fused: bool, rotation: Rotation
) -> list[Block]:
    """Queries and keys turned by their positions; nothing for a model with learned ones, ALiBi or none.

    rows      tokens
    heads, kv_heads  of this GPU
    rotation  whose code it is where it is not fused
    Latent attention turns a part of every query, in place, and one key part that all heads share; its kernel
    writes keys and values apart, out of their joint projection.  Code with complex numbers copies keys and
    values for every head that reads them.
    Source: Megatron-LM, core/fusions/fused_mla_yarn_rope_apply.py (query in place, key/value split);
    torchtitan, models/llama/model.py, repeat_kv (until ff0829c1, 27 January 2026).
    """
    if arch.position_embeddings or arch.alibi or not arch.rotary:
        return []
    latent = arch.attention == "mla"
    part = arch.rope_dim if latent else arch.head_dim
    turned = (heads + 1 if latent else heads + kv_heads) * part
    plain = heads * (arch.head_dim + arch.v_head_dim) if latent else 0
    shared = heads * part if latent else 0
    if fused:
        return [
            elementwise(
                "rotary",
                rows,
                reads=turned + plain,
                writes=turned + plain + shared,
                back=2 * turned + 2 * plain + shared,
                launches=(2, 2) if latent else (1, 1),
            )
        ]
    query = heads * (arch.head_dim + part)
    joined = 2 * query + 2 * plain + shared if latent else 0
    turns = turning(rotation, latent)
    launches = [
        2 * n + (more if latent else 0) for n, more in zip(TURN_LAUNCHES[turns], LATENT_JOINS, strict=True)
    ]
    forward, backward = TURN_MOVED[turns]
    found = [
        elementwise(
            "rotary",
            rows,
            reads=forward / 2 * turned + joined / 2,
            writes=forward / 2 * turned + joined / 2,
            back=backward * turned + joined + shared,
            launches=(launches[0], launches[1]),
        )
    ]
    if rotation == "complex" and not latent and kv_heads < heads:
        width = arch.head_dim + value_width(arch)
        copied = (heads + kv_heads) * width
        found.append(
            elementwise(
                "key/value copies",
                rows,
                reads=kv_heads * width,
                writes=heads * width,
                back=copied,
                launches=(2, 2),
            )
        )
    return found


def turning(rotation: Rotation, latent: bool) -> Rotation:
    """Key of TURN_LAUNCHES and TURN_MOVED: Megatron's code joins latent attention's columns first."""
    return "megatron, latent" if latent and rotation == "megatron" else rotation


def expert_choice(arch: Transformer, rows: int, fused: bool) -> Block:
    """Scores, the best experts of every token, and the loss that balances them; without the router's product.

    rows  tokens this GPU routes
    """
    if fused:
        return elementwise(
            "expert choice",
            rows,
            reads=2 * arch.experts,
            writes=2 * arch.experts,
            back=6 * arch.experts,
            launches=FUSED_CHOICE,
        )
    ahead, back = EAGER_CHOICE
    if arch.expert_groups > 1:
        ahead, back = ahead + GROUPED[0], back + GROUPED[1]
        if arch.router_bias:
            ahead, back = ahead + BIASED[0], back + BIASED[1]
    moved = 2 * arch.experts  # scores in 32 bits
    casts = 3 * arch.hidden  # the router's input: 16 bits read, 32 written
    return elementwise(
        "expert choice",
        rows,
        reads=SCORE_PASSES[0] / 2 * ahead * moved + casts / 3,
        writes=SCORE_PASSES[0] / 2 * ahead * moved + 2 * casts / 3,
        back=SCORE_PASSES[1] * back * moved + casts,
        launches=(ahead, back),
    )
