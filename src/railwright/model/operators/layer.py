"""What one GPU runs for one layer and one microbatch, operator by operator.

A layer is the residual block attention + MLP (or experts).  Communication is not here: the training room
places it between these operators.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from railwright.model.operators.cut import WHOLE, Cut, check_cut
from railwright.model.operators.eager import Part, expert_choice, rotary
from railwright.model.operators.grouped_rows import rows_back, rows_there
from railwright.model.operators.kernels import (
    CAST_DTYPES,
    Block,
    attention_pair,
    elementwise,
    expert_biases,
    half,
    linear,
    output_gate,
    residual,
    unfused_attention,
    windowed_attention,
)
from railwright.model.operators.looped import choice, looped_experts
from railwright.model.operators.mixer_operators import mixer_blocks
from railwright.model.operators.mlp_kernels import from_latents, to_latents, two_products
from railwright.model.operators.narrow import NARROW, beside_narrow
from railwright.model.operators.norms import layer_norm, norm, splits_norms
from railwright.model.operators.recompute import computed_again, part_of, run_again
from railwright.model.operators.sparse import chosen_attention, indexer, latent_queries, latent_values
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.flops import gate_width, score_flops_per_key, value_columns, value_width
from railwright.model.shape.pattern import PARTS, Layer, made_as

COUNT_LAUNCHES = 13
"""Kernels and copies that find out how many tokens go where: sums per expert and per rank, slices, and four
copies to the host, beside the gather of counts over the ranks.  Counted in Megatron-LM, core/transformer/moe/
token_dispatcher.py, MoEAlltoAllTokenDispatcher.preprocess (dropless)."""

PERMUTE_LAUNCHES = 4
"""Kernels of a fused permutation: three passes build the row map, one moves rows and their probabilities.
Source: Transformer Engine, pytorch/triton/permutation.py (2.1 and newer; before: index_select, scatter)."""


@dataclass(frozen=True)
class LayerOperators:
    """One layer's operators on one GPU for one microbatch, each tuple in the order it runs.

    A gradient operator is named after its forward one: 'mlp up' -> 'mlp up, weight gradient'.

    forward          the forward pass
    backward_input   gradients of activations (all that the previous layer waits for)
    backward_weight  gradients of weights, in the same order; may run later (zero-bubble schedules)
    recomputed       forward operators that selective recompute runs again, of the parts asked for
    dispatched       tokens this GPU's experts receive (rows of its grouped GEMMs), 0 in a dense layer
    """

    forward: tuple[Operator, ...]
    backward_input: tuple[Operator, ...]
    backward_weight: tuple[Operator, ...]
    recomputed: tuple[Operator, ...]
    dispatched: float = 0.0


def layer_operators(
    arch: Transformer,
    layer: Layer,
    rows: int,
    sequence: int,
    cut: Cut = WHOLE,
    *,
    dtype: str = "bf16",
    modules: tuple[str, ...] = ("core_attn",),
) -> LayerOperators:
    """The operators one GPU runs for one layer of one microbatch.

    layer     its kind (`pattern.PARTS`)
    rows      tokens of the microbatch in the tensor-parallel group (micro_batch * sequence)
    sequence  tokens in one sequence
    dtype     of the linear layers ('bf16', 'fp16', 'fp8', …); attention and router stay in 16 bits
    modules   parts of a layer that selective recomputation runs again (`recompute.MODULES`)

    FlashAttention's FLOPs count the causal half; with sliding windows the layer is the mean of windowed and
    full ones (two operators), so a sum over all layers is right.  Where tp exceeds the key/value heads, these
    are replicated.
    Raises PlanError where the layer cannot be cut so.
    """
    check_cut(arch, layer, cut)
    arch = made_as(arch, layer)
    mixer, mlp = PARTS[layer]
    blocks: list[Block] = []
    if mixer == "attention":
        blocks += _attention(arch, rows, sequence, cut, dtype)
    elif mixer == "linear":
        blocks += mixer_blocks(arch, rows, _norm_rows(rows, cut), sequence, cut.tp, dtype, cut.unfused)
    dispatched = 0.0
    if mlp == "dense":
        blocks += _mlp(arch, rows, cut, dtype)
    elif mlp == "moe":
        etp = cut.expert_tp or cut.tp
        dispatched = rows * arch.experts_per_token * etp / cut.tp * cut.imbalance
        blocks += _experts(arch, rows, cut, dtype, dispatched)
    forward = tuple(b.forward for b in blocks)
    backward = tuple(op for b in reversed(blocks) for op in b.backward_input)
    weight = tuple(op for b in reversed(blocks) for op in b.backward_weight)
    names = run_again(arch, layer, modules)
    again = tuple(op for op in forward if op.name in names)
    if "ops" in modules:
        shares = computed_again(arch, layer)
        again += tuple(part_of(op, shares[op.name]) for op in forward if op.name in shares)
    return LayerOperators(forward, backward, weight, again, dispatched)


def _attention(arch: Transformer, rows: int, sequence: int, cut: Cut, dtype: str) -> list[Block]:
    h, local = arch.hidden, _norm_rows(rows, cut)
    heads, gates = arch.heads // cut.tp, gate_width(arch) // cut.tp
    blocks = [layer_norm("input norm", arch, local, cut.unfused)]
    if arch.attention == "mla":
        blocks += _latent_projections(arch, rows, heads, local, dtype, cut.unfused)
        query = arch.head_dim + arch.rope_dim
        value, kv_heads = arch.v_head_dim, heads
    else:
        query, value = arch.head_dim, value_width(arch)
        kv_heads = max(arch.kv_heads // cut.tp, 1)
        # gates are made by the same product (Megatron-LM's linear_qkv)
        columns = (heads + kv_heads) * query + value_columns(arch, kv_heads) + gates
        blocks.append(linear("qkv projection", rows, columns, h, dtype))
        width = (heads + kv_heads) * query + kv_heads * value * arch.value_norm
        if arch.qk_norm:
            split, gains = splits_norms(arch, cut.unfused), arch.qk_norm_gains != "none"
            apart = (2 + arch.value_norm, 1)
            blocks.append(norm("query/key norm", rows, width, split, gains, apart))
    if arch.index_topk:
        blocks += latent_queries(arch, rows, heads, dtype)
        blocks += indexer(arch, rows, dtype) if arch.index_heads else []
        blocks += chosen_attention(arch, rows, sequence, cut.tp, half(dtype))
        blocks.append(latent_values(arch, rows, heads, dtype))
    else:
        blocks += rotary(arch, rows, heads, kv_heads, "rotary" not in cut.unfused, cut.rotation)
        shape = {"heads": heads, "query_dim": query, "value_dim": value, "kv_heads": kv_heads}
        blocks += _core(arch, rows, sequence, cut, dtype, shape)
    if gates:
        blocks.append(output_gate(rows, heads * value, gates))
    if dtype in CAST_DTYPES:
        blocks.append(elementwise("attention output cast", rows, heads * value, heads * value, 0))
    blocks.append(linear("output projection", rows, h, heads * value, dtype))
    if arch.norms_per_layer == 4:
        blocks.append(layer_norm("attention output norm", arch, local, cut.unfused))
    blocks.append(residual("attention residual", local, h, cut.biased, cut.hidden_dropout))
    return blocks


def _core(
    arch: Transformer, rows: int, sequence: int, cut: Cut, dtype: str, shape: dict[str, int]
) -> list[Block]:
    """The core attention of this GPU's heads, in one kernel or in several.

    shape  heads, query_dim, value_dim, kv_heads
    """
    if cut.attention == "flash":
        flops = rows * sequence / 2 * score_flops_per_key(arch) / cut.tp
        dropped = cut.attention_dropout
        if not cut.narrow:
            whole = attention_pair(rows, sequence, **shape, flops=flops, dtype=half(dtype), dropped=dropped)
            return windowed_attention(arch, whole, rows, sequence, cut.tp)
        how = NARROW[cut.narrow]
        whole = attention_pair(
            rows, sequence, **shape, flops=flops, dtype=how.dtype, written=how.written, dropped=dropped
        )
        core = windowed_attention(arch, whole, rows, sequence, cut.tp, backward=False)
        return beside_narrow(core, rows, cut.narrow, **shape)
    heads, query, value, kv_heads = shape.values()
    blocks = unfused_attention(
        rows,
        sequence,
        heads=heads,
        query_dim=query,
        value_dim=value,
        dtype=half(dtype),
        dropout=cut.attention_dropout,
    )
    if cut.biased:
        # forward the output is put together; backward the gradients of q, k and v, and their bias's sum
        out, joined = heads * value, (heads + kv_heads) * query + kv_heads * value
        blocks.append(elementwise("attention layout", rows, out, out, back=3 * joined, launches=(1, 2)))
    return blocks


def _latent_projections(
    arch: Transformer, rows: int, heads: int, local: int, dtype: str, unfused: tuple[Part, ...]
) -> list[Block]:
    """Multi-head latent attention: the down-projections are replicated over tp, so they run on rows/tp
    under sequence parallelism (as Megatron does); the up-projections are cut by heads.  Where keys are
    chosen they stay latent."""
    h, query = arch.hidden, heads * (arch.head_dim + arch.rope_dim)
    blocks, split = [], splits_norms(arch, unfused)
    if arch.q_lora:
        blocks.append(linear("query down", local, arch.q_lora, h, dtype))
        blocks.append(norm("query norm", local, arch.q_lora, split))
        blocks.append(linear("query up", rows, query, arch.q_lora, dtype))
    else:
        blocks.append(linear("query projection", rows, query, h, dtype))
    blocks.append(linear("key/value down", local, arch.kv_lora + arch.rope_dim, h, dtype))
    blocks.append(norm("key/value norm", local, arch.kv_lora, split))
    if not arch.index_topk:
        width = heads * (arch.head_dim + arch.v_head_dim)
        blocks.append(linear("key/value up", rows, width, arch.kv_lora, dtype))
    return blocks


def _mlp(arch: Transformer, rows: int, cut: Cut, dtype: str) -> list[Block]:
    local, width, how = _norm_rows(rows, cut), arch.ffn // cut.tp, cut.unfused
    return [
        *_mlp_norm(arch, local, cut),
        *two_products(arch, "mlp", rows, width, dtype, biased=cut.biased, unfused=how, stored=cut.stored),
        *_mlp_end(arch, local, cut),
    ]


def _experts(arch: Transformer, rows: int, cut: Cut, dtype: str, dispatched: float) -> list[Block]:
    """Router, permute, this GPU's experts as grouped GEMMs, unpermute, shared experts; or one expert after
    the other (`looped`), or rows moved by operations of PyTorch (`grouped_rows`).

    The busiest GPU receives `dispatched` rows; its experts share them evenly.  Router probabilities are
    multiplied in the experts' activation, so that permutations only move rows (Megatron-LM since core 0.11).
    Latents are made of a rank's own rows, by whole matrices on every tensor rank (moe/moe_layer.py,
    fc1_latent_proj, fc2_latent_proj: TELinear, parallel_mode 'duplicated').
    """
    h, local = arch.expert_width, _norm_rows(rows, cut)
    here = arch.experts // cut.ep
    width = arch.expert_ffn // (cut.expert_tp or cut.tp)
    router = linear("router", local, arch.experts, arch.hidden, half(dtype))
    fused = "router" not in cut.unfused
    chosen = choice(arch, local) if cut.by_pytorch else expert_choice(arch, local, fused)
    own = [layer_norm("router norm", arch, local, cut.unfused)] if arch.branch_norms else []
    blocks = [*_mlp_norm(arch, local, cut), *own, router, chosen]
    if "experts" in cut.unfused:
        blocks += looped_experts(arch, local, dispatched, here, width, dtype, cut.unfused)
        return [*blocks, *_beside_experts(arch, rows, local, cut, dtype)]
    blocks += to_latents(arch, local, dtype) if arch.expert_latent else []
    products = _products_of_experts(arch, dispatched, width, cut, dtype, here)
    if cut.dispatch == "eager":
        blocks += [*rows_there(local, dispatched, h), *products, rows_back(local, dispatched, h)]
    else:
        blocks += _dispatched(arch, local, dispatched, products, here)
    if arch.expert_latent:
        blocks += from_latents(arch, local, dtype)
    return [*blocks, *_beside_experts(arch, rows, local, cut, dtype)]


def _products_of_experts(
    arch: Transformer, dispatched: float, width: int, cut: Cut, dtype: str, here: int
) -> list[Block]:
    """The grouped products of a GPU's `here` experts and what is between and behind them."""
    h, how = arch.expert_width, cut.unfused
    blocks = two_products(
        arch, "experts", dispatched, width, dtype, here, casts=True, outside=h, unfused=how, stored=cut.stored
    )
    return [*blocks, expert_biases(dispatched, here, h)] if arch.mlp_bias else blocks


