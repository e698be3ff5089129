"""Families of decoders with routed experts.

Each function knows what its family fixes outside the config (biases, norms, which layers hold experts), as
in that family's configuration and modelling code in huggingface/transformers (5.24) and, for DeepSeek's
moe_layer_freq, in the modelling code beside its checkpoints.
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from railwright.model.configs.dense_families import exaone4, hunyuan, mistral, olmo2, qwen3
from railwright.model.configs.family_parts import (
    behind_dense,
    extra_layers,
    full_layers_of,
    last_windowed,
    llama,
    named_layers,
    need_heads_divide,
    normed_queries,
    plain,
    routed,
    tied,
    unbiased,
    untied,
    window_of,
    windowed,
    with_shared,
    without,
)
from railwright.model.configs.keys import Keys, shown
from railwright.model.shape.architecture import Layer, Transformer
from railwright.model.shape.pattern import layer_kinds


def _everywhere(keys: Keys, dense: Transformer, experts: str, per_token: str) -> Transformer:
    """Experts as wide as the dense MLP in every layer."""
    has = [True] * dense.layers
    return routed(keys, dense, has, experts=experts, per_token=per_token, width=dense.ffn)


def mixtral(keys: Keys, name: str) -> Transformer:
    """Mixtral: Mistral's layers."""
    return _everywhere(keys, mistral(keys, name), "num_local_experts", "num_experts_per_tok")


def grok(keys: Keys, name: str) -> Transformer:
    """Grok-1: tied embeddings; outputs are normed too."""
    return replace(tied(keys, mixtral(keys, name)), norms_per_layer=4)


def phimoe(keys: Keys, name: str) -> Transformer:
    """Phi-3.5-MoE: norms with biases, and perhaps one on the LM head."""
    head = keys.flag("lm_head_bias", False)
    if head:
        untied(keys)
    biased = keys.flag("attention_bias", False)
    arch = replace(mixtral(keys, name), attention_bias=biased, output_bias=biased)
    return replace(arch, norm_bias=True, head_bias=head)


def granitemoe(keys: Keys, name: str) -> Transformer:
    """Granite 3's experts; a shared one in its later form."""
    arch = _everywhere(keys, plain(keys, name), "num_local_experts", "num_experts_per_tok")
    shared = keys.whole("shared_intermediate_size", 0, least=0)
    return with_shared(arch, shared)


def granitemoe_swa(keys: Keys, name: str) -> Transformer:
    """Granite's experts with a learned sink per head; the first of every four layers sees everything."""
    arch = replace(granitemoe(keys, name), attention_sinks=True)
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 4, first=True))


def olmoe(keys: Keys, name: str) -> Transformer:
    """OLMoE and FlexOlmo: norms over all heads of queries and keys."""
    return _everywhere(keys, olmo2(keys, name), "num_experts", "num_experts_per_tok")


def minimax_m2(keys: Keys, name: str) -> Transformer:
    """MiniMax-M2: norms over all heads of queries and keys, a bias on the router."""
    arch = _everywhere(keys, unbiased(keys, name), "num_local_experts", "num_experts_per_tok")
    biased = keys.flag("use_routing_bias", True)
    return replace(arch, qk_norm=keys.flag("use_qk_norm", True), qk_norm_gains="all", router_bias=biased)


def gpt_oss(keys: Keys, name: str) -> Transformer:
    """gpt-oss: biases everywhere, a learned sink per head; every other layer has a window."""
    base, biased = plain(keys, name), keys.flag("attention_bias", True)
    arch = replace(
        _everywhere(keys, base, "num_local_experts", "num_experts_per_tok"),
        attention_bias=biased,
        output_bias=biased,
        attention_sinks=True,
        mlp_bias=True,
        router_bias=True,
    )
    return windowed(arch, window_of(keys), full_layers_of(keys, arch.layers, 2))


def qwen2_moe(keys: Keys, name: str) -> Transformer:
    """Qwen 1.5 and 2: a shared expert with a gate; windows in every other one of max_window_layers."""
    shared = keys.whole("shared_expert_intermediate_size", 0, least=0)
    base = replace(plain(keys, name), attention_bias=keys.flag("qkv_bias", True), output_bias=False)
    window = window_of(keys) if keys.flag("use_sliding_window", False) else 0
    full = full_layers_of(keys, base.layers, 2)
    if keys.raw("layer_types") is None:
        last = keys.whole("max_window_layers", 0, least=0)
        full = [other or i >= last for i, other in enumerate(full)]
    arch = qwen_experts(keys, windowed(base, window, full))
    return replace(with_shared(arch, shared), shared_gate=shared > 0)


