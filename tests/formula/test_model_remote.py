"""Families that have no class in huggingface/transformers, counted by hand, matrix by matrix."""

import json

import pytest

from railwright.model import count_parameters, parse_config

HIDDEN, HEADS, LAYERS, VOCAB, FFN = 256, 8, 6, 1000, 320
BASE = {
    "num_hidden_layers": LAYERS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "intermediate_size": FFN,
    "vocab_size": VOCAB,
    "max_position_embeddings": 512,
}
TABLES = 2 * VOCAB * HIDDEN
NORMS = (2 * LAYERS + 1) * HIDDEN
SQUARE = HIDDEN * HIDDEN
GATED = 3 * HIDDEN * FFN


def read(kind, base=BASE, **more):
    return parse_config(json.dumps({**base, "model_type": kind, **more}), "config.json", kind)


def total(kind, base=BASE, **more):
    return count_parameters(read(kind, base, **more)).total


LLAMA = TABLES + NORMS + LAYERS * (4 * SQUARE + GATED)


@pytest.mark.parametrize("kind", ["Yi", "aquila", "xverse", "skywork", "baichuan"])
def test_llamas_layers_under_another_name(kind):
    assert total(kind) == LLAMA
    # two heads of keys and values of 32 each instead of eight
    if kind != "baichuan":
        assert total(kind, num_key_value_heads=2) == LLAMA - LAYERS * 2 * HIDDEN * (256 - 64)


def test_exaone_calls_its_depth_num_layers():
    config = {key: value for key, value in BASE.items() if key != "num_hidden_layers"}
    assert total("exaone", {**config, "num_layers": LAYERS}) == LLAMA


def test_orions_norms_have_biases():
    assert total("orion") == LLAMA + NORMS


def test_minicpm_ties_its_tables_unless_told():
    assert total("minicpm") == LLAMA - VOCAB * HIDDEN
    assert total("minicpm", tie_word_embeddings=False) == LLAMA


def test_internlm_has_biases_on_all_four_products_of_attention_but_not_on_its_mlp():
    assert total("internlm") == LLAMA + LAYERS * 4 * HIDDEN
    assert total("internlm", bias=False) == LLAMA


def test_qwens_intermediate_size_is_that_of_gate_and_up_together():
    # gate and up of 160 each, and one down: half of Llama's; biases on queries, keys and values
    half = LLAMA - LAYERS * GATED // 2
    assert total("qwen") == half + LAYERS * 3 * HIDDEN
    # everything but the head is biased: the output of attention, gate, up and down
    assert total("qwen", no_bias=False) == half + LAYERS * (3 * HIDDEN + HIDDEN + FFN + HIDDEN)
    # heads of 64 instead of 32: attention is twice as wide
    assert total("qwen", kv_channels=64) == half + LAYERS * (4 * SQUARE + 6 * HIDDEN)


def test_baichuan_13b_has_alibi_and_no_key_of_positions():
    config = {key: value for key, value in BASE.items() if key != "max_position_embeddings"}
    large = read("baichuan", {**config, "model_max_length": 2048})
    assert (large.alibi, large.max_positions) == (True, 2048)
    small = read("baichuan", model_max_length=2048)
    assert (small.alibi, small.max_positions) == (False, 512)


def test_mimo_is_qwen_2_with_an_extra_layer():
    count = count_parameters(read("mimo", num_key_value_heads=8, num_nextn_predict_layers=1))
    assert count.total == LLAMA + LAYERS * 3 * HIDDEN
    # a layer with its two norms, three more norms, and the product that joins token and state
    assert count.mtp == 4 * SQUARE + GATED + 3 * HIDDEN + 2 * HIDDEN + 3 * HIDDEN + 2 * SQUARE


MOE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
EXPERT = 3 * HIDDEN * 64


def test_lings_experts_are_in_every_layer_and_some_are_always_on():
    one = 8 * EXPERT + HIDDEN * 8
    everywhere = LLAMA + LAYERS * (one - GATED)
    assert total("bailing_moe", **MOE) == everywhere
    assert total("bailing_moe", **MOE, num_shared_experts=2) == everywhere + LAYERS * 2 * EXPERT
    wider = {"num_shared_experts": 2, "moe_shared_expert_intermediate_size": 128}
    assert total("bailing_moe", **MOE, **wider) == everywhere + LAYERS * 4 * EXPERT


