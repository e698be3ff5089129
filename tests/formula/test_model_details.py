"""What a config.json says beside a model's shape, or its family without saying it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from railwright.model import load_model
from railwright.model.configs.hf_config import parse_config
from railwright.model.shape.architecture import Details

LLAMA: dict[str, Any] = {
    "hidden_size": 512,
    "intermediate_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 1024,
    "head_dim": 64,
}
ROUTED: dict[str, Any] = {"num_experts": 8, "num_experts_per_tok": 2}
EXPERTS: dict[str, Any] = {**ROUTED, "moe_intermediate_size": 64}


def details(kind: str, **keys: Any) -> Details:
    return parse_config(json.dumps({"model_type": kind, **LLAMA, **keys}), "config.json", kind).details


@pytest.mark.parametrize(
    ("kind", "keys", "activation"),
    [
        ("llama", {}, ""),
        ("llama", {"hidden_act": "silu"}, "silu"),
        # Gemma's class overrides what hidden_act says
        ("gemma2", {"hidden_act": "gelu"}, "gelu_pytorch_tanh"),
        ("gemma2", {"hidden_activation": "gelu"}, "gelu"),
        ("vaultgemma", {}, "gelu_pytorch_tanh"),
        ("persimmon", {}, "relu2"),
    ],
)
def test_an_activation_is_the_files_or_its_familys(kind: str, keys: dict[str, Any], activation: str) -> None:
    assert details(kind, **keys).activation == activation


def test_gpt_oss_gates_by_a_clamped_sigmoid_whatever_its_file_says() -> None:
    """GptOssExperts: alpha 1.702, which is quick GeLU's, a limit of 7, and 1 added to what is gated."""
    found = load_model("gpt-oss-20b").details
    assert (found.activation, found.gate_offset, found.gate_limit) == ("quick_gelu", 1.0, 7.0)


@pytest.mark.parametrize(
    ("kind", "keys", "norm"),
    [
        ("llama", {}, ""),
        ("llama", {"rms_norm_eps": 1e-5}, "RMSNorm"),
        ("cohere", {"layer_norm_eps": 1e-5}, "LayerNorm"),
        ("olmo", {}, "LayerNorm"),
        ("nemotron", {}, "LayerNorm"),
        ("cohere2_moe", ROUTED, "LayerNorm"),
        ("cohere2_moe", {"rms_norm_eps": 1e-5, **ROUTED}, "RMSNorm"),
    ],
)
def test_norms_without_biases_may_subtract_the_mean(kind: str, keys: dict[str, Any], norm: str) -> None:
    assert details(kind, **keys).norm == norm


@pytest.mark.parametrize(
    ("kind", "keys", "unturned"),
    [
        ("llama", {}, ()),
        ("smollm3", {}, (3, 7)),
        ("smollm3", {"no_rope_layer_interval": 2}, (1, 3, 5, 7)),
        ("smollm3", {"no_rope_layers": [0, 1, 1, 1, 1, 1, 1, 0]}, (0, 7)),
        ("cohere2", {"sliding_window": 64}, (3, 7)),
        ("exaone4", {"sliding_window": 64, "sliding_window_pattern": 4}, (3, 7)),
        ("exaone4", {"sliding_window": None}, ()),
        ("afmoe", {"sliding_window": 64, **EXPERTS}, (3, 7)),
        ("exaone_moe", {"sliding_window": 64, **EXPERTS}, (3, 7)),
        ("flint", {"sliding_window": 64, **EXPERTS}, (0, 1, 5, 7)),
        ("kolibri1", {"sliding_window": 64, **EXPERTS}, (4,)),
        ("beam", {"sliding_window": 64, **EXPERTS}, (5, 7)),
        ("cohere2_moe", {"sliding_window": 64, **ROUTED}, (3, 7)),
        # dense layers that all see everything have positions
        ("cohere2_moe", {"sliding_window": 64, "first_k_dense_replace": 2, **ROUTED}, (5,)),
        ("muse_glimmer_text", {"sliding_window": 64}, (3, 7)),
        ("granite_swa", {"sliding_window": 64}, ()),
        ("granite_swa", {"sliding_window": 64, "layer_rope_theta": [0, 1e4, 1e4, 1e4] * 2}, (0, 4)),
    ],
)
def test_some_layers_have_no_rotary_positions(
    kind: str, keys: dict[str, Any], unturned: tuple[int, ...]
) -> None:
    """SmolLM 3 and Granite with windows say which; the others turn only what looks back a window."""
    assert details(kind, **keys).unturned == unturned
    assert load_model("llama-4-scout").details.unturned == tuple(range(3, 48, 4))
    assert load_model("trinity-large").details.unturned == tuple(range(3, 60, 4))


