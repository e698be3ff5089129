"""Published shapes of models that mix attention with other layers, and their makers' figures."""

from __future__ import annotations

from typing import Any

SMALL = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
LARGE = "M-M-M-M-M-M-M-M-M*-M-M-M-M-M-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-M-M---MM---M-M*-M-M-M-M-M-"
NANO_9B = "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-"
NANO_12B = "M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M*-M-M-M-M-"


def nemotron(
    pattern: str, hidden: int, heads: int, ffn: int, mamba: tuple[int, int], state: int
) -> dict[str, Any]:
    """NVIDIA NeMo 8cfedd7, nemo/collections/llm/gpt/model/ssm.py; mamba: heads and their width."""
    return {
        "model_type": "nemotron_h",
        "hybrid_override_pattern": pattern,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": ffn,
        "mamba_num_heads": mamba[0],
        "mamba_head_dim": mamba[1],
        "n_groups": 8,
        "ssm_state_size": state,
        "vocab_size": 131072,
    }


def granite(hidden: int, heads: int, kv_heads: int, mamba: int, **more: Any) -> dict[str, Any]:
    """Granite 4.0 H: attention in layers 5, 15, 25 and 35 of 40."""
    return {
        "model_type": "granitemoehybrid",
        "num_hidden_layers": 40,
        "layer_types": ["attention" if i % 10 == 5 else "mamba" for i in range(40)],
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "mamba_n_heads": mamba,
        "mamba_d_state": 128,
        "vocab_size": 100352,
        "tie_word_embeddings": True,
        "position_embedding_type": "nope",
        **more,
    }


NEMOTRON_ULTRA = nemotron("MEMEMEM*EMEMEM*EMEMEMEM*E" * 4 + "MEMEMEME", 8192, 64, 5120, (256, 64), 128) | {
    # nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B, config.json
    "num_key_value_heads": 2,
    "n_routed_experts": 512,
    "num_experts_per_tok": 22,
    "moe_latent_size": 2048,
    "moe_intermediate_size": 5120,
    "moe_shared_expert_intermediate_size": 10240,
}
QWEN_35B = {
    "model_type": "qwen3_5_moe_text",
    "num_hidden_layers": 40,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "vocab_size": 248320,
}
"""The defaults of its class in transformers 5.23, which is documented by Qwen3.5-35B-A3B."""

MINIMAX_01 = {
    "model_type": "minimax_text_01",
    "num_hidden_layers": 80,
    "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "hidden_size": 6144,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9216,
    "num_local_experts": 32,
    "num_experts_per_tok": 2,
    "vocab_size": 200064,
}
"""MiniMax-01 (arXiv 2501.08313): 456 billion, 45.9 active without embedding and head."""

KIMI_LINEAR = {
    "model_type": "kimi_linear",
    "num_hidden_layers": 27,
    "hidden_size": 2304,
    "num_attention_heads": 32,
    "intermediate_size": 9216,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "moe_intermediate_size": 1024,
    "vocab_size": 163840,
    "linear_attn_config": {
        "num_heads": 32,
        "head_dim": 128,
        "short_conv_kernel_size": 4,
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
    },
}
"""moonshotai/Kimi-Linear-48B-A3B; the defaults of its class in transformers 5.23."""

ROUNDED: dict[str, tuple[dict[str, Any], float, float]] = {
    # Nemotron-H (arXiv 2504.03624): 8B, 47B, 56B; NeMo's 4B
    "nemotron-h-4b": (nemotron(SMALL, 3072, 32, 12288, (112, 64), 128), 4.5e9, 0.01),
    "nemotron-h-8b": (nemotron(SMALL, 4096, 32, 21504, (128, 64), 128), 8.1e9, 0.001),
    "nemotron-h-47b": (nemotron(LARGE, 8192, 64, 30720, (256, 64), 256), 4.68e10, 0.001),
    "nemotron-nano-9b-v2": (nemotron(NANO_9B, 4480, 40, 15680, (128, 80), 128), 8.89e9, 0.001),
    "nemotron-nano-12b-v2": (nemotron(NANO_12B, 5120, 40, 20480, (128, 80), 128), 1.231e10, 0.001),
    # NVIDIA: 550 billion, 55 active
    "nemotron-3-ultra-550b-a55b": (NEMOTRON_ULTRA, 5.5e11, 0.002),
    "qwen3.5-35b-a3b": (QWEN_35B, 3.5e10, 0.01),
    "minimax-text-01": (MINIMAX_01, 4.56e11, 0.001),
    "kimi-linear-48b-a3b": (KIMI_LINEAR, 4.9e10, 0.01),
    # IBM, Granite 4.0: H-Small 32B, H-Tiny 7B, H-Micro 3B
    "granite-4.0-h-small": (
        granite(
            4096,
            32,
            8,
            128,
            num_local_experts=72,
            num_experts_per_tok=10,
            intermediate_size=768,
            shared_intermediate_size=1536,
        ),
        3.2e10,
        0.01,
    ),
    "granite-4.0-h-tiny": (
        granite(
            1536,
            12,
            4,
            48,
            num_local_experts=64,
            num_experts_per_tok=6,
            intermediate_size=512,
            shared_intermediate_size=1024,
        ),
        7e9,
        0.01,
    ),
    "granite-4.0-h-micro": (
        granite(
            2048,
            32,
            8,
            64,
            num_local_experts=0,
            intermediate_size=8192,
            shared_intermediate_size=8192,
        ),
        3.2e9,
        0.01,
    ),
}
"""Parameters in all, and how far the figure is rounded."""
