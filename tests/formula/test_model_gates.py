"""Gates on attention's outputs: what they add to a layer, by hand."""

import json
from dataclasses import replace

import numpy as np
import pytest

from railwright.errors import PlanError, SpecError
from railwright.model import (
    Cut,
    count_parameters,
    flops_per_token,
    layer_activations,
    layer_operators,
    load_model,
    parse_config,
)
from railwright.model.counts.matrices import layer_matrices
from railwright.model.shape.pattern import layer_kinds
from railwright.search.exports.dispatcher import Hosts
from railwright.search.exports.megatron import megatron
from railwright.serving.engine.memory import weight_bytes
from railwright.serving.engine.operators import Stage, row_parts
from railwright.serving.engine.step import check_layout, stage_of
from railwright.spec.serving import ServingLayout
from railwright.training.checks.plan import check
from serving_jobs import job as serving_job
from serving_jobs import machine as serving_machine
from training_cases import DENSE, job, machine

PLAIN = load_model("llama-3-8b")
ELEMENT = replace(PLAIN, attention_gate="element")
HEAD = replace(PLAIN, attention_gate="head")
WIDTHS = [(ELEMENT, 32 * 128), (HEAD, 32)]


def by_name(operators):
    return {op.name: op for op in operators}


@pytest.mark.parametrize(("arch", "gates"), WIDTHS)
def test_gates_are_more_columns_of_one_product(arch, gates):
    # 8192 rows; 4096 inputs; (32 + 2*8) heads of 128 and the gates over 2 GPUs
    ops = by_name(layer_operators(arch, "dense", 8192, 8192, Cut(tp=2)).forward)
    product = ops["qkv projection"]
    assert (product.m, product.n, product.k) == (8192, (48 * 128 + gates) // 2, 4096)
    assert count_parameters(arch).total - count_parameters(PLAIN).total == 32 * 4096 * gates
    more = flops_per_token(arch, 8192).total - flops_per_token(PLAIN, 8192).total
    assert more == pytest.approx(6 * 32 * 4096 * gates)


def test_a_bias_per_head_is_counted():
    biased = replace(ELEMENT, attention_gate_bias=True)
    assert count_parameters(biased).total - count_parameters(ELEMENT).total == 32 * 32


@pytest.mark.parametrize(("arch", "gates"), WIDTHS)
def test_one_kernel_each_way_multiplies_them(arch, gates):
    # forward output and gates in, product out; backward gradient, output and gates in, two gradients out
    layer = layer_operators(arch, "dense", 8192, 8192, Cut(tp=4))
    names = [op.name for op in layer.forward]
    at = names.index("output gate")
    assert names[at - 1 : at + 2] == ["core attention", "output gate", "output projection"]
    width, gates = 32 * 128 / 4, gates / 4
    assert layer.forward[at].bytes == 2 * 8192 * (2 * width + gates)
    assert by_name(layer.backward_input)["output gate, backward"].bytes == 2 * 8192 * (3 * width + 2 * gates)
    assert layer.forward[at].launches == 1


@pytest.mark.parametrize(("arch", "gates"), WIDTHS)
@pytest.mark.parametrize(("dtype", "keep"), [("bf16", 2.0), ("fp8", 1.0)])
def test_output_gates_and_product_are_kept(arch, gates, dtype, keep):
    kept = layer_activations(arch, "dense", 8192, 8192, Cut(tp=2), dtype=dtype)
    plain = layer_activations(PLAIN, "dense", 8192, 8192, Cut(tp=2), dtype=dtype)
    assert kept["attention gates"] == 2 * 8192 * gates / 2
    assert kept["attention output"] == 2 * 8192 * 2048
    assert kept["gated output"] == keep * 8192 * 2048
    more = {"bf16": kept["gated output"], "fp8": 0.0}[dtype]
    assert sum(kept.values()) - sum(plain.values()) == kept["attention gates"] + more


def test_muon_sees_the_gates_as_a_matrix_of_their_own():
    found = {m.name: (m.rows, m.columns, m.cut) for m in layer_matrices(ELEMENT, "dense")}
    assert found["gate"] == (4096, 4096, "rows")


def test_what_is_not_known_of_gates_is_refused():
    with pytest.raises(PlanError, match="gates on the outputs of latent attention are not modelled"):
        layer_operators(replace(load_model("deepseek-v3"), attention_gate="head"), "dense", 64, 64)
    with pytest.raises(PlanError, match="without gates"):
        layer_activations(ELEMENT, "dense", 64, 64, recompute="selective", modules=("ops",))


def test_megatron_is_told_of_gates_per_element_and_has_none_per_head():
    one, cluster = job(), machine(2)
    lines = [
        megatron(one, replace(DENSE, attention_gate=gate, attention_gate_bias=True), Hosts.of(one, cluster))
        for gate in ("element", "head")
    ]
    assert "--attention-output-gate" in lines[0]
    assert "--attention-output-gate" not in lines[1]
    assert any(line.startswith("# gates per head") for line in lines[1])
    assert all(any(line.startswith("# biases of the gates") for line in found) for found in lines)


def test_engines_hold_and_multiply_them():
    # 32 layers of 4096 x 4096 weights in 16 bits over 2 GPUs
    cut = ServingLayout(tensor=2)
    assert weight_bytes(ELEMENT, "bf16", cut) - weight_bytes(PLAIN, "bf16", cut) == 2 * 32 * 4096**2 / 2
    base = stage_of(serving_job("llama-3-8b", 2), PLAIN, serving_machine(), None)
    times = [
        row_parts(Stage(base.place, base.job, arch, base.layout), np.array([64.0]), mixed=False)
        for arch in (PLAIN, HEAD, ELEMENT)
    ]
    products = [float(parts["attention products"][0]) for parts in times]
    assert products[0] < products[1] < products[2]


STEP = {
    "model_type": "step3p5",
    "num_hidden_layers": 5,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_attention_groups": 2,
    "head_dim": 32,
    "intermediate_size": 320,
    "vocab_size": 1000,
    "sliding_window": 64,
    "layer_types": ["full_attention", *["sliding_attention"] * 3, "full_attention", "sliding_attention"],
    "num_nextn_predict_layers": 1,
    "moe_layers_enum": "2, 3,4",
    "moe_num_experts": 8,
    "moe_top_k": 2,
    "moe_intermediate_size": 64,
    "share_expert_dim": 96,
}


def step(**more):
    return parse_config(json.dumps({**STEP, **more}), "config.json", "step")


def test_windowed_layers_may_have_heads_of_their_own():
    arch = step(attention_other_setting={"num_attention_heads": 12, "num_attention_groups": 2})
    assert arch == replace(step(num_sliding_attention_heads=12), source=arch.source)
    assert layer_kinds(arch) == (
        "dense",
        "windowed dense",
        "windowed moe",
        "windowed moe",
        "moe",
        "windowed dense",
    )
    near, whole = (by_name(layer_operators(arch, k, 512, 512).forward) for k in ("windowed moe", "moe"))
    # query heads of 32 and a gate each, beside 2 heads of keys and of values
    assert near["qkv projection"].n == 12 * 32 + 4 * 32 + 12
    assert whole["qkv projection"].n == 8 * 32 + 4 * 32 + 8
    # a window of 64 of 512 tokens, or everything; one operator each, no mean of both
    assert near["core attention"].flops == 4 * 12 * 32 * 512 * 64 * (1 - 64 / 1024)
    assert whole["core attention"].flops == 4 * 8 * 32 * 512 * 256
    alike = step(num_sliding_attention_heads=8)
    assert (alike.window_heads, alike.pattern, alike.full_every) == (0, (), 4)
    more = 3 * (256 * (4 * 32 * 2 + 4))
    assert count_parameters(arch).total - count_parameters(alike).total == more
    assert count_parameters(arch).mtp - count_parameters(alike).mtp == more // 3


def test_what_other_heads_are_not_cut_or_served_by_is_refused():
    arch = step(num_sliding_attention_heads=12)
    fabric = machine(1).network.fabric
    with pytest.raises(PlanError, match="windowed layers have other heads; set layout"):
        check(job(gpus=8, batch=8, context=2), arch, fabric)
    with pytest.raises(PlanError, match="12 attention heads of windowed layers"):
        check(job(gpus=8, batch=8, tensor=8), arch, fabric)
    with pytest.raises(PlanError, match="how engines serve them is not modelled"):
        check_layout(serving_job(), arch, ServingLayout())


MIMO = {
    **{key: STEP[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "sliding_window")},
    "model_type": "mimo_v2_flash",
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 48,
    "v_head_dim": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
}


def mimo(**more):
    return parse_config(json.dumps({**MIMO, **more}), "config.json", "mimo")


def test_windowed_layers_may_have_more_key_value_heads_and_values_may_be_narrow():
    arch = mimo()
    assert layer_kinds(arch) == ("dense", *["windowed moe"] * 4, "moe")
    near, whole = (by_name(layer_operators(arch, k, 512, 512).forward) for k in ("windowed moe", "moe"))
    # 8 queries of 48; 4 or 2 keys of 48 and values of 32
    assert near["qkv projection"].n == 8 * 48 + 4 * 80
    assert whole["qkv projection"].n == 8 * 48 + 2 * 80
    assert whole["output projection"].k == 8 * 32
    assert whole["core attention"].flops == 2 * 8 * (48 + 32) * 512 * 256
    kept = layer_activations(arch, "moe", 512, 512)
    assert kept["query, key, value"] == 2 * 512 * (8 * 48 + 2 * 80)
    assert kept["attention output"] == 2 * 512 * 8 * 32
    # a sink per head in windowed layers alone
    bare = replace(arch, window_sinks=False)
    assert count_parameters(arch).total - count_parameters(bare).total == 4 * 8
    # as its own config writes the same
    own = mimo(
        hybrid_layer_pattern=[0, 1, 1, 1, 1, 0],
        moe_layer_freq=[0, 1, 1, 1, 1, 1],
        swa_num_key_value_heads=4,
        swa_head_dim=48,
        swa_v_head_dim=32,
    )
    assert own == arch


def test_windowed_layers_with_as_many_heads_as_the_others_still_have_sinks_of_their_own():
    # MiMo-V2.5-Pro: 128 heads and 8 for keys in all layers, sinks in those with a window
    alike = mimo(model_type="mimo_v2", swa_num_key_value_heads=2, add_swa_attention_sink_bias=True)
    without = mimo(model_type="mimo_v2", swa_num_key_value_heads=2, add_swa_attention_sink_bias=False)
    assert layer_kinds(alike) == ("dense", *["windowed moe"] * 4, "moe")
    assert layer_kinds(without) == ("dense", *["moe"] * 5)
    assert count_parameters(alike).total - count_parameters(without).total == 4 * 8
    with pytest.raises(SpecError, match="add_full_attention_sink_bias"):
        mimo(add_full_attention_sink_bias=True)


def test_values_narrower_than_keys_are_not_served():
    narrow = mimo(swa_num_key_value_heads=2, add_swa_attention_sink_bias=False)
    assert not narrow.window_heads
    with pytest.raises(PlanError, match="values of mimo are 32 wide and its keys 48"):
        check_layout(serving_job(), narrow, ServingLayout())


GEMMA = {
    **{key: STEP[key] for key in ("hidden_size", "intermediate_size", "vocab_size", "sliding_window")},
    "model_type": "gemma4_text",
    "num_hidden_layers": 6,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 32,
    "global_head_dim": 64,
    "hidden_size_per_layer_input": 0,
}
"""A small Gemma 4."""


def test_gemma_4_norms_what_its_experts_and_its_mlp_give_apart():
    config = {
        **GEMMA,
        "enable_moe_block": True,
        "num_experts": 8,
        "top_k_experts": 2,
        "moe_intermediate_size": 64,
    }
    arch = parse_config(json.dumps(config), "config.json", "gemma")
    assert layer_kinds(arch) == (*["windowed moe"] * 5, "moe")
    assert (arch.shared_ffn, arch.expert_ffn, arch.experts_per_token) == (config["intermediate_size"], 64, 2)
    ops = by_name(layer_operators(arch, "moe", 512, 512).forward)
    norms = ("mlp norm", "router norm", "shared expert norm", "routed output norm", "shared output norm")
    assert {ops[name].bytes for name in (*norms, "mlp output norm")} == {2 * 512 * 2 * 256}
    # three norms more than with a shared expert alone, one of them in front of it, and a scale per expert
    bare = replace(arch, branch_norms=False, shared_norm=False)
    assert count_parameters(arch).total - count_parameters(bare).total == 6 * (4 * 256 + 8)
    kept, less = (layer_activations(one, "moe", 512, 512) for one in (arch, bare))
    assert kept["output norm inputs"] - less["output norm inputs"] == 2 * 2 * 512 * 256
    assert kept["router norm output"] == kept["shared norm output"] == 2 * 512 * 256


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern"),
        ({"hybrid_layer_pattern": [0, 1, 2, 1, 1, 0]}, "hybrid_layer_pattern"),
        ({"moe_layer_freq": ["a"] * 6}, "moe_layer_freq"),
        ({"swa_head_dim": 64}, "swa_head_dim"),
        ({"swa_v_head_dim": 64}, "swa_v_head_dim"),
        ({"swa_num_key_value_heads": 3}, "swa_num_key_value_heads"),
    ],
)
def test_other_heads_that_are_not_modelled_name_the_key(more, field):
    with pytest.raises(SpecError) as caught:
        mimo(**more)
    assert [m.field for m in caught.value.mistakes] == [field]


def test_gemma_4_has_wider_heads_where_it_sees_everything_and_no_values_of_their_own_there():
    config = {
        **GEMMA,
        "num_global_key_value_heads": 2,
        "attention_k_eq_v": True,
    }
    arch = parse_config(json.dumps(config), "config.json", "gemma")
    assert layer_kinds(arch) == (*["windowed dense"] * 5, "dense")
    near, whole = (by_name(layer_operators(arch, k, 512, 512).forward) for k in ("windowed dense", "dense"))
    assert near["qkv projection"].n == (8 + 4 + 4) * 32
    assert whole["qkv projection"].n == (8 + 2) * 64
    # values are normed too, with the keys' product before them in a layer that sees everything
    assert near["query/key norm"].bytes == 2 * 512 * 2 * 16 * 32
    assert whole["query/key norm"].bytes == 2 * 512 * 2 * 12 * 64
    kept = layer_activations(arch, "dense", 512, 512)
    assert kept["query, key, value"] == 2 * 512 * 12 * 64
    assert kept["query and key before norm"] == 2 * 512 * 10 * 64
    assert "value" not in {m.name for m in layer_matrices(arch, "dense")}
    assert "value" in {m.name for m in layer_matrices(arch, "windowed dense")}
