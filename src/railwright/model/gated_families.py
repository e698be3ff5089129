"""Families of decoders whose attention outputs are multiplied by gates.

Each function knows what its family fixes outside the config, as in that family's configuration and modelling
code in huggingface/transformers (5.23).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.architecture import Transformer
from railwright.model.family_parts import (
    behind_dense,
    extra_layers,
    full_layers_of,
    normed_queries,
    plain,
    routed,
    window_of,
    windowed,
)
from railwright.model.keys import Keys


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
    heads = keys.alike("num_attention_heads_per_layer", base.heads)
    _same_heads(keys, "num_attention_heads_per_layer", heads, base)
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
    return replace(arch, shared_experts=int(shared > 0), shared_ffn=shared)


def step3p5(keys: Keys, name: str) -> Transformer:
    """Step 3.5 and 3.7: a gate per head, a shared expert; its lists end with entries for extra layers."""
    extra, layers = extra_layers(keys), keys.depth("num_hidden_layers")
    keys = keys.replaced({key: _first(keys.raw(key), layers) for key in ("layer_types", "mlp_layer_types")})
    base = replace(normed_queries(plain(keys, name)), attention_gate="head", mtp_layers=extra, mtp_dense=True)
    heads = keys.whole("num_sliding_attention_heads", base.heads)
    _same_heads(keys, "num_sliding_attention_heads", heads, base)
    other = keys.raw("attention_other_setting")
    keys.need(
        other is None,
        "attention_other_setting",
        "other heads in the layers with a window are not modelled; it must be absent.",
    )
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
    return replace(arch, shared_experts=int(shared > 0), shared_ffn=shared)


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


def _same_heads(keys: Keys, key: str, heads: int, arch: Transformer) -> None:
    keys.need(
        heads == arch.heads,
        key,
        f"{heads} attention heads in some layers beside {arch.heads} in others are not modelled.",
    )


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
