"""Kernel times against hand calculations and published kernel speeds."""

from dataclasses import replace
from math import inf

import pytest

from railwright import catalog
from railwright.compute import constants, efficiency_source, kernel_time, kernel_times, profile_of
from railwright.compute.time import UNALIGNED, peak_rate
from railwright.errors import PlanError
from railwright.model import Cut, Operator, layer_operators, load_model, optimizer_operators
from railwright.shipped import read_data

GPUS = catalog.load_catalog().gpus
H100 = catalog.find(GPUS, "h100-sxm")
A100 = catalog.find(GPUS, "a100-sxm-80")
MIXTRAL = load_model("mixtral-8x7b")


def gemm(m, n, k, dtype="bf16", width=2):
    return Operator("gemm", "gemm", 2.0 * m * n * k, float(width * (m * k + n * k + m * n)), dtype, m, n, k)


FIXED = 3.172e-6
"""Fixed time of an H100's bf16 GEMM [s] (compute/data/gemm.yaml)."""


def wave(gpu, rate, depth, k):
    """One wave of 256 x 128 tiles: every multiprocessor does k + depth steps at its share of the rate. [s]"""
    return 2 * 256 * 128 * (k + depth) / (rate * gpu.peak_flops["bf16"] / gpu.sms)


def test_a_gemm_of_whole_waves_by_hand():
    # 11 x 12 tiles of 256 x 128 are one for each of 132 multiprocessors: 5 times as many columns, 5 waves
    for waves in (1, 5):
        found = kernel_time(gemm(11 * 256, waves * 12 * 128, 1024), H100)
        assert found == pytest.approx(FIXED + waves * wave(H100, 0.889, 181, 1024))


def test_a_deep_gemm_that_fills_the_gpu_runs_at_what_power_sustains():
    # the same tiles with eight times the depth would reach 0.87 of the peak
    for columns in (12 * 128, 60 * 128):
        found = kernel_time(gemm(11 * 256, columns, 8192), H100)
        assert found == pytest.approx(FIXED + 2 * 11 * 256 * columns * 8192 / (0.770 * 989e12))


def test_a_gemm_that_leaves_multiprocessors_idle_is_bound_by_its_tiles():
    # 24 tiles of 128 x 128 or 96 of 64 x 64, too shallow to be split, for 132 multiprocessors
    alone = kernel_time(gemm(6 * 128, 4 * 128, 512), H100) - FIXED
    assert alone > 1.5 * 2 * 6 * 128 * 4 * 128 * 512 / (0.770 * 989e12)
    faster = replace(profile_of(H100).gemm["bf16"], sustained=inf)
    unbound = replace(profile_of(H100), gemm={"bf16": faster})
    assert kernel_time(gemm(6 * 128, 4 * 128, 512), H100, unbound) == pytest.approx(alone + FIXED)


def test_a_gemm_just_beyond_a_wave_pays_for_more_than_its_work():
    # one more row of tiles is 1/11 more work, on 144 tiles for 132 multiprocessors; smaller tiles save some
    whole, beyond = (kernel_time(gemm(rows * 256, 12 * 128, 1024), H100) - FIXED for rows in (11, 12))
    assert 12 / 11 < beyond / whole < 2.0


def test_few_tiles_are_split_along_the_inner_dimension():
    # 256 x 256 from k = 65,536: two full tiles, or 16 of 64 x 64 in 8 parts each, for 132 multiprocessors
    alone = FIXED + wave(H100, 0.889, 181, 65536)
    assert kernel_time(gemm(256, 256, 65536), H100) < alone / 8


def test_an_unaligned_width_takes_twice_as_long():
    # widths of 149 are no multiple of 8 elements of 16 bits; unaligned rows do no harm
    even, odd = (kernel_time(gemm(8192, 8192, k), H100) - FIXED for k in (8192, 8190))
    assert odd / even == pytest.approx(UNALIGNED, rel=0.01)
    rough, plain = (kernel_time(gemm(rows, 8192, 8192), H100) for rows in (8190, 8192))
    assert rough == pytest.approx(plain, rel=1e-3)


