"""Activation memory against Korthikanti et al. 2022 and hand counts for newer blocks."""

from dataclasses import replace

import pytest

from railwright.model import head_activation_bytes, layer_activation_bytes, load_model

GIB = 2**30
GPT = load_model("gpt-3-175b")
TRILLION = replace(GPT, layers=128, hidden=25600, heads=160, kv_heads=160, head_dim=160, ffn=102400)


def korthikanti(arch, **kwargs):
    return layer_activation_bytes(arch, "dense", 2048, 2048, attention="unfused", dropout=0.1, **kwargs)


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
    flash = layer_activation_bytes(GPT, "dense", rows, sequence)
    unfused = layer_activation_bytes(GPT, "dense", rows, sequence, attention="unfused")
    assert unfused - flash == rows * GPT.heads * (5 * sequence - 4)


def test_a_llama_layer_by_hand():
    # Llama-3-8B, one row, bytes: norm and qkv inputs 2*2*4096; q and output 2*2*4096, k and v 2*2*1024;
    # log-sum-exp 4*32; norm and mlp inputs 2*2*4096; gate, up, product 3*2*14336; no dropout masks
    expected = 4 * 4096 + (4 * 4096 + 4 * 1024 + 4 * 32) + 4 * 4096 + 6 * 14336
    assert layer_activation_bytes(load_model("llama-3-8b"), "dense", 1, 8192) == expected


def test_a_mixtral_layer_by_hand():
    # Mixtral 8x7B, one row, top 2: attention as above; norm and router inputs, fp32 logits and weights of
    # 8 experts; two experts keep input, gate, up, product and output
    attention = 4 * 4096 + 4 * 4096 + 4 * 1024 + 4 * 32
    experts = 4 * 4096 + 8 * 8 + 2 * (2 * 4096 + 6 * 14336 + 2 * 4096)
    arch = load_model("mixtral-8x7b")
    assert layer_activation_bytes(arch, "moe", 1, 4096, ep=8) == attention + experts


def test_latent_attention_by_hand():
    # DeepSeek-V3, one row: norm and down inputs 2*2*7168; latents before and after their norms
    # 2*2*(1536+512) and the rotary key 2*64; per head q and k of 192, v and output of 128; log-sum-exp
    attention = 4 * 7168 + 4 * (1536 + 512) + 2 * 64 + 128 * 2 * (2 * 192 + 2 * 128) + 4 * 128
    dense = 4 * 7168 + 6 * 18432
    assert layer_activation_bytes(load_model("deepseek-v3"), "dense", 1, 4096) == attention + dense


def test_the_busiest_gpu_keeps_more():
    arch = load_model("mixtral-8x7b")
    even = layer_activation_bytes(arch, "moe", 4096, 4096, ep=8)
    worst = layer_activation_bytes(arch, "moe", 4096, 4096, ep=8, imbalance=1.5)
    assert worst - even == pytest.approx(0.5 * 4096 * 2 * (4 * 4096 + 6 * 14336))


def test_head_meets_korthikanti():
    # section 4.3: 4*s*b*h/t*(1 + v/h) with sequence parallelism
    s, t = 2048, 8
    expected = 4 * s * GPT.hidden / t * (1 + GPT.vocab / GPT.hidden)
    assert head_activation_bytes(GPT, s, tp=t, sequence_parallel=True) == pytest.approx(expected)
