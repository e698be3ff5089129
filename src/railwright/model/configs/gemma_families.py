"""Google's families of Gemma.

Each function knows what its family fixes outside the config, as in its configuration and modelling code in
huggingface/transformers (5.24).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.family_parts import (
    full_layers_of,
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
from railwright.model.configs.layer_overrides import overridden
from railwright.model.shape.architecture import Transformer


def gemma(keys: Keys, name: str) -> Transformer:
    """Gemma: tied embeddings."""
    return tied(keys, plain(keys, name))


def gemma2(keys: Keys, name: str) -> Transformer:
    """Gemma 2: outputs are normed too; every other layer has a window."""
    arch = replace(gemma(keys, name), norms_per_layer=4)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 2))


def vaultgemma(keys: Keys, name: str) -> Transformer:
    """VaultGemma: Gemma 2 without norms of outputs."""
    arch = gemma(keys, name)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 2))


def gemma3(keys: Keys, name: str) -> Transformer:
    """Gemma 3: as Gemma 2 with norms on queries and keys; one layer in six sees everything."""
    without(keys, "use_bidirectional_attention")
    arch = replace(normed_queries(gemma(keys, name)), norms_per_layer=4)
    every = keys.whole("sliding_window_pattern", 6)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, every))


def gemma4(keys: Keys, name: str) -> Transformer:
    """Gemma 4 (12B, 26B-A4B, 31B): as Gemma 3, values are normed too; layers without a window have wider
    heads, and perhaps fewer of keys, whose product makes the values; experts beside the MLP."""
    zero = {"hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0}
    if keys.raw("model_type") == "gemma4_text":
        zero["hidden_size_per_layer_input"] = 256
    for key, default in zero.items():
        keys.need(
            keys.whole(key, default, least=0) == 0,
            key,
            "embeddings in every layer, and layers that share keys, are not modelled; it must be 0.",
        )
    keys.need(
        keys.raw("use_bidirectional_attention") != "all",
        "use_bidirectional_attention",
        "only causal attention to text is modelled; it must not be 'all'.",
    )
    base = replace(normed_queries(gemma(keys, name)), norms_per_layer=4, value_norm=True)
    keys.raw("use_double_wide_mlp")  # of layers that share keys alone
    if keys.flag("enable_moe_block", False):
        base = _beside_experts(keys, base)
    keys.raw("num_experts")  # counts only where that is set
    full = full_layers_of(keys, base.layers, 6)
    full[-1] = True
    shared = keys.flag("attention_k_eq_v", False)
    keys.raw("num_global_key_value_heads")  # where values are those of the keys alone
    apart = overridden(keys, full, ("head_dim", "num_key_value_heads"))
    if apart is None:
        own = keys.whole("num_global_key_value_heads", base.kv_heads) if shared else base.kv_heads
        wide = keys.whole("global_head_dim", 512)
    else:
        own = apart.whole("num_key_value_heads", base.kv_heads)
        wide = apart.whole("head_dim", base.head_dim)
    arch = windowed(replace(base, head_dim=wide, kv_heads=own, shared_values=shared), window_of(keys), full)
    return with_heads(
        keys, arch, "num_key_value_heads", base.heads, full, kv_heads=base.kv_heads, head_dim=base.head_dim
    )


def _beside_experts(keys: Keys, base: Transformer) -> Transformer:
    """The dense MLP as a shared expert, which reads and gives by norms of its own, as routed experts do."""
    arch = routed(
        keys,
        base,
        [True] * base.layers,
        experts="num_experts",
        per_token="top_k_experts",
        width=keys.whole("moe_intermediate_size"),
    )
    return replace(with_shared(arch, base.ffn), shared_norm=True, branch_norms=True)
