"""Keys that speak of layers and that a family does not read: mistakes where they change them, else notes.

The keys are those of published files: Kimi K3 is saved under kimi_linear, MiniMax-M3 has keys like Granite's.
"""

import json

import pytest

from model_configs import DEEPSEEK, GOOD, QWEN, SMALL, read
from railwright.errors import SpecError
from railwright.model import parse_config

LLAMA = {**SMALL, "model_type": "llama"}
KIMI = {
    **SMALL,
    "model_type": "kimi_linear",
    "num_key_value_heads": 8,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 64,
    "linear_attn_config": {"num_heads": 8, "head_dim": 32, "full_attn_layers": [4, 8]},
}
KIMI_K3 = {
    # moonshotai/Kimi-K3, config.json: what its text_config has that Kimi Linear's had not
    "activation_situ_beta": 4.0,
    "attn_res_block_size": 12,
    "latent_moe_use_norm": True,
    "mla_use_nope": True,
    "mla_use_output_gate": True,
    "moe_router_activation_func": "sigmoid",
    "num_expert_group": 1,
    "routed_expert_hidden_size": 128,
    "use_grouped_topk": True,
}
NOTED = "these figures are of another model"


def mistakes(config, **changed):
    with pytest.raises(SpecError) as caught:
        read({**config, **changed})
    return {mistake.field: mistake.message for mistake in caught.value.mistakes}


def noted(config, **changed):
    return [note for note in read({**config, **changed}).notes if NOTED in note]


def test_kimi_linear_itself_is_read_without_a_word():
    assert read(KIMI).notes == ()


def test_kimi_k3_is_not_taken_for_a_kimi_linear_of_twice_its_size():
    found = mistakes(KIMI, **KIMI_K3)
    assert set(found) == {"attn_res_block_size", "mla_use_output_gate", "routed_expert_hidden_size"}
    assert "experts that work on latents" in found["routed_expert_hidden_size"]


def test_a_file_of_kimi_k3_is_refused_with_what_its_layers_are():
    whole = {"model_type": "kimi_k3", "text_config": {**KIMI, **KIMI_K3}}
    with pytest.raises(SpecError, match="'kimi_k3' attends to what earlier layers added"):
        parse_config(json.dumps(whole), "config.json", "k3")


def test_gates_of_whole_matrices_in_kimi_delta_attention_are_refused():
    linear = {**KIMI["linear_attn_config"], "use_full_rank_gate": True}
    assert "linear_attn_config.use_full_rank_gate" in mistakes(KIMI, linear_attn_config=linear)


SPARSE = {"use_sparse_attention": True, "sparse_topk_blocks": 16, "sparse_block_size": 128}


def test_minimax_m3_is_not_taken_for_granite_with_experts():
    # MiniMaxAI/MiniMax-M3, config.json, as its keys are told to be nearest to those of granitemoe
    config = {**GOOD, "model_type": "granitemoe", "shared_intermediate_size": 512}
    dense = {"first_k_dense_replace": 3, "moe_layer_freq": [0, 0, 0, 1]}
    found = mistakes(config, sparse_attention_config=SPARSE, **dense)
    assert "a few blocks of keys" in found["sparse_attention_config"]
    assert "leading layers without experts" in found["first_k_dense_replace"]
    assert "experts in some layers only" in found["moe_layer_freq"]
    off = read({**config, "sparse_attention_config": {"use_sparse_attention": False}})
    assert off.notes == ()


@pytest.mark.parametrize("kind", ["kimi_k3", "longcat_flash_ngram", "minimax_m3"])
def test_models_of_2026_with_other_layers_are_refused_by_name(kind):
    assert "which is not modelled" in mistakes(LLAMA, model_type=kind)["model_type"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hc_mult", 4),
        ("compress_ratios", [0, 0, 4, 128]),
        ("o_lora_rank", 64),
        ("num_kv_shared_layers", 4),
        ("hidden_size_per_layer_input", 256),
        ("zero_expert_num", 8),
        ("moe_latent_size", 64),
        ("attn_output_gate", True),
    ],
)
def test_what_surely_changes_layers_is_refused_under_any_family(key, value):
    for config in (LLAMA, QWEN, DEEPSEEK):
        assert key in mistakes(config, **{key: value})
    for off in (0, None, False, []):
        assert read({**LLAMA, key: off}).notes == ()


@pytest.mark.parametrize("key", ["first_k_dense_replace", "num_dense_layers", "decoder_sparse_step"])
def test_which_layers_hold_experts_is_refused_where_it_is_not_read(key):
    assert key in mistakes(GOOD, **{key: 2})
    assert read({**LLAMA, key: 2}).notes == ()  # a dense model has no such layers


