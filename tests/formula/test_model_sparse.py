"""Attention to keys that an indexer chooses: shapes, FLOPs, bytes and refusals by hand."""

import json
from dataclasses import replace

import pytest

from railwright.compute import kernel_time
from railwright.errors import PlanError, SpecError
from railwright.model import (
    Cut,
    count_parameters,
    flops_per_token,
    layer_activations,
    layer_operators,
    layer_parameters,
    load_model,
    parse_config,
)
from railwright.model.counts.matrices import layer_matrices
from railwright.model.shape.flops import attended_keys
from railwright.model.shape.pattern import layer_kinds
from railwright.serving.engine.step import check_layout
from railwright.training.checks.plan import check
from search_cases import CHOOSING
from serving_jobs import job as serving_job
from training_cases import changed, job, machine

ARCH = load_model("deepseek-v3.2")
FLAT = {
    "model_type": "deepseek_v32",
    "num_hidden_layers": 4,
    "hidden_size": 256,
    "num_attention_heads": 8,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "q_lora_rank": 48,
    "kv_lora_rank": 32,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "moe_intermediate_size": 64,
    "num_experts_per_tok": 2,
    "index_topk": 64,
}


def by_name(operators):
    return {op.name: op for op in operators}


def read(**changes):
    return parse_config(json.dumps({**FLAT, **changes}), "config.json", "small")


def test_a_query_meets_its_best_keys_or_its_prefix():
    # 131,072 tokens: 2,048 keys but for the first 2,048 queries, which meet half as many in the mean
    assert attended_keys(ARCH, 131072, "causal") == 2048 - 2048 * 2048 / 2 / 131072
    assert attended_keys(ARCH, 131072, "full") == 2048
    # shorter than that everything is chosen
    assert attended_keys(ARCH, 1024, "causal") == 512
    keys = sum(min(i + 0.5, 2048) for i in range(16384)) / 16384
    assert attended_keys(ARCH, 16384, "causal") == pytest.approx(keys)


def test_flops_of_one_token_by_hand():
    """Latent attention: 128 heads, keys of 576, values of 512; index: 64 heads of 128, on every key."""
    dense = load_model("deepseek-v3")
    s = 65536
    ours, theirs = (flops_per_token(arch, s, "causal") for arch in (ARCH, dense))
    met = 2048 - 2048**2 / 2 / s
    products = 2 * (1536 * 8192 + 7168 * 128 + 7168 * 64)
    scores = 2 * 128 * (576 + 512) * met - 2 * 128 * (192 + 128) * s / 2
    assert ours.forward - theirs.forward == pytest.approx(61 * (products + scores + 2 * 8192 * s / 2))
    # weights of the indexer's products, and two products of its scores on the chosen keys
    assert ours.backward - theirs.backward == pytest.approx(61 * (2 * scores + products + 4 * 8192 * met))


def test_products_of_a_layer_under_tp_4():
    layer = layer_operators(ARCH, "dense", 4096, 4096, Cut(tp=4, sequence_parallel=True))
    ops = by_name(layer.forward)
    shapes = {name: (op.m, op.n, op.k, op.batch) for name, op in ops.items() if op.kind == "gemm"}
    # into the latent space and out of it, a product for each of 32 heads, all in one kernel
    assert shapes["query absorption"] == (4096, 512, 128, 32)
    assert shapes["value absorption"] == (4096, 128, 512, 32)
    assert ops["query absorption"].launches == 1
    # the indexer is on every rank, with all rows
    assert shapes["index query"] == (4096, 8192, 1536, 1)
    assert shapes["index key"] == (4096, 128, 7168, 1)
    assert shapes["index weights"] == (4096, 64, 7168, 1)
    assert "key/value up" not in ops
    names = [op.name for op in layer.backward_input]
    assert not any(name.startswith(("index query", "index key,", "index weights")) for name in names)
    weights = {op.name for op in layer.backward_weight}
    assert {f"index {what}, weight gradient" for what in ("query", "key", "weights")} <= weights


