"""Families of decoders with experts in every layer or behind leading dense ones, and windows in most layers.

Each function knows what its family fixes outside the config, as in that family's configuration and modelling
code in huggingface/transformers (5.24).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.family_parts import (
    behind_dense,
    extra_layers,
    full_layers_of,
    named_layers,
    normed_queries,
    plain,
    routed,
    tied,
    window_of,
    windowed,
    with_heads,
    with_shared,
    without,
)
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer


def mellum(keys: Keys, name: str) -> Transformer:
    """Mellum 2: Qwen 3's attention; experts in all layers, windows in none, unless the keys list them."""
    base = replace(normed_queries(plain(keys, name)), mtp_layers=extra_layers(keys))
    types = keys.raw("layer_types")
    full = full_layers_of(keys, base.layers, 1 if types is None else 0)
    return routed(
        keys,
        windowed(base, window_of(keys), full),
        behind_dense(keys, base.layers, 0),
        experts="num_local_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
    )


def kolibri(keys: Keys, name: str) -> Transformer:
    """Kolibri: a shared expert, outputs are normed too; one layer in five sees everything."""
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("shared_expert_intermediate_size", 512, least=0)
    base = plain(keys.filled({"intermediate_size": width}), name)
    arch = routed(
        keys,
        replace(normed_queries(base), norms_per_layer=4),
        [True] * base.layers,
        experts="num_local_experts",
        per_token="num_experts_per_tok",
        width=width,
        router_bias=True,
    )
    arch = with_shared(arch, shared)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 5))


def cohere2_moe(keys: Keys, name: str) -> Transformer:
    """Cohere 2 with experts: the leading dense layers have a width and a pattern of windows of their own."""
    base = replace(tied(keys, plain(keys, name)), norms_per_layer=1, parallel_blocks=True)
    leading = min(keys.whole("first_k_dense_replace", 0, least=0), base.layers)
    early = keys.whole("prefix_dense_sliding_window_pattern", 1)
    every = keys.whole("sliding_window_pattern", 4)
    if keys.raw("layer_types") is None:
        full = full_layers_of(keys, leading, early) + full_layers_of(keys, base.layers - leading, every)
    else:
        full = full_layers_of(keys, base.layers, 0)
    dense = replace(base, ffn=keys.whole("prefix_dense_intermediate_size", base.ffn))
    return routed(
        keys,
        windowed(dense, window_of(keys), full),
        behind_dense(keys, base.layers, leading),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=base.ffn,
        shared=keys.whole("num_shared_experts", 0, least=0),
    )


def flint(keys: Keys, name: str) -> Transformer:
    """Flint: two dense layers, a shared expert, a learned sink per head; the first two layers, every fourth
    and the last one see everything."""
    base = replace(normed_queries(plain(keys, name)), attention_sinks=True)
    layers, step = base.layers, keys.whole("decoder_sparse_step", 1)
    full = [i < 2 or i % 4 == 1 or i == layers - 1 for i in range(layers)]
    if keys.raw("layer_types") is not None:
        full = full_layers_of(keys, layers, 0)
    listed = keys.raw("mlp_only_layers") is not None
    named = named_layers(keys, "mlp_only_layers", layers) if listed else [0, 1]
    arch = routed(
        keys,
        windowed(base, window_of(keys), full),
        [(i + 1) % step == 0 and i not in named for i in range(layers)],
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
    )
    shared = keys.whole("shared_expert_intermediate_size", 1024, least=0) if arch.is_moe else 0
    return with_shared(arch, shared)


def mimo_v2(keys: Keys, name: str) -> Transformer:
    """MiMo-V2-Flash and 2.5: values narrower than keys; windowed layers, all but the first and every sixth,
    have twice as many key-value heads unless the keys say otherwise, and sinks."""
    without(keys, "add_full_attention_sink_bias")
    base = replace(plain(keys, name), v_head_dim=keys.whole("v_head_dim", 128), output_bias=False)
    layers = base.layers
    full = [i == 0 or (i + 1) % 6 == 0 for i in range(layers)]
    marks = keys.raw("hybrid_layer_pattern")
    if keys.raw("layer_types") is not None:
        full = full_layers_of(keys, layers, 0)
    elif marks is not None:
        full = [not mark for mark in _marks(keys, "hybrid_layer_pattern", layers)]
    has = behind_dense(keys, layers, 1)
    if keys.raw("mlp_layer_types") is None and isinstance(keys.raw("moe_layer_freq"), list):
        has = _marks(keys, "moe_layer_freq", layers)
    for key, same in (("swa_head_dim", base.head_dim), ("swa_v_head_dim", base.v_head_dim)):
        keys.need(keys.whole(key, same) == same, key, "other widths of heads there are not modelled.")
    arch = routed(
        keys,
        windowed(replace(base, mtp_layers=extra_layers(keys), mtp_dense=True), window_of(keys), full),
        has,
        experts="n_routed_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        router_bias=True,
    )
    heads = keys.whole("swa_num_attention_heads", base.heads)
    kv_heads = keys.whole("swa_num_key_value_heads", 2 * base.kv_heads)
    sinks = keys.flag("add_swa_attention_sink_bias", True)
    return with_heads(keys, arch, "swa_num_key_value_heads", heads, full, kv_heads, sinks=sinks)


def _marks(keys: Keys, key: str, layers: int) -> list[bool]:
    """A list of 0 and 1, one for each layer."""
    listed = keys.raw(key)
    right = isinstance(listed, list) and len(listed) == layers and all(mark in (0, 1) for mark in listed)
    keys.need(right, key, f"{layers} of 0, 1 are expected, one for each layer.")
    return [bool(mark) for mark in listed] if right else [False] * layers
