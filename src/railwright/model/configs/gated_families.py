"""Families of decoders whose attention outputs are multiplied by gates.

Each function knows what its family fixes outside the config, as in that family's configuration and modelling
code in huggingface/transformers (5.24).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright.model.configs.family_parts import (
    behind_dense,
    extra_layers,
    full_layers_of,
    normed_queries,
    plain,
    routed,
    window_of,
    windowed,
    with_heads,
    with_shared,
)
from railwright.model.configs.keys import MOST, Keys
from railwright.model.configs.layer_overrides import KEY, overridden
from railwright.model.shape.architecture import Transformer


def afmoe(keys: Keys, name: str) -> Transformer:
    """AFMoE (Trinity): outputs are normed too; one layer in four sees everything; shared experts."""
    base = replace(normed_queries(plain(keys, name)), norms_per_layer=4, attention_gate="element")
    every = keys.whole("global_attn_every_n_layers", 4)
    arch = windowed(base, window_of(keys), full_layers_of(keys, base.layers, every))
    leading = keys.whole("num_dense_layers", 1, least=0)
    return routed(
        keys,
        replace(arch, expert_groups=keys.whole("n_group", 1)),
        [i >= leading for i in range(base.layers)],
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        shared=keys.whole("num_shared_experts", 2, least=0),
        router_bias=True,
    )


def laguna(keys: Keys, name: str) -> Transformer:
    """Laguna: a gate per head or per element, a shared expert; windows only where layer_types has them."""
    gating = keys.raw("gating")
    keys.need(
        gating in (None, True, "per-head", "per-element"),
        "gating",
        f"{gating!r}: true, 'per-head' or 'per-element' is expected.",
    )
    base = replace(
        normed_queries(plain(keys, name)),
        attention_gate="element" if gating == "per-element" else "head",
    )
    full = full_layers_of(keys, base.layers, 1 if keys.raw("layer_types") is None else 0)
    arch = routed(
        keys,
        windowed(base, window_of(keys), full),
        behind_dense(keys, base.layers, 1),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        router_bias=True,
    )
    shared = keys.whole("shared_expert_intermediate_size", 512, least=0) if arch.is_moe else 0
    arch = with_shared(arch, shared)
    return with_heads(keys, arch, "num_attention_heads_per_layer", _listed_heads(keys, arch, full), full)


def step3p5(keys: Keys, name: str) -> Transformer:
    """Step 3.5 and 3.7: a gate per head, a shared expert; its lists end with entries for extra layers."""
    extra, layers = extra_layers(keys), keys.depth("num_hidden_layers")
    keys = keys.replaced({key: _first(keys.raw(key), layers) for key in ("layer_types", "mlp_layer_types")})
    base = replace(normed_queries(plain(keys, name)), attention_gate="head", mtp_layers=extra, mtp_dense=True)
    full = full_layers_of(keys, layers, 1 if keys.raw("layer_types") is None else 0)
    arch = routed(
        keys,
        windowed(base, window_of(keys), full),
        _step_experts(keys, layers),
        experts="n_routed_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        router_bias=True,
    )
    shared = keys.whole("share_expert_dim", 1280, least=0) if arch.is_moe else 0
    arch = with_shared(arch, shared)
    key, other = "num_sliding_attention_heads", keys.raw("attention_other_setting")
    apart = overridden(keys, [not sees for sees in full], ("num_attention_heads",))
    if apart is not None:
        # Hugging Face writes the other key beside it.
        keys.raw(key)
        return with_heads(keys, arch, KEY, apart.whole("num_attention_heads", base.heads), full)
    if keys.raw(key) is not None or other is None:
        return with_heads(keys, arch, key, keys.whole(key, base.heads), full)
    key = "attention_other_setting"
    inner = keys.inside(key)
    same = inner.whole("num_attention_groups", base.kv_heads) == base.kv_heads
    same = same and inner.whole("head_dim", base.head_dim) == base.head_dim
    keys.need(same, key, "other key-value heads or widths of heads there are not modelled.")
    return with_heads(keys, arch, key, inner.whole("num_attention_heads", base.heads), full)


def muse_glimmer(keys: Keys, name: str) -> Transformer:
    """Muse Glimmer: outputs are normed too; counted from the last, every fourth layer sees everything."""
    base = replace(normed_queries(plain(keys, name), "none"), norms_per_layer=4, attention_gate="element")
    full = [(base.layers - 1 - i) % 4 == 0 for i in range(base.layers)]
    if keys.raw("layer_types") is not None:
        full = full_layers_of(keys, base.layers, 0)
    return windowed(base, window_of(keys), full)


def beam(keys: Keys, name: str) -> Transformer:
    """Beam: outputs are normed too; every sixth layer and the last one see everything."""
    base = replace(
        normed_queries(plain(keys, name)),
        norms_per_layer=4,
        attention_gate="element",
        attention_gate_bias=True,
        expert_groups=keys.whole("n_group", 8),
    )
    full = full_layers_of(keys, base.layers, 6)
    full[-1] = full[-1] or keys.raw("layer_types") is None
    return routed(
        keys,
        windowed(base, window_of(keys), full),
        behind_dense(keys, base.layers, 3),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        router_bias=True,
    )


def _listed_heads(keys: Keys, arch: Transformer, full: Sequence[bool]) -> int:
    """Query heads of the layers with a window, in a list that has an entry for every layer."""
    key = "num_attention_heads_per_layer"
    listed = keys.raw(key)
    if listed is None:
        return arch.heads
    right = isinstance(listed, list) and len(listed) == arch.layers
    right = right and all(type(n) is int and 0 < n <= MOST for n in listed)
    keys.need(right, key, f"{arch.layers} whole numbers are expected, one for each layer.")
    if not right:
        return arch.heads
    whole = full if arch.sliding_window else [True] * arch.layers
    windowed = {n for n, sees in zip(listed, whole, strict=False) if not sees}
    others = {n for n, sees in zip(listed, whole, strict=False) if sees}
    keys.need(
        len(windowed) <= 1 and others <= {arch.heads},
        key,
        "layers without a window must have num_attention_heads, and those with one as many as each other; "
        "other lists are not modelled.",
    )
    return max(windowed, default=arch.heads)


def _first(listed: object, layers: int) -> object:
    """A list without its entries behind so many."""
    return listed[:layers] if isinstance(listed, list) else listed


def _step_experts(keys: Keys, layers: int) -> list[bool]:
    """Layers with experts: as `mlp_layer_types` or `moe_layers_enum` says ('3,4,5'), else from the fourth."""
    named = keys.raw("moe_layers_enum")
    if keys.raw("mlp_layer_types") is not None or named is None:
        return behind_dense(keys, layers, 3)
    parts = named.split(",") if isinstance(named, str) else named if isinstance(named, list) else None
    right = parts is not None and all(str(part).strip().isdecimal() for part in parts)
    keys.need(right, "moe_layers_enum", f"{named!r}: layers counted from 0, with commas, are expected.")
    held = {int(str(part)) for part in parts or ()} if right else set[int]()
    return [i in held for i in range(layers)]