def test_ling_2_has_dense_layers_first_normed_queries_and_a_biased_router():
    arch = read(
        "bailing_moe",
        **MOE,
        num_shared_experts=1,
        first_k_dense_replace=2,
        use_qk_norm=True,
        moe_router_enable_expert_bias=True,
        use_qkv_bias=True,
        use_bias=True,
        num_key_value_heads=2,
        n_group=4,
    )
    attention = 2 * SQUARE + 2 * HIDDEN * 64 + 2 * 32 + (HIDDEN + 2 * 64) + HIDDEN
    moe = 9 * EXPERT + HIDDEN * 8 + 8
    assert count_parameters(arch).total == TABLES + NORMS + LAYERS * attention + 2 * GATED + 4 * moe
    assert (arch.dense_layers, arch.expert_groups) == (2, 4)


ROUTED = {"n_routed_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}


@pytest.mark.parametrize("kind", ["deepseek", "deepseek_v2"])
def test_deepseek_moe_has_llamas_attention(kind):
    arch = read(kind, **ROUTED, n_shared_experts=2, first_k_dense_replace=1, use_mla=False, kv_lora_rank=None)
    moe = 10 * EXPERT + HIDDEN * 8
    assert arch.attention == "gqa"
    assert count_parameters(arch).total == TABLES + NORMS + LAYERS * 4 * SQUARE + GATED + 5 * moe


def test_deepseek_moe_without_experts_is_dense():
    assert total("deepseek", attention_bias=True) == LLAMA + LAYERS * 4 * HIDDEN


CHATGLM = {
    "num_layers": LAYERS,
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "ffn_hidden_size": FFN,
    "padded_vocab_size": VOCAB,
    "kv_channels": 32,
}


def test_chatglm_groups_its_queries_and_norms_as_its_keys_say():
    assert total("chatglm", CHATGLM) == LLAMA
    assert total("chatglm", CHATGLM, rmsnorm=False) == LLAMA + NORMS
    grouped = {"multi_query_attention": True, "multi_query_group_num": 2, "add_qkv_bias": True}
    fewer = 2 * HIDDEN * (256 - 64)
    assert total("chatglm", CHATGLM, **grouped) == LLAMA - LAYERS * (fewer - (HIDDEN + 2 * 64))


JAIS = {"n_layer": LAYERS, "n_embd": HIDDEN, "n_head": HEADS, "vocab_size": VOCAB, "n_inner": FFN}


def test_jais_is_gpt_2_unless_its_keys_say_alibi_and_swiglu():
    attention, norms = 4 * SQUARE + 4 * HIDDEN, 2 * NORMS
    mlp = 2 * HIDDEN * FFN + FFN + HIDDEN
    plain = VOCAB * HIDDEN + norms + LAYERS * (attention + mlp)
    assert total("jais", JAIS, n_positions=64) == plain + 64 * HIDDEN
    gated = read("jais", JAIS, position_embedding_type="alibi", activation_function="swiglu")
    assert count_parameters(gated).total == plain + LAYERS * (HIDDEN * FFN + FFN)
    assert gated.alibi


def test_falcon_under_its_first_names():
    names = {"hidden_size": HIDDEN, "n_layer": LAYERS, "n_head": HEADS, "vocab_size": VOCAB, "alibi": False}
    later = {"num_kv_heads": 2, "new_decoder_architecture": True}
    assert read("RefinedWeb", names, n_head_kv=2).kv_heads == 2
    assert total("RefinedWeb", names, n_head_kv=2) == total("falcon", BASE, **later)
    flags = {"multi_query": True, "parallel_attn": True, "bias": False}
    assert total("RefinedWebModel", names, **flags) == total("falcon", BASE, **flags)
    assert total("RefinedWebModel", names, bias=True) == total(
        "falcon", BASE, multi_query=False, parallel_attn=False, bias=True
    )


def test_stablelm_and_phi_4_multimodal_under_their_first_names():
    assert total("stablelm_epoch", num_key_value_heads=8) == total("stablelm", num_key_value_heads=8)
    assert total("phi4mm", num_key_value_heads=2) == total("phi3", num_key_value_heads=2)
