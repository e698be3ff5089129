"""A config.json becomes the transformer it describes; names find bundled ones."""

import json
from importlib.resources import files

import pytest

from model_configs import ROWS
from railwright.errors import RailwrightError, SpecError
from railwright.model import bundled_models, count_parameters, load_model
from railwright.model.shape.pattern import layer_kinds, num_moe_layers

LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
}


def write(folder, config):
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("mixtral-8x7b", "mixtral-8x7b"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("Llama 3.1 405B", "llama-3.1-405b"),
        ("llama3.1-405b", "llama-3.1-405b"),
        ("GPT3-175B", "gpt-3-175b"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("Qwen2.5_7B", "qwen2.5-7b"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
        ("nemotron4-340b", "nemotron-4-340b"),
    ],
)
def test_usual_names(said, meant):
    assert load_model(said) == load_model(meant)
    assert load_model(said).name == meant


@pytest.mark.parametrize("name", bundled_models())
def test_every_bundled_model_reads_and_says_where_it_comes_from(name):
    arch = load_model(name)
    assert arch.source
    assert arch.max_positions > 0


def test_a_file_and_its_folder_are_the_same_model(tmp_path):
    path = write(tmp_path, LLAMA)
    assert load_model(path) == load_model(tmp_path)
    assert count_parameters(load_model(path)).total == 8_030_261_248
    assert load_model(path).source == str(path)


def test_a_folder_named_like_a_bundled_model_without_a_config_does_not_hide_it(tmp_path, monkeypatch):
    (tmp_path / "mixtral-8x7b").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_model("mixtral-8x7b").experts == 8


def test_what_a_family_fixes_outside_its_config(tmp_path):
    qwen = load_model(write(tmp_path, {**LLAMA, "model_type": "qwen2"}))
    assert (qwen.attention_bias, qwen.output_bias) == (True, False)
    qwen3 = load_model(write(tmp_path, {**LLAMA, "model_type": "qwen3", "head_dim": 64}))
    assert (qwen3.qk_norm, qwen3.head_dim, qwen3.attention_bias) == (True, 64, False)
    nemotron = load_model(write(tmp_path, {**LLAMA, "model_type": "nemotron"}))
    assert (nemotron.gated, nemotron.norm_bias) == (False, True)
    gemma = load_model(write(tmp_path, {**LLAMA, "model_type": "gemma"}))
    assert gemma.tied_embeddings
    gemma2 = load_model(write(tmp_path, {**LLAMA, "model_type": "gemma2", "sliding_window": 4096}))
    assert (gemma2.norms_per_layer, gemma2.full_every) == (4, 2)


@pytest.mark.parametrize(
    ("keys", "yarn"),
    [
        ({}, False),
        ({"rope_scaling": None}, False),
        ({"rope_scaling": {"type": ["yarn"]}}, False),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, False),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, True),  # Qwen2.5's README, long contexts
        ({"rope_parameters": {"rope_type": "yarn", "factor": 32.0}}, True),
        ({"model_type": "ministral3"}, True),  # by its class
        ({"model_type": "ministral3", "rope_parameters": {"rope_type": "default"}}, False),
        # OLMo 3 as transformers 5 saves it
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}, "sliding_attention": {}}}, True),
        ({"rope_parameters": {"full_attention": {"rope_type": "default"}, "sliding_attention": None}}, False),
        ({"rope_scaling": {"type": "deepseek_yarn", "factor": 40}}, True),  # Sarvam 105B's first config
    ],
)
def test_yarn_is_read(tmp_path, keys, yarn):
    assert load_model(write(tmp_path, {**LLAMA, **keys})).yarn is yarn


def test_gpt_oss_is_yarns_by_its_class(tmp_path):
    assert load_model("gpt-oss-20b").yarn


def test_missing_key_value_heads_are_plain_multi_head_attention(tmp_path):
    config = {k: v for k, v in LLAMA.items() if k != "num_key_value_heads"}
    assert load_model(write(tmp_path, config)).kv_heads == 32


def test_nemotron_h_says_the_width_of_heads_under_two_names(tmp_path):
    row = next(row for row in ROWS if row["name"] == "nemotron-h")
    old = {k: v for k, v in row["config"].items() if k != "head_dim"} | {"attention_head_dim": 48}
    assert load_model(write(tmp_path, old)).head_dim == 48


def test_qwen2_moe_has_a_gated_shared_expert(tmp_path):
    # Qwen2-57B-A14B (arXiv 2407.10671, table 1): 57 B, 14 B active
    config = {
        "model_type": "qwen2_moe",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "moe_intermediate_size": 2560,
        "shared_expert_intermediate_size": 20480,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "vocab_size": 151936,
    }
    arch = load_model(write(tmp_path, config))
    assert arch.shared_gate
    assert count_parameters(arch).total == pytest.approx(57.4e9, rel=0.001)
    assert count_parameters(arch).active == pytest.approx(14e9, rel=0.03)


