"""Families with linear attention in most layers: MiniMax-01 (lightning attention) and Kimi Linear (KDA).

As in their configuration and modelling code in huggingface/transformers (5.24), and MiniMax-Text-01's own
beside its checkpoint, which says by numbers what its layers are.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.family_parts import behind_dense, named_layers, plain, routed, unbiased, without
from railwright.model.configs.hybrid_families import linear_layers, mixed
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import LinearMixer, Transformer


def minimax(keys: Keys, name: str) -> Transformer:
    """MiniMax-Text-01 and M1: lightning attention with as many heads as the attention of the other layers,
    and Mixtral's experts in all."""
    keys.need(not keys.raw("shared_intermediate_size"), "shared_intermediate_size", "it must be 0.")
    base, experts = unbiased(keys, name), "num_local_experts"
    has = [True] * base.layers
    arch = routed(keys, base, has, experts=experts, per_token="num_experts_per_tok", width=base.ffn)
    numbers = keys.raw("attn_type_list")
    if numbers is None:
        linear = linear_layers(keys, arch.layers, [i % 2 == 1 for i in range(arch.layers)])
    else:
        right = isinstance(numbers, list) and len(numbers) == arch.layers
        right = right and all(kind in (0, 1) for kind in numbers)
        keys.need(right, "attn_type_list", f"{arch.layers} of 0, 1 are expected, one for each layer.")
        linear = [kind == 0 for kind in numbers] if right else [True] * arch.layers
    heads, width = arch.heads, arch.head_dim
    return mixed(arch, LinearMixer("lightning", heads, width, heads, width, conv=0), linear)


def kimi_linear(keys: Keys, name: str) -> Transformer:
    """Kimi Linear: KDA but for every fourth layer, whose latent attention has no positions; experts behind a
    dense layer, with a bias on their router.

    Its checkpoint says in an object of its own which layers those are; Hugging Face writes flat keys and
    `layer_types` beside it, and the latter count first.
    """
    for key in ("attention_bias", "tie_word_embeddings"):
        without(keys, key)
    keys.need(keys.flag("mla_use_nope", True), "mla_use_nope", "only true is supported.")
    llama = plain(keys, name)
    base = replace(
        llama,
        kv_heads=llama.heads,
        head_dim=keys.whole("qk_nope_head_dim"),
        attention="mla",
        q_lora=keys.whole("q_lora_rank", 0),
        kv_lora=keys.whole("kv_lora_rank"),
        rope_dim=keys.whole("qk_rope_head_dim"),
        v_head_dim=keys.whole("v_head_dim"),
        rotary=False,
    )
    arch = routed(
        keys,
        base,
        behind_dense(keys, base.layers, keys.whole("first_k_dense_replace", 1, least=0)),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        shared=keys.whole("num_shared_experts", 1, least=0),
        router_bias=True,
    )
    heads, width = keys.whole("linear_num_heads", 32), keys.whole("linear_head_dim", 128)
    conv = keys.whole("linear_conv_kernel_dim", 4)
    linear = [i == 0 or i % 4 > 0 for i in range(base.layers)]
    if keys.raw("linear_attn_config") is not None:
        own = keys.inside("linear_attn_config")
        without(own, "use_full_rank_gate")
        heads, width = own.whole("num_heads", heads), own.whole("head_dim", width)
        conv = own.whole("short_conv_kernel_size", conv)
        if own.raw("full_attn_layers") is not None:
            # counted from 1 there
            full = [i - 1 for i in named_layers(own, "full_attn_layers", base.layers + 1)]
            linear = [i not in full for i in range(base.layers)]
    mixer = LinearMixer("kda", heads, width, heads, width, conv=conv)
    return mixed(arch, mixer, linear_layers(keys, base.layers, linear))