def test_a_thin_gemm_is_bound_by_memory():
    # one row against 8192 x 8192 weights: 134 MB at 0.794 of 3.35 TB/s
    expected = FIXED + 2 * (8192**2 + 2 * 8192) / (0.794 * 3.35e12)
    assert kernel_time(gemm(1, 8192, 8192), H100) == pytest.approx(expected)


LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
# FlashAttention-3 paper (arXiv 2407.08608), figure 5: cuDNN, causal, H100, 16k tokens, hidden 2048, TFLOP/s
CURVES = {128: (315, 410, 484, 518, 529, 539), 64: (225, 288, 334, 363, 379, 388)}


def attention_speed(sequence, width, phase="forward"):
    flops = 4 * 16384 * sequence / 2 * 2048 * (1 if phase == "forward" else 2.5)
    shape = (sequence, sequence, width)
    op = Operator("a", "attention", flops, 4.0 * 2 * 16384 * 2048, "bf16", *shape, phase=phase)
    return flops / (kernel_time(op, H100) - profile_of(H100).gemm["bf16"].fixed) / 1e12


@pytest.mark.parametrize("width", CURVES)
def test_attention_follows_the_published_curve(width):
    # 4 % at width 128; 5 % at 64, whose one constant is the long-sequence ratio of the two curves
    for sequence, published in zip(LENGTHS, CURVES[width], strict=True):
        assert attention_speed(sequence, width) == pytest.approx(
            published, rel=0.04 if width == 128 else 0.05
        )


def test_attention_backward_stays_below_the_published_unmasked_one():
    # figure 6, cuDNN without mask, width 128: a causal kernel is slower, and meets it on long sequences
    for sequence, published in zip(LENGTHS, (305, 408, 465, 499, 518, 516), strict=True):
        assert attention_speed(sequence, 128, "backward_input") < 1.001 * published
    assert attention_speed(16384, 128, "backward_input") == pytest.approx(516, rel=0.03)


def test_adam_over_a_billion_parameters():
    # 38 GB at 0.794 of 3.35 TB/s and two launches
    expected = 38e9 / (0.794 * 3.35e12) + 2 * FIXED
    assert kernel_times(optimizer_operators(1e9), H100) == pytest.approx(expected)


def test_grouped_gemm_launches_four_experts_at_a_time():
    one = Operator("e", "grouped_gemm", 0.0, 0.0, "bf16", batch=4)
    many = Operator("e", "grouped_gemm", 0.0, 0.0, "bf16", batch=32)
    assert kernel_time(many, H100) == pytest.approx(8 * kernel_time(one, H100))


def test_a_sum_is_the_sum():
    ops = layer_operators(MIXTRAL, "moe", 4096, 4096, Cut(ep=8)).forward
    assert kernel_times(ops, H100) == pytest.approx(sum(kernel_time(op, H100) for op in ops))


def test_fp8_is_faster_where_it_should_be():
    # large product: at least 1.5 times; never more than the ratio of the peaks
    slow, fast = (kernel_time(gemm(8192, 8192, 8192, d, w), H100) for d, w in (("bf16", 2), ("fp8", 1)))
    assert 1.5 < slow / fast < 2.001


def test_a_gpu_without_the_dtype_is_refused():
    with pytest.raises(PlanError, match="has no fp8 tensor cores; dtypes it has: bf16"):
        kernel_time(gemm(64, 64, 64, "fp8"), A100)


def test_scales_per_block_need_cores_that_apply_them():
    # Hopper multiplies fp8, but not by MX blocks; Blackwell and CDNA 4 do both
    with pytest.raises(PlanError, match="h100-sxm has no mxfp8 tensor cores"):
        kernel_time(gemm(64, 64, 64, "mxfp8"), H100)
    with pytest.raises(PlanError, match="mi300x has no mxfp8"):
        peak_rate(GPUS["mi300x"], "mxfp8")
    for name in ("b200-sxm", "gb300", "mi355x"):
        assert peak_rate(GPUS[name], "mxfp8") == GPUS[name].peak_flops["fp8"]


