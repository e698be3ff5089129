"""Which layers hold experts: published patterns, written out by hand."""

from dataclasses import replace
from itertools import product

import pytest

from model_configs import DEEPSEEK, ERNIE, LLAMA4, QWEN, SMALL, read
from railwright.model import count_parameters, layer_activations, layer_operators, load_model
from railwright.model.shape.pattern import (
    expert_pattern,
    kinds_present,
    layer_kinds,
    num_moe_layers,
    stage_kinds,
    window_pattern,
)


def letters(arch):
    return "".join("e" if kind == "moe" else "d" for kind in layer_kinds(arch))


@pytest.mark.parametrize(
    ("config", "held"),
    [
        # Qwen: layer i where (i + 1) % decoder_sparse_step == 0, but those of mlp_only_layers
        (QWEN, "eeeeeeee"),
        ({**QWEN, "decoder_sparse_step": 2}, "dededede"),
        ({**QWEN, "decoder_sparse_step": 3}, "ddeddedd"),
        ({**QWEN, "mlp_only_layers": [0, 1]}, "ddeeeeee"),
        ({**QWEN, "mlp_only_layers": [1, 3, 5, 7]}, "edededed"),
        ({**QWEN, "decoder_sparse_step": 2, "mlp_only_layers": [1]}, "dddedede"),
        # Llama 4: moe_layers, or from step - 1 on every step-th (Maverick: 2)
        (LLAMA4, "eeeeeeee"),
        ({**LLAMA4, "interleave_moe_layer_step": 2}, "dededede"),
        ({**LLAMA4, "interleave_moe_layer_step": 4}, "dddeddde"),
        ({**LLAMA4, "interleave_moe_layer_step": 4, "moe_layers": [2, 5]}, "ddeddedd"),
        # DeepSeek: i >= first_k_dense_replace and i % moe_layer_freq == 0
        ({**DEEPSEEK, "first_k_dense_replace": 1}, "deeeeeee"),
        ({**DEEPSEEK, "first_k_dense_replace": 1, "moe_layer_freq": 2}, "ddededed"),
        ({**DEEPSEEK, "first_k_dense_replace": 0, "moe_layer_freq": 3}, "eddedded"),
        ({**DEEPSEEK, "first_k_dense_replace": 1, "num_nextn_predict_layers": 2}, "deeeeeeeee"),
        ({**DEEPSEEK, "first_k_dense_replace": 8}, "dddddddd"),
        ({**DEEPSEEK, "mlp_layer_types": ["dense", *["sparse"] * 7]}, "deeeeeee"),
        # ERNIE: (i + 1) % moe_layer_interval == 0 from moe_layer_start_index on
        ({**ERNIE, "moe_layer_start_index": 3}, "dddeeeee"),
        ({**ERNIE, "moe_layer_start_index": 2, "moe_layer_interval": 2}, "dddedede"),
        ({**ERNIE, "moe_layer_start_index": 1, "moe_layer_end_index": 7}, "deeeeeee"),
        # no two numbers say these
        ({**ERNIE, "moe_layer_start_index": 1, "moe_layer_end_index": 3}, "deeedddd"),
        ({**QWEN, "mlp_only_layers": [1, 4]}, "edeedeee"),
        ({**DEEPSEEK, "mlp_layer_types": [*["sparse"] * 3, *["dense"] * 5]}, "eeeddddd"),
        ({**DEEPSEEK, "mlp_layer_types": ["sparse", *["dense"] * 6, "sparse"]}, "edddddde"),
    ],
)
def test_layers_with_experts_are_those_of_each_family(config, held):
    assert letters(read(config)) == held


def test_llama_4_maverick_alternates_and_scout_does_not():
    maverick, scout = load_model("llama-4-maverick"), load_model("llama-4-scout")
    assert letters(maverick) == "de" * 24
    assert letters(scout) == "e" * 48
    assert num_moe_layers(maverick) == 24
    # a dense layer is twice as wide as an expert, beside which the shared one runs
    assert (maverick.ffn, maverick.expert_ffn, maverick.shared_ffn) == (16384, 8192, 8192)


