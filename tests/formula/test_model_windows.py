"""Which layers see everything and which a window, and the keys that makes: published patterns, by hand."""

from dataclasses import replace

import pytest

from model_configs import LLAMA4, QWEN, SMALL, read
from railwright.model import flops_per_token, layer_operators, load_model
from railwright.model.shape.flops import attended_keys
from railwright.model.shape.pattern import full_layers


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
