"""What a user gets wrong about a model: one clear error each."""

import json

import pytest

from railwright.errors import RailwrightError, SpecError
from railwright.model import load_model

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


@pytest.fixture
def save(tmp_path):
    def write(**changes):
        config = {k: v for k, v in {**GOOD, **changes}.items() if v != "absent"}
        path = tmp_path / "config.json"
        path.write_text(json.dumps(config))
        return path

    return write


def test_the_good_one_is_good(save):
    assert load_model(save()).experts == 8


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


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(RailwrightError, match=r"unknown model 'mixtral-8x8b'; did you mean 'mixtral-8x7b'"):
        load_model("mixtral-8x8b")


@pytest.mark.parametrize("path", ["./nowhere.json", "/no/such/config.json", "nowhere/"])
def test_a_missing_file(path):
    with pytest.raises(SpecError, match="no such file"):
        load_model(path)


def test_a_folder_without_config(tmp_path):
    with pytest.raises(SpecError, match=r"holds no config\.json"):
        load_model(tmp_path)


def test_a_file_cut_off(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(GOOD, indent=1)[:100])
    with pytest.raises(SpecError, match=r"config\.json:\d+:\d+: not valid JSON .*cut off"):
        load_model(path)


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe\x00binary\x80"])
def test_a_file_that_is_no_config(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"config\.json.*(JSON|expected)"):
        load_model(path)


def test_all_missing_keys_at_once(save):
    with pytest.raises(SpecError) as caught:
        load_model(save(hidden_size="absent", vocab_size="absent", num_local_experts="absent"))
    assert [m.field for m in caught.value.mistakes] == ["hidden_size", "num_local_experts", "vocab_size"]
    assert all("missing; a whole number" in m.message for m in caught.value.mistakes)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_hidden_layers", 10**12, "1000000000000 layers are more than the 10000 that are read"),
        ("hidden_size", 8 * 10**14, "more than the 1,000,000,000,000 that is read"),
        ("vocab_size", 10**400, "more than the 1,000,000,000,000 that is read"),
        ("num_hidden_layers", 0, "0 is not a whole number of at least 1"),
        ("num_hidden_layers", -2, "-2 is not a whole number"),
        ("num_hidden_layers", "32", "'32' is not a whole number"),
        ("num_hidden_layers", 2.5, "2.5 is not a whole number"),
        ("num_hidden_layers", True, "True is not a whole number"),
        ("tie_word_embeddings", "no", "'no' is not true or false"),
        ("num_key_value_heads", 3, "3 does not divide the 8 attention heads"),
        ("hidden_size", -4, "-4 is not a whole number"),
        ("num_attention_heads", 7, "7 does not divide hidden_size = 256"),
        ("num_experts_per_tok", 9, "9 is more than the 8 experts"),
    ],
)
def test_a_wrong_value(save, key, value, says):
    with pytest.raises(SpecError) as caught:
        load_model(save(**{key: value}))
    (mistake,) = caught.value.mistakes
    assert mistake.field == key
    assert says in mistake.message


def test_a_wrong_value_under_another_name_of_a_key_is_named_as_it_stands(save):
    with pytest.raises(SpecError) as caught:
        load_model(save(num_local_experts="absent", num_experts="eight"))
    assert [m.field for m in caught.value.mistakes] == ["num_experts"]


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", "missing; a Hugging Face config.json names its architecture there"),
        (["llama"], "['llama'] is no name; a Hugging Face config.json names its architecture there"),
        ("bert", "'bert' is not a decoder-only transformer"),
        ("lama", "'lama' is not supported; did you mean 'llama'"),
        ("rwkv", "'rwkv' is not a decoder-only transformer"),
        ("my-own", "Supported: llama, mistral, mixtral"),
    ],
)
def test_an_architecture_that_is_not_read(save, kind, says):
    with pytest.raises(SpecError, match="model_type") as caught:
        load_model(save(model_type=kind))
    assert says in str(caught.value)