def test_scores_choice_and_attention_of_a_layer():
    rows, s = 16384, 8192
    layer = layer_operators(ARCH, "dense", rows, s, Cut(tp=2))
    ops, back = by_name(layer.forward), by_name(layer.backward_input)
    met = 2048 * (1 - 2048 / 2 / s)
    assert ops["index scores"].flops == 2 * rows * 64 * 128 * s / 2
    assert back["index scores, backward"].flops == pytest.approx(3 * 2 * rows * 64 * 128 * met)
    # 64 heads of this GPU; scores of 576, values of 512; the loss looks at the scores twice
    assert ops["core attention"].flops == pytest.approx(2 * rows * 64 * (576 + 512) * met)
    assert ops["index loss"].flops == pytest.approx(2 * 2 * rows * 64 * 576 * met)
    assert back["core attention, backward"].flops == 2.5 * ops["core attention"].flops
    # 32-bit scores of every key are written, and read five times
    assert ops["index scores"].bytes == rows * (2 * (64 * 128 + 128) + 4 * 64 + 4 * s)
    assert ops["index choice"].bytes == pytest.approx(rows * (5 * 4 * s + 55 * 2048))
    # two blocks of 8,192 queries, 32 of 512
    launches = {name: ops[name].launches for name in ("index scores", "index choice", "index loss")}
    assert launches == {"index scores": 4, "index choice": 32, "index loss": 64}


def test_what_a_pass_keeps_of_one_row():
    rows, tp = 4096, 8
    kept = layer_activations(ARCH, "dense", rows, 4096, Cut(tp=tp, sequence_parallel=True))
    row = {name: size / rows for name, size in kept.items()}
    assert row["query, key, value"] == 2 * (16 * 576 + 576)
    assert row["query up output"] == 2 * 16 * 192
    assert row["attention output"] == 2 * 16 * 512
    assert row["value output"] == 2 * 16 * 128
    # on every rank: indices twice and a gradient of each chosen key, index queries and keys, gathered inputs
    assert row["index choice"] == 12 * 2048
    assert row["index query, key"] == 2 * 66 * 128 + 4 * 64
    assert row["index inputs"] == 2 * (7168 + 1536)
    again = layer_activations(
        ARCH, "dense", rows, 4096, Cut(tp=tp, sequence_parallel=True), recompute="selective"
    )
    gone = {"attention scores", "index choice", "index query, key", "index inputs"}
    assert set(kept) - set(again) == gone


def test_the_indexer_is_whole_on_every_tensor_rank():
    index = 1536 * 8192 + 7168 * (128 + 64) + 2 * 128
    dense = load_model("deepseek-v3")
    for tp in (1, 8):
        indexed, plain = (layer_parameters(a, "dense", Cut(tp=tp)).dense for a in (ARCH, dense))
        assert indexed - plain == pytest.approx(index)
    found = {m.name: m.cut for m in layer_matrices(ARCH, "dense")}
    assert found["index query"] == found["index key"] == found["index weights"] == ""


def test_the_kernel_of_chosen_keys_is_as_fast_as_the_published_one():
    """FlashMLA's README: 640 TFLOP/s on an H800, whole prompts, 2,048 keys; ours are Megatron's kernels."""
    op = by_name(layer_operators(ARCH, "dense", 32768, 32768).forward)["core attention"]
    rate = op.flops / kernel_time(op, machine(1).gpu)
    assert rate == pytest.approx(640e12, rel=0.25)
    assert rate < 640e12


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"indexer_types": ["full", "shared"]}, "indexer_types"),
        ({"indexer_types": ["shared", *["full"] * 3]}, "indexer_types"),
        ({"indexer_types": ["full", "none", "full", "full"]}, "indexer_types"),
        ({"index_topk_pattern": "FSX"}, "index_topk_pattern"),
        ({"index_topk_freq": 0}, "index_topk_freq"),
        ({"layer_types": ["indexed_attention", "full_attention"] * 2}, "layer_types"),
        ({"q_lora_rank": 0}, "q_lora_rank"),
        ({"index_topk": 0}, "index_topk"),
        ({"index_n_heads": "4"}, "index_n_heads"),
    ],
)
def test_configs_that_are_refused_name_the_key(changes, field):
    with pytest.raises(SpecError) as caught:
        read(**changes)
    assert field in [m.field for m in caught.value.mistakes]
    assert {m.field for m in caught.value.mistakes} == {field}


