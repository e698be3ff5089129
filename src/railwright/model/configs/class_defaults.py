"""What Hugging Face's configuration classes know of a config.json's keys: other names, and what one means
that is not there.

Source: huggingface/transformers 5.24, configuration_*.py; a null is no default.  Only what the family's own
function does not say is here.
"""

from __future__ import annotations

from typing import Any

_EXPERTS = {"num_experts": "num_local_experts"}
_LOCAL = {"num_local_experts": "num_experts"}
_ROUTED = {"num_experts": "n_routed_experts", "num_local_experts": "n_routed_experts"}
_GPT = {
    "hidden_size": "n_embd",
    "max_position_embeddings": "n_positions",
    "num_attention_heads": "n_head",
    "num_hidden_layers": "n_layer",
}
_FALCON = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}
_MOSAIC = {"hidden_size": "d_model", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"}

OTHER_NAMES: dict[str, dict[str, str]] = {
    "bloom": {"num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
    "gpt2": _GPT,
    "gpt_bigcode": _GPT,
    **dict.fromkeys(("gpt-sw3", "gptj", "codegen", "jais"), _GPT),
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "xglm": {
        "hidden_size": "d_model",
        "num_attention_heads": "attention_heads",
        "num_hidden_layers": "num_layers",
    },
    **dict.fromkeys(("RefinedWeb", "RefinedWebModel"), _FALCON),
    "exaone": {"num_layers": "num_hidden_layers"},
    "qwen": {"kv_channels": "head_dim"},
    "mpt": _MOSAIC,
    "dbrx": {**_MOSAIC, "max_position_embeddings": "max_seq_len"},
    **dict.fromkeys(("mixtral", "minimax_m2", "grok-1", "kolibri1", "mellum"), _EXPERTS),
    "gpt_oss": {"experts_per_token": "num_experts_per_tok", **_EXPERTS},
    "nemotron_h": {
        "attention_head_dim": "head_dim",
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_chunk_size": "chunk_size",
    },
    **dict.fromkeys(("qwen3_moe", "qwen3_vl_moe_text", "olmoe", "flex_olmo", "hy_v3"), _LOCAL),
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2", "glm4_moe_lite", "mistral4"), _ROUTED),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa", "axk1", "mimo_v2_flash", "mimo_v2"), _ROUTED),
    **dict.fromkeys(("glm4_moe", "glm4v_moe_text", "dots1", "solar_open"), _ROUTED),
    "sarvam_moe": {"num_shared_experts": "n_shared_experts", "use_qkv_bias": "attention_bias", **_ROUTED},
    "sarvam_mla": {"num_shared_experts": "n_shared_experts", **_ROUTED},
    "ernie4_5_moe": {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    "step3p5": {
        "num_local_experts": "n_routed_experts",
        "moe_num_experts": "n_routed_experts",
        "num_attention_groups": "num_key_value_heads",
        "moe_top_k": "num_experts_per_tok",
        "share_expert_dims": "share_expert_dim",
    },
    "kimi_linear": {
        "num_experts_per_token": "num_experts_per_tok",
        "num_local_experts": "num_experts",
        "n_shared_experts": "num_shared_experts",
        "model_max_length": "max_position_embeddings",
    },
    "minimax": _EXPERTS,
    "hunyuan_v1_moe": {"num_local_experts": "num_experts", "num_experts_per_tok": "moe_topk"},
}
"""model_type -> other name of a key -> the name that the family's function reads (attribute_map there).

BLOOM's checkpoints have num_attention_heads, transformers 5 writes num_local_experts for Qwen's num_experts,
and the config beside Grok-1's weights for Hugging Face (hpcai-tech/grok-1) has num_experts.
"""

_WINDOW = {"sliding_window": 4096}
_WIDE = {"head_dim": 128}
_LATE = {"max_window_layers": 28, **_WINDOW}
_LATER = {"max_window_layers": 80, **_WINDOW}
_ONE_SHARED = {"n_routed_experts": 128, "n_shared_experts": 1}
_GATED_SHARED = {"num_key_value_heads": 2, "shared_expert_intermediate_size": 512}
_DEEPSEEK_V3 = {
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "n_group": 8,
}

_INDEX = {"index_topk": 2048, "index_head_dim": 128}

OPTIONAL: dict[str, dict[str, Any]] = {
    "mistral": {"num_key_value_heads": 8, **_WINDOW},
    "ministral": {"num_key_value_heads": 8, **_WINDOW},
    "ministral3": {"num_key_value_heads": 8, "rope_parameters": {"rope_type": "yarn"}, **_WIDE},
    "mixtral": {"num_key_value_heads": 8},
    "phimoe": {"num_key_value_heads": 8},
    "granitemoehybrid": {"shared_intermediate_size": 1024},
    "qwen2": {"num_key_value_heads": 32, **_LATE},
    "qwen2_moe": {"num_key_value_heads": 16, "shared_expert_intermediate_size": 5632, **_LATE},
    "qwen3": {"num_key_value_heads": 32, **_WIDE, **_LATE},
    "qwen3_moe": {"num_key_value_heads": 4, **_WINDOW},
    "qwen3_next": _GATED_SHARED,
    "qwen3_5_moe_text": _GATED_SHARED,
    "qwen3_5_text": {"num_key_value_heads": 4},
    "nemotron_h": {"num_key_value_heads": 8, **_WIDE},
    "qwen2_vl_text": {"num_key_value_heads": 8, **_LATER},
    "qwen2_5_vl_text": {"num_key_value_heads": 8, **_LATER},
    "qwen3_vl_text": {"num_key_value_heads": 32, **_WIDE},
    "qwen3_vl_moe_text": {"num_key_value_heads": 16},
    "deepseek_v2": {"q_lora_rank": 1536, "n_routed_experts": 64, "n_shared_experts": 2},
    "deepseek_v3": _DEEPSEEK_V3,
    "kimi_k2": _DEEPSEEK_V3,
    "axk1": {"q_lora_rank": 1536, "n_routed_experts": 192, "n_shared_experts": 1, "n_group": 8},
    "arctic": {"num_local_experts": 8, "num_experts_per_tok": 1},
    "deepseek_v32": {**_DEEPSEEK_V3, **_INDEX, "index_n_heads": 64},
    "glm_moe_dsa": {
        **_DEEPSEEK_V3,
        **_INDEX,
        "index_n_heads": 32,
        "q_lora_rank": 2048,
        "n_group": 1,
    },
    "glm4_moe_lite": {"q_lora_rank": 768, "n_routed_experts": 64, "n_shared_experts": 1},
    "glm": {"num_key_value_heads": 2, **_WIDE},
    "glm4": {"num_key_value_heads": 2, **_WIDE},
    "glm4v_text": {"num_key_value_heads": 2},
    "glm4_moe": {"num_key_value_heads": 8, **_ONE_SHARED},
    "glm4v_moe_text": {"num_key_value_heads": 8, **_ONE_SHARED},
    "solar_open": {"num_key_value_heads": 8, **_ONE_SHARED, **_WIDE},
    "sarvam_moe": {"num_key_value_heads": 4, "head_dim": 64, "use_qk_norm": True, **_ONE_SHARED},
    "sarvam_mla": {"v_head_dim": 128, **_ONE_SHARED},
    "gpt_oss": {
        "num_key_value_heads": 8,
        "head_dim": 64,
        "sliding_window": 128,
        "rope_scaling": {"rope_type": "yarn"},
    },
    "gemma": {"num_key_value_heads": 16, "head_dim": 256},
    "gemma2": {"num_key_value_heads": 4, "head_dim": 256, **_WINDOW},
    "gemma3_text": {"num_key_value_heads": 4, "head_dim": 256, **_WINDOW},
    "gemma4_text": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 512},
    "gemma4_unified_text": {"num_key_value_heads": 4, "head_dim": 256, "sliding_window": 1024},
    "llama4_text": {"num_key_value_heads": 8, "attention_chunk_size": 8192, **_WIDE},
    "minimax_m2": {"num_key_value_heads": 8, **_WIDE},
    "dots1": {"num_key_value_heads": 32, "max_window_layers": 62, **_WINDOW},
    "ernie4_5": {"num_key_value_heads": 2, **_WIDE},
    "ernie4_5_moe": {"num_key_value_heads": 4, "moe_num_shared_experts": 2},
    "hy_v3": {"num_key_value_heads": 8, **_WIDE},
    "exaone4": {"num_key_value_heads": 32, **_WINDOW},
    "exaone_moe": {"num_key_value_heads": 32, **_WINDOW},
    "olmo3": _WINDOW,
    "cohere2": _WINDOW,
    "seed_oss": {"num_key_value_heads": 8, **_WIDE},
    "smollm3": {"num_key_value_heads": 4},
    "starcoder2": {"num_key_value_heads": 2},
    "stablelm": {"num_key_value_heads": 32},
    "internlm3": {"num_key_value_heads": 2, **_WIDE},
    "emu3_text_model": {"num_key_value_heads": 8},
    "phi4_multimodal": {"num_key_value_heads": 8},
    "vaultgemma": {"num_key_value_heads": 4, "head_dim": 256, **_WINDOW},
    "helium": {"num_key_value_heads": 20, **_WIDE},
    "jais2": {"attention_bias": True, "mlp_bias": True},
    "cwm": {"num_key_value_heads": 8, "sliding_window": 8192, **_WIDE},
    "iquestcoder": {"num_key_value_heads": 8, **_WIDE},
    "granite_swa": {"num_key_value_heads": 4, "sliding_window": 128},
    "granitemoe_swa": {"sliding_window": 128},
    "mistral4": {
        "q_lora_rank": 1024,
        "n_routed_experts": 128,
        "n_shared_experts": 1,
        "rope_parameters": {"rope_type": "yarn"},
    },
    "minicpm3": {"q_lora_rank": 768, "tie_word_embeddings": True},
    "youtu": {"q_lora_rank": 1536, "tie_word_embeddings": True},
    "mellum": {"num_key_value_heads": 4, "sliding_window": 1024, **_WIDE},
    "kolibri1": {"num_key_value_heads": 4, "sliding_window": 513, **_WIDE},
    "cohere2_moe": {**_WIDE, **_WINDOW},
    "mimo": {"num_key_value_heads": 32, **_LATE},
    "stablelm_epoch": {"num_key_value_heads": 32},
    "mimo_v2_flash": {
        "num_key_value_heads": 4,
        "head_dim": 192,
        "n_routed_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
        "sliding_window": 129,
    },
    "flint": {"num_key_value_heads": 4, "sliding_window": 513, **_WIDE},
    "afmoe": {"num_experts": 64, "num_experts_per_tok": 6, "sliding_window": 1024, **_WIDE},
    "laguna": {
        "num_key_value_heads": 8,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "sliding_window": 512,
        **_WIDE,
    },
    "step3p5": {
        "num_key_value_heads": 8,
        "n_routed_experts": 288,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 1280,
        **_WIDE,
    },
    "muse_glimmer_text": {"num_key_value_heads": 2, "sliding_window": 2048, **_WIDE},
    "beam": {"num_key_value_heads": 8, "sliding_window": 512, **_WIDE},
    # Falcon's first names: the code of the 40B knows the later decoder only
    "RefinedWeb": {"new_decoder_architecture": True},
    "RefinedWebModel": {"multi_query": False, "parallel_attn": False},
}
"""model_type -> keys that whoever writes a config may leave out."""

_SHAPE = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")

NESTED: dict[str, dict[str, Any]] = {
    kind: dict(zip((*_SHAPE, "max_position_embeddings"), shape, strict=True)) | more
    for kind, shape, more in (
        ("llama", (32000, 4096, 11008, 32, 32, 2048), {}),
        ("mistral", (32000, 4096, 14336, 32, 32, 131072), {}),
        ("qwen2", (151936, 4096, 22016, 32, 32, 32768), {}),
        ("gemma3_text", (262208, 2304, 9216, 26, 8, 131072), {}),
        (
            "llama4_text",
            (202048, 5120, 8192, 48, 40, 131072),
            {"num_local_experts": 16, "num_experts_per_tok": 1},
        ),
    )
}
"""Shapes that Hugging Face leaves out of a config inside another, which it writes as the difference from its
class: of those whose published configs rely on it (LLaVA, Gemma 3) and their like."""
