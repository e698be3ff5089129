"""Models with layers that are not modelled: each is refused by the key that says so."""

from functools import partial

import pytest

from model_configs import GOOD, saved
from railwright.errors import SpecError
from railwright.model import load_model


@pytest.fixture
def save(tmp_path):
    return partial(saved, tmp_path)


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "zamba2", "hybrid_override_pattern": "M-M*"},
        {"model_type": "jamba"},
        {"model_type": "lfm2"},
        {"model_type": "falcon_h1"},
        {"model_type": "recurrent_gemma"},
        {"model_type": "bailing_moe_linear"},
        {"model_type": "my-own", "hybrid_override_pattern": "M*"},
    ],
)
def test_a_hybrid_is_no_transformer_with_a_few_layers_less(save, config):
    with pytest.raises(SpecError, match="mixes attention with state-space, recurrent or linear-attention"):
        load_model(save(**config))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("deepseek_v4", "sparse attention"),
        ("minimax_m3_vl_text", "sparse attention"),
        ("jetmoe", "routes its attention heads"),
        ("gemma3n", "embeddings in every layer"),
        ("axk2", "sparse attention"),
        ("openelm", "another MLP in every layer"),
        ("ernie4_5_moe_vl", "experts of two widths"),
        ("deci", "other key-value heads"),
        ("bitnet", "weights of three values"),
        ("ctrl", "a bias on an LM head that is tied"),
    ],
)
def test_a_decoder_with_something_else_in_its_layers_says_what(save, kind, says):
    with pytest.raises(SpecError, match="which is not modelled") as caught:
        load_model(save(model_type=kind))
    assert says in str(caught.value)
    assert len(caught.value.mistakes) == 1


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("index_topk", 2048, "sparse attention"),
        ("attn_type_list", [0, 0, 0, 1], "linear attention"),
        ("is_encoder_decoder", True, "has an encoder"),
        ("is_causal", False, "attends to later tokens too"),
        ("add_cross_attention", True, "an encoder's outputs"),
        ("layer_types", ["full_attention", "linear_attention"] * 2, "layers of other kinds"),
    ],
)
def test_what_another_model_types_name_would_hide_is_refused_by_its_key(save, key, value, says):
    with pytest.raises(SpecError, match="which is not modelled") as caught:
        load_model(save(**{key: value}))
    (mistake,) = caught.value.mistakes
    assert mistake.field == key
    assert says in mistake.message
    with pytest.raises(SpecError, match=rf"text_config\.{key}"):
        load_model(save(model_type="my-vision", text_config={**GOOD, key: value}))


@pytest.mark.parametrize(
    ("key", "value"),
    [("index_topk", None), ("attn_type_list", [1, 1, 1, 1]), ("is_encoder_decoder", False)],
)
def test_the_same_key_that_says_nothing_of_the_kind_is_passed_over(save, key, value):
    assert load_model(save(**{key: value})).experts == 8


def test_a_family_that_reads_no_layer_types_refuses_other_layers_too(save):
    llama = {"model_type": "llama", "num_local_experts": "absent", "num_experts_per_tok": "absent"}
    with pytest.raises(SpecError, match="layer_types: a model with this key has layers of other kinds"):
        load_model(save(**llama, layer_types=["mamba", "attention"] * 2))