def test_the_extra_layers_come_last_and_hold_experts():
    glm = load_model("glm-4.5-air")
    assert letters(glm) == "d" + "e" * 45 + "e"
    assert kinds_present(replace(glm, dense_layers=46)) == ("dense", "moe")
    assert num_moe_layers(replace(glm, dense_layers=46)) == 0


def test_the_last_stage_is_the_one_with_most_experts():
    assert stage_kinds(load_model("deepseek-v3"), 1).count("dense") == 3
    assert stage_kinds(load_model("deepseek-v3"), 2).count("dense") == 0
    # 48 layers on 16 stages: e d e
    assert stage_kinds(load_model("llama-4-maverick"), 16) == ("moe", "dense", "moe")


@pytest.mark.parametrize("length", [1, 2, 5, 7])
def test_a_pattern_is_found_where_there_is_one_and_says_the_same_layers(length):
    """Over all ways to mark so many layers: the numbers found give the marks back, else no numbers do."""
    for marks in product((False, True), repeat=length):
        held = [
            [i >= d and (i - d) % e == 0 for i in range(length)]
            for d in range(length + 1)
            for e in range(1, 9)
        ]
        found = expert_pattern(marks)
        assert (found is not None) == (list(marks) in held)
        if found:
            first, step = found
            assert [i >= first and (i - first) % step == 0 for i in range(length)] == list(marks)
        full = {
            (e, early): [e > 0 and (i + (not early)) % e == 0 for i in range(length)]
            for e in range(length + 2)
            for early in (False, True)
        }
        seen = window_pattern(marks)
        assert (seen is not None) == (list(marks) in full.values())
        if seen is not None:
            assert full[seen] == list(marks)


def test_layers_listed_one_by_one_are_those_of_their_stages():
    arch = read({**ERNIE, "moe_layer_start_index": 1, "moe_layer_end_index": 3})
    assert (arch.expert_layers, num_moe_layers(arch)) == ((1, 2, 3), 3)
    # d e e e | d d d d, and d e | e e | d d | d d: the fullest stage is not the last one
    assert stage_kinds(arch, 2) == ("dense", "moe", "moe", "moe")
    assert stage_kinds(arch, 4) == ("moe", "moe")
    assert count_parameters(arch).mlp_moe > 0


def test_a_dense_mlp_beside_the_experts_is_an_expert_that_is_always_on():
    git = {**SMALL, "model_type": "git", "num_local_experts": 8, "num_experts_per_tok": 2}
    grok = read({**git, "moe_intermediate_size": 64, "residual_moe": True})
    assert (grok.shared_ffn, grok.expert_ffn, grok.shared_norm) == (512, 64, False)
    assert read({**git, "moe_intermediate_size": 64}).shared_ffn == 0
    arctic = read({**git, "model_type": "arctic", "moe_layer_frequency": 2, "parallel_attn_mlp_res": True})
    assert letters(arctic) == "dededede"
    # as wide as the hidden states, with a norm of its own
    assert (arctic.shared_ffn, arctic.expert_ffn, arctic.shared_norm) == (256, 512, True)
    names = [op.name for op in layer_operators(arctic, "moe", 64, 64).forward]
    at = names.index("shared expert norm")
    assert names[at + 1] == "shared expert up"
    plain = replace(arctic, shared_norm=False)
    assert count_parameters(arctic).total - count_parameters(plain).total == 4 * 256


def test_a_norm_behind_the_experts_is_in_no_dense_layer():
    axk1 = read({**DEEPSEEK, "model_type": "axk1", "q_lora_rank": 48, "first_k_dense_replace": 2})
    assert letters(axk1) == "ddeeeeee"
    assert "mlp output norm" in [op.name for op in layer_operators(axk1, "moe", 64, 64).forward]
    assert "mlp output norm" not in [op.name for op in layer_operators(axk1, "dense", 64, 64).forward]
    plain = replace(axk1, experts_norm=False)
    assert count_parameters(axk1).total - count_parameters(plain).total == 6 * 256
    kept, before = (layer_activations(arch, "moe", 64, 64) for arch in (axk1, plain))
    assert set(kept) - set(before) == {"output norm inputs"}


def test_attention_between_linear_layers_takes_no_keys_that_another_layer_chose():
    assert layer_kinds(load_model("qwen3-next-80b")) == (*["linear moe"] * 3, "moe") * 12
