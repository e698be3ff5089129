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
        {"model_type": "nemotron_h", "hybrid_override_pattern": "M-M*"},
        {"model_type": "jamba"},
        {"model_type": "qwen3_next"},
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


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("absent", "names its architecture there"),
        ("bert", "'bert' is not a decoder-only transformer"),
        ("lama", "'lama' is not supported; did you mean 'llama'"),
        ("rwkv", "Supported: llama, mistral, mixtral"),
    ],
)
def test_an_architecture_that_is_not_read(save, kind, says):
    with pytest.raises(SpecError, match="model_type") as caught:
        load_model(save(model_type=kind))
    assert says in str(caught.value)


def test_a_multimodal_model_says_so(save):
    with pytest.raises(SpecError, match="multimodal"):
        load_model(save(model_type="gemma3", text_config={}))


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"decoder_sparse_step": 2}, "decoder_sparse_step"),
        ({"mlp_only_layers": [1, 3]}, "mlp_only_layers"),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}, "max_window_layers"),
    ],
)
def test_layer_patterns_that_are_not_modelled_are_refused(save, changes, field):
    qwen = {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 64, **changes}
    with pytest.raises(SpecError) as caught:
        load_model(save(**qwen))
    assert [m.field for m in caught.value.mistakes] == [field]


@pytest.mark.parametrize("text", ['{"a":' * 50_000, '{"hidden_size": ' + "9" * 5_000 + "}"])
def test_what_python_itself_cannot_read_is_refused_like_any_other_file(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(SpecError, match=r"config\.json: a number is too long or the nesting too deep"):
        load_model(tmp_path / "config.json")