def test_experts_in_every_other_layer_behind_a_dense_one_are_refused_where_it_is_not_read():
    assert "moe_layer_freq" in mistakes(KIMI, moe_layer_freq=2)
    assert read({**KIMI, "moe_layer_freq": 1}).notes == ()


def test_leading_dense_layers_said_twice_are_no_mistake():
    assert read({**DEEPSEEK, "first_k_dense_replace": 2, "num_dense_layers": 2}).dense_layers == 2


def test_a_key_that_speaks_of_layers_and_that_nobody_knows_is_noted():
    (note,) = noted(LLAMA, dual_chunk_attention_config={"chunk_size": 262144}, mamba_expand=2)
    assert note.startswith("dual_chunk_attention_config: an object, mamba_expand: 2 are not read: 'llama' ")
    (note,) = noted(LLAMA, block_types=["recurrent", "attention"])
    assert note.startswith("block_types: a list is not read")


@pytest.mark.parametrize(
    "said",
    [
        {"attention_dropout": 0.1, "rms_norm_eps": 1e-6, "pretraining_tp": 2, "num_beams": 4},
        {"router_aux_loss_coef": 1, "moe_router_dtype": "float32", "use_flash_attention": True},
        {"layer_types": ["full_attention"] * 8, "use_rmsnorm": True, "attention_head_dim": 32},
        {"embd_layer": {"embedding_cls": "tokens"}, "moe_expert_parallel_size": 8},
        {"head_foo": False, "gate_bar": 0, "expert_baz": [], "layer_qux": None, "kv_quux": 1},
    ],
)
def test_keys_that_carry_no_weight_are_passed_over(said):
    assert noted(LLAMA, **said) == []


def test_another_family_s_name_for_heads_is_noted_where_it_would_change_them():
    # without a word, a model with 8 heads of keys for 32 of queries would be one with 32
    assert len(noted({**LLAMA, "num_key_value_heads": None}, num_kv_heads=2)) == 1
    assert noted(LLAMA, num_kv_heads=2, attention_head_dim=32) == []
    assert len(noted(LLAMA, attention_head_dim=64)) == 1


HUNYUAN = {
    # Hunyuan-A13B says for every layer what its class takes from other keys
    **SMALL,
    "head_dim": 32,
    "attention_head_dim": 32,
    "model_type": "hunyuan_v1_moe",
    "num_experts": 8,
    "moe_topk": [2] * 8,
    "num_shared_expert": [1] * 8,
    "moe_intermediate_size": [512] * 8,
    "use_mixed_mlp_moe": True,
}


def test_lists_that_say_for_every_layer_what_another_key_says_are_checked():
    assert read(HUNYUAN).notes == ()
    assert set(mistakes(HUNYUAN, num_shared_expert=[2] * 8)) == {"num_shared_expert"}
    assert set(mistakes(HUNYUAN, moe_intermediate_size=[64] * 8)) == {"moe_intermediate_size"}
    assert set(mistakes(HUNYUAN, moe_intermediate_size=[512] * 7 + [64])) == {"moe_intermediate_size"}


def test_norms_that_the_family_has_anyway_are_not_noted():
    assert noted(QWEN, use_qk_norm=True) == []
    assert len(noted(LLAMA, use_qk_norm=True)) == 1


def test_words_for_fewer_layers_than_nemotron_has_are_refused():
    # transformers 5 counts the words and passes num_hidden_layers over, whatever it says
    words = ["mamba", "moe", "attention", "moe"]
    config = {
        **SMALL,
        "model_type": "nemotron_h",
        "layers_block_type": words,
        "mamba_num_heads": 8,
        "mamba_head_dim": 32,
        "n_groups": 2,
        "ssm_state_size": 16,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
        "moe_shared_expert_intermediate_size": 64,
    }
    assert read({**config, "num_hidden_layers": 4}).layers == 4
    found = mistakes(config, num_hidden_layers=52)
    assert found == {"num_hidden_layers": "52 layers, but layers_block_type has 4 of them."}


@pytest.mark.parametrize("positions", ["alibi", ["rope"], {}])
def test_positions_that_granite_has_not_are_refused(positions):
    config = {**SMALL, "model_type": "granitemoehybrid", "num_local_experts": 0}
    attention = {"layer_types": ["attention"] * 8, "shared_intermediate_size": 512}
    assert read({**config, **attention, "position_embedding_type": "rope"}).rotary
    assert "position_embedding_type" in mistakes(config, position_embedding_type=positions, **attention)
