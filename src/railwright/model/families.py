"""The model families of Hugging Face that are understood: model_type -> how its keys become a Transformer.

Each function knows what its family fixes outside the config (biases, norms, gating), as in that family's
modelling code in huggingface/transformers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from railwright.model.architecture import Transformer
from railwright.model.keys import Keys

Family = Callable[[Keys, str], Transformer]


def _llama(keys: Keys, name: str) -> Transformer:
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    biased = keys.flag("attention_bias", False)
    return Transformer(
        name=name,
        layers=keys.whole("num_hidden_layers"),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=keys.whole("num_key_value_heads", heads),
        head_dim=_head_dim(keys, hidden, heads),
        ffn=keys.whole("intermediate_size"),
        tied_embeddings=keys.flag("tie_word_embeddings", False),
        attention_bias=biased,
        output_bias=biased,
        mlp_bias=keys.flag("mlp_bias", False),
        max_positions=keys.whole("max_position_embeddings", 0),
        source=keys.source(),
    )


def _mistral(keys: Keys, name: str) -> Transformer:
    return replace(_llama(keys, name), sliding_window=keys.whole("sliding_window", 0, least=0))


def _mixtral(keys: Keys, name: str) -> Transformer:
    dense = _mistral(keys, name)
    return replace(
        dense,
        experts=keys.whole("num_local_experts"),
        experts_per_token=keys.whole("num_experts_per_tok"),
        expert_ffn=dense.ffn,
    )


def _grok(keys: Keys, name: str) -> Transformer:
    return replace(_mixtral(keys, name), norms_per_layer=4)


def _qwen2(keys: Keys, name: str) -> Transformer:
    window = keys.whole("sliding_window", 0, least=0) if keys.flag("use_sliding_window", False) else 0
    keys.need(
        not window or keys.raw("max_window_layers") in (None, 0),
        "max_window_layers",
        "full attention in the first layers and a window in the others is not supported.",
    )
    return replace(_llama(keys, name), attention_bias=True, output_bias=False, sliding_window=window)


def _qwen2_moe(keys: Keys, name: str) -> Transformer:
    shared = keys.whole("shared_expert_intermediate_size", 0, least=0)
    return replace(
        _with_experts(keys, _qwen2(keys, name)),
        shared_experts=int(shared > 0),
        shared_ffn=shared,
        shared_gate=shared > 0,
    )


def _qwen3(keys: Keys, name: str) -> Transformer:
    biased = keys.flag("attention_bias", False)
    return replace(_qwen2(keys, name), attention_bias=biased, output_bias=biased, qk_norm=True)


def _qwen3_moe(keys: Keys, name: str) -> Transformer:
    return _with_experts(keys, _qwen3(keys, name))


def _with_experts(keys: Keys, dense: Transformer) -> Transformer:
    """Qwen's experts: every layer, or all but a leading run of dense ones."""
    keys.need(
        keys.raw("decoder_sparse_step") in (None, 1),
        "decoder_sparse_step",
        "dense layers between the expert layers are not supported; only 1 is.",
    )
    first = keys.raw("mlp_only_layers") or []
    leading = isinstance(first, list) and first == list(range(len(first)))
    keys.need(leading, "mlp_only_layers", f"{first!r}: only leading layers may be dense, as [0, 1, 2].")
    return replace(
        dense,
        experts=keys.whole("num_experts"),
        experts_per_token=keys.whole("num_experts_per_tok"),
        expert_ffn=keys.whole("moe_intermediate_size"),
        dense_layers=len(first) if leading else 0,
    )


def _deepseek(keys: Keys, name: str) -> Transformer:
    keys.need(
        keys.raw("moe_layer_freq") in (None, 1),
        "moe_layer_freq",
        "dense layers between the expert layers are not supported; only 1 is.",
    )
    base = replace(
        _llama(keys, name),
        head_dim=keys.whole("qk_nope_head_dim"),
        attention="mla",
        q_lora=keys.whole("q_lora_rank", 0),
        kv_lora=keys.whole("kv_lora_rank"),
        rope_dim=keys.whole("qk_rope_head_dim"),
        v_head_dim=keys.whole("v_head_dim"),
        mtp_layers=keys.whole("num_nextn_predict_layers", 0, least=0),
    )
    experts = keys.whole("n_routed_experts", 0, least=0)
    if not experts:
        return base
    shared, width = keys.whole("n_shared_experts", 0, least=0), keys.whole("moe_intermediate_size")
    return replace(
        base,
        experts=experts,
        experts_per_token=keys.whole("num_experts_per_tok"),
        expert_ffn=width,
        shared_experts=shared,
        shared_ffn=shared * width,
        dense_layers=keys.whole("first_k_dense_replace", 0, least=0),
        router_bias=keys.raw("topk_method") == "noaux_tc",
    )