QWEN = {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 64, "num_hidden_layers": 6}
LLAMA4 = {"model_type": "llama4_text", "num_local_experts": 8, "num_experts_per_tok": 1}
ERNIE = {
    "model_type": "ernie4_5_moe",
    "moe_num_experts": 8,
    "moe_k": 2,
    "moe_intermediate_size": 64,
    "moe_layer_start_index": 1,
    "num_hidden_layers": 6,
}
AFMOE = {"model_type": "afmoe", "moe_intermediate_size": 64}
STEP = {
    "model_type": "step3p5",
    "moe_intermediate_size": 64,
    "sliding_window": 64,
    "num_hidden_layers": 2,
    "layer_types": ["sliding_attention", "full_attention"],
}
FALCON = {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 2}
GPTJ = {"model_type": "gptj", "n_embd": 256, "n_head": 8, "n_layer": 2}
NEO = {"model_type": "gpt_neo", "num_layers": 4, "num_heads": 8}
GLM = {"model_type": "chatglm", "num_layers": 2, "padded_vocab_size": 1000, "ffn_hidden_size": 512}
GEMMA4 = {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0}
GEMMA = {"model_type": "gemma3_text", "sliding_window": 64, "num_hidden_layers": 6}


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({**QWEN, "mlp_only_layers": "0,1"}, "mlp_only_layers"),
        ({**QWEN, "mlp_only_layers": [0, "1"]}, "mlp_only_layers"),
        ({**LLAMA4, "moe_layers": ["1", "3"]}, "moe_layers"),
        ({**LLAMA4, "no_rope_layers": ["yes", 1, 1, 0]}, "no_rope_layers"),
        ({"model_type": "bloom", "n_embed": 250, "n_head": 8, "n_layer": 2}, "n_head"),
        ({"model_type": "mpt", "d_model": 250, "n_heads": 8, "n_layers": 2}, "n_heads"),
        (
            {
                "model_type": "dbrx",
                "d_model": 250,
                "n_heads": 8,
                "n_layers": 2,
                "attn_config": {"kv_n_heads": 2},
                "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
            },
            "n_heads",
        ),
        ({**QWEN, "decoder_sparse_step": 0}, "decoder_sparse_step"),
        ({**ERNIE, "use_bias": True}, "use_bias"),
        ({**GEMMA, "layer_types": ["sliding_attention"] * 5}, "layer_types"),
        ({**GEMMA, "layer_types": ["linear_attention"] * 6}, "layer_types"),
        ({**GEMMA, "sliding_window_pattern": 0}, "sliding_window_pattern"),
        ({**GEMMA, "use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ({"model_type": "opt", "ffn_dim": 512, "do_layer_norm_before": False}, "do_layer_norm_before"),
        ({"model_type": "opt", "ffn_dim": 512, "word_embed_proj_dim": 64}, "word_embed_proj_dim"),
        (
            {"model_type": "opt", "ffn_dim": 512, "layer_norm_elementwise_affine": False},
            "layer_norm_elementwise_affine",
        ),
        (
            {
                "model_type": "deepseek_v3",
                "kv_lora_rank": 32,
                "qk_nope_head_dim": 16,
                "qk_rope_head_dim": 8,
                "v_head_dim": 16,
                "moe_intermediate_size": 64,
                "n_group": 1,
                "attention_bias": True,
            },
            "attention_bias",
        ),
        (
            {
                "model_type": "deepseek_v2",
                "kv_lora_rank": 32,
                "qk_nope_head_dim": 16,
                "qk_rope_head_dim": 8,
                "v_head_dim": 16,
                "moe_intermediate_size": 64,
                "mlp_bias": True,
            },
            "mlp_bias",
        ),
        (
            {"model_type": "hy_v3", "num_experts": 8, "moe_intermediate_size": 64, "mlp_bias": True},
            "mlp_bias",
        ),
        (
            {
                "model_type": "mpt",
                "d_model": 256,
                "n_heads": 8,
                "n_layers": 4,
                "attn_config": {"alibi": False},
            },
            "attn_config.alibi",
        ),
        ({"model_type": "mpt", "d_model": 256, "n_heads": 8, "n_layers": 4, "attn_config": 7}, "attn_config"),
        ({"model_type": "granitemoehybrid", "layer_types": ["attention", "rwkv"] * 2}, "layer_types"),
        ({"model_type": "granitemoehybrid", "layer_types": ["attention"] * 3}, "layer_types"),
        ({**FALCON, "num_ln_in_parallel_attn": 3}, "num_ln_in_parallel_attn"),
        (
            {**FALCON, "new_decoder_architecture": False, "num_ln_in_parallel_attn": 2},
            "num_ln_in_parallel_attn",
        ),
        ({**FALCON, "parallel_attn": False}, "parallel_attn"),
        ({"model_type": "phi", "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"model_type": "phimoe", "lm_head_bias": True, "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({**GPTJ, "tie_word_embeddings": True}, "tie_word_embeddings"),
        ({**GPTJ, "n_embd": 250}, "n_head"),
        ({**NEO, "attention_types": [[["global", "local"], 3]]}, "attention_types"),
        ({**NEO, "attention_types": [[["global", "near"], 2]]}, "attention_types"),
        ({**NEO, "attention_types": ["global"] * 4}, "attention_types"),
        ({"model_type": "minicpm", "sparse_config": {"topk": 64}}, "sparse_config"),
        ({"model_type": "xverse", "num_experts": 64}, "num_experts"),
        ({"model_type": "chatglm"}, "padded_vocab_size"),
        ({**GLM, "add_bias_linear": True}, "add_bias_linear"),
        ({**GLM, "post_layer_norm": False}, "post_layer_norm"),
        ({"model_type": "gemma4_text"}, "hidden_size_per_layer_input"),
        ({**GEMMA4, "num_kv_shared_layers": 1}, "num_kv_shared_layers"),
        ({**GEMMA4, "use_bidirectional_attention": "all"}, "use_bidirectional_attention"),
        ({"model_type": "git", "num_local_experts": None}, "model_type"),
        ({**AFMOE, "model_type": "arctic", "moe_layer_frequency": 0}, "moe_layer_frequency"),
        ({**AFMOE, "model_type": "laguna", "gating": "softmax"}, "gating"),
        (
            {**AFMOE, "model_type": "laguna", "num_attention_heads_per_layer": [8, 16]},
            "num_attention_heads_per_layer",
        ),
        (
            {**AFMOE, "model_type": "laguna", "num_attention_heads_per_layer": [16, 16]},
            "num_attention_heads_per_layer",
        ),
        (
            {**AFMOE, "model_type": "laguna", "num_attention_heads_per_layer": "8"},
            "num_attention_heads_per_layer",
        ),
        ({**STEP, "num_sliding_attention_heads": 13}, "num_sliding_attention_heads"),
        ({**STEP, "attention_other_setting": {"num_attention_heads": 97}}, "attention_other_setting"),
        ({**STEP, "attention_other_setting": {"num_attention_groups": 4}}, "attention_other_setting"),
        ({**STEP, "attention_other_setting": {"head_dim": 64}}, "attention_other_setting"),
        ({**STEP, "attention_other_setting": 96}, "attention_other_setting"),
        ({**AFMOE, "model_type": "step3p5", "moe_layers_enum": "1,b"}, "moe_layers_enum"),
        ({**AFMOE, "model_type": "step3p5", "moe_layers_enum": 3}, "moe_layers_enum"),
        ({**AFMOE, "global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
        ({"model_type": "hunyuan_v1_dense", "use_cla": True, "cla_share_factor": 2}, "use_cla"),
        ({"model_type": "hunyuan_v1_moe", "num_experts": 8, "moe_topk": [2, 2, 1, 2]}, "moe_topk"),
    ],
)
def test_layer_patterns_that_are_not_modelled_are_refused(save, config, field):
    with pytest.raises(SpecError) as caught:
        load_model(save(**config))
    assert [m.field for m in caught.value.mistakes] == [field]
