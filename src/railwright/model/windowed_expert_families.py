"""Families of decoders with experts in every layer or behind leading dense ones, and windows in most layers.

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
    named_layers,
    normed_queries,
    plain,
    routed,
    tied,
    window_of,
    windowed,
)
from railwright.model.keys import Keys


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
    arch = replace(arch, shared_experts=int(shared > 0), shared_ffn=shared)
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
    return replace(arch, shared_experts=int(shared > 0), shared_ffn=shared)