def qwen3_moe(keys: Keys, name: str) -> Transformer:
    """Qwen 3: no shared expert."""
    return qwen_experts(keys, qwen3(keys, name))


def qwen_experts(keys: Keys, dense: Transformer) -> Transformer:
    """The last of every decoder_sparse_step layers, but those named dense."""
    step, named = keys.whole("decoder_sparse_step", 1), named_layers(keys, "mlp_only_layers", dense.layers)
    return routed(
        keys,
        dense,
        [(i + 1) % step == 0 and i not in named for i in range(dense.layers)],
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
    )


def llama4(keys: Keys, name: str) -> Transformer:
    """Llama 4: experts in one layer of so many, one of them always on; chunked attention in three of four.

    The norm of queries and keys, in the layers with rotary positions, counts in all.
    """
    base = plain(keys, name)
    layers, step = base.layers, keys.whole("interleave_moe_layer_step", 1)
    dense = replace(base, ffn=keys.whole("intermediate_size_mlp", 16384), mlp_bias=False)
    listed = keys.raw("moe_layers")
    named = range(step - 1, layers, step) if listed is None else named_layers(keys, "moe_layers", layers)
    arch = routed(
        keys,
        dense,
        [i in named for i in range(layers)],
        experts="num_local_experts",
        per_token="num_experts_per_tok",
        width=base.ffn,
        shared=1,
    )
    if keys.flag("use_qk_norm", True):
        arch = normed_queries(arch, "none")
    rotary, every = keys.raw("no_rope_layers"), keys.whole("no_rope_layer_interval", 4)
    full = full_layers_of(keys, layers, every)
    if keys.raw("layer_types") is None and isinstance(rotary, list) and rotary:
        right = len(rotary) == layers and all(turned in (0, 1) for turned in rotary)
        keys.need(right, "no_rope_layers", f"{layers} of 0, 1 are expected, one for each layer.")
        full = [not turned for turned in rotary] if right else full
    arch = windowed(arch, keys.whole("attention_chunk_size", 0), full)
    return replace(arch, window_chunked=arch.sliding_window > 0)


