"""`railwright model show`: every part of a model that its figures count, or leave out, has a row."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from railwright.cli.main import app


def shown(*arguments: str) -> str:
    """What it prints, in one line."""
    result = CliRunner().invoke(app, ["model", "show", *arguments])
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def test_latent_attention_has_its_ranks_and_the_parts_of_its_keys() -> None:
    """DeepSeek-V3 report, section 4.2: 128 heads of 128 and 64 rotary, latents of 1,536 and 512."""
    text = shown("deepseek-v3")
    assert "attention mla, 128 heads; keys of 128 and 64 rotary, values of 128" in text
    assert "latent ranks 1,536 for queries, 512 for keys and values" in text
    assert "latent ranks none for queries, 512 for keys and values" in shown("deepseek-v2-lite")
    assert "latent" not in shown("llama-3.1-8b")


def test_extra_layers_are_told_with_what_leaves_them_out() -> None:
    """DeepSeek-V3's README_WEIGHTS.md: 671 billion of the main model, 11.5 billion of multi-token prediction
    without the embedding and the head that it shares."""
    text = shown("deepseek-v3")
    assert "multi-token prediction 1 extra layer of 11.6 billion parameters, in no figure below" in text
    assert "multi-token prediction" not in shown("mixtral-8x7b")


@pytest.mark.parametrize(
    ("tied", "says"), [(True, "shares the embedding's weights"), (False, "has weights of its own")]
)
def test_it_says_whose_weights_the_head_has(tied: bool, says: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert f"LM head {says}" in shown(config(tmp_path, tie_word_embeddings=tied))


def test_scores_are_those_that_the_flops_count(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """A window of 4,096 of 32,768 tokens: before, its FLOPs were called those of full scores."""
    windowed, plain = config(tmp_path, sliding_window=4096), config(tmp_path / "plain", sliding_window=None)
    short, long = (
        "4,096 tokens, full attention scores",
        "32,768 tokens, attention scores of the whole window",
    )
    assert f"{long} source" in shown(windowed, "-s", "32768")
    assert short in shown(windowed, "-s", "4096")
    assert "32,768 tokens, full attention scores" in shown(plain, "-s", "32768")
    # Llama 4's chunks of 8,192, in three layers of four
    text = shown("llama-4-scout", "-s", "32768")
    assert "attention scores of the whole chunk, in 12 layers of the whole sequence" in text


def config(folder, **changes: object) -> str:  # type: ignore[no-untyped-def]
    """A small Mistral's config.json."""
    folder.mkdir(exist_ok=True)
    keys = {
        "model_type": "mistral",
        "hidden_size": 512,
        "intermediate_size": 1024,
        "num_hidden_layers": 2,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 1000,
        "max_position_embeddings": 32768,
        "sliding_window": None,
        "tie_word_embeddings": False,
        **changes,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(keys), encoding="utf-8")
    return str(path)


def test_what_is_not_read_stands_below_the_table(tmp_path) -> None:  # type: ignore[no-untyped-def]
    text = shown(config(tmp_path, quantization_config={"quant_method": "gptq"}))
    assert "! quantization_config (weights stored by 'gptq') is not read" in text


def test_families_are_listed_one_a_line() -> None:
    listed = CliRunner().invoke(app, ["model", "families"]).output.split("\n")
    assert {"llama", "deepseek_v3", "gpt2"} < set(listed)
