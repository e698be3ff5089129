"""Families that no class in huggingface/transformers reads, only the modelling code beside their checkpoints.

Each function knows what that code fixes outside the config.  InternLM 1 is read as InternLM 2 is, DeepSeekMoE
beside DeepSeek's later models (`expert_families`), Jais beside GPT-2's kin (`gpt_families`).
"""

from __future__ import annotations

from dataclasses import replace

from railwright.model.configs.dense_families import qwen2
from railwright.model.configs.family_parts import (
    behind_dense,
    extra_layers,
    normed_queries,
    plain,
    routed,
    tied,
    without,
)
from railwright.model.configs.keys import Keys
from railwright.model.shape.architecture import Transformer


def llama_alike(keys: Keys, name: str) -> Transformer:
    """Yi, Aquila, XVERSE, Skywork, EXAONE 3: Llama's layers; their later models with experts are not read."""
    experts = keys.whole("num_experts", 0, least=0)
    keys.need(experts == 0, "num_experts", "this family is read without experts only.")
    return plain(keys, name)


def minicpm(keys: Keys, name: str) -> Transformer:
    """MiniCPM 1 and 4: Llama's layers, tied embeddings."""
    keys.need(
        keys.raw("sparse_config") is None,
        "sparse_config",
        "attention to a few blocks of keys (sparse attention) is not modelled; it must be absent.",
    )
    return tied(keys, llama_alike(keys, name))


def orion(keys: Keys, name: str) -> Transformer:
    """Orion: Llama's layers, norms with biases."""
    return replace(plain(keys, name), norm_bias=True)


def qwen(keys: Keys, name: str) -> Transformer:
    """Qwen of 2023: biases on queries, keys and values; intermediate_size is that of gate and up together."""
    arch, biased = plain(keys, name), not keys.flag("no_bias", True)
    both = keys.whole("intermediate_size", least=2)
    return replace(arch, ffn=max(both // 2, 1), attention_bias=True, output_bias=biased, mlp_bias=biased)


def baichuan(keys: Keys, name: str) -> Transformer:
    """Baichuan 1 and 2: Llama's layers; ALiBi in the 13B, whose class has no max_position_embeddings."""
    alibi = keys.raw("max_position_embeddings") is None
    return replace(
        plain(keys, name),
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        alibi=alibi,
        max_positions=keys.whole("model_max_length" if alibi else "max_position_embeddings", 4096),
    )


def mimo(keys: Keys, name: str) -> Transformer:
    """MiMo-7B: Qwen 2 with extra layers."""
    return replace(qwen2(keys, name), mtp_layers=extra_layers(keys))


def chatglm(keys: Keys, name: str) -> Transformer:
    """ChatGLM 2 and 3 and GLM-4 of 2024 under their first names; the first ChatGLM has other keys."""
    if keys.raw("padded_vocab_size") is None:
        raise keys.refuse(
            "padded_vocab_size",
            "missing; without it this is the first ChatGLM-6B, a prefix decoder, which is not modelled.",
        )
    without(keys, "add_bias_linear")
    without(keys, "apply_residual_connection_post_layernorm")
    keys.need(keys.flag("post_layer_norm", True), "post_layer_norm", "only true is supported.")
    heads = keys.whole("num_attention_heads")
    grouped = keys.flag("multi_query_attention", False)
    return Transformer(
        name=name,
        layers=keys.depth("num_layers"),
        hidden=keys.whole("hidden_size"),
        vocab=keys.whole("padded_vocab_size"),
        heads=heads,
        kv_heads=keys.whole("multi_query_group_num", 1) if grouped else heads,
        head_dim=keys.whole("kv_channels", 128),
        ffn=keys.whole("ffn_hidden_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        attention_bias=keys.flag("add_qkv_bias", False),
        norm_bias=not keys.flag("rmsnorm", True),
        max_positions=keys.whole("seq_length", 0),
        source=keys.source(),
    )


def bailing_moe(keys: Keys, name: str) -> Transformer:
    """Ling and Ring 1 and 2: shared experts behind leading dense layers; version 2 norms queries and keys.

    A shared expert's own width is read as sgl-project/sglang does (models/bailing_moe.py).
    """
    base = replace(
        plain(keys, name),
        attention_bias=keys.flag("use_qkv_bias", False),
        output_bias=keys.flag("use_bias", False),
        mlp_bias=False,
        mtp_layers=extra_layers(keys),
        expert_groups=keys.whole("n_group", 1),
    )
    if keys.flag("use_qk_norm", False):
        base = normed_queries(base)
    width = keys.whole("moe_intermediate_size")
    arch = routed(
        keys,
        base,
        behind_dense(keys, base.layers, keys.whole("first_k_dense_replace", 0, least=0)),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=width,
        shared=keys.whole("num_shared_experts", 0, least=0),
        router_bias=keys.flag("moe_router_enable_expert_bias", False),
    )
    own = keys.whole("moe_shared_expert_intermediate_size", width)
    return replace(arch, shared_ffn=arch.shared_experts * own)