def _dispatched(
    arch: Transformer, local: int, dispatched: float, products: list[Block], here: int
) -> list[Block]:
    """Experts' products between fused permutations of a token's rows there and back."""
    h, top = arch.expert_width, arch.experts_per_token
    sort = [elementwise("sort by expert", dispatched, reads=h, writes=h, back=2 * h)] if here > 1 else []
    unsort = [elementwise("unsort", dispatched, reads=h, writes=h, back=2 * h)] if here > 1 else []
    return [
        elementwise("expert counts", local, arch.experts, 0, back=0, launches=(COUNT_LAUNCHES, 0)),
        elementwise(
            "permute", local, reads=h, writes=top * h, back=(top + 1) * h, launches=(PERMUTE_LAUNCHES, 1)
        ),
        *sort,
        *products,
        *unsort,
        elementwise("unpermute", local, reads=top * h, writes=h, back=(top + 1) * h),
    ]


def _beside_experts(arch: Transformer, rows: int, local: int, cut: Cut, dtype: str) -> list[Block]:
    """The shared expert, and the end of a layer with experts."""
    h, how, stored = arch.hidden, cut.unfused, cut.stored
    blocks: list[Block] = []
    if arch.shared_ffn:
        if arch.shared_norm:
            blocks.append(layer_norm("shared expert norm", arch, local, how))
        shared = arch.shared_ffn // cut.tp
        blocks += two_products(arch, "shared expert", rows, shared, dtype, unfused=how, stored=stored)
        if arch.shared_gate:
            blocks.append(linear("shared gate", local, 1, h, half(dtype)))
        if arch.branch_norms:
            names = ("routed output norm", "shared output norm")
            blocks += [layer_norm(name, arch, local, how) for name in names]
        blocks.append(elementwise("add shared", local, reads=2 * h, writes=h, back=2 * h))
    return [*blocks, *_mlp_end(arch, local, cut, arch.experts_norm)]


def _mlp_norm(arch: Transformer, local: int, cut: Cut) -> list[Block]:
    """The norm before the MLP; none where it shares that of attention."""
    return [] if arch.norms_per_layer == 1 else [layer_norm("mlp norm", arch, local, cut.unfused)]


def _mlp_end(arch: Transformer, local: int, cut: Cut, normed: bool = False) -> list[Block]:
    """`normed`: the output is, whatever the other layers do."""
    h = arch.hidden
    ends = [residual("mlp residual", local, h, cut.biased, cut.hidden_dropout)]
    if arch.norms_per_layer == 4 or normed:
        ends.insert(0, layer_norm("mlp output norm", arch, local, cut.unfused))
    return ends


def _norm_rows(rows: int, cut: Cut) -> int:
    return -(-rows // cut.tp) if cut.sequence_parallel else rows


def second_block(names: Sequence[str]) -> int:
    """Where the MLP or the experts begin among a layer's operators: with their norm, if they have one; at the
    end where there are none."""
    found = (i for i, name in enumerate(names) if name.startswith(("mlp ", "router")))
    return next(found, len(names))
