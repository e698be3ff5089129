"""Keys of a config.json that its family does not read: an error where they change the model, else a note."""

import json

import pytest

from railwright.errors import SpecError
from railwright.model import bundled_models, load_model, parse_config

LLAMA = {
    # Llama 3.1 8B as its makers wrote it (meta-llama/Llama-3.1-8B, config.json)
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": [128001, 128008, 128009],
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.43.0",
    "use_cache": True,
    "vocab_size": 128256,
}
QWEN = {
    # Qwen2.5 7B: a window that is switched off
    **{k: v for k, v in LLAMA.items() if k not in ("rope_scaling", "mlp_bias", "pretraining_tp")},
    "model_type": "qwen2",
    "max_window_layers": 28,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "use_mrope": False,
    "auto_map": {"AutoModelForCausalLM": "modeling.Model"},
}
QWEN_MOE = {
    # Qwen3 30B A3B, with transformers' own extras
    **LLAMA,
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "output_router_logits": False,
    "router_aux_loss_coef": 0.001,
    "shared_expert_intermediate_size": 0,
}
DEEPSEEK = {
    # DeepSeek V3, but for what its weights are stored in
    **{k: v for k, v in LLAMA.items() if k not in ("mlp_bias", "pretraining_tp", "rope_scaling")},
    "model_type": "deepseek_v3",
    "aux_loss_alpha": 0.001,
    "ep_size": 1,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 32,
    "num_nextn_predict_layers": 1,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sigmoid",
    "seq_aux": True,
    "topk_group": 4,
    "topk_method": "noaux_tc",
    "v_head_dim": 128,
}


def read(base=LLAMA, **changed):
    config = {k: v for k, v in {**base, **changed}.items() if v != "absent"}
    return parse_config(json.dumps(config), "config.json", "mine")


def refused(base=LLAMA, **changed):
    with pytest.raises(SpecError) as caught:
        read(base, **changed)
    (mistake,) = caught.value.mistakes
    return mistake


@pytest.mark.parametrize("config", [LLAMA, QWEN, QWEN_MOE, DEEPSEEK])
def test_keys_that_say_nothing_about_shapes_are_passed_over(config):
    assert read(config).notes == ()


@pytest.mark.parametrize("name", bundled_models())
def test_bundled_models_have_no_notes(name):
    assert load_model(name).notes == ()


@pytest.mark.parametrize("key", ["num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"])
def test_experts_in_a_dense_family_are_refused(key):
    mistake = refused(**{key: 8})
    assert mistake.field == key
    assert "8 means routed experts, which model_type 'llama' does not read" in mistake.message


@pytest.mark.parametrize("value", [0, 1, None])
def test_no_experts_are_none(value):
    assert read(num_experts=value) == read()


def test_layers_that_are_all_dense_have_no_experts():
    assert not read(QWEN_MOE, mlp_only_layers=list(range(32))).is_moe


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("n_routed_experts", 64, "routed experts"),
        ("moe_topk", 6, "experts that a token visits"),
        ("n_shared_experts", 2, "shared experts"),
    ],
)
def test_experts_that_another_key_contradicts_are_refused(key, value, says):
    assert says in refused(QWEN_MOE, **{key: value}).message


def test_two_keys_that_agree_are_one():
    assert read(QWEN_MOE, num_local_experts=128).experts == 128


def test_latent_attention_in_a_family_without_is_refused_with_the_families_that_have_it():
    mistake = refused(kv_lora_rank=512)
    assert "latent attention" in mistake.message
    assert "nearest to those of deepseek_v3" in mistake.message


def test_a_missing_key_that_stands_there_misspelt_is_one_mistake():
    mistake = refused(hidden_size="absent", hiden_size=4096)
    assert (mistake.field, "the file has 'hiden_size'" in mistake.message) == ("hidden_size", True)


def test_a_misspelt_key_whose_right_name_may_be_missing_is_refused():
    mistake = refused(num_key_value_heads="absent", num_key_valu_heads=8)
    assert mistake.field == "num_key_valu_heads"
    assert "did you mean 'num_key_value_heads'" in mistake.message


def test_weights_stored_otherwise_are_noted():
    (note,) = read(quantization_config={"quant_method": "awq", "bits": 4}).notes
    assert note.startswith("quantization_config (weights stored by 'awq') is not read")


def test_weights_of_a_multimodal_model_stored_otherwise_are_noted():
    config = {"model_type": "llava", "text_config": LLAMA, "quantization_config": {"quant_method": "fp8"}}
    (note,) = parse_config(json.dumps(config), "config.json", "mine").notes
    assert "'fp8'" in note


def test_a_model_that_gives_a_score_is_noted_to_have_no_head():
    (note,) = read(architectures=["LlamaForSequenceClassification"]).notes
    assert note.startswith("architectures: 'LlamaForSequenceClassification' has no LM head")
    assert read(architectures=[["LlamaForCausalLM"], 7]).notes == ()


@pytest.mark.parametrize("name", ["MistralModel", "DFlashDraftModel"])
def test_a_model_that_gives_vectors_is_noted_to_have_no_head(name):
    (note,) = read(architectures=[name]).notes
    assert note.startswith(f"architectures: '{name}' has no LM head")
    assert read(architectures=["GPT2LMHeadModel"]).notes == read(architectures=["ChatGLMModel"]).notes == ()


def test_an_activation_that_nobody_knows_is_noted_with_the_nearest():
    (note,) = read(hidden_act="sillu").notes
    assert note.startswith("hidden_act: 'sillu' is no activation that we know; did you mean 'silu'")


def test_the_activation_of_a_model_with_mamba_layers_is_read_too():
    (note,) = read({**LLAMA, "mlp_hidden_act": "rellu2"}).notes
    assert note.startswith("mlp_hidden_act: 'rellu2' is no activation that we know; did you mean 'relu2'")


def test_a_misspelt_word_that_chooses_a_kernel_or_a_tensor_is_noted():
    # YaRN's positions have a kernel of their own, noaux_tc is a bias of the router.
    (note,) = read(rope_scaling={"factor": 8.0, "rope_type": "yarm"}).notes
    assert note.startswith("rope_scaling.rope_type: 'yarm' is read as none of default, ")
    assert note.endswith("; did you mean 'yarn'?")
    (note,) = read(DEEPSEEK, topk_method="noaux_ct").notes
    assert note.startswith("topk_method: 'noaux_ct' is read as none of greedy, ")
    (note,) = read(rope_parameters={"full_attention": {"rope_type": "yarnn"}}).notes
    assert note.startswith("rope_parameters.full_attention.rope_type: 'yarnn'")


@pytest.mark.parametrize("kind", ["su", "proportional", "llama3", "default"])
def test_words_of_others_are_no_misspelt_ones(kind):
    assert read(rope_scaling={"factor": 8.0, "rope_type": kind}).notes == ()


def test_a_window_in_a_family_without_is_noted():
    (note,) = read(sliding_window=4096).notes
    assert note == "sliding_window: 4096 is not read: 'llama' has no windows."


@pytest.mark.parametrize("key", ["num_nextn_predict_layers", "num_mtp_modules"])
def test_extra_layers_of_a_family_without_are_noted(key):
    (note,) = read(**{key: 3}).notes
    assert note.startswith(f"{key}: 3 is not read: extra layers of multi-token prediction are left out")
    assert read(**{key: 3, "use_mtp": False}).notes == ()
