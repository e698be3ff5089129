"""Configs whose layers are not all attention: what is wrong with one is said once, by key and reason."""

import json

import pytest

from railwright.errors import PlanError, SpecError
from railwright.model import Cut, layer_operators, load_model, parse_config

SIZES = {
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 320,
    "vocab_size": 1000,
}
NEMOTRON = SIZES | {
    "model_type": "nemotron_h",
    "head_dim": 32,
    "mamba_num_heads": 16,
    "mamba_head_dim": 32,
    "n_groups": 4,
    "ssm_state_size": 64,
    "hybrid_override_pattern": "M-M*",
}
EXPERTS = {
    "hybrid_override_pattern": "MEM*",
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "moe_shared_expert_intermediate_size": 96,
}
LATENT = NEMOTRON | EXPERTS | {"moe_latent_size": 64}
QWEN = SIZES | {
    "model_type": "qwen3_next",
    "num_hidden_layers": 4,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
BAMBA = SIZES | {"model_type": "bamba", "num_hidden_layers": 4, "mamba_n_heads": 16}
GRANITE = BAMBA | {"model_type": "granitemoehybrid", "num_local_experts": 4, "num_experts_per_tok": 2}
MINIMAX = SIZES | {
    "model_type": "minimax_text_01",
    "num_hidden_layers": 4,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "attn_type_list": [0, 0, 0, 1],
}
KIMI = SIZES | {
    "model_type": "kimi_linear",
    "num_hidden_layers": 4,
    "kv_lora_rank": 64,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 48,
    "v_head_dim": 32,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 64,
    "linear_attn_config": {"num_heads": 4, "head_dim": 32, "full_attn_layers": [4]},
}


def read(config):
    return parse_config(json.dumps(config), "config.json", "mine")


GOOD = [NEMOTRON, NEMOTRON | EXPERTS, LATENT, QWEN, BAMBA, GRANITE, MINIMAX, KIMI]


@pytest.mark.parametrize("config", GOOD)
def test_the_good_ones_are_good(config):
    assert read(config).linear is not None


@pytest.mark.parametrize(
    ("config", "field"),
    [
        (NEMOTRON | {"hybrid_override_pattern": "M-R*"}, "hybrid_override_pattern"),
        (NEMOTRON | {"hybrid_override_pattern": ""}, "hybrid_override_pattern"),
        (NEMOTRON | {"hybrid_override_pattern": ["M", "-"]}, "hybrid_override_pattern"),
        (NEMOTRON | {"num_hidden_layers": 5}, "num_hidden_layers"),
        (NEMOTRON | {"hybrid_override_pattern": None}, "layers_block_type"),
        (NEMOTRON | {"hybrid_override_pattern": None, "layer_types": ["mamba", "rwkv"]}, "layer_types"),
        (NEMOTRON | {"hybrid_override_pattern": None, "layers_block_type": [["mamba"]]}, "layers_block_type"),
        (NEMOTRON | {"use_bias": True}, "use_bias"),
        (NEMOTRON | {"mamba_num_heads": 0}, "mamba_num_heads"),
        (NEMOTRON | {"n_groups": 3}, "n_groups"),
        (NEMOTRON | EXPERTS | {"moe_latent_size": "64"}, "moe_latent_size"),
        (NEMOTRON | EXPERTS | {"mtp_hybrid_override_pattern": "ME"}, "mtp_hybrid_override_pattern"),
        (NEMOTRON | EXPERTS | {"mtp_layers_block_type": ["mamba", "moe"]}, "mtp_layers_block_type"),
        (NEMOTRON | EXPERTS | {"mtp_layers_block_type": "*E"}, "mtp_layers_block_type"),
        (NEMOTRON | EXPERTS | {"n_routed_experts": None}, "n_routed_experts"),
        (QWEN | {"layer_types": ["full_attention"] * 3}, "layer_types"),
        (QWEN | {"layer_types": ["mamba"] * 4}, "layer_types"),
        (QWEN | {"linear_num_key_heads": 5}, "linear_num_key_heads"),
        (QWEN | {"attention_bias": True}, "attention_bias"),
        (BAMBA | {"mamba_n_heads": 24}, "mamba_n_heads"),
        (BAMBA | {"mamba_proj_bias": True}, "mamba_proj_bias"),
        (BAMBA | {"attn_layer_indices": "2"}, "attn_layer_indices"),
        (GRANITE | {"layer_types": ["mamba"] * 3}, "layer_types"),
        (MINIMAX | {"attn_type_list": [0, 1]}, "attn_type_list"),
        (MINIMAX | {"attn_type_list": [0, 0, 0, 2]}, "attn_type_list"),
        (MINIMAX | {"attn_type_list": [0, 0, 0, [1]]}, "attn_type_list"),
        (MINIMAX | {"attn_type_list": 7}, "attn_type_list"),
        (MINIMAX | {"shared_intermediate_size": 64}, "shared_intermediate_size"),
        (KIMI | {"linear_attn_config": [4]}, "linear_attn_config"),
        (KIMI | {"kv_lora_rank": None}, "kv_lora_rank"),
        (KIMI | {"layer_types": ["linear_attention"] * 3}, "layer_types"),
        (GRANITE | {"layer_types": ["mamba", "attention", "sliding_attention", "mamba"]}, "layer_types"),
    ],
)
def test_what_is_wrong_is_said_once(config, field):
    with pytest.raises(SpecError) as caught:
        read(config)
    assert [mistake.field for mistake in caught.value.mistakes] == [field]


def test_tensor_parallelism_wants_whole_heads_and_whole_groups():
    arch = read(NEMOTRON)
    with pytest.raises(PlanError, match=r"tensor parallel 8 does not divide the 4 heads of keys.*: 1, 2, 4"):
        layer_operators(arch, "linear", 8, 8, Cut(tp=8))


@pytest.mark.parametrize("config", [MINIMAX, KIMI])
def test_linear_attention_is_cut_over_no_tensor_ranks(config):
    with pytest.raises(PlanError, match=r"tensor parallel 2 cannot cut the linear layers.*; use 1, with"):
        layer_operators(read(config), "linear moe", 8, 8, Cut(tp=2))


def test_a_layer_that_a_model_does_not_have_is_refused():
    with pytest.raises(PlanError, match="no layers with a linear mixer"):
        layer_operators(load_model("llama-3.1-8b"), "linear", 8, 8)


def test_extra_layers_of_attention_and_experts_may_be_said_in_words():
    said = {"num_nextn_predict_layers": 1, "mtp_layers_block_type": ["full_attention", "moe"]}
    assert read(NEMOTRON | EXPERTS | said).mtp_layers == 1
