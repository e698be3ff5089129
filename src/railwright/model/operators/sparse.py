"""Latent attention to a few keys that an indexer chooses (DeepSeek-V3.2, arXiv 2512.02556, section 2.1).

The indexer scores the whole causal prefix of every query with small heads of its own; attention then meets
the `index_topk` best keys.  It runs on latents: queries are multiplied into the latent space before, and
outputs out of it behind, so that one key of kv_lora + rope_dim elements serves all heads.

Operators and tensors are those of Megatron-LM d98e8a6 with its TileLang kernels, core/transformer/
experimental_attention_variant: absorbed_mla.py, dsa.py and ops/ (tilelang_indexer_fwd.py, _bwd.py, _loss.py,
tilelang_sparse_mla_fwd.py, _bwd.py, tilelang_dsa.py), in DeepSeek's second stage of training: attention is
sparse, and the indexer learns by a loss of its own on the chosen keys, apart from the model's.
"""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from railwright.errors import PlanError
from railwright.model.operators.eager import TURN_LAUNCHES, TURN_MOVED
from railwright.model.operators.kernels import (
    ELEMENT,
    FLASH_BACKWARD,
    Block,
    elementwise,
    half,
    linear,
)
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.flops import index_flops_per_key, score_flops_per_key, selected_keys

LAUNCHES, MOVED = TURN_LAUNCHES["megatron, latent"], TURN_MOVED["megatron, latent"]

SCORED_ROWS = 8192
"""Queries whose index scores are in memory at once (dsa.py, fused_indexer_block_size)."""

LOSS_ROWS = 512
"""Queries of one launch of the loss (tilelang_dsa.py, seq_chunk_size)."""

READINGS = 5.0
"""Times the choice of the best reads every score: four digits of 8 bits, and the gathering (PyTorch, ATen
native/cuda/TensorTopK.cu, the radix select of several blocks a row)."""

CHOICE_LAUNCHES = 16
"""Its kernels for a block of queries: two for each digit, four to count, scan and gather, then a cast to 32
bits, a comparison and masks of scores and indices (ops/indexer.py, _select_topk_from_logits)."""

CHOSEN_BYTES = (8.0 + 4.0) + (8.0 + 4.0) + (4.0 + 1.0) + 2 * (4.0 + 1.0 + 4.0) + (4.0 + 4.0)
"""Bytes per chosen key: index and score written; the cast, the comparison, two masks, and the copy of the
indices of all blocks."""

LOSS_BYTES = 3 * 4.0 + 2 * (4.0 + 4.0 + 1.0) + 4.0
"""Bytes per chosen key of the loss: the sum of probabilities cleared and added to; sum, score and mask read
twice; a gradient written."""

KEPT_PER_KEY = 4.0 + 4.0 + 4.0
"""Bytes per chosen key that a pass keeps: the indices of all queries and, again, those of every block
(IndexerFunction), and the gradient of the loss (SparseIndexerKLLoss)."""

PROJECTIONS = ("index query", "index key", "index weights")
"""Products of the indexer; every tensor rank has all of them, on all rows, and no gradient flows out of them
(DSAIndexer, parallel_mode 'duplicated'; DSAttention.forward detaches their inputs)."""


def check_sparse(arch: Transformer, attention: str, narrow: bool) -> None:
    """Raise PlanError where attention to chosen keys is asked of kernels that do not have it."""
    if arch.index_topk and attention != "flash":
        raise PlanError(f"{arch.name}: attention to chosen keys is known as fused kernels only.")
    if arch.index_topk and narrow:
        raise PlanError(f"{arch.name}: attention to chosen keys runs in 16 bits; leave it out of dtype_also.")


def latent_queries(arch: Transformer, rows: int, heads: int, dtype: str) -> list[Block]:
    """Queries into the latent space, head by head, and joined with their rotary parts; keys too."""
    query = heads * (arch.kv_lora + arch.rope_dim)
    turned, joined = (heads + 1) * arch.rope_dim, query + arch.kv_lora + arch.rope_dim
    ahead, back = MOVED[0] / 2 * turned + joined, MOVED[1] * turned + 2 * joined
    launches = (2 * LAUNCHES[0] + 2, 2 * LAUNCHES[1] + 2)
    return [
        _by_head("query absorption", rows, heads, arch.kv_lora, arch.head_dim, dtype),
        elementwise("rotary", rows, reads=ahead, writes=ahead, back=back, launches=launches),
    ]


def latent_values(arch: Transformer, rows: int, heads: int, dtype: str) -> Block:
    """What attention gives out of the latent space again, head by head."""
    return _by_head("value absorption", rows, heads, arch.v_head_dim, arch.kv_lora, dtype)


def indexer(arch: Transformer, rows: int, dtype: str) -> list[Block]:
    """The indexer's queries, its one key and its weights of heads, up to the scores; on all rows."""
    heads, width, h = arch.index_heads, arch.index_dim, arch.hidden
    both = (heads + 1) * width
    turned = (heads + 1) * arch.rope_dim
    # positions, a joined copy and a Hadamard rotation of queries and keys; two scalings of the weights
    ahead = MOVED[0] / 2 * turned + 2 * both + 2 * heads
    back = MOVED[1] * turned + 4 * both + 4 * heads
    launches = (2 * LAUNCHES[0] + 2 + 2 + 2, 2 * LAUNCHES[1] + 2 + 2 + 2)
    return [
        _apart(linear("index query", rows, heads * width, arch.q_lora, dtype)),
        _apart(linear("index key", rows, width, h, dtype)),
        elementwise("index key norm", rows, reads=width, writes=width, back=3 * width),
        _apart(linear("index weights", rows, heads, h, dtype)),
        elementwise("index rotary", rows, reads=ahead, writes=ahead, back=back, launches=launches),
    ]


