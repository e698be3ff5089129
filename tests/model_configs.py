"""Small configs of Hugging Face's kind, and the models they are read as."""

import json
from pathlib import Path

from railwright.model import layer_activations, parse_config

ROWS = json.loads((Path(__file__).parent / "data" / "model_families.json").read_text())["rows"]
"""What transformers counted of small configs of each family (tests/oracle/test_model_transformers.py)."""

GOOD = {
    "model_type": "mixtral",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
"""What a file says that is wrong in nothing."""

SMALL = {
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
QWEN = {
    **SMALL,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
LLAMA4 = {
    **SMALL,
    "model_type": "llama4_text",
    "num_local_experts": 8,
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 1024,
}
ERNIE = {**SMALL, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 64}
DEEPSEEK = {
    **SMALL,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def read(config):
    return parse_config(json.dumps(config), "config.json", "model")


def saved(folder, **changes):
    """GOOD as a file of a folder, with other values of some keys; without those that are 'absent'."""
    config = {k: v for k, v in {**GOOD, **changes}.items() if v != "absent"}
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def kept_bytes(*layer, **how):
    """All that `layer_activations` says a layer keeps. [byte]"""
    return sum(layer_activations(*layer, **how).values())
