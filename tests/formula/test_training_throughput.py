"""What one GPU makes of its peak: published runs of it, of other GPUs, and what mixtures of experts keep."""

from __future__ import annotations

import re
from dataclasses import replace
from math import log
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.time import peak_rate
from railwright.model import load_model
from railwright.shipped import read_data
from railwright.training import simulate
from railwright.training.demand.borrowed import kernel_share, kernels_over
from railwright.training.demand.mixtures import LEAST_MODELS, NEXT, kept
from railwright.training.demand.throughput import above_published, predicted_pace, published_pace
from railwright.training.software.constants import width_of
from training_cases import DENSE, changed, job, machine

PAGE = Path(__file__).parents[2] / "docs" / "training" / "demand.md"
GPUS = load_catalog().gpus


def test_a_step_faster_than_nine_of_ten_published_ones_says_so_where_none_is_of_its_software() -> None:
    """Megatron of 2025 has no record on A100, of 2022 it has; H100's are of both."""
    a100 = GPUS["a100-sxm-80"]
    most = published_pace(DENSE, a100, "bf16").flops.high / peak_rate(a100, "bf16")
    assert above_published(DENSE, a100, "bf16", most) == ""
    told = above_published(DENSE, a100, "bf16", most * 1.1)
    assert "A100 in 16-bit" in told
    assert f"{most:.0%}" in told
    # too few series of its own
    assert above_published(DENSE, GPUS["b200-sxm"], "bf16", 0.99) == ""

    wide = replace(DENSE, layers=16, hidden=5120, heads=40, kv_heads=40, head_dim=128, ffn=13824)
    plan = job(sequence=4096, batch=128, micro_batch=2, zero=1)

    def warned(software: str, server: str) -> bool:
        one = plan.model_copy(update={"software": software})
        step = simulate(one, wide, machine(2, server=server), must_fit=False)
        return any("published series" in warning for warning in step.warnings)

    assert warned("megatron-2025", "dgx-a100")
    assert not warned("megatron-2022", "dgx-a100")
    assert not warned("megatron-2025", "dgx-h100")


def test_a_gpu_without_series_of_its_own_gets_all_of_its_kind() -> None:
    gpu = GPUS["b200-sxm"]
    assert "dense 16-bit" in published_pace(DENSE, gpu, "bf16").source
    assert "dense H100 16-bit" in published_pace(DENSE, GPUS["h100-sxm"], "bf16").source


def test_a_mixture_follows_its_own_kernels() -> None:
    """Of one GPU, two mixtures keep as much of what their kernels reach, and narrow experts reach less."""
    gpu = GPUS["h100-sxm"]
    wide, narrow = (load_model(name) for name in ("grok-1", "qwen3-30b-a3b"))
    keeps = kept("h100-sxm", "bf16")
    assert keeps is not None
    for arch in (wide, narrow):
        reach = kernel_share(arch, 4096, gpu, "bf16") * peak_rate(gpu, "bf16")
        assert published_pace(arch, gpu, "bf16").flops.middle == pytest.approx(keeps.middle * reach)
    assert kernel_share(narrow, 4096, gpu, "bf16") < 0.8 * kernel_share(wide, 4096, gpu, "bf16")


def test_a_model_has_one_vote_on_a_gpu() -> None:
    """However many series of it are published: Grok-1 has nine on H100, and does not decide for all."""
    keeps = kept("h100-sxm", "bf16")
    assert keeps is not None
    assert not keeps.own
    assert len(keeps.models) >= LEAST_MODELS
    assert {"H100", "GB200"} < set(keeps.gpus)
    own = kept("gb200", "fp8")
    assert own is not None
    assert own.gpus == ("GB200",)
    assert kept("h100-sxm", "nvfp4") is None
    assert keeps.low < keeps.middle < keeps.high


