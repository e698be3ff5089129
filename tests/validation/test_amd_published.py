"""AMD's kernels against published measurements, and its training steps with each family left out.

GEMM: mit-orcd/amd-benchmarks at 703d929, amd-cloud/primus/sweep_out_20260813-224704 (MI355X, bf16, hipBLASLt
through PyTorch), behind the fit; MI300X in fp8: samuel-bohman/AI-benchmarking-guide at 3de0c29,
Azure_Results/ND_MI300X_v5_results.md, in no fit.  Attention: ROCm/aiter at 0403bcd,
op_tests/cpp/mha/README.md, bf16, causal, 8 x 64 heads of 128 (8 of keys), behind the fit with other batches
and heads.
"""

from __future__ import annotations

from statistics import mean

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape, gemm_seconds
from railwright.compute.profile import profile_of
from railwright.compute.time import kernel_time, peak_rate
from railwright.measure.training import family_of, record_row, records
from railwright.model.architecture import Operator, Phase

GPUS = load_catalog().gpus

PRODUCTS = {
    (2048, 12288, 4096): (1439.77, 1362.91, 1144.2),
    (2048, 4096, 4096): (1306.95, 1315.73, 1205.83),
    (2048, 22016, 4096): (1455.99, 1266.81, 1358.57),
    (2048, 4096, 11008): (1195.6, 1283.57, 1276.26),
    (2048, 32000, 4096): (1471.24, 1348.42, 1400.31),
    (4096, 12288, 4096): (1546.44, 1467.06, 1563.38),
    (4096, 576, 4096): (586.47, 549.24, 848.39),
    (4096, 16384, 512): (1002.45, 1088.46, 921.97),
    (4096, 4096, 8192): (1558.07, 1453.95, 1480.19),
    (4096, 128, 4096): (264.48, 250.34, 306.1),
    (4096, 24576, 4096): (1428.58, 1474.8, 1546.79),
    (4096, 4096, 12288): (1616.43, 1462.55, 1501.77),
    (192, 3072, 4096): (257.77, 304.51, 310.77),
    (192, 4096, 1536): (195.79, 193.25, 164.41),
    (4096, 128256, 4096): (1379.11, 1400.97, 1563.83),
}
"""Rows, outputs and inputs of a linear layer -> TFLOP/s of its forward pass, weight and input gradient."""

SQUARES = {4096: 955.17, 8192: 1159.23, 16384: 1015.1, 32768: 1029.14}
"""Side of a square product in fp8 -> TFLOP/s on MI300X."""

SEQUENCES = (1024, 2048, 4096, 8192, 10240)
ATTENTION: dict[tuple[str, Phase], tuple[float, ...]] = {
    ("mi300x", "forward"): (321.865, 452.03, 509.255, 550.67, 547.05),
    ("mi300x", "backward_input"): (265.08, 347.89, 402.18, 432.715, 439.785),  # sums in fp32
    ("mi355x", "forward"): (626.57, 963.165, 1190.295, 1311.955, 1313.695),
    ("mi355x", "backward_input"): (576.345, 817.49, 972.25, 1067.89, 1084.75),  # sums in 16 bits
}


def product(gpu: str, dtype: str, m: int, n: int, k: int) -> float:
    """TFLOP/s of one product alone."""
    part, row = GPUS[gpu], profile_of(GPUS[gpu]).gemm_row(dtype)
    width = 1 if dtype == "fp8" else 2
    seconds = gemm_seconds(
        Shape(m, n, k),
        width * (m * k + n * k) + 2 * m * n,
        2 * m * n * k,
        fixed=row.fixed,
        compute=row.compute * peak_rate(part, dtype),
        memory=row.memory * part.hbm_bandwidth,
        depth=row.depth,
        square=row.square,
        small=row.tiny,
        sms=part.sms,
        sustained=row.sustained * peak_rate(part, dtype),
    )
    return 2 * m * n * k / float(seconds) / 1e12


def test_products_of_layers_on_mi355x() -> None:
    errors = []
    for (m, n, k), measured in PRODUCTS.items():
        shapes = ((m, n, k), (n, k, m), (m, k, n))
        errors += [product("mi355x", "bf16", *s) / rate - 1 for s, rate in zip(shapes, measured, strict=True)]
    assert mean(map(abs, errors)) < 0.065
    assert abs(mean(errors)) < 0.02
    assert max(map(abs, errors)) < 0.30


def test_square_products_in_fp8_on_mi300x_that_no_fit_has_seen() -> None:
    errors = [product("mi300x", "fp8", n, n, n) / rate - 1 for n, rate in SQUARES.items()]
    assert max(map(abs, errors)) < 0.26
    assert abs(mean(errors)) < 0.12


@pytest.mark.parametrize(("gpu", "phase"), ATTENTION)
def test_attention_by_sequence(gpu: str, phase: Phase) -> None:
    def rate(keys: int) -> float:
        op = Operator("core attention", "attention", 1e15, 0.0, "bf16", 16384, keys, 128, 512, phase)
        return 1e3 / kernel_time(op, GPUS[gpu])

    found = np.array([rate(s) for s in SEQUENCES])
    errors = found / np.array(ATTENTION[gpu, phase]) - 1
    assert np.abs(errors).max() < 0.08
    assert np.abs(errors).mean() < 0.05


def test_steps_with_their_family_left_out() -> None:
    """docs/training/calibration.md, AMD's GPUs."""
    rows = [record_row(r, family_of(r)) for r in records() if r["family"].startswith("amd-")]
    left_out = [row.left_out / row.measured - 1 for row in rows if row.left_out]
    assert len(left_out) == len(rows) == 47
    assert mean(map(abs, left_out)) == pytest.approx(0.042, abs=0.005)
    assert mean(left_out) == pytest.approx(0.006, abs=0.005)
    assert mean(abs(row.predicted / row.measured - 1) for row in rows) == pytest.approx(0.031, abs=0.005)