def test_nvfp4_is_nvidias():
    """CDNA 4 has 4 bits, but not with NVIDIA's scales."""
    assert peak_rate(GPUS["b200-sxm"], "nvfp4") == GPUS["b200-sxm"].peak_flops["fp4"]
    with pytest.raises(PlanError, match="mi355x has no nvfp4 tensor cores"):
        peak_rate(GPUS["mi355x"], "nvfp4")


@pytest.mark.parametrize("name", sorted(GPUS))
def test_every_catalogue_gpu_has_sane_constants_with_sources(name):
    for what, value, source in constants(GPUS[name]):
        assert source.strip(), what
        if "share" in what:
            # an RTX 5090's clock is above the one that its peak counts
            assert 0.1 < value < (1.21 if name == "rtx-5090" else 1.0), what
        elif "fixed" in what:
            assert 1e-6 <= value < 3e-5, what


def test_a_gpu_without_measurements_says_what_stands_for_it():
    source = efficiency_source(gemm(64, 64, 64), catalog.find(GPUS, "h800"))
    assert source.startswith("no measurement of this GPU, H100 stands for it")
    unknown = replace(H100, name="future-1", generation="future")
    assert efficiency_source(gemm(64, 64, 64), unknown).startswith("no measurement of this generation")
    assert "H100 SXM, TensorRT-LLM" in efficiency_source(gemm(64, 64, 64), H100)


def test_a_profile_can_be_given():
    profile = profile_of(H100)
    row = replace(profile.gemm["bf16"], compute=1.0, fixed=0.0, depth=0.0, sustained=inf)
    perfect = replace(profile, gemm={**profile.gemm, "bf16": row})
    flops = 2.0 * (11 * 256) * (12 * 128) * 8192
    assert kernel_time(gemm(11 * 256, 12 * 128, 8192), H100, perfect) == pytest.approx(flops / 989e12)


def test_grouped_gemms_lose_what_was_measured_at_few_rows():
    # infersim, prefill/h800 (DeepGEMM fp8), up projection 4,096 x 7,168: (experts, rows) -> microseconds
    measured = {(64, 128): 835, (64, 512): 1896, (32, 1024): 1617, (16, 2048): 1516, (8, 8192): 3166}
    for (experts, rows), microseconds in measured.items():
        flops = 2.0 * experts * rows * 4096 * 7168
        moved = experts * (4096.0 * 7168 + rows * (7168 + 2 * 4096))
        op = Operator("e", "grouped_gemm", flops, moved, "fp8", rows, 4096, 7168, experts)
        assert kernel_time(op, H100) == pytest.approx(microseconds * 1e-6, rel=0.12)


def test_every_launch_of_a_memory_bound_operator_pays_its_fixed_time():
    one, four = (Operator("m", "memory", 0.0, 1e6, "bf16", launches=n) for n in (1, 4))
    assert kernel_time(four, H100) - kernel_time(one, H100) == pytest.approx(3 * FIXED)


SQUARES: dict[str, dict[int, tuple[float, ...]]] = {
    "rtx-4090": {
        2048: (164.81, 159.38),
        4096: (151.5, 168.38),
        8192: (160.17, 155.5),
        10240: (158.54, 156.88),
    },
    "rtx-5090": {
        2048: (170.77, 171.53, 173.87),
        4096: (181.17, 182.19, 183.71),
        8192: (234.89, 234.66, 236.03),
        10240: (240.05, 236.99, 235.27),
    },
    "rtx-pro-6000": {2048: (257.19,), 4096: (399.93,), 8192: (417.34,), 10240: (387.01,)},
}
"""TFLOP/s of squares in bf16 (of the RTX 4090 fp16 too), PyTorch 2.7 and 2.8: zzc0721/
torch-performance-test-data, issues 78 (RTX 4090), 96 and 124 and pull request 15 (RTX 5090), 161 (the Server
Edition of RTX PRO 6000)."""


