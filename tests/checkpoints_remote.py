"""Checkpoints of families that only the code beside them reads; figures and shapes as in `checkpoints`."""

from __future__ import annotations

from checkpoints import shape


def qwen(layers, hidden, heads, both, vocab=151936):
    """Qwen of 2023: as many heads of keys as of queries."""
    return shape("qwen", layers, hidden, heads, heads, both, vocab, kv_channels=128, no_bias=True)


def chatglm(layers, vocab):
    """ChatGLM 2 and 3 and GLM-4 of 2024."""
    return {
        "model_type": "chatglm",
        "num_layers": layers,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "multi_query_attention": True,
        "multi_query_group_num": 2,
        "kv_channels": 128,
        "ffn_hidden_size": 13696,
        "padded_vocab_size": vocab,
        "add_qkv_bias": True,
    }


def ling(layers, hidden, heads, kv_heads, ffn, width, leading):
    """Ling 2.0: 256 experts, eight of them for a token, and one that is always on."""
    return shape(
        "bailing_moe",
        layers,
        hidden,
        heads,
        kv_heads,
        ffn,
        157184,
        head_dim=128,
        num_experts=256,
        num_experts_per_tok=8,
        num_shared_experts=1,
        moe_intermediate_size=width,
        first_k_dense_replace=leading,
        use_qk_norm=True,
        moe_router_enable_expert_bias=True,
        n_group=8,
    )


EXACT = {
    "deepseek-moe-16b": (
        shape(
            "deepseek",
            28,
            2048,
            16,
            16,
            10944,
            102400,
            n_routed_experts=64,
            num_experts_per_tok=6,
            n_shared_experts=2,
            moe_intermediate_size=1408,
            first_k_dense_replace=1,
            moe_layer_freq=1,
        ),
        16_375_728_128,
    ),
    "qwen-1.8b": (qwen(24, 2048, 16, 11008), 1_836_828_672),
    "qwen-7b": (qwen(32, 4096, 32, 22016), 7_721_324_544),
    "qwen-14b": (qwen(40, 5120, 40, 27392, 152064), 14_167_290_880),
    "qwen-72b": (qwen(80, 8192, 64, 49152, 152064), 72_287_920_128),
    "baichuan-7b": (
        shape("baichuan", 32, 4096, 32, 32, 11008, 64000, max_position_embeddings=4096),
        7_000_559_616,
    ),
    "baichuan-13b": (
        shape("baichuan", 40, 5120, 40, 40, 13696, 64000, model_max_length=4096),
        13_264_901_120,
    ),
    "baichuan-2-7b": (
        shape("baichuan", 32, 4096, 32, 32, 11008, 125696, max_position_embeddings=4096),
        7_505_973_248,
    ),
    "baichuan-2-13b": (
        shape("baichuan", 40, 5120, 40, 40, 13696, 125696, model_max_length=4096),
        13_896_668_160,
    ),
    "chatglm3-6b": (chatglm(28, 65024), 6_243_584_000),
    "glm-4-9b-of-2024": (chatglm(40, 151552), 9_399_951_360),
    "ling-lite": (
        shape(
            "bailing_moe",
            28,
            2048,
            16,
            4,
            1408,
            126464,
            num_experts=64,
            num_experts_per_tok=6,
            num_shared_experts=2,
            moe_intermediate_size=1408,
            first_k_dense_replace=0,
        ),
        16_801_974_272,
    ),
    "ling-mini-2.0": (ling(20, 2048, 16, 4, 5120, 512, 1), 16_255_643_392),
    "exaone-3-7.8b": (
        {
            "model_type": "exaone",
            "num_layers": 32,
            "hidden_size": 4096,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "intermediate_size": 14336,
            "vocab_size": 102400,
        },
        7_818_448_896,
    ),
    "yi-34b": (shape("Yi", 60, 7168, 56, 8, 20480, 64000), 34_388_917_248),
    "minicpm-2b": (shape("minicpm", 40, 2304, 36, 36, 5760, 122753), 2_724_880_896),
    "stablelm-3b-4e1t": (shape("stablelm_epoch", 32, 2560, 32, 32, 6912, 50304), 2_795_443_200),
}

ROUNDED = {
    "ling-plus": (
        shape(
            "bailing_moe",
            88,
            5376,
            64,
            8,
            12288,
            126464,
            num_experts=64,
            num_experts_per_tok=4,
            num_shared_experts=1,
            moe_intermediate_size=3072,
        ),
        2.9e11,
        0.002,
    ),
    "ling-flash-2.0": (ling(32, 4096, 32, 4, 9216, 1024, 1), 1.03e11, 0.002),
    "ling-1t": (ling(80, 8192, 64, 8, 18432, 2048, 4), 1e12, 0.001),
    "internlm-20b": (shape("internlm", 60, 5120, 40, 40, 13824, 103168, bias=False), 2e10, 0.005),
    "jais-13b": (
        {
            "model_type": "jais",
            "n_layer": 40,
            "n_embd": 5120,
            "n_head": 40,
            "n_inner": 13653,
            "n_positions": 2048,
            "vocab_size": 84992,
            "position_embedding_type": "alibi",
            "activation_function": "swiglu",
        },
        1.3e10,
        0.002,
    ),
}
