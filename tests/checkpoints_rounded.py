"""Checkpoints of families with a class in transformers of which makers publish rounded figures, and how far
these may be off; shapes as in `checkpoints`.
"""

from __future__ import annotations

from checkpoints import shape


def trinity(layers, hidden, heads, kv_heads, ffn, width, per_token=8, **more):
    """AFMoE's keys, as in the table of arXiv 2602.17004."""
    experts = {"num_experts": 128, "num_experts_per_tok": per_token, "moe_intermediate_size": width}
    own = {"head_dim": 128, "num_dense_layers": 2, "num_shared_experts": 1}
    return shape("afmoe", layers, hidden, heads, kv_heads, ffn, 200192, **experts | own | more)


LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "n_shared_experts": 1, "n_routed_experts": 256}
INDEX = {"index_topk": 2048, "index_head_dim": 128, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}

WINDOWS = ["full_attention", *["sliding_attention"] * 3] * 12
"""Of which Step 3.5's last three entries are of its extra layers, and Laguna has ten times four."""

ROUNDED = {
    # model cards: 196.81 and 33 billion
    "step-3.5-flash": (
        shape("step3p5", 45, 4096, 64, 8, 11264, 128896, head_dim=128, sliding_window=512)
        | {"moe_num_experts": 288, "moe_top_k": 8, "moe_intermediate_size": 1280, "share_expert_dim": 1280}
        | {"num_nextn_predict_layers": 3, "layer_types": WINDOWS}
        | {"attention_other_setting": {"num_attention_heads": 96, "num_attention_groups": 8}},
        1.9681e11,
        0.001,
    ),
    "laguna-xs.2": (
        shape("laguna", 40, 2048, 48, 8, 8192, 100352, layer_types=WINDOWS[:40])
        | {"num_attention_heads_per_layer": [48, 64, 64, 64] * 10},
        3.3e10,
        0.015,
    ),
    # model card: 30.7 billion
    "gemma-4-31b": (
        shape("gemma4_text", 60, 5376, 32, 16, 21504, 262144, head_dim=256, global_head_dim=512)
        | {"num_global_key_value_heads": 4, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0},
        3.07e10,
        0.0005,
    ),
    # model card: 25.2 billion
    "gemma-4-26b-a4b": (
        shape("gemma4_text", 30, 2816, 16, 8, 2112, 262144, head_dim=256, global_head_dim=512)
        | {"num_global_key_value_heads": 2, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0}
        | {"enable_moe_block": True, "num_experts": 128, "top_k_experts": 8, "moe_intermediate_size": 704},
        2.52e10,
        0.002,
    ),
    # model card: 309 billion
    "mimo-v2-flash": (
        shape("mimo_v2_flash", 48, 4096, 64, 4, 16384, 152576, head_dim=192, v_head_dim=128)
        | {"n_routed_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
        | {"hybrid_layer_pattern": [0, 1, 1, 1, 1, *[0, 1, 1, 1, 1, 1] * 7, 0]}
        | {"moe_layer_freq": [0, *[1] * 47], "swa_num_key_value_heads": 8, "sliding_window": 128},
        3.09e11,
        0.001,
    ),
    # model card: 1.02 trillion (42 billion active: test_model_families_published)
    "mimo-v2.5-pro": (
        shape("mimo_v2", 70, 6144, 128, 8, 16384, 152576, head_dim=192, v_head_dim=128)
        | {"n_routed_experts": 384, "num_experts_per_tok": 8, "moe_intermediate_size": 2048}
        | {"hybrid_layer_pattern": [0, *[1] * 6, *[0, 1, 1, 1, 1, 1, 1] * 9], "sliding_window": 128}
        | {"moe_layer_freq": [0, *[1] * 69], "swa_num_key_value_heads": 8},
        1.02e12,
        0.002,
    ),
    # makers' figures: 480 and 519 billion
    "arctic": (
        shape("arctic", 35, 7168, 56, 8, 4864, 32000, num_local_experts=128, num_experts_per_tok=2)
        | {"moe_layer_frequency": 1, "parallel_attn_mlp_res": True},
        4.8e11,
        0.004,
    ),
    "a.x-k1": (
        shape("axk1", 61, 7168, 64, 64, 18432, 163840, q_lora_rank=1536, **LATENT)
        | {"qk_nope_head_dim": 128, "v_head_dim": 128, "n_routed_experts": 192, "moe_intermediate_size": 2048}
        | {"num_experts_per_tok": 8},
        5.19e11,
        0.0005,
    ),
    # arXiv 2602.15763: 744 billion
    "glm-5": (
        shape("glm_moe_dsa", 78, 6144, 64, 64, 12288, 154880, index_n_heads=32, **LATENT, **INDEX)
        | {"q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256},
        7.44e11,
        0.0005,
    ),
    # model cards: 398, 26 and 6 billion
    "trinity-large": (
        trinity(60, 3072, 48, 8, 12288, 3072, 4, num_experts=256, num_dense_layers=6),
        3.98e11,
        0.002,
    ),
    "trinity-mini": (trinity(32, 2048, 32, 4, 6144, 1024), 2.6e10, 0.005),
    "trinity-nano": (trinity(56, 1024, 8, 2, 3072, 256), 6e9, 0.021),
    "cwm": (shape("cwm", 64, 6144, 48, 8, 21504, 128256), 3.2e10, 0.02),
    "mistral-small-4": (
        shape(
            "mistral4",
            36,
            4096,
            32,
            32,
            12288,
            131072,
            q_lora_rank=1024,
            kv_lora_rank=256,
            qk_nope_head_dim=64,
            qk_rope_head_dim=64,
            v_head_dim=128,
            n_routed_experts=128,
            num_experts_per_tok=4,
            n_shared_experts=1,
            moe_intermediate_size=2048,
        ),
        1.19e11,
        0.001,
    ),
    "k-exaone": (
        shape(
            "exaone_moe",
            48,
            6144,
            64,
            8,
            18432,
            153600,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            num_shared_experts=1,
            moe_intermediate_size=2048,
            first_k_dense_replace=1,
            sliding_window=128,
        ),
        2.36e11,
        0.003,
    ),
    "solar-open": (
        shape(
            "solar_open",
            48,
            4096,
            64,
            8,
            10240,
            196608,
            head_dim=128,
            n_routed_experts=128,
            num_experts_per_tok=8,
            n_shared_experts=1,
            moe_intermediate_size=1280,
        ),
        1.026e11,
        0.001,
    ),
    "ernie-300b": (
        shape(
            "ernie4_5_moe",
            54,
            8192,
            64,
            8,
            28672,
            103424,
            moe_num_experts=64,
            moe_k=8,
            moe_intermediate_size=3584,
            moe_num_shared_experts=0,
            moe_layer_start_index=3,
            moe_layer_interval=1,
            tie_word_embeddings=False,
        ),
        3e11,
        0.003,
    ),
    "apertus-70b": (shape("apertus", 80, 8192, 64, 8, 43008, 131072), 7.06e10, 0.001),
    "granite-3.3-8b": (
        shape("granite", 40, 4096, 32, 8, 12800, 49159, tie_word_embeddings=True),
        8.17e09,
        0.001,
    ),
    "exaone-4-32b": (
        shape("exaone4", 64, 5120, 40, 8, 27392, 102400, sliding_window=4096, sliding_window_pattern="LLLG"),
        3.2e10,
        0.001,
    ),
    "glm-4-32b": (
        shape("glm4", 61, 6144, 48, 2, 23040, 151552, attention_bias=False, head_dim=128),
        3.26e10,
        0.002,
    ),
    "granite-3.1-3b-a800m": (
        shape(
            "granitemoe",
            32,
            1536,
            24,
            8,
            512,
            49155,
            tie_word_embeddings=True,
            num_local_experts=40,
            num_experts_per_tok=8,
        ),
        3.3e09,
        0.001,
    ),
    "afm-4.5b": (shape("arcee", 36, 2560, 20, 4, 18432, 128004, head_dim=128), 4.62e09, 0.001),
}
