"""Activation memory against Korthikanti et al. 2022 and hand counts for newer blocks."""

from dataclasses import replace

import pytest

from model_configs import kept_bytes
from railwright.errors import PlanError
from railwright.model import (
    Cut,
    head_activation_bytes,
    layer_activations,
    layer_gradient_bytes,
    layer_operators,
    load_model,
)

GIB = 2**30
GPT = load_model("gpt-3-175b")
TRILLION = replace(GPT, layers=128, hidden=25600, heads=160, kv_heads=160, head_dim=160, ffn=102400)


def korthikanti(arch, tp=1, sequence_parallel=False, **kwargs):
    dropped = {"attention_dropout": True, "hidden_dropout": "fused"}
    cut = Cut(tp, sequence_parallel, attention="unfused", **dropped)
    return kept_bytes(arch, "dense", 2048, 2048, cut, **kwargs)


@pytest.mark.parametrize("arch", [GPT, TRILLION])
def test_the_four_closed_forms(arch):
    # arXiv 2205.05198, equations 1, 2, 4 and 6 (s*b*h times ...), table 2
    s, h, a, t = 2048, arch.hidden, arch.heads, 8
    unit = s * h
    assert korthikanti(arch) == pytest.approx(unit * (34 + 5 * a * s / h))
    assert korthikanti(arch, tp=t) == pytest.approx(unit * (10 + 24 / t + 5 * a * s / (h * t)))
    assert korthikanti(arch, tp=t, sequence_parallel=True) == pytest.approx(unit / t * (34 + 5 * a * s / h))
    both = korthikanti(arch, tp=t, sequence_parallel=True, recompute="selective")
    assert both == pytest.approx(unit * 34 / t)
    assert korthikanti(arch, recompute="full") == pytest.approx(unit * 2)
    # section 5: what is kept whole on every tensor rank is shared under sequence parallelism
    assert korthikanti(arch, tp=t, recompute="full") == pytest.approx(unit * 2)
    assert korthikanti(arch, tp=t, sequence_parallel=True, recompute="full") == pytest.approx(unit * 2 / t)


@pytest.mark.parametrize(
    ("arch", "stages", "chunks", "none", "selective"),
    [(GPT, 8, 3, 66.84375, 12.3515625), (TRILLION, 64, 1, 131.25, 26.5625)],
)
def test_figure_1_of_korthikanti(arch, stages, chunks, none, selective):
    # records korthikanti-fig1-memory-175b and -1t: tp 8, the first stage keeps p(1 + (p-1)/(pv)) microbatches
    # of its layers/p layers when v > 1, p of them otherwise
    kept = arch.layers * (1 + (stages - 1) / (stages * chunks) if chunks > 1 else 1)
    assert kept * korthikanti(arch, tp=8) / GIB == pytest.approx(none, rel=1e-3)
    both = korthikanti(arch, tp=8, sequence_parallel=True, recompute="selective")
    assert kept * both / GIB == pytest.approx(selective, rel=1e-3)


def test_flash_attention_replaces_the_scores_by_one_number_per_head_and_row():
    # per row and head 5*s bytes of scores, softmax and mask become one fp32 log-sum-exp
    rows = sequence = 2048
    flash = kept_bytes(GPT, "dense", rows, sequence)
    unfused = kept_bytes(GPT, "dense", rows, sequence, Cut(attention="unfused", attention_dropout=True))
    assert unfused - flash == rows * GPT.heads * (5 * sequence - 4)


def test_a_llama_layer_by_hand():
    # Llama-3-8B, one row, bytes: norm and qkv inputs 2*2*4096; q and output 2*2*4096, k and v 2*2*1024;
    # log-sum-exp 4*32; norm and mlp inputs 2*2*4096; gate, up, product 3*2*14336; no dropout masks
    expected = 4 * 4096 + (4 * 4096 + 4 * 1024 + 4 * 32) + 4 * 4096 + 6 * 14336
    assert kept_bytes(load_model("llama-3-8b"), "dense", 1, 8192) == expected


def test_a_mixtral_layer_by_hand():
    # Mixtral 8x7B, one row, top 2: attention as above; norm and router inputs, fp32 logits and weights of
    # 8 experts; two experts keep input, gate, up and product; outputs are not, as the router's probabilities
    # are multiplied in before the second product
    attention = 4 * 4096 + 4 * 4096 + 4 * 1024 + 4 * 32
    experts = 4 * 4096 + 8 * 8 + 2 * (2 * 4096 + 6 * 14336)
    arch = load_model("mixtral-8x7b")
    assert kept_bytes(arch, "moe", 1, 4096, Cut(ep=8)) == attention + experts


