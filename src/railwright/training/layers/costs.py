"""Times of a layer's operators, and the sections of a layer between which communication sits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from railwright.model.operators.layer import LayerOperators, second_block
from railwright.model.operators.recompute import CORE, ORDER, SEARCH, SUMS
from railwright.model.operators.sparse import PROJECTIONS
from railwright.model.shape.architecture import Operator, Transformer
from railwright.training.software.lora import DEQUANTISED

KernelTime = Callable[[Operator], float]
ContextKind = Literal["ring", "all-to-all", "all-gather"]

_EXPERTS_START, _EXPERTS_END = (SEARCH, ORDER, "sort by expert", "experts up"), (SUMS, "unpermute")
_SHARED = "shared expert"


@dataclass(frozen=True)
class Cost:
    """One operator's times: forward, input gradient, weight gradient [s].

    learns  whether it has weights with a gradient, however little time that takes
    """

    name: str
    product: bool
    forward: float
    input: float
    weight: float
    learns: bool


NONE = Cost("", False, 0.0, 0.0, 0.0, False)

STAYING = ("query absorption", *PROJECTIONS)
"""Products whose gathered inputs stay until the backward pass, or are not needed there (`model.sparse`)."""

MIXING = (
    *("mixer convolution", "mixer inputs", "mixer activation", "mixer key norm", "mixer decays"),
    *("mixer chunk", "mixer state passing", "mixer gated norm"),
)
"""How the kernels of a linear mixer begin that work on whole sequences (`mixer_operators.KERNELS`)."""

ROTARY_KEYS = "key/value down"
"""The product that makes the rotary part of latent attention's keys, which all heads share."""


@dataclass(frozen=True)
class Column:
    """A column-parallel product, with what runs before it on a rank's own tokens.

    product  NONE where what is gathered goes straight to the attention
    width    elements of a token that tensor ranks gather, or whose gradient they reduce; None: hidden width
    """

    before: tuple[Cost, ...]
    product: Cost
    width: int | None = None


def costs(operators: LayerOperators, kernel_time: KernelTime) -> list[Cost]:
    """Forward order; gradients are joined to their forward operator by name, and kernels that widen a
    product's weight to the product behind them."""
    gradients: dict[str, float] = {}
    for op in operators.backward_input:
        name = op.name.rsplit(", ", 1)[0]
        gradients[name] = gradients.get(name, 0.0) + kernel_time(op)
    weights: dict[str, float] = {}
    for op in operators.backward_weight:
        name = op.name.rsplit(", ", 1)[0]
        weights[name] = weights.get(name, 0.0) + kernel_time(op)
    found: list[Cost] = []
    for op in operators.forward:
        seconds, name = kernel_time(op), op.name.removesuffix(DEQUANTISED)
        product = op.kind in ("gemm", "grouped_gemm") and name not in CORE
        if found and found[-1].name == name:
            last = found[-1]
            found[-1] = replace(last, product=product or last.product, forward=last.forward + seconds)
            continue
        learns, weight = name in weights, weights.pop(name, 0.0)
        found.append(Cost(name, product, seconds, gradients.pop(name, 0.0), weight, learns))
    lost = [*gradients, *weights]
    assert not lost, f"gradients without a forward operator: {lost}"
    return found


def gradients_of(found: Iterable[Cost], whole: bool) -> float:
    """Seconds of the gradients of some operators, those of weights only where the pass is `whole`."""
    return sum(c.input + (c.weight if whole else 0.0) for c in found)


WHOLE_AND_HALF = (1.0 + 2.0) / 2
"""Mean of one over the keys of a ring's blocks that no mask cuts, where all keys count 1: half of those
blocks have all, half have half.
Source: Transformer Engine, dot_product_attention/context_parallel.py, AttnFuncWithCPAndKVP2P ("diagonal",
"lower-triangle", "upper-triangle")."""