def test_leading_dense_layers_of_qwen(tmp_path):
    config = {**LLAMA, "model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
    arch = load_model(write(tmp_path, {**config, "moe_intermediate_size": 768, "mlp_only_layers": [0, 1]}))
    assert arch.dense_layers == 2


BLOOM = {"model_type": "bloom", "n_layer": 24, "n_embed": 1024, "vocab_size": 250880}
QWEN_MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 768,
}


@pytest.mark.parametrize(
    ("config", "name", "other", "value"),
    [
        (BLOOM, "n_head", "num_attention_heads", 16),
        (QWEN_MOE, "num_experts", "num_local_experts", 8),
        (
            {**LLAMA, "model_type": "grok-1", "num_experts_per_tok": 2},
            "num_local_experts",
            "num_experts",
            8,
        ),
        (
            {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257},
            "n_head",
            "num_attention_heads",
            12,
        ),
    ],
)
def test_a_key_is_read_under_each_of_its_names(tmp_path, config, name, other, value):
    # transformers reads and writes either (attribute_map of its configuration classes)
    one = load_model(write(tmp_path, {**config, name: value}))
    assert load_model(write(tmp_path, {**config, other: value})) == one
    assert load_model(write(tmp_path, {**config, name: value, other: value})) == one
    with pytest.raises(SpecError, match=f"{other}: 4 contradicts {name}: {value}"):
        load_model(write(tmp_path, {**config, name: value, other: 4}))


def test_grok_shares_its_embedding_unless_it_says_otherwise(tmp_path):
    # run.py of xai-org/grok-1 and the class of hpcai-tech/grok-1: tied
    config = {**LLAMA, "model_type": "grok-1", "num_experts": 8, "num_experts_per_tok": 2}
    assert load_model(write(tmp_path, config)).tied_embeddings
    assert not load_model(write(tmp_path, {**config, "tie_word_embeddings": False})).tied_embeddings


def test_bloom_as_its_checkpoint_names_its_heads(tmp_path):
    # bigscience/bloom-560m: 559 214 592 parameters
    arch = load_model(write(tmp_path, {**BLOOM, "num_attention_heads": 16}))
    assert count_parameters(arch).total == 559_214_592


EXTRA_LAYER = {
    "ernie4_5_moe": {
        "num_hidden_layers": 28,
        "hidden_size": 2560,
        "num_attention_heads": 20,
        "num_key_value_heads": 4,
        "intermediate_size": 12288,
        "vocab_size": 103424,
        "moe_num_experts": 64,
        "moe_k": 6,
        "moe_intermediate_size": 1536,
        "moe_num_shared_experts": 2,
    },
    "exaone_moe": {
        "num_hidden_layers": 48,
        "hidden_size": 6144,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 18432,
        "vocab_size": 153600,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 2048,
    },
}


@pytest.mark.parametrize(
    ("kind", "attention", "gains"), [("ernie4_5_moe", 15_728_640, 0), ("exaone_moe", 113_246_208, 256)]
)
def test_an_extra_layer_without_experts(tmp_path, kind, attention, gains):
    # h*(2 heads + 2 kv heads)*128, three products of the dense MLP's width, the joining product, and five
    # norms: two of the layer, three around it
    config = {"model_type": kind, "num_nextn_predict_layers": 1, **EXTRA_LAYER[kind]}
    arch = load_model(write(tmp_path, config))
    h, ffn = config["hidden_size"], config["intermediate_size"]
    assert count_parameters(arch).mtp == attention + gains + 3 * h * ffn + 2 * h * h + 5 * h
    assert layer_kinds(arch)[-2:] == ("moe", "dense")
    assert num_moe_layers(arch) == arch.layers - 1


@pytest.mark.parametrize(
    "name", ["mistralai/Mistral-7B-v0.3", "Mistral-7B-Instruct-v0.3", "Mixtral-8x22B-v0.3"]
)
def test_a_later_version_of_a_bundled_model_is_not_taken_for_it(name):
    """v0.3 has 32,768 tokens in its vocabulary and no sliding window."""
    with pytest.raises(RailwrightError, match="unknown model"):
        load_model(name)


def test_a_model_in_hugging_faces_cache_has_its_own_name(tmp_path):
    kept = tmp_path / "models--Qwen--Qwen3-14B"
    (kept / "snapshots" / "abc123").mkdir(parents=True)
    (kept / "blobs").mkdir()
    (kept / "blobs" / "deadbeef").write_text(
        (files("railwright.model") / "data" / "mistral-7b.json").read_text()
    )
    (kept / "snapshots" / "abc123" / "config.json").symlink_to("../../blobs/deadbeef")
    assert load_model(kept / "snapshots" / "abc123").name == "Qwen3-14B"
