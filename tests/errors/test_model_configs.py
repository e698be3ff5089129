"""What a user gets wrong about a model: one clear error each."""

import json
from functools import partial

import pytest

from model_configs import DEEPSEEK, GOOD, saved
from railwright.errors import RailwrightError, SpecError
from railwright.model import load_model
from railwright.model.configs.hf_config import parse_config


@pytest.fixture
def save(tmp_path):
    return partial(saved, tmp_path)


def test_the_good_one_is_good(save):
    assert load_model(save()).experts == 8


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(RailwrightError, match=r"unknown model 'mixtral-8x8b'; did you mean 'mixtral-8x7b'"):
        load_model("mixtral-8x8b")


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b"),
        ("Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b"),
        ("RedHatAI/Meta-Llama-3.1-70B-Instruct-quantized.w8a8", "llama-3.1-70b"),
        ("unsloth/Meta-Llama-3.1-8B-bnb-4bit", "llama-3.1-8b"),
        ("zai-org/GLM-4.6-FP8", "glm-4.5"),
        ("nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "nemotron-3-nano-30b-a3b"),
    ],
)
def test_a_checkpoint_in_another_format_is_told_whose_layers_it_has(name, bundled):
    with pytest.raises(RailwrightError, match=rf"'{name}'; it is the bundled '{bundled}' with its weights"):
        load_model(name)


@pytest.mark.parametrize(
    ("name", "bundled"),
    [
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b"),
        ("qwen3-235b-a22b-thinking-2507-fp8", "qwen3-235b-a22b"),
        ("Mistral-7B-Instruct-v0.3", "mistral-7b"),
    ],
)
def test_another_release_is_told_the_nearest_that_is_bundled(name, bundled):
    with pytest.raises(RailwrightError, match=rf"the nearest that is bundled is '{bundled}', of another rel"):
        load_model(name)


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


def test_a_key_that_is_read_twice_is_one_mistake(save):
    """Whether there are experts, and how many: '8' in quotes was told once for each."""
    with pytest.raises(SpecError) as caught:
        load_model(save(**DEEPSEEK | {"n_routed_experts": "8"}))
    assert [m.field for m in caught.value.mistakes] == ["n_routed_experts"]


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


@pytest.mark.parametrize("value", ["yarn", ["yarn"], 8.0])
@pytest.mark.parametrize("key", ["rope_scaling", "rope_parameters"])
def test_positions_that_are_no_object_are_refused(save, key, value):
    with pytest.raises(SpecError, match=f"{key}: .* an object is expected here"):
        load_model(save(**{key: value}))


@pytest.mark.parametrize("method", [["noaux_tc"], 1.5, {}])
def test_a_choice_of_experts_that_is_no_name_is_refused(save, method):
    with pytest.raises(SpecError, match=r"topk_method: .* is no name"):
        load_model(save(**DEEPSEEK | {"topk_method": method}))


def test_a_list_that_says_a_number_for_every_layer_is_not_repeated_in_whole(save):
    with pytest.raises(SpecError) as caught:
        load_model(save(num_key_value_heads=[8] * 400))
    (mistake,) = caught.value.mistakes
    assert "[8, 8, " in mistake.message
    assert len(mistake.message) < 120


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ({"dim": 4096, "n_layers": 32, "n_heads": 32}, "a params.json, as Meta and Mistral write it"),
        ({"peft_type": "LORA", "r": 16}, "of an adapter; give the config.json of the model that it is for"),
        ({"general.architecture": "llama", "llama.block_count": 32}, "of a GGUF file"),
    ],
)
def test_other_files_beside_weights_are_told_apart(tmp_path, file, says):
    path = tmp_path / "params.json"
    path.write_text(json.dumps(file))
    with pytest.raises(SpecError, match=says):
        load_model(path)


def test_layers_said_outside_and_inside_must_be_as_many(save):
    # a flat file of transformers 4 saved again has both, and whoever shortens it may change one
    text = dict(GOOD)
    assert load_model(save(model_type="my-vision", text_config=text)).layers == 4
    with pytest.raises(SpecError, match=r"2 contradicts text_config\.num_hidden_layers: 4"):
        load_model(save(model_type="my-vision", num_hidden_layers=2, text_config=text))


@pytest.mark.parametrize(("outer", "inner"), [("gemma3", "gemma3_text"), ("qwen3_5_moe", "qwen3_5_moe_text")])
def test_a_language_model_under_the_name_of_the_multimodal_one_is_told_its_own(save, outer, inner):
    with pytest.raises(SpecError) as caught:
        load_model(save(model_type=outer))
    (mistake,) = caught.value.mistakes
    assert mistake.message.endswith(f"is that language model alone, change model_type to '{inner}'.")


def test_groups_of_experts_divide_them(tmp_path):
    with pytest.raises(SpecError, match="n_group: 3 groups do not divide the 8 experts"):
        load_model(saved(tmp_path, **{**dict.fromkeys(GOOD, "absent"), **DEEPSEEK, "n_group": 3}))


def test_gpt_oss_says_twice_how_many_experts_a_token_visits(save):
    assert load_model(save(model_type="gpt_oss", experts_per_token=2)).experts_per_token == 2
    with pytest.raises(SpecError, match="experts_per_token: 4 contradicts num_experts_per_tok: 2"):
        load_model(save(model_type="gpt_oss", experts_per_token=4))


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
        ("eurobert", "'eurobert' is not a decoder-only transformer"),
        ("embedding_gemma2", "gives one vector for a text"),
        ("lama", "'lama' is not supported; did you mean 'llama'"),
        ("rwkv", "'rwkv' is made of recurrent layers whose kernels are not modelled"),
        ("mamba", "'mamba' is made of Mamba layers of the first kind"),
        ("mamba2", "Layers other than attention that are modelled: Mamba-2 (nemotron_h"),
        ("jamba", "take one of those models, of a like size, instead"),
        ("my-own", "'railwright model families' lists all"),
        ("x" * 1000, f"'{'x' * 60}' is not supported"),
    ],
)
def test_an_architecture_that_is_not_read(save, kind, says):
    with pytest.raises(SpecError, match="model_type") as caught:
        load_model(save(model_type=kind))
    assert says in str(caught.value)


def test_a_head_of_fewer_rows_than_the_embedding(tmp_path):
    keys = {key: GOOD[key] for key in LAYERS} | {"model_type": "apertus1p5_text", "intermediate_size": 512}
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**keys, "output_vocab_size": 1000}))
    assert load_model(path).vocab == 1000
    path.write_text(json.dumps({**keys, "output_vocab_size": 700}))
    with pytest.raises(
        SpecError, match="output_vocab_size: an LM head of fewer rows than the embedding's 1000"
    ):
        load_model(path)


def test_an_omni_model_has_two_language_models(save):
    thinker = {"text_config": {key: value for key, value in GOOD.items() if key != "model_type"}}
    with pytest.raises(
        SpecError, match=r"thinker_config: 'qwen2_5_omni' has .* Save the text_config in here"
    ):
        load_model(save(model_type="qwen2_5_omni", thinker_config=thinker))


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


@pytest.mark.parametrize(
    ("text", "what"), [("null", "null"), ("[]", "a list"), ('"llama"', "a text"), ("7", "a number")]
)
def test_json_that_is_no_object_is_told_in_its_own_words(text, what):
    with pytest.raises(SpecError, match=f"a JSON object is expected, this is {what}"):
        parse_config(text, "config.json", "x")
