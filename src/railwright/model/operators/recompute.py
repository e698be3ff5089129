"""What of a layer selective recomputation runs again in the backward pass, by the names of its parts."""

from __future__ import annotations

from dataclasses import replace

from railwright.model.operators.narrow import OUTPUT_IN_16_BITS
from railwright.model.shape.architecture import Operator, Transformer
from railwright.model.shape.pattern import PARTS, Layer, is_routed

INDEXER = ("index query", "index key", "index key norm", "index weights", "index rotary")
"""Forward operators of an indexer in front of its scores."""

CORE = (
    "index scores",
    "index choice",
    "index loss",
    "core attention",
    "attention scores",
    "attention softmax",
    "attention dropout",
    "attention values",
    "attention layout",
)
"""Forward operators of the core attention."""

STORING = " activation input"
"""End of the name of what casts a gated activation's input to 8 bits, to be kept."""

SHARED = (
    "shared expert up",
    "shared expert activation",
    f"shared expert{STORING}",
    "shared expert down",
    "shared gate",
)
"""Forward operators of shared experts."""

LATENT = ("expert latent down", "expert latent up")
"""Products that bring tokens to the width that their experts read, and back."""

SEARCH, ORDER, OFFSETS = "expert search", "expert order", "expert offsets"
ROWS, SUMS = "expert rows", "expert sums"
"""Where operations of PyTorch move rows to experts and back: what looks for an expert's tokens (`looped`) or
sorts the choices of all and counts them (`grouped_rows`), what gathers rows, and what adds up what experts
make."""

MODULES: dict[str, tuple[str, ...]] = {
    "core_attn": ("attention casts", *INDEXER, *CORE, OUTPUT_IN_16_BITS),
    "layernorm": ("input norm", "mlp norm"),
    "mla_up_proj": ("query projection", "query up", "key/value up", "query absorption", "rotary"),
    "mlp": ("mlp norm", "mlp up", f"mlp{STORING}", "mlp activation", "mlp down", "mlp output norm"),
    "moe": (
        "router",
        "expert choice",
        "expert counts",
        f"{LATENT[0]}, cast",
        LATENT[0],
        "permute",
        SEARCH,
        ORDER,
        OFFSETS,
        ROWS,
        "sort by expert",
        "experts up, cast",
        "experts up",
        f"experts{STORING}",
        "experts activation",
        "experts down, cast",
        "experts down",
        "experts bias",
        "unsort",
        "unpermute",
        SUMS,
        f"{LATENT[1]}, cast",
        LATENT[1],
        *SHARED,
        "add shared",
    ),
    "moe_act": (f"experts{STORING}", "experts activation", "experts down, cast"),
    "shared_experts": SHARED,
    "ops": (
        "input norm",
        *("query norm", "key/value norm", "query/key norm", "rotary", "key/value copies"),
        "mlp norm",
        "mlp activation",
        *("router", "expert choice", "permute", "sort by expert", ORDER, OFFSETS, ROWS),
        *("experts up", "experts activation", "experts down", "unsort", "unpermute", SUMS),
        "shared expert activation",
        "add shared",
    ),
}
"""Forward operators that recomputing one part of a layer runs again (names as in Megatron-LM's
core/transformer/transformer_config.py, `recompute_modules`).  'layernorm', 'mla_up_proj' and 'moe_act' throw
their outputs away and make them again (CheckpointWithoutOutput): what read those is not repeated.  'ops' is
torchtitan's checkpoint by operators, which runs every second product again (`linear_layers`) and all of
routed experts but their all-to-alls."""

Saved = tuple[str, float, bool]
"""A linear layer: the product it is a part of, the share of its columns, and whether a checkpoint by
operators saves what it makes."""


def linear_layers(arch: Transformer, layer: Layer) -> tuple[Saved, ...]:
    """Linear layers in the order that torchtitan's models call them, of which its checkpoint by operators
    saves the first, the third and so on.

    Experts' grouped products are not among those it counts, and the router's is always computed again.
    Source: torchtitan, distributed/activation_checkpoint.py (_get_custom_policy; per_op_sac_force_recompute_
    mm_shapes_by_fqns since August 2025), models/llama3, qwen3 and deepseek_v3 (Attention, FeedForward), moe.
    """
    found: list[tuple[str, float]] = []
    mixer, mlp = PARTS[layer]
    if mixer == "attention" and arch.attention == "mla":
        query = ("query down", "query up") if arch.q_lora else ("query projection",)
        found += [(name, 1.0) for name in (*query, "key/value down", "key/value up", "output projection")]
    elif mixer == "attention":
        parts = (arch.heads, arch.kv_heads, arch.kv_heads)
        found += [("qkv projection", part / sum(parts)) for part in parts]
        found.append(("output projection", 1.0))
    name = {"dense": "mlp", "moe": "shared expert" if arch.shared_ffn else ""}.get(mlp, "")
    if name:
        found += [(f"{name} up", 0.5), (f"{name} up", 0.5), (f"{name} down", 1.0)]
    return tuple((name, share, i % 2 == 0) for i, (name, share) in enumerate(found))


def computed_again(arch: Transformer, layer: Layer) -> dict[str, float]:
    """Product -> share of its columns that a checkpoint by operators computes again."""
    shares: dict[str, float] = {}
    for name, share, saved in linear_layers(arch, layer):
        if not saved:
            shares[name] = shares.get(name, 0.0) + share
    return shares


WHOLE = ("mlp", "moe", "shared_experts")
"""Parts that run again whole, last product, collectives and counting of tokens included: their checkpoint
repeats the function it was given, whatever of it the backward pass needs.  So does that of 'core_attn'.
Source: Megatron-LM, core/tensor_parallel/random.py, CheckpointFunction.backward; moe/moe_layer.py,
custom_forward and shared_experts_compute; transformer_layer.py, _run_mlp."""

UNNEEDED = frozenset(
    {"mlp down", "mlp output norm", "experts bias", LATENT[1], "shared expert down", "add shared"}
)
"""Ends of these parts, that a compiler which drops what nobody reads does not run again (`Era.repeats`)."""


def run_again(arch: Transformer, layer: Layer, modules: tuple[str, ...]) -> frozenset[str]:
    """Names of the operators that recomputing these parts runs again.

    A norm fused with the product behind it is no part of its own: `layernorm` runs those in front of latent
    attention and of experts; `mla_up_proj` and `mlp` are nothing in layers without latent attention or
    without a dense MLP.
    """
    found: set[str] = set()
    for module in modules:
        names = set(MODULES[module])
        if module == "layernorm":
            names -= set() if arch.attention == "mla" else {"input norm"}
            names -= set() if is_routed(layer) else {"mlp norm"}
        if (module == "mla_up_proj" and arch.attention != "mla") or (module == "mlp" and is_routed(layer)):
            names = set()
        found |= names
    return frozenset(found)


def whole_parts(arch: Transformer, layer: Layer, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Parts of a layer that run again whole (WHOLE); shared experts are a part of 'moe'."""
    if not is_routed(layer):
        return ("mlp",) if "mlp" in modules and PARTS[layer].mlp else ()
    if "moe" in modules:
        return ("moe",)
    return ("shared_experts",) if "shared_experts" in modules and arch.shared_ffn else ()


def part_of(op: Operator, share: float) -> Operator:
    """A product with a share of its columns."""
    columns = max(round(op.n * share), 1)
    return replace(op, n=columns, flops=op.flops * columns / op.n, bytes=op.bytes * columns / op.n)
