"""Language models inside multimodal configs are those that they would be alone."""

from dataclasses import replace

import pytest

from model_configs import SMALL, read
from railwright.model import count_parameters


@pytest.mark.parametrize(
    ("outer", "text"),
    [
        ("gemma3", {"model_type": "gemma3_text", "head_dim": 48, "sliding_window": 64}),
        (
            "llama4",
            {
                "model_type": "llama4_text",
                "num_local_experts": 8,
                "num_experts_per_tok": 1,
                "intermediate_size_mlp": 1024,
                "head_dim": 48,
            },
        ),
        ("mistral3", {"model_type": "mistral", "sliding_window": None, "head_dim": 48}),
        ("mistral3", {"sliding_window": None, "head_dim": 48}),
        ("somebody-elses", {"model_type": "qwen3", "head_dim": 48}),
    ],
)
@pytest.mark.parametrize("part", ["text_config", "llm_config"])
def test_a_nested_language_model_is_the_one_it_would_be_alone(outer, text, part):
    text = {**SMALL, **text}
    nested = read({"model_type": outer, part: text, "vision_config": {"hidden_size": 9}})
    alone = read({"model_type": "mistral", **text})
    assert nested == replace(alone, source=nested.source)
    assert nested.source == "config.json: its language model; encoders of images or sound are left out"


def test_a_nested_config_written_as_a_difference_takes_the_rest_from_its_class():
    # google/gemma-3-4b-it has four keys; the checkpoint, 4,300,079,472 parameters, is that and its encoder
    text = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    arch = read({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", **text}})
    assert (arch.heads, arch.kv_heads, arch.head_dim, arch.vocab) == (8, 4, 256, 262208)
    assert (arch.sliding_window, arch.full_every, arch.tied_embeddings) == (1024, 6, True)
    assert 4_300_079_472 - count_parameters(arch).total == pytest.approx(0.42e9, rel=0.01)
    # llava-hf/llava-1.5-7b: a Llama whose keys are but the padded vocabulary
    llava = read({"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 32064}})
    assert (llava.layers, llava.hidden, llava.vocab) == (32, 4096, 32064)


@pytest.mark.parametrize(
    ("inner", "outer", "tied"),
    [(None, None, False), (True, None, True), (None, True, True), (False, True, False), (True, False, True)],
)
def test_tying_is_said_inside_else_outside(inner, outer, tied):
    text = {**SMALL, "model_type": "llama"}
    config = {"model_type": "my-vision", "text_config": text}
    if inner is not None:
        text["tie_word_embeddings"] = inner
    if outer is not None:
        config["tie_word_embeddings"] = outer
    assert read(config).tied_embeddings is tied


@pytest.mark.parametrize("outer", [False, True, None])
@pytest.mark.parametrize("inner", [False, True, None])
def test_qwen3_vl_moe_is_tied_as_its_outer_object_says(inner, outer):
    # transformers 5 writes its text class's default, true, beside an outer false, and ties nothing
    text = {**SMALL, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
    config = {"model_type": "qwen3_vl_moe", "text_config": {**text, "tie_word_embeddings": inner}}
    arch = read({**config, "tie_word_embeddings": outer})
    assert arch.tied_embeddings is (outer is True)


def test_qwens_flat_multimodal_config_is_its_language_model():
    flat = read({**SMALL, "model_type": "qwen2_5_vl", "vision_config": {"depth": 4}})
    assert flat == replace(read({**SMALL, "model_type": "qwen2"}), source=flat.source)
    assert "left out" in flat.source