def test_layers_may_take_the_keys_that_one_before_them_chose():
    arch = read(indexer_types=["full", "shared", "full", "shared"], first_k_dense_replace=1, index_n_heads=4)
    assert layer_kinds(arch) == ("dense", "sharing moe", "moe", "sharing moe")
    assert layer_kinds(read(index_topk_pattern="FSSF")) == ("dense", "sharing dense", "sharing dense", "moe")
    # counted from the second layer on, as GLM's class does
    names = layer_kinds(read(num_hidden_layers=8, index_topk_freq=3, first_k_dense_replace=0))
    assert [k.startswith("sharing") for k in names] == [i not in (0, 1, 4, 7) for i in range(8)]
    ops = by_name(layer_operators(arch, "sharing moe", 256, 256).forward)
    assert not any(name.startswith("index") for name in ops)
    assert (
        ops["core attention"].flops
        == by_name(layer_operators(arch, "moe", 256, 256).forward)["core attention"].flops
    )
    whole = read(first_k_dense_replace=1, index_n_heads=4)
    index = 48 * 4 * 128 + 256 * (128 + 4) + 2 * 128
    assert count_parameters(whole).total - count_parameters(arch).total == 2 * index
    kept, mine = (layer_activations(arch, kind, 256, 256) for kind in ("moe", "sharing moe"))
    assert set(kept) - set(mine) == {"index query, key", "index choice"}
    more = flops_per_token(whole, 256).forward - flops_per_token(arch, 256).forward
    assert more == 2 * (2 * (index - 256) + 2 * 4 * 128 * 256)


def test_chosen_keys_stay_on_their_stage():
    pattern = ("dense", "sharing moe", "dense", "sharing moe", "dense", "moe")
    arch, fabric = replace(CHOOSING, pattern=pattern, mtp_layers=0), machine(2).network.fabric
    with pytest.raises(PlanError, match="begins with layer 3 "):
        check(job(pipeline=2), arch, fabric)
    check(job(pipeline=2, layers_per_stage=(4, 2)), arch, fabric)
    with pytest.raises(PlanError, match="some of whose layers take the keys that others chose"):
        check(job(context=2, context_kind="all-gather"), arch, fabric)


def test_an_indexer_is_read_under_deepseeks_own_name_too():
    # SGLang runs version 3.2 under deepseek_v3
    named = read(model_type="deepseek_v3", index_n_heads=4, index_head_dim=32)
    assert (named.index_topk, named.index_heads, named.index_dim) == (64, 4, 32)
    assert read(indexer_types=["full"] * 4, layer_types=["indexed_attention"] * 4).index_heads == 64


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (job(context=2), "set layout.context_kind to all-gather"),
        (job(context=2, context_kind="all-to-all"), "set layout.context_kind to all-gather"),
        (changed(job(), software="megatron-2021"), "has no kernels for; name newer software"),
        (changed(job(dtype="bf16"), dtype="mxfp8", dtype_also=("attention",)), "leave attention out"),
    ],
)
def test_jobs_that_no_framework_runs_are_refused(one, says):
    with pytest.raises(PlanError, match=says):
        check(one, CHOOSING, machine(2).network.fabric)


def test_a_job_says_that_no_step_of_its_kind_is_published_and_where_all_keys_are_chosen():
    fabric = machine(2).network.fabric
    told = check(job(), CHOOSING, fabric)
    assert any("no published step is of a model like" in one for one in told)
    assert not any("has no more keys" in one for one in told)
    short = check(job(sequence=512), CHOOSING, fabric)
    assert any("a sequence of 512 tokens has no more keys than the 512" in one for one in short)


def test_operators_are_refused_where_there_are_no_kernels():
    with pytest.raises(PlanError, match="fused kernels only"):
        layer_operators(ARCH, "dense", 64, 64, Cut(attention="unfused"))
    with pytest.raises(PlanError, match="runs in 16 bits"):
        layer_operators(ARCH, "dense", 64, 64, Cut(narrow=True))


def test_it_is_not_served():
    with pytest.raises(PlanError, match="no engine's kernels for that were measured"):
        check_layout(serving_job("deepseek-v3.2"), ARCH, serving_job().layout)
