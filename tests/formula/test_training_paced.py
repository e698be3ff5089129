"""Kernels as they run in a step: what clocks lose under load, and what they do not."""

from __future__ import annotations

import pytest

from railwright.catalog import find, load_catalog
from railwright.compute import kernel_time, profile_of
from railwright.model.operators.kernels import linear
from railwright.training.software.eras import Pace, paced

GPU = find(load_catalog().gpus, "b200")
ALONE = profile_of(GPU)
LOADED = paced(ALONE, Pace(gemm=1.5, attention=1.2, memory=1.3))


def test_a_product_bound_by_its_tiles_takes_the_load() -> None:
    # 64 tiles of 148 multiprocessors
    product = linear("up", 2048, 1024, 1024, "bf16").forward
    assert kernel_time(product, GPU, LOADED) == pytest.approx(
        1.5 * kernel_time(product, GPU, ALONE), rel=1e-9
    )


@pytest.mark.parametrize("rows", [8192, 65536])
def test_what_power_sustains_is_a_rate_under_load_already(rows: int) -> None:
    product = linear("up", rows, 8192, 8192, "bf16").forward
    row, slow = ALONE.gemm_row("bf16"), LOADED.gemm_row("bf16")
    work = product.flops / GPU.peak_flops["bf16"]
    assert kernel_time(product, GPU, ALONE) == pytest.approx(row.fixed + work / row.sustained, rel=1e-9)
    # at 1.5 times the time of its tiles those bind again
    assert slow.sustained == row.sustained > slow.compute
    loaded = kernel_time(product, GPU, LOADED) - slow.fixed
    assert work / slow.compute < loaded < 1.1 * work / slow.compute


def test_a_product_bound_by_memory_keeps_its_time() -> None:
    product = linear("up", 16, 28672, 8192, "bf16").forward
    row, slow = ALONE.gemm_row("bf16"), LOADED.gemm_row("bf16")
    moved = product.bytes / (row.memory * GPU.hbm_bandwidth)
    assert kernel_time(product, GPU, ALONE) == pytest.approx(row.fixed + moved, rel=1e-9)
    assert kernel_time(product, GPU, LOADED) == pytest.approx(1.5 * row.fixed + moved, rel=1e-9)
    assert slow.fixed == pytest.approx(1.5 * row.fixed)


def test_kernels_bound_by_memory_have_a_factor_of_their_own() -> None:
    assert LOADED.memory.memory == pytest.approx(ALONE.memory.memory / 1.3)
    assert LOADED.memory.fixed == pytest.approx(ALONE.memory.fixed * 1.3)
    assert LOADED.attention_row("forward").compute == pytest.approx(
        ALONE.attention_row("forward").compute / 1.2
    )