def _gpt2(keys: Keys, name: str) -> Transformer:
    hidden, heads = keys.whole("n_embd"), keys.whole("n_head")
    positions = keys.whole("n_positions")
    keys.need(
        hidden % heads == 0 or keys.raw("n_embd") is None,
        "n_head",
        f"{heads} does not divide n_embd = {hidden}.",
    )
    return Transformer(
        name=name,
        layers=keys.whole("n_layer"),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=keys.whole("n_inner", 4 * hidden),
        gated=False,
        tied_embeddings=keys.flag("tie_word_embeddings", True),
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        norm_bias=True,
        position_embeddings=positions,
        max_positions=positions,
        source=keys.source(),
    )


def _gpt_oss(keys: Keys, name: str) -> Transformer:
    base = _llama(keys, name)
    types = keys.raw("layer_types") or ["sliding_attention", "full_attention"] * (base.layers // 2)
    keys.need(
        isinstance(types, list) and types[:2] == ["sliding_attention", "full_attention"],
        "layer_types",
        "windowed and full layers must take turns, as in the published gpt-oss models.",
    )
    per_token = "num_experts_per_tok" if keys.raw("experts_per_token") is None else "experts_per_token"
    return replace(
        base,
        attention_bias=True,
        output_bias=True,
        attention_sinks=True,
        mlp_bias=True,
        router_bias=True,
        experts=keys.whole("num_local_experts"),
        experts_per_token=keys.whole(per_token),
        expert_ffn=base.ffn,
        sliding_window=keys.whole("sliding_window", 0, least=0),
        full_every=2,
    )


def _nemotron(keys: Keys, name: str) -> Transformer:
    return replace(_llama(keys, name), gated=False, norm_bias=True)


def _gemma(keys: Keys, name: str) -> Transformer:
    return replace(_llama(keys, name), tied_embeddings=keys.flag("tie_word_embeddings", True))


def _gemma2(keys: Keys, name: str) -> Transformer:
    window = keys.whole("sliding_window", 0, least=0)
    return replace(_gemma(keys, name), norms_per_layer=4, sliding_window=window, full_every=2)


def _falcon(keys: Keys, name: str) -> Transformer:
    """Falcon's later decoder (40B, 180B): two norms in parallel, a plain MLP of 4 x the width."""
    keys.need(
        keys.flag("new_decoder_architecture", False),
        "new_decoder_architecture",
        "only the later Falcon decoder (40B, 180B) is supported; it must be true.",
    )
    hidden, heads = keys.whole("hidden_size"), keys.whole("num_attention_heads")
    return Transformer(
        name=name,
        layers=keys.whole("num_hidden_layers"),
        hidden=hidden,
        vocab=keys.whole("vocab_size"),
        heads=heads,
        kv_heads=keys.whole("num_kv_heads"),
        head_dim=_head_dim(keys, hidden, heads),
        ffn=keys.whole("ffn_hidden_size", 4 * hidden),
        gated=False,
        norm_bias=True,
        parallel_blocks=True,
        tied_embeddings=keys.flag("tie_word_embeddings", True),
        max_positions=keys.whole("max_position_embeddings", 2048),
        source=keys.source(),
    )


def _minimax_m2(keys: Keys, name: str) -> Transformer:
    base = _llama(keys, name)
    return replace(
        base,
        qk_norm=keys.flag("use_qk_norm", True),
        experts=keys.whole("num_local_experts"),
        experts_per_token=keys.whole("num_experts_per_tok"),
        expert_ffn=base.ffn,
        router_bias=keys.flag("use_routing_bias", True),
    )


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    if keys.raw("head_dim") is None and keys.raw("qk_nope_head_dim") is None:
        keys.need(
            # A width that was itself refused is 1 here, and says nothing about the heads.
            hidden % heads == 0 or hidden != keys.raw("hidden_size"),
            "num_attention_heads",
            f"{heads} does not divide hidden_size = {hidden}; give head_dim.",
        )
    return keys.whole("head_dim", max(hidden // heads, 1))


FAMILIES: dict[str, Family] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
    "gpt_oss": _gpt_oss,
    "nemotron": _nemotron,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "grok-1": _grok,
    "falcon": _falcon,
    "minimax_m2": _minimax_m2,
}

NOT_DECODERS = (
    *("bert", "roberta", "albert", "distilbert", "electra", "deberta", "deberta-v2", "modernbert"),
    *("t5", "mt5", "umt5", "bart", "mbart", "pegasus", "marian", "xlm-roberta"),
    *("clip", "siglip", "vit", "whisper", "wav2vec2", "mamba", "mamba2"),
)
"""Architectures that are certainly not decoder-only transformers."""

HYBRIDS = (
    *("nemotron_h", "jamba", "bamba", "zamba", "zamba2", "granitemoehybrid", "falcon_h1", "falcon_mamba"),
    *("qwen3_next", "kimi_linear", "minimax", "lfm2", "recurrent_gemma"),
)
"""Architectures that mix attention with state-space, recurrent or linear-attention layers."""