def test_latent_attention_by_hand():
    # DeepSeek-V3, one row: norm and down inputs 2*2*7168; latents before and after their norms
    # 2*2*(1536+512) and the rotary key 2*64; per head q and k of 192, v and output of 128; log-sum-exp
    attention = 4 * 7168 + 4 * (1536 + 512) + 2 * 64 + 128 * 2 * (2 * 192 + 2 * 128) + 4 * 128
    dense = 4 * 7168 + 6 * 18432
    assert kept_bytes(load_model("deepseek-v3"), "dense", 1, 4096) == attention + dense


def test_the_busiest_gpu_keeps_more():
    arch = load_model("mixtral-8x7b")
    even = kept_bytes(arch, "moe", 4096, 4096, Cut(ep=8))
    worst = kept_bytes(arch, "moe", 4096, 4096, Cut(ep=8, imbalance=1.5))
    assert worst - even == pytest.approx(0.5 * 4096 * 2 * (2 * 4096 + 6 * 14336))


def test_head_meets_korthikanti():
    # section 4.3: 4*s*b*h/t*(1 + v/h) with sequence parallelism
    s, t = 2048, 8
    expected = 4 * s * GPT.hidden / t * (1 + GPT.vocab / GPT.hidden)
    assert head_activation_bytes(GPT, s, tp=t, sequence_parallel=True) == pytest.approx(expected)


@pytest.mark.parametrize(("dtype", "byte"), [("fp8", 1.0), ("mxfp8", 33 / 32), ("nvfp4", 9 / 16)])
def test_a_llama_layer_in_narrow_formats_by_hand(dtype, byte):
    # Llama-3-8B, one row: norm inputs, q, k, v, attention output, gate and up stay in 16 bits; the inputs of
    # the four products are kept in the narrow format with its scales
    sixteen = 2 * 2 * 4096 + 2 * (4096 + 2 * 1024) + 2 * 4096 + 4 * 32 + 2 * 2 * 14336
    narrow = byte * (4096 + 4096 + 4096 + 14336)
    kept = kept_bytes(load_model("llama-3-8b"), "dense", 1, 8192, dtype=dtype)
    assert kept == pytest.approx(sixteen + narrow)


@pytest.mark.parametrize(
    ("module", "layer", "gone"),
    [
        # DeepSeek-V3, bytes of one row: 128 heads with q and k of 192 and v of 128; 8 of 256 experts of 2,048
        ("mla_up_proj", "moe", 2 * 128 * (192 + 192 + 128)),
        ("core_attn", "moe", 4 * 128),
        ("layernorm", "moe", 2 * 2 * 7168),
        ("moe_act", "moe", 8 * 2 * 2048),
        ("shared_experts", "moe", 6 * 2048),
        ("moe", "moe", 8 * (2 * 7168 + 6 * 2048) + 6 * 2048 + 8 * 256),
        ("mlp", "dense", 2 * 7168 + 6 * 18432),
        ("mlp", "moe", 0),
    ],
)
def test_recomputing_a_part_drops_its_tensors(module, layer, gone):
    arch = load_model("deepseek-v3")
    none = kept_bytes(arch, layer, 1, 4096, Cut(ep=8))
    some = kept_bytes(arch, layer, 1, 4096, Cut(ep=8), recompute="selective", modules=(module,))
    assert none - some == gone


def test_a_norm_fused_with_its_product_is_no_part_of_its_own():
    arch = load_model("llama-3-8b")
    some = kept_bytes(arch, "dense", 1, 8192, recompute="selective", modules=("layernorm",))
    assert some == kept_bytes(arch, "dense", 1, 8192)
    assert layer_operators(arch, "dense", 8, 8, modules=("layernorm", "mla_up_proj")).recomputed == ()


def test_every_second_product_by_hand():
    # torchtitan's checkpoint by operators, Llama-3-8B, one row: the layer's input, q, v, attention output and
    # log-sum-exp, gate and down outputs
    arch = load_model("llama-3-8b")
    kept = kept_bytes(arch, "dense", 1, 8192, recompute="selective", modules=("ops",))
    assert kept == 2 * 4096 + 2 * (4096 + 1024) + 2 * 4096 + 4 * 32 + 2 * 14336 + 2 * 4096
    again = layer_operators(arch, "dense", 8, 8, modules=("ops",)).recomputed
    products = {op.name: op.n for op in again if op.kind == "gemm"}
    assert products == {"qkv projection": 1024, "mlp up": 14336, "output projection": 4096}
    with pytest.raises(PlanError, match="choose parts of the layer"):
        layer_activations(load_model("gpt-oss-20b"), "moe", 1, 4096, recompute="selective", modules=("ops",))
    # scores that are not fused stay, 5 bytes for each of a row's with its sequence, as without recomputation
    unfused = Cut(attention="unfused", attention_dropout=True)
    scores = [
        layer_activations(arch, "dense", 1, 8192, unfused, recompute=how, modules=("ops",))
        for how in ("selective", "none")
    ]
    assert [kept["attention scores"] for kept in scores] == [5 * arch.heads * 8192] * 2


