"""Checkpoints of families with a class in transformers: their config's shapes and their published parameters.

The figures are safetensors totals of the Hugging Face model pages, the shapes those of the config.json beside
them, both from memory; that as many digits meet is the check.
"""

from __future__ import annotations


def shape(kind, layers, hidden, heads, kv_heads, ffn, vocab, **more):
    """Hugging Face's usual keys."""
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        **more,
    }


def neo(layers, hidden, heads):
    """GPT-Neo's keys; every other layer has a window."""
    pattern = [[["global", "local"], layers // 2]]
    names = {"num_layers": layers, "hidden_size": hidden, "num_heads": heads, "attention_types": pattern}
    return {"model_type": "gpt_neo", "vocab_size": 50257, "max_position_embeddings": 2048, **names}


EXACT = {
    "grok-2": (
        shape("git", 64, 8192, 64, 8, 32768, 131072, head_dim=128, moe_intermediate_size=16384)
        | {"num_local_experts": 8, "num_experts_per_tok": 2, "residual_moe": True},
        269_515_497_472,
    ),
    "gpt-j-6b": (
        {
            "model_type": "gptj",
            "n_layer": 28,
            "n_embd": 4096,
            "n_head": 16,
            "n_positions": 2048,
            "vocab_size": 50400,
        },
        6_050_882_784,
    ),
    "codegen-16b": (
        {
            "model_type": "codegen",
            "n_layer": 34,
            "n_embd": 6144,
            "n_head": 24,
            "n_positions": 2048,
            "vocab_size": 51200,
        },
        16_032_155_648,
    ),
    "gpt-neo-125m": (neo(12, 768, 12), 125_198_592),
    "gpt-neo-1.3b": (neo(24, 2048, 16), 1_315_575_808),
    "gpt-neo-2.7b": (neo(32, 2560, 20), 2_651_307_520),
    "olmo-7b": (shape("olmo", 32, 4096, 32, 32, 11008, 50304), 6_888_095_744),
    "olmo-1b": (shape("olmo", 16, 2048, 16, 16, 8192, 50304, tie_word_embeddings=True), 1_176_764_416),
    "xglm-7.5b": (
        {
            "model_type": "xglm",
            "num_layers": 32,
            "d_model": 4096,
            "attention_heads": 32,
            "ffn_dim": 16384,
            "vocab_size": 256008,
        },
        7_492_771_840,
    ),
    "biogpt": (
        shape("biogpt", 24, 1024, 16, 16, 4096, 42384, max_position_embeddings=1024),
        346_763_264,
    ),
    "minicpm3-4b": (
        shape(
            "minicpm3",
            62,
            2560,
            40,
            40,
            6400,
            73448,
            q_lora_rank=768,
            kv_lora_rank=256,
            qk_nope_head_dim=64,
            qk_rope_head_dim=32,
        ),
        4_073_875_968,
    ),
    "vaultgemma-1b": (
        shape("vaultgemma", 26, 1152, 4, 4, 6912, 256000, head_dim=256, sliding_window=512),
        1_038_741_120,
    ),
    "bloom-176b": (
        {"model_type": "bloom", "n_layer": 70, "n_embed": 14336, "n_head": 112, "vocab_size": 250880},
        176_247_271_424,
    ),
    "mpt-7b": (
        {"model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "vocab_size": 50432},
        6_649_286_656,
    ),
    "internlm2-20b": (shape("internlm2", 48, 6144, 48, 8, 16384, 92544, bias=False), 19_861_149_696),
    "olmo-2-32b": (shape("olmo2", 64, 5120, 40, 8, 27648, 100352), 32_234_279_936),
    "olmo-3-7b": (shape("olmo3", 32, 4096, 32, 32, 11008, 100278), 7_298_011_136),
    "phi-3-mini": (shape("phi3", 32, 3072, 32, 32, 8192, 32064), 3_821_079_552),
    "phi-3.5-moe": (
        shape(
            "phimoe",
            32,
            4096,
            32,
            8,
            6400,
            32064,
            num_local_experts=16,
            num_experts_per_tok=2,
            attention_bias=True,
            lm_head_bias=True,
        ),
        41_873_153_344,
    ),
    "command-r": (shape("cohere", 40, 8192, 64, 64, 22528, 256000), 34_980_831_232),
    "command-r-plus": (shape("cohere", 64, 12288, 96, 8, 33792, 256000, use_qk_norm=True), 103_810_674_688),
    "command-a": (shape("cohere2", 64, 12288, 96, 8, 36864, 256000, sliding_window=4096), 111_057_580_032),
    "starcoder2-15b": (
        shape("starcoder2", 40, 6144, 48, 4, 24576, 49152, tie_word_embeddings=False),
        15_957_889_024,
    ),
    "starcoder2-3b": (shape("starcoder2", 30, 3072, 24, 2, 12288, 49152), 3_030_371_328),
    "smollm3": (shape("smollm3", 36, 2048, 16, 4, 11008, 128256), 3_075_098_624),
    "olmoe": (
        shape("olmoe", 16, 2048, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8),
        6_919_161_856,
    ),
    "seed-oss": (
        shape("seed_oss", 64, 5120, 80, 8, 27648, 155136, head_dim=128, attention_bias=True),
        36_151_104_512,
    ),
    "dots1": (
        shape(
            "dots1",
            62,
            4096,
            32,
            32,
            10944,
            152064,
            n_routed_experts=128,
            num_experts_per_tok=6,
            n_shared_experts=2,
            first_k_dense_replace=1,
            moe_intermediate_size=1408,
            sliding_window=None,
        ),
        142_774_381_696,
    ),
    "ernie-21b": (
        shape(
            "ernie4_5_moe",
            28,
            2560,
            20,
            4,
            12288,
            103424,
            moe_num_experts=64,
            moe_k=6,
            moe_intermediate_size=1536,
            moe_num_shared_experts=2,
            moe_layer_start_index=1,
            moe_layer_interval=1,
        ),
        21_825_437_888,
    ),
    "ernie-0.3b": (shape("ernie4_5", 18, 1024, 16, 2, 3072, 103424, head_dim=128), 360_748_032),
    "hunyuan-a13b": (
        shape(
            "hunyuan_v1_moe",
            32,
            4096,
            32,
            8,
            3072,
            128167,
            head_dim=128,
            num_experts=64,
            moe_topk=[8] * 32,
            tie_word_embeddings=True,
        ),
        80_393_183_232,
    ),
    # the checkpoint has a copy of the embedding, 65024 x 4544, as its head
    "falcon-7b": (
        {
            "model_type": "falcon",
            "num_hidden_layers": 32,
            "hidden_size": 4544,
            "num_attention_heads": 71,
            "vocab_size": 65024,
            "new_decoder_architecture": False,
            "multi_query": True,
            "parallel_attn": True,
            "bias": False,
            "alibi": False,
        },
        7_217_189_760 - 65024 * 4544,
    ),
    "granite-4.0-micro": (
        shape(
            "granitemoehybrid",
            40,
            2560,
            40,
            8,
            8192,
            100352,
            layer_types=["attention"] * 40,
            num_local_experts=0,
            num_experts_per_tok=0,
            shared_intermediate_size=8192,
            tie_word_embeddings=True,
        ),
        3_402_836_480,
    ),
    "gpt-neox-20b": (shape("gpt_neox", 44, 6144, 64, 64, 24576, 50432), 20_554_567_680),
    "mistral-small-24b": (
        shape("mistral", 40, 5120, 32, 8, 32768, 131072, head_dim=128, sliding_window=None),
        23_572_403_200,
    ),
    "dbrx": (
        {
            "model_type": "dbrx",
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "vocab_size": 100352,
            "max_seq_len": 32768,
            "attn_config": {"kv_n_heads": 8},
            "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
        },
        131_596_523_520,
    ),
    "glm-4-9b": (
        shape("glm4", 40, 4096, 32, 2, 13696, 151552, attention_bias=True, head_dim=128),
        9_400_279_040,
    ),
    "stablelm-2-1.6b": (shape("stablelm", 24, 2048, 32, 32, 5632, 100352, use_qkv_bias=True), 1_644_515_328),
    "stablelm-2-12b": (
        shape("stablelm", 40, 5120, 32, 8, 13824, 100352, use_parallel_residual=True, qk_layernorm=True),
        12_143_185_920,
    ),
    "phi-2": (shape("phi", 32, 2560, 32, 32, 10240, 51200), 2_779_683_840),
    "opt-30b": (
        {
            "model_type": "opt",
            "num_hidden_layers": 48,
            "hidden_size": 7168,
            "num_attention_heads": 56,
            "ffn_dim": 28672,
            "vocab_size": 50272,
            "max_position_embeddings": 2048,
        },
        29_974_540_288,
    ),
    "starcoder": (
        {
            "model_type": "gpt_bigcode",
            "n_layer": 40,
            "n_embd": 6144,
            "n_head": 48,
            "n_inner": 24576,
            "n_positions": 8192,
            "vocab_size": 49152,
        },
        15_517_456_384,
    ),
    "gemma-3-1b": (
        shape("gemma3_text", 26, 1152, 4, 1, 6912, 262144, head_dim=256, sliding_window=512),
        999_885_952,
    ),
    "internlm3-8b": (
        shape("internlm3", 48, 4096, 32, 2, 10240, 128512, head_dim=128, bias=False, qkv_bias=False),
        8_804_241_408,
    ),
    "qwen3-vl-235b": (
        shape(
            "qwen3_vl_moe_text",
            94,
            4096,
            64,
            4,
            12288,
            151936,
            head_dim=128,
            num_experts=128,
            num_experts_per_tok=8,
            moe_intermediate_size=1536,
        ),
        235_093_634_560,
    ),
}
