"""Which layers hold experts and which see everything: published patterns, written out by hand."""

import json
from dataclasses import replace
from itertools import product

import pytest

from railwright.model import (
    count_parameters,
    embedding_operators,
    flops_per_token,
    layer_activations,
    layer_operators,
    load_model,
    parse_config,
)
from railwright.model.flops import attended_keys
from railwright.model.pattern import (
    expert_pattern,
    full_layers,
    kinds_present,
    layer_kinds,
    num_moe_layers,
    stage_kinds,
    window_pattern,
)

SMALL = {
    "num_hidden_layers": 8,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
QWEN = {
    **SMALL,
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}
LLAMA4 = {
    **SMALL,
    "model_type": "llama4_text",
    "num_local_experts": 8,
    "num_experts_per_tok": 1,
    "intermediate_size_mlp": 1024,
}
ERNIE = {**SMALL, "model_type": "ernie4_5_moe", "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 64}
DEEPSEEK = {
    **SMALL,
    "model_type": "deepseek_v3",
    "num_key_value_heads": 8,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def read(config):
    return parse_config(json.dumps(config), "config.json", "model")


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


@pytest.mark.parametrize(
    ("name", "windowed", "window"),
    [
        ("gemma-3-27b", 52, 1024),  # 5 local layers to 1 global one; the last 2 of 62 are local
        ("llama-4-maverick", 36, 8192),  # three chunked layers to one without positions
        ("gpt-oss-120b", 18, 128),  # every other one
        ("mistral-7b", 32, 4096),  # all
        ("phi-4", 0, 0),
    ],
)
def test_windows_of_published_models(name, windowed, window):
    arch = load_model(name)
    assert (arch.layers - full_layers(arch), arch.sliding_window) == (windowed, window)


def test_layers_listed_one_by_one_are_those_of_their_stages():
    arch = read({**ERNIE, "moe_layer_start_index": 1, "moe_layer_end_index": 3})
    assert (arch.expert_layers, num_moe_layers(arch)) == ((1, 2, 3), 3)
    # d e e e | d d d d, and d e | e e | d d | d d: the fullest stage is not the last one
    assert stage_kinds(arch, 2) == ("dense", "moe", "moe", "moe")
    assert stage_kinds(arch, 4) == ("moe", "moe")
    assert count_parameters(arch).mlp_moe > 0


@pytest.mark.parametrize(
    ("config", "whole"),
    [
        # Qwen: windows from max_window_layers on
        (
            {**SMALL, "model_type": "qwen3", "use_sliding_window": True, "max_window_layers": 2},
            (0, 1),
        ),
        # Llama 4: layers without rotary positions see everything
        ({**LLAMA4, "no_rope_layers": [0, 1, 0, 0, 1, 1, 1, 1], "attention_chunk_size": 64}, (0, 2, 3)),
        # Flint: the first two, every fourth, and the last
        (
            {**QWEN, "model_type": "flint", "num_hidden_layers": 11},
            (0, 1, 5, 9, 10),
        ),
        # Muse Glimmer counts from the last layer
        ({**SMALL, "model_type": "muse_glimmer_text", "num_hidden_layers": 7}, (2, 6)),
    ],
)
def test_layers_that_see_everything_may_be_listed_one_by_one(config, whole):
    arch = read({"sliding_window": 64, **config})
    assert (arch.whole_layers, arch.full_every, full_layers(arch)) == (whole, 0, len(whole))
    # a stage of one layer sees everything or not; halves hold what they hold
    assert full_layers(arch, arch.layers) == 1
    half = -(-arch.layers // 2)
    assert full_layers(arch, 2) == max(sum(i < half for i in whole), sum(i >= half for i in whole))
    assert attended_keys(arch, 4096, "full") == pytest.approx(
        (len(whole) * 4096 + (arch.layers - len(whole)) * 64) / arch.layers
    )


def test_a_stage_of_many_counts_the_most_full_layers_it_can_hold():
    gemma = load_model("gemma-3-27b")  # 62 layers, full at 5, 11, …, 59
    assert full_layers(gemma) == 10
    # 16 layers of four stages: 16 to 31 hold 17, 23 and 29
    assert full_layers(gemma, 4) == 3
    assert full_layers(replace(gemma, sliding_window=0), 4) == 16
    assert full_layers(replace(gemma, full_every=0), 4) == 0


def test_the_first_of_every_few_layers_may_see_everything_instead_of_the_last():
    # 0, 6, …, 60: one more than with the last of every six, and as many in a stage
    gemma = replace(load_model("gemma-3-27b"), full_first=True)
    assert full_layers(gemma) == 11
    assert full_layers(gemma, 4) == 3


@pytest.mark.parametrize(
    ("sequence", "window"), [(64, 16), (60, 16), (10, 16), (16, 16), (17, 16), (2048, 256)]
)
@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize("every", [0, 3])
def test_keys_that_are_attended_to_are_those_of_the_mask(sequence, window, chunked, every):
    """Every query of every layer, key by key; the closed form leaves out the half key of the diagonal."""
    layers = 7
    arch = replace(
        load_model("llama-3.1-8b"),
        layers=layers,
        sliding_window=window,
        window_chunked=chunked,
        full_every=every,
    )
    met = 0
    for layer in range(layers):
        full = every > 0 and (layer + 1) % every == 0
        for query in range(sequence):
            first = query // window * window if chunked else max(query - window + 1, 0)
            met += query + 1 - (0 if full else first)
    mean = met / layers / sequence
    assert attended_keys(arch, sequence, "causal") == pytest.approx(mean - 0.5, abs=0.5)


def test_keys_of_chunks_by_hand():
    # Llama 4 at 131,072 tokens: three layers of four see 4,096 keys on average, the fourth 65,536
    arch = load_model("llama-4-scout")
    assert attended_keys(arch, 131072, "causal") == 0.75 * 4096 + 0.25 * 65536
    assert attended_keys(arch, 131072, "full") == 0.75 * 8192 + 0.25 * 131072
    # 12,288 tokens are one chunk of 8,192 and one of half that: (8,192^2 + 4,096^2) / 2 pairs
    chunked = (8192**2 + 4096**2) / 2 / 12288
    assert attended_keys(arch, 12288, "causal") == pytest.approx(0.75 * chunked + 0.25 * 6144)
    # within one chunk nothing is cut off
    plain = replace(arch, sliding_window=0)
    assert flops_per_token(arch, 8192) == flops_per_token(plain, 8192)


def test_attention_of_a_mean_layer_is_its_windowed_and_its_full_part():
    arch = load_model("gemma-3-27b")
    near, whole = (
        op for op in layer_operators(arch, "dense", 32768, 32768).forward if op.name == "core attention"
    )
    each = 4 * 32 * 128 * 32768
    assert near.flops == pytest.approx(52 / 62 * each * 1024 * (1 - 1024 / 65536))
    assert whole.flops == pytest.approx(10 / 62 * each * 16384)
    # a window's kernel is as slow as that of a causal sequence of twice its length, a chunk's of its own
    assert (near.n, whole.n, near.launches + whole.launches) == (2048, 32768, 1)
    chunked = replace(arch, window_chunked=True)
    ops = [
        op for op in layer_operators(chunked, "dense", 32768, 32768).forward if op.name == "core attention"
    ]
    assert ops[0].n == 1024
    assert ops[0].flops == pytest.approx(52 / 62 * each * 512)


def test_a_norm_that_serves_attention_and_mlp_runs_once():
    names = [
        op.name for op in layer_operators(read({**SMALL, "model_type": "cohere"}), "dense", 64, 64).forward
    ]
    assert "input norm" in names
    assert "mlp norm" not in names


def test_alibi_has_no_rotary_kernel_and_blooms_embedding_a_norm():
    bloom = read({"model_type": "bloom", "hidden_size": 256, "n_layer": 4, "n_head": 8, "vocab_size": 1000})
    names = [op.name for op in layer_operators(bloom, "dense", 64, 64).forward]
    assert "rotary" not in names
    assert [op.name for op in embedding_operators(bloom, 64).forward] == ["embedding", "embedding norm"]
    assert [op.name for op in embedding_operators(bloom, 64).backward_input] == ["embedding norm, backward"]


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


def test_qwens_flat_multimodal_config_is_its_language_model():
    flat = read({**SMALL, "model_type": "qwen2_5_vl", "vision_config": {"depth": 4}})
    assert flat == replace(read({**SMALL, "model_type": "qwen2"}), source=flat.source)
    assert "left out" in flat.source


def test_windows_of_configs_that_do_not_say_and_of_those_that_say_none():
    gemma = {**SMALL, "model_type": "gemma3_text"}
    assert read(gemma).sliding_window == 4096
    assert read({**gemma, "sliding_window": None}).sliding_window == 0
    assert read({**LLAMA4, "attention_chunk_size": None}).sliding_window == 0
    assert read(LLAMA4).sliding_window == 8192
    # Qwen: windows from max_window_layers on, so 8 of 8 layers without are none
    window = {**SMALL, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 64}
    assert read({**window, "max_window_layers": 8}).sliding_window == 0
    assert read({**window, "max_window_layers": 0}).sliding_window == 64


def test_chunked_layers_follow_the_rotary_ones():
    turned = [1, 0] * 4
    arch = read({**LLAMA4, "no_rope_layers": turned})
    assert (arch.full_every, arch.window_chunked) == (2, True)
    assert read({**LLAMA4, "no_rope_layers": [], "no_rope_layer_interval": 3}).full_every == 3
    assert read({**LLAMA4, "layer_types": ["chunked_attention"] * 8}).full_every == 0


def test_exaone_says_its_pattern_in_letters():
    exaone = {**SMALL, "model_type": "exaone4", "sliding_window": 64}
    assert read({**exaone, "sliding_window_pattern": "LLLG"}).full_every == 4
    assert read({**exaone, "sliding_window_pattern": 2}).full_every == 2
    assert read({**exaone, "sliding_window": None}).sliding_window == 0


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
