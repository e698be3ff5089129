"""FLOPs per token against closed forms and against the figures computed for public records."""

from dataclasses import replace

import pytest

from railwright.model import count_parameters, flops_per_token, load_model

# source id of the record, bundled model, changes, sequence, FLOPs per token with full and with causal scores:
# the record's model TFLOP/s per GPU over its tokens/s per GPU (railwright's shared validation set, `derived`)
RECORDS = [
    ("dgxc-v24-11-1-grok1-314b-h100-8-bf16-gbs1024", "grok-1", {"layers": 2}, 4096, 2.0987e10, 2.0685e10),
    ("dgxc-v24-11-1-grok1-314b-h100-512-bf16-gbs1024", "grok-1", {}, 8192, 5.4122e11, 5.2189e11),
    ("dgxc-v24-11-1-llama3-1-405b-h100-576-bf16-gbs252", "llama-3.1-405b", {}, 8192, 2.6256e12, 2.5239e12),
    ("dgxc-v24-11-1-llama3-70b-h100-64-bf16-gbs128", "llama-3-70b", {}, 8192, 4.8147e11, 4.4922e11),
    ("dgxc-v24-11-1-llama3-8b-h100-8-bf16-gbs128", "llama-3-8b", {}, 8192, 5.7915e10, 5.1474e10),
    (
        "dgxc-v24-11-1-gpt3-175b-h100-128-bf16-gbs256",
        "gpt-3-175b",
        {"vocab": 51200},
        2048,
        1.0763e12,
        1.062e12,
    ),
    ("dgxc-v24-11-1-nemotron4-15b-h100-16-bf16-gbs64", "nemotron-4-15b", {}, 4096, 9.3999e10, 8.9163e10),
    ("dgxc-v25-05-nemotron4-340b-gb200-128-bf16-gbs32", "nemotron-4-340b", {}, 4096, 2.1048e12, 2.0614e12),
    ("dgxc-v25-05-deepseek-v3-gb200-128-bf16-gbs1024", "deepseek-v3", {}, 4096, 2.8112e11, 2.5046e11),
    (
        "simumax-b200-deepseekv2-tp1-ep8-pp1-dp8-l4-mbc4",
        "deepseek-v2",
        {"layers": 4},
        4096,
        1.5298e10,
        1.3284e10,
    ),
    (
        "simumax-b200-llama3-70b-l12-tp1-cp8-pp1-dp1-seq131072-mbc4",
        "llama-3-70b",
        {"layers": 12},
        131072,
        2.2253e11,
        1.4523e11,
    ),
]


@pytest.mark.parametrize(("record", "name", "changes", "sequence", "full", "causal"), RECORDS)
def test_flops_of_public_records(record, name, changes, sequence, full, causal):
    arch = replace(load_model(name), **changes)
    assert flops_per_token(arch, sequence, "full").total == pytest.approx(full, rel=0.01), record
    assert flops_per_token(arch, sequence, "causal").total == pytest.approx(causal, rel=0.01), record


def test_gpt_meets_the_closed_form_of_megatron():
    # Narayanan et al., SC'21, appendix: 96*s*l*h^2*(1 + s/6h + V/16lh) with full recompute; its model FLOPs
    # (three quarters of the layers' share) are 72*s*l*h^2*(1 + s/6h + V/12lh)
    arch, s = load_model("gpt-3-175b"), 2048
    l, h, v = arch.layers, arch.hidden, arch.vocab  # noqa: E741
    closed = 72 * l * h**2 * (1 + s / (6 * h) + v / (12 * l * h))
    assert flops_per_token(arch, s).total == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "mixtral-8x7b", "deepseek-v3", "qwen3-235b-a22b", "gpt-oss-20b"]
)
def test_short_sequences_cost_six_flops_per_multiplied_weight(name):
    # at one token per sequence the scores vanish: 6 FLOPs per active weight, embedding looked up, norms aside
    arch = load_model(name)
    count = count_parameters(arch).active_without_embedding
    assert flops_per_token(arch, 1).total == pytest.approx(6 * count, rel=0.002)


def test_causal_scores_are_half_of_full_ones():
    arch = load_model("llama-3-8b")
    linear = flops_per_token(arch, 0).total
    full = flops_per_token(arch, 8192, "full").total - linear
    assert flops_per_token(arch, 8192, "causal").total - linear == pytest.approx(full / 2)


def test_a_window_as_long_as_the_sequence_changes_nothing():
    # the windowed closed form w*(1 - w/2s) must meet s/2 at w = s
    arch = load_model("llama-3-8b")
    for scores in ("full", "causal"):
        near = flops_per_token(replace(arch, sliding_window=8191), 8192, scores).total
        whole = flops_per_token(replace(arch, sliding_window=8192), 8192, scores).total
        assert whole == flops_per_token(arch, 8192, scores).total
        assert near == pytest.approx(whole, rel=1e-4)


def test_gpt_oss_windows_every_other_layer():
    # 128 of 4,096 keys in half of the layers: the mean layer sees (128*(1 - 128/8192) + 2048)/2 causal keys
    arch = load_model("gpt-oss-120b")
    full = replace(arch, sliding_window=0)
    linear = flops_per_token(arch, 0, "causal").total
    share = (flops_per_token(arch, 4096, "causal").total - linear) / (
        flops_per_token(full, 4096, "causal").total - linear
    )
    assert share == pytest.approx((128 * (1 - 128 / 8192) + 2048) / 2 / 2048)