@pytest.mark.parametrize(("dtype", "error", "of_peak"), [("bf16", 0.24, 0.45), ("fp8", 0.23, 0.31)])
def test_published_mixtures_left_out_in_turn(dtype: str, error: float, of_peak: float) -> None:
    """The figures of demand/mixtures.py: what kernels reach says more of a mixture than others' shares."""
    rows = read_data("training", "mfu.yaml")[f"moe {width_of(dtype)}"]
    gpus = load_catalog().gpus
    of_kernels = [
        (gpu, model, mfu, mfu / kernel_share(load_model(model), sequence, gpus[gpu], own))
        for gpu, model, sequence, own, mfu in rows
    ]

    def near(gpu: str, model: str, column: int) -> list[float]:
        others = [row for row in of_kernels if row[1] != model]
        same = [row for row in others if row[0] == gpu]
        return [float(row[column]) for row in (same if len(same) >= LEAST_MODELS - 1 else others)]

    def off(column: int) -> float:
        errors = [
            abs(log(median(near(gpu, model, column)) / shares[column - 2]))
            for gpu, model, *shares in of_kernels
        ]
        return sum(errors) / len(errors)

    ranges = [(np.percentile(near(row[0], row[1], 3), (10, 90), method=NEXT), row[3]) for row in of_kernels]
    assert sum(low <= share <= high for (low, high), share in ranges) > 0.65 * len(ranges)

    assert off(3) < error
    assert off(3) < 0.8 * off(2)
    assert off(2) > 0.8 * of_peak


def test_a_fast_mixture_is_held_against_its_kernels() -> None:
    gpu = GPUS["h100-sxm"]
    arch = load_model("qwen3-30b-a3b")
    most = published_pace(arch, gpu, "bf16").flops.high / peak_rate(gpu, "bf16")
    assert above_published(arch, gpu, "bf16", 0.99 * most) == ""
    told = above_published(arch, gpu, "bf16", 1.1 * most)
    assert "mixtures of experts on any GPU in 16-bit keep of the pace of their kernels" in told
    assert f"which here is {most:.0%}" in told


def test_kernels_of_a_gpu_over_its_own_are_one() -> None:
    gpu = GPUS["h100-sxm"]
    assert kernels_over(DENSE, 4096, gpu, "bf16", {"H100": 3}) == pytest.approx(1.0)
    # nobody to compare with: V100 has no bf16
    assert kernels_over(DENSE, 4096, gpu, "bf16", {"V100": 3}) == 1.0
    # two count by their series, geometrically
    alone = [kernels_over(DENSE, 4096, gpu, "bf16", {name: 1}) for name in ("A100", "B200")]
    both = kernels_over(DENSE, 4096, gpu, "bf16", {"A100": 1, "B200": 3})
    assert both == pytest.approx(alone[0] ** 0.25 * alone[1] ** 0.75)


def test_a_pace_that_is_borrowed_follows_the_gpu_s_kernels() -> None:
    """None is faster than its own kernels, and what these reach says how fast a step of a GPU is."""
    arch = load_model("llama-3-70b")
    for name in ("mi300x", "mi325x", "l40s", "b300-sxm", "h20"):
        gpu = GPUS[name]
        most = kernel_share(arch, 4096, gpu, "bf16") * peak_rate(gpu, "bf16")
        pace = published_pace(arch, gpu, "bf16").flops
        assert 0 < pace.low < pace.middle <= pace.high <= most * (1 + 1e-12)
    # GB200 has six series: with what kernels say of it, those of all GPUs come nearer to its own
    gpu = GPUS["gb200"]
    own = published_pace(arch, gpu, "bf16").flops.middle / peak_rate(gpu, "bf16")
    everyone = read_data("training", "mfu.yaml")["dense 16-bit"]
    scaled = everyone["middle"] * kernels_over(arch, 4096, gpu, "bf16", everyone["series"])
    assert abs(scaled - own) < 0.6 * abs(everyone["middle"] - own)


@pytest.mark.parametrize(
    ("software", "layout"),
    [
        ("megatron-2025", {"tensor": 8, "sequence_parallel": True}),
        ("fsdp-2025", {"zero": 3}),
    ],
)
def test_a_study_on_a_gpu_without_records_lies_in_the_range_without_one(
    software: str, layout: dict[str, object]
) -> None:
    """MI300X; docs/training/demand.md has these figures."""
    arch, cluster = load_model("llama-3-70b"), machine(8, server="mi300x-8")
    asked = changed(job(sequence=4096, batch=128, **layout), software=software)
    step = simulate(asked, arch, cluster)
    predicted = predicted_pace(step, 64).flops.middle
    pace = published_pace(arch, cluster.gpu, "bf16").flops
    assert pace.low < predicted < pace.high
    told = next(line for line in PAGE.read_text(encoding="utf-8").splitlines() if " on MI300X: " in line)
    named = [f"{flops / 1e12:.0f}" for flops in (pace.middle, pace.low, pace.high, predicted)]
    everyone = read_data("training", "mfu.yaml")["dense 16-bit"]["middle"] * peak_rate(cluster.gpu, "bf16")
    assert {*named, f"{everyone / 1e12:.0f}"} <= set(re.findall(r"\d+", told))
