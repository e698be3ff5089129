"""Layers that a config.json gives shapes of their own (`per_layer_config`): read, or refused."""

import pytest

from model_configs import SMALL, read
from railwright.errors import SpecError

LLAMA = {**SMALL, "model_type": "llama"}
GEMMA = {**SMALL, "model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "head_dim": 32}
STEP = {
    **SMALL,
    "model_type": "step3p5",
    "moe_intermediate_size": 64,
    "sliding_window": 64,
    "layer_types": ["sliding_attention", "full_attention"] * 4,
}


@pytest.mark.parametrize(
    ("config", "given", "says"),
    [
        (LLAMA, {"3": {"intermediate_size": 1024}}, "layer 3 has intermediate_size of its own"),
        (LLAMA, {"03": {"skip": ["attention"]}}, "layer 3 has skip of its own"),
        (LLAMA, {"8": {"intermediate_size": 1024}}, "the numbers of layers, 0 to 7, is expected"),
        (LLAMA, {"first": {}}, "the numbers of layers"),
        (LLAMA, {"0": 1024}, "an object of objects"),
        (LLAMA, ["0"], "an object of objects"),
        (GEMMA, {"0": {"head_dim": 64}}, "layer 0 has head_dim of its own"),
        (GEMMA, {"5": {"head_dim": 64}}, "layer 5 has head_dim of its own"),
        (GEMMA, {i: {"intermediate_size": 64} for i in "57"}, "only head_dim and num_key_value_heads may"),
        (GEMMA, {i: {"head_dim": "64"} for i in "57"}, "'64' is not a whole number"),
        (STEP, {"1": {"num_attention_heads": 16}}, "layer 1 has num_attention_heads of its own"),
        (STEP, {i: {"num_attention_heads": 13} for i in "0246"}, "2 key-value heads do not divide 13"),
    ],
)
def test_layers_apart_that_are_not_modelled_are_refused(config, given, says):
    with pytest.raises(SpecError) as caught:
        read({**config, "per_layer_config": given})
    assert says in str(caught.value)
    assert [m.field.split(".")[0] for m in caught.value.mistakes] == ["per_layer_config"]


def test_what_a_layer_has_in_common_with_all_changes_nothing():
    given = {str(layer): {"intermediate_size": 512} for layer in range(8)}
    for said in (given, {}, None):
        assert read({**LLAMA, "per_layer_config": said}) == read(LLAMA)


def test_what_single_layers_say_counts_before_the_keys_of_their_kind():
    heads = {i: {"num_attention_heads": 16} for i in "0246"}
    arch = read({**STEP, "num_sliding_attention_heads": 12, "per_layer_config": heads})
    assert (arch.heads, arch.window_heads) == (8, 16)
    wide = {i: {"head_dim": 64} for i in "57"}
    arch = read({**GEMMA, "global_head_dim": 128, "per_layer_config": wide})
    assert (arch.head_dim, arch.window_head_dim) == (64, 32)