@pytest.mark.parametrize(
    ("name", "mean", "bias"),
    [("rtx-4090", 0.039, -0.030), ("rtx-5090", 0.023, -0.009), ("rtx-pro-6000", 0.057, 0.017)],
)
def test_products_of_cards_reach_what_others_measured(name: str, mean: float, bias: float) -> None:
    """An RTX 4090's and 5090's largest are met; an RTX PRO 6000's constants are fitted to other products, of
    another machine.  The shares of an L40S and of a B200, which stood for the first and the last, would be
    103 and 319 TFLOP/s."""
    errors = []
    for side, measured in SQUARES[name].items():
        product = gemm(side, side, side)
        rate = product.flops / kernel_time(product, GPUS[name]) / 1e12
        errors += [rate / one - 1 for one in measured]
    assert sum(map(abs, errors)) / len(errors) == pytest.approx(mean, abs=0.002)
    assert sum(errors) / len(errors) == pytest.approx(bias, abs=0.002)


H20 = {  # alibaba/InferSim@f2293da, bench_data: milliseconds measured on an H20
    "products": {(4096, 6144, 2048): 0.384141, (8192, 7680, 2560): 1.180, (32768, 6144, 2048): 3.015},
    "prompts": {4096: 1.125999, 8192: 4.155551, 16384: 16.016193, 32768: 63.013976},
}
"""fp8 in blocks, rows x columns x inner; attention of one prompt, 32 heads of 128."""


def test_an_h20_computes_what_it_was_measured_to() -> None:
    """With an H100's shares of their peak its products take 1.7 times as long and its attention 1.6 times."""
    for (m, n, k), seen in H20["products"].items():
        row = profile_of(GPUS["h20"]).gemm["fp8_block"]
        told = 1e3 * 2.0 * m * n * k / (row.compute * GPUS["h20"].peak_flops["fp8"])
        assert told == pytest.approx(seen, rel=0.06)
    row = profile_of(GPUS["h20"]).attention["forward"]
    for tokens, seen in H20["prompts"].items():
        rate = row.compute * GPUS["h20"].peak_flops["bf16"] * tokens / (tokens + row.short)
        assert 1e3 * 4.0 * 32 * 128 * tokens**2 / 2 / rate == pytest.approx(seen, rel=0.03)


def test_a_gpu_has_its_own_rows_and_then_its_generations() -> None:
    """`6000` in the words of a row was a number to YAML, which no name holds: an RTX PRO 6000 had a B200's
    products.  One with the same chip and no row has the RTX PRO 6000's."""
    l20 = replace(GPUS["l40s"], name="l20")
    assert profile_of(l20).gemm["bf16"].compute == 0.646, "others of its generation are still the L40S's"
    card = GPUS["rtx-pro-6000"]
    kin = replace(card, name="rtx-pro-4500")
    assert profile_of(card).gemm["bf16"].source.startswith("fit of 26,604 measured GEMMs per dtype")
    assert "RTX PRO 6000 stands for it" in profile_of(kin).gemm["bf16"].source
    assert profile_of(kin).gemm["bf16"].compute == profile_of(card).gemm["bf16"].compute
    for row in (profile_of(card), profile_of(kin)):
        assert row.attention["forward"].compute == 0.642
    assert profile_of(GPUS["rtx-4090"]).attention["forward"].compute == 0.657
    assert profile_of(l20).attention["forward"].compute == 0.516
    for table in ("gemm", "attention"):
        for row in read_data("compute", f"{table}.yaml")["rows"]:
            assert all(isinstance(word, str) for word in row.get("tokens", ())), row
            assert row.get("gpu", "rtx-4090") in GPUS