LAYERS = {key: GOOD[key] for key in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size")}


@pytest.mark.parametrize(
    ("more", "nearest"),
    [
        (
            {"intermediate_size": 512},
            "llama, qwen2 (biases) or qwen3 (normed queries and keys) (a gated MLP)",
        ),
        ({"intermediate_size": 512, "sliding_window": 64}, "mistral (a gated MLP, windows)"),
        ({"layer_types": ["full_attention"] * 4, "sliding_window": 64}, "ministral, olmo3 or gemma3_text"),
        ({"intermediate_size": 512, "num_local_experts": 8}, "mixtral, granitemoe or gpt_oss"),
        ({"num_experts": 8}, "qwen3_moe or olmoe"),
        ({"num_experts": 8, "num_shared_experts": 1}, "exaone_moe, hy_v3 or bailing_moe"),
        (
            {"num_experts": 8, "shared_expert_intermediate_size": 64},
            "qwen2_moe (experts beside a shared one)",
        ),
        ({"n_routed_experts": 8}, "glm4_moe, dots1 or deepseek"),
        ({"n_routed_experts": 8, "kv_lora_rank": 64}, "deepseek_v3 or deepseek_v2 (latent attention)"),
        ({"n_embd": 256}, "gpt2, gptj or jais"),
    ],
)
def test_an_unknown_architecture_is_told_the_families_whose_keys_it_has(tmp_path, more, nearest):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "my-own", **LAYERS, **more}))
    with pytest.raises(SpecError, match="change model_type to the family's name") as caught:
        load_model(path)
    assert f"Its keys are nearest to those of {nearest}" in str(caught.value)


def test_an_unknown_architecture_with_keys_of_its_own_is_told_all_families(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"model_type": "my-own", "width": 8}')
    with pytest.raises(SpecError, match="is not supported") as caught:
        load_model(path)
    assert "nearest to those" not in str(caught.value)


@pytest.mark.parametrize("text", [{}, None, "absent", [1], 7])
@pytest.mark.parametrize("kind", ["gemma3", "llama4", "mistral3"])
def test_a_multimodal_model_without_its_language_model_is_one_error(save, kind, text):
    absent = dict.fromkeys(GOOD, "absent")
    with pytest.raises(SpecError, match="multimodal") as caught:
        load_model(save(**{**absent, "model_type": kind, "vision_config": {}, "text_config": text}))
    assert len(caught.value.mistakes) == 1
    assert "text_config" in str(caught.value)


def test_what_a_nested_language_model_lacks_is_named_with_where_it_stands(save):
    text = {k: v for k, v in GOOD.items() if k not in ("hidden_size", "num_local_experts")}
    with pytest.raises(SpecError) as caught:
        load_model(save(model_type="my-vision", text_config=text))
    assert [m.field for m in caught.value.mistakes] == [
        "text_config.hidden_size",
        "text_config.num_local_experts",
    ]


def test_a_nested_language_model_that_is_not_read_is_refused_as_it_would_be_alone(save):
    with pytest.raises(SpecError, match=r"text_config\.model_type: 'jamba' mixes attention"):
        load_model(save(model_type="my-vision", text_config={"model_type": "jamba"}))
    with pytest.raises(SpecError, match=r"text_config\.model_type: missing"):
        load_model(save(model_type="my-vision", text_config={"hidden_size": 8}))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("deepseek_v4", "sparse attention"),
        ("minimax_m3_vl_text", "sparse attention"),
        ("jetmoe", "routes its attention heads"),
        ("gemma3n", "embeddings in every layer"),
        ("axk2", "sparse attention"),
        ("openelm", "another MLP in every layer"),
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
        ({**GEMMA4, "enable_moe_block": True}, "enable_moe_block"),
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


@pytest.mark.parametrize("text", ['{"a":' * 50_000, '{"hidden_size": ' + "9" * 5_000 + "}"])
def test_what_python_itself_cannot_read_is_refused_like_any_other_file(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SpecError, match=r"config\.json: a number is too long or the nesting too deep"):
        load_model(tmp_path / "config.json")


@pytest.mark.parametrize("indent", [1, "\t"])
def test_a_key_written_twice_is_refused(save, indent):
    """At the second one, whatever other objects of the file have the key too."""
    path = save()
    text = json.dumps(GOOD, indent=indent).replace(
        '"hidden_size": 256', '"hidden_size": 256,\n "hidden_size": 512'
    )
    path.write_text(text.replace("{", '{"vision_config": {"hidden_size": 1},', 1))
    with pytest.raises(SpecError, match=r"config\.json:5:2: hidden_size: written twice; .* in line 4"):
        load_model(path)
    path.write_text(json.dumps(GOOD).replace("{", '{"text": {"a": 1, "a": 2},', 1))
    with pytest.raises(SpecError, match=r"config\.json:1:19: text\.a: written twice; .* in line 1"):
        load_model(path)