def on_context_ranks(
    operators: LayerOperators, how: ContextKind, ranks: int, sequences: int, heads: int
) -> LayerOperators:
    """The core attention as one of `ranks` context-parallel ranks runs it; the rest stays as it is.

    sequences, heads  of the microbatch (packed samples count one by one), and query heads of this GPU
    ring        its queries against `ranks` blocks of keys in turn, each a kernel of its own: a share of the
                FLOPs, but all queries and outputs in memory traffic.  Every rank holds one early and one
                late part of the sequence, so that under a causal mask each block has as many scores: the
                first is its own triangle, the others, which no mask cuts, all queries against half of the
                keys or half of them against all, by turns.
    all-to-all  whole sequences of 1/ranks of the heads
    all-gather  its queries against all keys at once
    """

    def split(op: Operator) -> list[Operator]:
        if op.name.rsplit(", ", 1)[0] not in CORE:
            return [op]
        if how == "all-to-all":
            return [replace(op, batch=max(sequences * heads // ranks, 1))]
        here = replace(op, batch=sequences * heads, m=max(op.m // ranks, 1))
        if how == "all-gather":
            return [here]
        moved = op.bytes / (1 if op.kind == "attention" else ranks)
        keys = max(op.n // ranks, 1) if op.n == op.m else op.n
        own = replace(here, n=keys, flops=op.flops / ranks, bytes=moved)
        if op.kind != "attention" or op.n != op.m:
            return [own] * ranks
        return [own] + [replace(own, n=max(round(keys / WHOLE_AND_HALF), 1), masked=False)] * (ranks - 1)

    def each(found: tuple[Operator, ...]) -> tuple[Operator, ...]:
        return tuple(one for op in found for one in split(op))

    return replace(
        operators,
        forward=each(operators.forward),
        backward_input=each(operators.backward_input),
        recomputed=each(operators.recomputed),
    )


def products(found: list[Cost]) -> tuple[list[Cost], Cost, list[Cost], Cost, list[Cost]]:
    """Before the first product, it, between, the last product, after it."""
    at = [i for i, c in enumerate(found) if c.product]
    if len(at) < 2:
        return found, NONE, [], NONE, []
    first, last = at[0], at[-1]
    return found[:first], found[first], found[first + 1 : last], found[last], found[last + 1 :]


def columns_of(
    pre: list[Cost], first: Cost, middle: list[Cost], widths: Mapping[str, int | None]
) -> tuple[list[Column], list[Cost]]:
    """The column-parallel products that begin a block, and what follows them up to the last product.

    pre, first, middle  of `products`
    widths  of latent attention (`latent_widths`); without one of its products the block has one column
    """
    if not any(cost.name in widths for cost in (first, *middle)):
        return [Column(tuple(pre), first)], middle
    found: list[Column] = []
    before: list[Cost] = []
    for cost in (*pre, first, *middle):
        if cost.name == ROTARY_KEYS:
            before.append(cost)
            cost, width = NONE, widths.get(ROTARY_KEYS)
            if width is None:
                continue
        elif cost.name in widths:
            width = widths[cost.name]
        else:
            before.append(cost)
            continue
        found.append(Column(tuple(before), cost, width))
        before = []
    return found, before


def latent_widths(arch: Transformer, parallel: bool) -> dict[str, int | None]:
    """Elements of a token that tensor ranks have in common in front of each product of latent attention.

    parallel  under sequence parallelism the rotary part of the keys is gathered behind its product too
    None stands for the hidden width; other attention has none of these products.

    Down-projections are duplicated and run on a rank's own tokens, so that latents travel, not hidden states;
    without query latents the query projection reads these.
    Source: Megatron-LM, core/transformer/multi_latent_attention.py (_qkv_down_projection,
    get_query_key_value_tensors), core/models/gpt/gpt_layer_specs.py (down-projections are TELinear) since
    core 0.14; core 0.12 cut them by columns.
    """
    if arch.attention != "mla":
        return {}
    if arch.index_topk:
        # the indexer's products read hidden states and query latents; keys stay latent, and are gathered so
        chosen = {"query up": arch.q_lora, "query absorption": arch.kv_lora, "index query": arch.q_lora}
        return chosen | {"index key": None} | ({ROTARY_KEYS: arch.rope_dim} if parallel else {})
    found: dict[str, int | None] = {"query up": arch.q_lora} if arch.q_lora else {"query projection": None}
    return found | ({ROTARY_KEYS: arch.rope_dim} if parallel else {}) | {"key/value up": arch.kv_lora}


def gathered_again(found: list[Cost], widths: Mapping[str, int | None]) -> list[int | None]:
    """Widths of the inputs of a block's column-parallel products with a weight gradient."""
    latent = [c for c in found if c.name in widths and c.name not in (ROTARY_KEYS, *STAYING)]
    if latent:
        return [widths[c.name] for c in latent if c.learns]
    return [None] if any(c.learns for c in found) else []


def around_core(found: list[Cost]) -> tuple[list[Cost], list[Cost], list[Cost]]:
    """Before the core attention or the kernels of a linear mixer, these, and what is after; without any all
    is before."""
    at = [i for i, c in enumerate(found) if c.name in CORE or c.name.startswith(MIXING)]
    if not at:
        return found, [], []
    return found[: at[0]], found[at[0] : at[-1] + 1], found[at[-1] + 1 :]


def head_split(found: list[Cost]) -> tuple[list[Cost], Cost, list[Cost]]:
    """Before the head's product, it, and after it."""
    at = next(i for i, c in enumerate(found) if c.product)
    return found[:at], found[at], found[at + 1 :]


def sections(found: list[Cost]) -> tuple[list[Cost], list[Cost]]:
    """Attention, and the MLP or experts."""
    at = second_block([c.name for c in found])
    return found[:at], found[at:]


def shared_halves(shared: list[Cost]) -> tuple[list[Cost], list[Cost]]:
    """Shared experts up to the activation, and from their last product on."""
    last = max(i for i, c in enumerate(shared) if c.product)
    return shared[:last], shared[last:]


def expert_sections(found: list[Cost]) -> tuple[list[Cost], list[Cost], list[Cost], list[Cost]]:
    """Router, this GPU's experts, shared experts, the rest."""
    start = next(i for i, c in enumerate(found) if c.name in _EXPERTS_START)
    end = next(i for i, c in enumerate(found) if c.name in _EXPERTS_END)
    shared = [c for c in found[end:] if c.name.startswith(_SHARED)]
    after = [c for c in found[end:] if not c.name.startswith(_SHARED)]
    return found[:start], found[start:end], shared, after