def deepseek(keys: Keys, name: str) -> Transformer:
    """DeepSeek-V2, V3 and R1, Kimi K2, GLM-4.7-Flash, Mistral 4: latent attention, shared experts.

    So has Sarvam 105B; MiniCPM 3 and Youtu have no experts.  DeepSeek's small vision models leave latent
    attention out (use_mla).
    DeepSeek-V3.2 and GLM-5 choose keys by an indexer; A.X K1 norms what experts give.
    """
    if not keys.flag("use_mla", True):
        return deepseek_moe(keys, name)
    without(keys, "attention_bias")
    kind = keys.raw("model_type")
    if kind == "deepseek_v2":
        without(keys, "mlp_bias")
    dense = llama(keys, name) if kind == "minicpm3" else plain(keys, name)
    base = replace(
        dense,
        head_dim=keys.whole("qk_nope_head_dim"),
        attention="mla",
        q_lora=keys.whole("q_lora_rank", 0),
        kv_lora=keys.whole("kv_lora_rank"),
        rope_dim=keys.whole("qk_rope_head_dim"),
        v_head_dim=keys.whole("v_head_dim", dense.hidden // dense.heads if kind == "minicpm3" else None),
        mtp_layers=extra_layers(keys),
    )
    # the plain config of version 3 has no topk_method in transformers, whose router always has the bias
    method = keys.raw("topk_method")
    keys.need(method is None or isinstance(method, str), "topk_method", f"{shown(method)} is no name.")
    biased = method == "noaux_tc" or (method is None and kind not in ("deepseek_v2", "mistral4"))
    arch = _shared_experts(
        keys, base, biased=biased, leading=int(kind in ("glm4_moe_lite", "axk1", "sarvam_mla"))
    )
    arch = replace(arch, experts_norm=kind == "axk1" and arch.is_moe)
    return _indexed(keys, arch) if keys.raw("index_topk") is not None else arch


def _indexed(keys: Keys, arch: Transformer) -> Transformer:
    """Attention to keys that an indexer chooses in every layer, or that one before it chose."""
    listed = keys.raw("layer_types")
    # the second is the older name (transformers, configuration_utils.py, _LEGACY_LAYER_TYPE_REMAP)
    names = ("indexed_attention", "deepseek_sparse_attention")
    keys.need(
        listed is None or (isinstance(listed, list) and all(kind in names for kind in listed)),
        "layer_types",
        "attention to chosen keys in some layers only is not modelled; indexed_attention is expected in all.",
    )
    keys.need(arch.q_lora > 0, "q_lora_rank", "missing; the indexer makes its queries of the query latents.")
    arch = replace(
        arch,
        index_topk=keys.whole("index_topk"),
        index_heads=keys.whole("index_n_heads"),
        index_dim=keys.whole("index_head_dim"),
    )
    own = _own_indexers(keys, arch.layers)
    if all(own):
        return arch
    kinds = zip(layer_kinds(arch), own, strict=False)
    return replace(arch, pattern=tuple(cast(Layer, k if has else f"sharing {k}") for k, has in kinds))


def _own_indexers(keys: Keys, layers: int) -> list[bool]:
    """Which layers have an indexer: as `indexer_types` or a pattern of letters says, else by frequency."""
    words = {"full": True, "shared": False, "F": True, "S": False}
    every = keys.whole("index_topk_freq", 1)
    offset = keys.whole("index_skip_topk_offset", 2, least=0)
    for key in ("indexer_types", "index_topk_pattern"):
        listed = keys.raw(key)
        if listed is None:
            continue
        right = isinstance(listed, list | str) and len(listed) == layers
        right = right and all(isinstance(kind, str) and kind in words for kind in listed)
        keys.need(right, key, f"{layers} of full, shared (or F, S) are expected, one for each layer.")
        own = [words[kind] for kind in listed] if right else [True] * layers
        keys.need(own[0], key, "the first layer has none before it to take keys from; it must be full.")
        return own
    return [max(i - offset + 1, 0) % every == 0 for i in range(layers)]


def deepseek_moe(keys: Keys, name: str) -> Transformer:
    """DeepSeekMoE 16B: Llama's layers with the experts of its successors."""
    return _shared_experts(keys, plain(keys, name), biased=False)


def _shared_experts(keys: Keys, base: Transformer, *, biased: bool, leading: int = 0) -> Transformer:
    """DeepSeek's experts: n_routed_experts of them behind first_k_dense_replace layers, some always on."""
    if not keys.whole("n_routed_experts", 0, least=0):
        return base
    first = keys.whole("first_k_dense_replace", leading, least=0)
    keys.need(
        first <= base.layers,
        "first_k_dense_replace",
        f"{first} dense layers are more than the {base.layers} layers there are.",
    )
    return routed(
        keys,
        replace(base, expert_groups=keys.whole("n_group", 1)),
        behind_dense(keys, base.layers, first, keys.whole("moe_layer_freq", 1)),
        experts="n_routed_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        shared=keys.whole("n_shared_experts", 0, least=0),
        router_bias=biased,
    )


def glm4_moe(keys: Keys, name: str) -> Transformer:
    """GLM-4.5 to 4.7, Sarvam 30B: grouped queries with biases, DeepSeek's experts, extra layers."""
    biased = keys.flag("attention_bias", keys.raw("model_type") == "glm4v_moe_text")
    base = replace(plain(keys, name), attention_bias=biased, output_bias=False, mtp_layers=extra_layers(keys))
    if keys.flag("use_qk_norm", False):
        base = normed_queries(base)
    return _shared_experts(keys, base, biased=True, leading=1)


def solar_open(keys: Keys, name: str) -> Transformer:
    """Solar Open: GLM's experts in every layer, so that its class has no width of a dense MLP."""
    width = keys.raw("moe_intermediate_size")
    base = replace(plain(keys.filled({"intermediate_size": width}), name), output_bias=False)
    return _shared_experts(keys, base, biased=True)


def dots1(keys: Keys, name: str) -> Transformer:
    """dots.llm1: DeepSeek's experts, norms on queries and keys."""
    base = last_windowed(keys, normed_queries(plain(keys, name)), window_of(keys))
    return _shared_experts(keys, base, biased=True)


def exaone_moe(keys: Keys, name: str) -> Transformer:
    """K-EXAONE: EXAONE 4's attention, norms before the blocks, shared experts behind leading dense layers.

    Its extra layers have a dense MLP (vLLM, exaone_moe.py: no experts where `is_mtp`).
    """
    base = replace(exaone4(keys, name), mtp_layers=extra_layers(keys), mtp_dense=True)
    return _numbered_experts(keys, base, keys.whole("first_k_dense_replace", 1, least=0))


def hy_v3(keys: Keys, name: str) -> Transformer:
    """Hunyuan 3: as Hunyuan, with shared experts behind one dense layer."""
    without(keys, "mlp_bias")
    base = replace(hunyuan(keys, name), mtp_layers=extra_layers(keys))
    return _numbered_experts(keys, base, 1)


def _numbered_experts(keys: Keys, base: Transformer, leading: int) -> Transformer:
    return routed(
        keys,
        base,
        behind_dense(keys, base.layers, leading),
        experts="num_experts",
        per_token="num_experts_per_tok",
        width=keys.whole("moe_intermediate_size"),
        shared=keys.whole("num_shared_experts", 1, least=0),
        router_bias=True,
    )


def aria(keys: Keys, name: str) -> Transformer:
    """Aria's language model: experts as wide as intermediate_size in every layer, some always on."""
    without(keys, "mlp_bias")
    base = plain(keys, name)
    return routed(
        keys,
        base,
        [True] * base.layers,
        experts="moe_num_experts",
        per_token="moe_topk",
        width=base.ffn,
        shared=keys.whole("moe_num_shared_experts", 2, least=0),
    )


def hunyuan_moe(keys: Keys, name: str) -> Transformer:
    """Hunyuan-A13B: experts as wide as the dense MLP in every layer, one of them always on."""
    base = hunyuan(keys, name)
    for key, only in (("num_shared_expert", 1), ("moe_intermediate_size", base.ffn)):
        keys.need(keys.alike(key, only) == only, key, f"only {only} is supported.")
    return routed(
        keys,
        base,
        [True] * base.layers,
        experts="num_experts",
        per_token="moe_topk",
        width=base.ffn,
        shared=1,
    )


def ernie_moe(keys: Keys, name: str) -> Transformer:
    """ERNIE 4.5: the last of every moe_layer_interval layers from a first one to a last one.

    Its extra layers have a dense MLP (vLLM, ernie_mtp.py: `mtp_block` is Llama's layer).
    """
    without(keys, "use_bias")
    base = replace(tied(keys, unbiased(keys, name)), mtp_layers=extra_layers(keys), mtp_dense=True)
    layers, first = base.layers, keys.whole("moe_layer_start_index", 1, least=0)
    last, step = keys.whole("moe_layer_end_index", -1, least=-1), keys.whole("moe_layer_interval", 1)
    last = layers - 1 if last == -1 else last
    return routed(
        keys,
        base,
        [first <= i <= last and (i + 1) % step == 0 for i in range(layers)],
        experts="moe_num_experts",
        per_token="moe_k",
        width=keys.whole("moe_intermediate_size"),
        shared=keys.whole("moe_num_shared_experts", 0, least=0),
        router_bias=True,
    )


def dbrx(keys: Keys, name: str) -> Transformer:
    """DBRX: experts in every layer; keys of its own."""
    hidden, heads = keys.whole("d_model"), keys.whole("n_heads")
    attention, mlp = keys.inside("attn_config"), keys.inside("ffn_config")
    width = mlp.whole("ffn_hidden_size")
    need_heads_divide(keys, hidden, heads, "d_model", "n_heads")
    return Transformer(
        name=name,
        layers=keys.depth("n_layers"),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=attention.whole("kv_n_heads"),
        head_dim=max(hidden // heads, 1),
        ffn=width,
        experts=mlp.whole("moe_num_experts"),
        experts_per_token=mlp.whole("moe_top_k"),
        expert_ffn=width,
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        max_positions=keys.whole("max_seq_len", 0),
        source=keys.source(),
    )