def chosen_attention(arch: Transformer, rows: int, sequence: int, tp: int, dtype: str) -> list[Block]:
    """Index scores, the best keys, the indexer's loss, and attention to those keys by this GPU's heads.

    dtype  16 bits.  The backward kernel of the index scores multiplies in TF32; it counts as 16 bits here.
    Keys count as read once by all queries: neighbouring ones choose much alike, out of the cache.
    Without an indexer of its own a layer only attends, to the keys that one before it chose.
    """
    heads, best = arch.heads // tp, min(arch.index_topk, sequence)
    met = selected_keys(arch, sequence, "causal")
    if not arch.index_heads:
        return [_core(arch, rows, sequence, met, best, heads, tp, dtype)]
    return [
        _scores(arch, rows, sequence, met, best, dtype),
        _choice(rows, sequence, best),
        _loss(arch, rows, sequence, met, best, heads, dtype),
        _core(arch, rows, sequence, met, best, heads, tp, dtype),
    ]


def _scores(arch: Transformer, rows: int, sequence: int, met: float, best: int, dtype: str) -> Block:
    """Every index head against every key of the prefix, summed over heads, in 32 bits; backward the chosen.

    One product of `index_dim` for a score: as much for each score as two of half that width, which is how
    the kernel's time sees it, since the sum over heads takes the place of a softmax.
    The upper triangle is filled with -inf by a kernel of its own.
    """
    q, k = arch.index_heads * arch.index_dim, arch.index_dim
    each, blocks = index_flops_per_key(arch) * rows, ceil(rows / SCORED_ROWS)
    shape = (sequence, sequence, k // 2, max(rows // sequence, 1) * arch.index_heads)
    moved = rows * (ELEMENT * (q + k) + 4.0 * arch.index_heads + 4.0 * sequence)
    # gradients of queries and weights; those of keys are cleared, added up and cast
    back = rows * (2 * ELEMENT * (q + k) + 8.0 * arch.index_heads + (4.0 + 8.0 + 4.0) * k + 8.0 * best)
    short = (sequence, min(2 * best, sequence), k // 2, shape[3])
    return Block(
        Operator("index scores", "attention", each * sequence / 2, moved, dtype, *shape, launches=2 * blocks),
        (
            Operator(
                "index scores, backward",
                "attention",
                3.0 * each * met,
                back,
                dtype,
                *short,
                phase="backward_input",
                launches=3 * blocks,
            ),
        ),
    )


def _choice(rows: int, sequence: int, best: int) -> Block:
    moved = READINGS * 4.0 * sequence + CHOSEN_BYTES * best
    launches = (CHOICE_LAUNCHES * ceil(rows / SCORED_ROWS), 0)
    return elementwise("index choice", rows, moved / ELEMENT, 0, back=0, launches=launches)


def _loss(
    arch: Transformer, rows: int, sequence: int, met: float, best: int, heads: int, dtype: str
) -> Block:
    """What attention gives the chosen keys, summed over heads: the scores twice, once for their maxima and
    sums; beside it the divergence and its gradient.  Backward that is scaled."""
    width, launches = arch.kv_lora + arch.rope_dim, 2 * ceil(rows / LOSS_ROWS)
    flops = 2 * 2.0 * rows * heads * width * met
    moved = rows * (2 * ELEMENT * heads * width + ELEMENT * width + LOSS_BYTES * best)
    shape = (sequence, min(2 * best, sequence), width // 2, max(rows // sequence, 1) * heads)
    scaled = Operator("index loss, backward", "memory", 0.0, 8.0 * rows * best, dtype, phase="backward_input")
    return Block(
        Operator("index loss", "attention", flops, moved, dtype, *shape, launches=launches), (scaled,)
    )


def _core(
    arch: Transformer, rows: int, sequence: int, met: float, best: int, heads: int, tp: int, dtype: str
) -> Block:
    """Attention to the chosen keys.  Backward a kernel for output times gradient, the gradients of the keys
    cleared and added up in 32 bits, and cast."""
    width, out = arch.kv_lora + arch.rope_dim, heads * arch.kv_lora
    flops = score_flops_per_key(arch) / tp * rows * met
    shape = (sequence, min(2 * best, sequence), width, max(rows // sequence, 1) * heads)
    moved = rows * (ELEMENT * (heads * width + width + out) + 4.0 * heads + 4.0 * best)
    back = rows * (
        ELEMENT * (2 * heads * width + width + 4 * out) + 12.0 * heads + 4.0 * best + (4 + 8 + 4 + 2) * width
    )
    return Block(
        Operator("core attention", "attention", flops, moved, dtype, *shape),
        (
            Operator(
                "core attention, backward",
                "attention",
                FLASH_BACKWARD * flops,
                back,
                dtype,
                *shape,
                phase="backward_input",
                launches=4,
            ),
        ),
    )


def _by_head(name: str, rows: int, heads: int, outputs: int, inputs: int, dtype: str) -> Block:
    """A product of its own for every head, all in one batched kernel; in 16 bits."""
    block = linear(name, rows * heads, outputs, inputs, half(dtype), batch=heads)

    def batched(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        return tuple(replace(op, kind="gemm", launches=1) for op in found)

    return Block(batched((block.forward,))[0], batched(block.backward_input), batched(block.backward_weight))


def _apart(block: Block) -> Block:
    """A product through whose input no gradient flows; in fp8 that of its output is cast for the weights."""
    return replace(block, backward_input=block.backward_input[:-1])