@pytest.mark.parametrize(
    ("kind", "keys", "scales"),
    [
        ("llama", {}, ()),
        (
            "granite",
            {"embedding_multiplier": 12.0, "residual_multiplier": 1.0},
            ("embedding_multiplier 12.0",),
        ),
        ("granite", {"logits_scaling": 16.0}, ("logits_scaling 16.0",)),
        (
            "gemma2",
            {},
            ("attn_logit_softcapping 50.0", "final_logit_softcapping 30.0", "query_pre_attn_scalar 256"),
        ),
        (
            "gemma2",
            {"attn_logit_softcapping": None, "final_logit_softcapping": 20.0, "query_pre_attn_scalar": 64},
            ("final_logit_softcapping 20.0",),
        ),
    ],
)
def test_multipliers_and_caps_that_change_something(
    kind: str, keys: dict[str, Any], scales: tuple[str, ...]
) -> None:
    """A head of 64 wide scaled by 64 is scaled as any other."""
    assert details(kind, **keys).scales == scales


@pytest.mark.parametrize(
    ("kind", "keys", "epsilon"),
    [
        ("llama", {}, 0.0),
        ("llama", {"rms_norm_eps": 1e-6}, 1e-6),
        ("cohere", {"layer_norm_eps": 1e-5}, 1e-5),
        ("nemotron", {"norm_eps": 1e-5}, 1e-5),
    ],
)
def test_an_epsilon_is_that_of_the_kind_of_norms(kind: str, keys: dict[str, Any], epsilon: float) -> None:
    assert details(kind, **keys).norm_epsilon == epsilon


@pytest.mark.parametrize(
    ("kind", "keys", "base"),
    [
        ("llama", {}, 0.0),
        ("llama", {"rope_theta": 500000.0}, 500000.0),
        ("llama", {"rope_theta": 10**400}, 0.0),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}, 10000.0),
        # windowed layers have a base of their own
        ("gemma3_text", {"rope_theta": 1000000, "rope_local_base_freq": 10000}, 0.0),
        ("gemma3_text", {"rope_parameters": {"full_attention": {"rope_theta": 1e6}}}, 0.0),
        (
            "mimo_v2_flash",
            {"rope_theta": 5e6, "swa_rope_theta": 1e4, "moe_intermediate_size": 64},
            0.0,
        ),
        ("granite_swa", {"rope_theta": 1e4, "layer_rope_theta": [0, 5e5, 5e5, 5e5] * 2}, 5e5),
        ("granite_swa", {"rope_theta": 1e4, "layer_rope_theta": [1e4, 5e5, 5e5, 5e5] * 2}, 0.0),
    ],
)
def test_a_base_of_rotary_positions_is_that_of_all_layers(
    kind: str, keys: dict[str, Any], base: float
) -> None:
    assert details(kind, **keys).rotary_base == base


@pytest.mark.parametrize("kind", ["rope", "nope", None])
def test_granite_4_has_rotary_positions_where_its_file_says_so(kind: str | None) -> None:
    """As its class (GraniteMoeHybridModel): also where all layers are attention (granite-4.0-micro)."""
    said = {"layer_types": ["attention"] * 8, "num_local_experts": 0, "shared_intermediate_size": 1024}
    config = {"model_type": "granitemoehybrid", **LLAMA, **said, "position_embedding_type": kind}
    assert parse_config(json.dumps(config), "config.json", "granite").rotary == (kind == "rope")
