"""Kernels carried to GPUs whose tensor cores are cut: shares, prologues, and an H20's own measurements."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.cut import REACHED, carried
from railwright.serving.kernels.times import experts_seconds, gemm_seconds, padding, prefill_seconds
from railwright.shipped import read_data

GPUS = load_catalog().gpus
H100, H20, H800 = GPUS["h100-sxm"], GPUS["h20"], GPUS["h800"]
ROW = {
    "fixed": 4e-6,
    "compute": 0.5,
    "memory": 0.8,
    "depth": 200.0,
    "square": 0.9,
    "small": 0.1,
    "of": "h100",
}


def test_an_uncut_gpu_keeps_its_kins_rows() -> None:
    assert carried({"gemm": {"bf16": ROW}}, H800) == {"gemm": {"bf16": ROW}}
    slower = replace(H100, peak_flops={"bf16": 0.8 * H100.peak_flops["bf16"]})  # by its clock
    assert carried({"gemm": {"bf16": ROW}}, slower)["gemm"]["bf16"] == ROW


def test_a_tensor_core_at_half_rate_is_reached_twice_as_far() -> None:
    half = replace(H100, peak_flops={"bf16": 0.5 * H100.peak_flops["bf16"]})
    row = carried({"gemm": {"bf16": {**ROW, "compute": 0.4}}}, half)["gemm"]["bf16"]
    assert row["compute"] == pytest.approx(0.8)  # the same flop/s
    assert row["small"] == pytest.approx(0.2)
    assert row["depth"] == pytest.approx(100.0)  # the same seconds
    assert (row["memory"], row["fixed"]) == (ROW["memory"], ROW["fixed"])


def test_no_tensor_core_is_reached_beyond_what_cut_ones_were_measured_at() -> None:
    quarter = replace(H100, peak_flops={"bf16": 0.25 * H100.peak_flops["bf16"]})
    assert carried({"gemm": {"bf16": ROW}}, quarter)["gemm"]["bf16"]["compute"] == REACHED
    whole = {**ROW, "compute": 0.99}  # as a card does whose clock is above its data sheet's
    assert carried({"gemm": {"bf16": whole}}, quarter)["gemm"]["bf16"]["compute"] == 0.99


def test_softmax_between_products_takes_as_long_as_before() -> None:
    """FlashAttention 2 on L40S reaches 0.516 of its peak, on an RTX 4090, by its own passes, 0.657."""
    row = {"fixed": 1e-5, "compute": 0.516, "memory": 0.9, "of": "l40s"}
    told = carried({"attention": {"vllm": {"prefill_bf16": row}}}, GPUS["rtx-4090"])
    share = told["attention"]["vllm"]["prefill_bf16"]["compute"]
    assert share == pytest.approx(0.657, rel=0.05)
    whole, own = (GPUS[n].peak_flops["bf16"] / GPUS[n].sms for n in ("l40s", "rtx-4090"))
    assert 1 / (share * own) - 1 / own == pytest.approx(1 / (0.516 * whole) - 1 / whole)


def test_blocks_of_attention_take_their_products_longer() -> None:
    """A tile of 64 queries and 128 keys of a head of 128 is 4.2 MFLOP."""
    tiles = {name: kernels_of(GPUS[name], "vllm").tiles for name in ("rtx-pro-6000", "rtx-5090", "rtx-4090")}
    kin, own = tiles["rtx-pro-6000"], tiles["rtx-5090"]
    assert kin is not None
    assert own is not None
    whole, cut = (GPUS[n].peak_flops["bf16"] / GPUS[n].sms for n in ("rtx-pro-6000", "rtx-5090"))
    assert own.tile - kin.tile == pytest.approx(4 * 64 * 128 * 128 * (1 / cut - 1 / whole))
    assert own.open == kin.open


@pytest.mark.parametrize(("gpu", "kin"), [("h20", "h100"), ("l40", "l40s")])
def test_rows_of_training_follow_the_same_rule(gpu: str, kin: str) -> None:
    """compute/data/gemm.yaml has them written out, rounded; a change of the rule or of the kin shows here."""
    rows = {tuple(row["tokens"]): row for row in read_data("compute", "gemm.yaml")["rows"] if "tokens" in row}
    whole, own = rows[(kin,)], rows[(gpu,)]
    for dtype in ("bf16", "fp8", "fp8_dynamic", "fp8_block"):
        row = {**whole[dtype], "of": kin}
        told = carried({"gemm": {dtype: row}}, GPUS[gpu])["gemm"][dtype]
        for name in ("compute", "square", "small", "memory", "fixed"):
            assert own[dtype][name] == pytest.approx(told[name], rel=0.01), (dtype, name)
        assert own[dtype]["depth"] == pytest.approx(told["depth"], abs=0.6), dtype


def test_a_card_keeps_what_was_measured_on_itself() -> None:
    tables = kernels_of(GPUS["rtx-4090"], "vllm").tables
    assert tables["gemm"]["bf16"]["of"] == "rtx-4090"
    assert tables["gemm"]["fp8"]["of"] == "l40s"
    assert (
        tables["gemm"]["fp8"]["compute"] > kernels_of(GPUS["l40s"], "vllm").tables["gemm"]["fp8"]["compute"]
    )


@pytest.mark.parametrize(
    ("rows", "pad", "beyond"), [(1, 100, 16), (4, 100, 16), (10, 100, 40), (50, 100, 100), (1, 9, 9)]
)
def test_tiles_shrink_with_their_experts_rows(rows: float, pad: float, beyond: float) -> None:
    assert padding(rows, pad) == beyond


# alibaba/InferSim@f2293da (Apache-2.0), bench_data: measured on an H20; microseconds.
PRODUCTS = [  # gemm/h20/data.csv, fp8 in blocks: m, k, n
    (16, 4096, 24576, 53.425),
    (64, 2048, 6144, 10.696),
    (256, 2048, 6144, 27.958),
    (512, 2560, 7680, 82.31),
    (4096, 2048, 6144, 384.141),
    (8192, 2560, 7680, 1180.0),
    (32768, 2048, 2048, 1028.0),
]
GROUPED = [  # grouped_gemm/prefill/h20/data.csv: tokens, experts, a token's, hidden, inner, up + down
    (1024, 96, 8, 2048, 1560, 637.06 + 332.791),
    (4096, 96, 8, 2048, 1560, 1938.0 + 1029.0),
    (16384, 96, 8, 2048, 1560, 6828.0 + 3520.0),
    (4096, 112, 6, 2560, 1664, 1964.0 + 1046.0),
]
PROMPTS = [(1024, 111.51), (4096, 1125.999), (16384, 16016.193), (32768, 63013.976)]
"""mha/prefill/h20/32-8-128.csv: tokens of one prompt, 32 heads, 8 of keys and values."""


def test_products_of_an_h20_follow_from_those_of_an_h100() -> None:
    """43 % too long for large ones and 86 for small ones by the H100's shares of its peak."""
    kernels = kernels_of(H20, "sglang")
    row, peak, width, _ = kernels.gemm("fp8_block")
    off = []
    for m, k, n, seen in PRODUCTS:
        told = gemm_seconds(Shape(m, n, k), row, kernels.speeds, peak, width, quantise=False)
        off.append(abs(1e6 * float(told) / seen - 1))
    assert mean(off) < 0.15
    assert max(off[4:]) < 0.06


def test_experts_of_an_h20_follow_from_those_of_an_h100() -> None:
    """Its grouped products alone; ours pass activations and sum copies too.  Four times as long before."""
    kernels = kernels_of(H20, "sglang")
    row, peak, width = kernels.experts("fp8_block")
    for tokens, number, each, hidden, inner, seen in GROUPED:
        told = experts_seconds(tokens * each, number, hidden, inner, row, kernels.speeds, peak, width)
        assert 0.9 < 1e6 * float(told) / seen < 1.35


def test_attention_of_prompts_on_an_h20_follows_from_an_h100s() -> None:
    kernels = kernels_of(H20, "sglang")
    row = kernels.attention("prefill", "bf16")
    off = [
        abs(1e6 * float(prefill_seconds(1, tokens, 0, 32, 512, row, kernels.speeds, 8)) / seen - 1)
        for tokens, seen in PROMPTS
    ]
    assert mean(off) < 0.08