def test_every_second_product_of_experts_and_latents_by_hand():
    # Qwen3 30B: input, q, v, attention output and log-sum-exp; k, output, router and all experts again
    kept, products = every_second("qwen3-30b-a3b", "moe")
    assert kept == 2 * 2048 + 2 * (32 + 4) * 128 + 2 * 32 * 128 + 4 * 32
    again = {"qkv projection": 4 * 128, "output projection": 2048, "router": 128}
    assert products == again | {"experts up": 2 * 768, "experts down": 2048}
    # DeepSeek-V3's are query down and up, key/value down and up, output, and of the shared expert gate, up
    # and down: the first, the third, the fifth and the seventh stay, and what travels between expert ranks
    kept, products = every_second("deepseek-v3", "moe", Cut(ep=8))
    attention = 1536 + (512 + 64) + 7168 + 128 * 128
    assert kept == 2 * (7168 + attention + 2048 + 2 * 8 * 7168) + 4 * 128
    again = {"query up": 128 * 192, "key/value up": 128 * 256, "router": 256, "experts up": 2 * 2048}
    assert products == again | {"experts down": 7168, "shared expert up": 2048, "shared expert down": 7168}
    # DeepSeek-V2 Lite has no latents of queries: their product and that of keys and values stay
    kept, products = every_second("deepseek-v2-lite", "dense")
    assert kept == 2 * (2048 + 16 * 192 + 16 * 256 + 16 * 128 + 10944 + 2048) + 4 * 16
    assert products == {"key/value down": 512 + 64, "output projection": 2048, "mlp up": 10944}


def every_second(model, layer, cut=Cut()):
    """Bytes that a row keeps, and columns of the products that run again."""
    arch = load_model(model)
    kept = kept_bytes(arch, layer, 1, 4096, cut, recompute="selective", modules=("ops",))
    again = layer_operators(arch, layer, 8, 8, cut, modules=("ops",)).recomputed
    return kept, {op.name: op.n for op in again if op.kind in ("gemm", "grouped_gemm")}


def test_gradients_behind_the_activation_by_hand():
    # Llama-3-8B, one row: gradients of the layer's output, of the product's input and of gate and up, less
    # the product's kept input, which its weight gradient has freed; in fp8 that was one byte
    arch = load_model("llama-3-8b")
    assert layer_gradient_bytes(arch, "dense", 1) == 2 * 4096 + (2 + 4 - 2) * 14336
    assert layer_gradient_bytes(arch, "dense", 1, dtype="fp8") == 2 * 4096 + (2 + 4 - 1) * 14336


def test_gradients_before_narrow_experts_by_hand():
    # DeepSeek-V3, one row to eight experts: behind the activation 2 x 7168 + 4 x 2048 bytes each, but where
    # rows are sorted again two gradients of 7168; each of 8 tensor ranks receives as many rows of all of them
    arch = load_model("deepseek-v3")
    rows = 8 * 2 * (2 * 7168)
    assert layer_gradient_bytes(arch, "moe", 1) == 2 * 7168 + rows
    assert layer_gradient_bytes(arch, "moe", 1, Cut(tp=8, sequence_parallel=True)) == 2 * 7168 / 8 + rows
    assert layer_gradient_bytes(arch, "moe", 1, Cut(imbalance=1.5)) == 2 * 7168 + 1.5 * rows
    # Mixtral's are wide
    arch = load_model("mixtral-8x7b")
    assert layer_gradient_bytes(arch, "moe", 1) == 2 * 4096 + 2 * (2 * 4096 + 4 * 14336)
    assert layer_gradient_bytes(arch, "moe", 1, Cut(imbalance=1.5)) == 2 * 4096 + 3 * (2 * 4096 + 4 * 14336)


@pytest.mark.parametrize(("loss", "logit"), [("fused", 2), ("unfused", 4), ("eager", 12), ("eager, cut", 16)])
def test_bytes_of_a_logit(loss, logit):
    arch = load_model("llama-3-8b")
    inputs = 2 * 2 * 4096
    assert head_activation_bytes(arch, 1, loss=loss) == inputs + logit * 128256
