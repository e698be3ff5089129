"""AMD's kernels against published measurements, and its training steps with each family left out.

What the fits have seen is in tools/fit_amd.py, with its sources.  MI300X in fp8, in no fit: samuel-bohman/
AI-benchmarking-guide at 3de0c29, Azure_Results/ND_MI300X_v5_results.md.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from statistics import mean, pstdev
from types import ModuleType

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape, gemm_seconds
from railwright.compute.profile import profile_of
from railwright.compute.time import kernel_time, peak_rate
from railwright.measure.training.jobs import job_of, machine_for
from railwright.measure.training.models import architecture_of
from railwright.measure.training.replay import family_of, record_row, records
from railwright.model.shape.architecture import Operator, Phase
from railwright.training import simulate
from railwright.training.software.eras import Pace, waiting

GPUS = load_catalog().gpus

SQUARES = {4096: 955.17, 8192: 1159.23, 16384: 1015.1, 32768: 1029.14}
"""Side of a square product in fp8 -> TFLOP/s on MI300X."""

KERNELS_ALONE, LEFT_OUT, FITTED = (-0.147, 0.072), (0.023, 0.066), (0.006, 0.041)
"""Bias and spread of the steps' errors (docs/training/unseen.md, AMD's GPUs)."""


@pytest.fixture(scope="module")
def fit() -> ModuleType:
    tool = Path(__file__).parents[2] / "tools" / "fit_amd.py"
    if not tool.is_file():
        pytest.skip("tools/ is not in this distribution")
    spec = importlib.util.spec_from_file_location("fit_amd", tool)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def test_the_rows_are_what_the_fit_gives(fit: ModuleType) -> None:
    form, error = fit.products()
    assert error < 0.06
    for gpu in fit.SUSTAINED:
        rows = profile_of(GPUS[gpu]).gemm
        for dtype in fit.SUSTAINED[gpu]:
            row, depth = rows[dtype], form["depth"] * (2 if dtype == "fp8" else 1)
            found = {**form, **fit.shares(gpu, dtype, form), "depth": depth}
            shipped = {**vars(row), "small": row.tiny}
            assert {name: shipped[name] for name in found} == pytest.approx(found, rel=0.003)
    for (gpu, way), rates in fit.ATTENTION.items():
        compute, short, off = fit.attention(gpu, rates)
        row = profile_of(GPUS[gpu]).attention[way]
        assert (row.compute, row.short) == pytest.approx((compute, short), rel=0.003)
        assert off < 0.03


def test_products_of_layers_on_mi355x(fit: ModuleType) -> None:
    errors = [product("mi355x", "bf16", m, n, k) / rate - 1 for m, n, k, rate in fit.PRODUCTS]
    assert mean(map(abs, errors)) < 0.065
    assert abs(mean(errors)) < 0.02
    assert max(map(abs, errors)) < 0.30


def test_square_products_in_fp8_on_mi300x_that_no_fit_has_seen() -> None:
    errors = [product("mi300x", "fp8", n, n, n) / rate - 1 for n, rate in SQUARES.items()]
    assert max(map(abs, errors)) < 0.26
    assert abs(mean(errors)) < 0.12


@pytest.mark.parametrize("gpu", ["mi300x", "mi355x"])
@pytest.mark.parametrize(("way", "phase"), [("forward", "forward"), ("backward", "backward_input")])
def test_attention_by_sequence(gpu: str, way: str, phase: Phase, fit: ModuleType) -> None:
    """Beside 8 sequences of 64 heads."""

    def rate(keys: int) -> float:
        op = Operator("core attention", "attention", 1e15, 0.0, "bf16", 16384, keys, 128, 512, phase)
        return 1e3 / kernel_time(op, GPUS[gpu])

    found = np.array([rate(s) for s in fit.SEQUENCES])
    errors = found / np.array(fit.ATTENTION[gpu, way][-1]) - 1
    assert np.abs(errors).max() < 0.08
    assert np.abs(errors).mean() < 0.05


def test_steps_with_their_family_left_out() -> None:
    """docs/training/unseen.md, AMD's GPUs."""
    asked = [r for r in records() if r["family"].startswith("amd-")]
    rows = [record_row(r, family_of(r)) for r in asked]
    alone = [by_kernels_alone(r) / row.measured - 1 for r, row in zip(asked, rows, strict=True)]
    left_out = [row.left_out / row.measured - 1 for row in rows if row.left_out]
    fitted = [row.predicted / row.measured - 1 for row in rows]
    assert len(left_out) == len(rows) == 47
    for errors, (bias, spread) in ((alone, KERNELS_ALONE), (left_out, LEFT_OUT), (fitted, FITTED)):
        assert mean(errors) == pytest.approx(bias, abs=0.005)
        assert pstdev(errors) == pytest.approx(spread, abs=0.005)
    assert mean(map(abs, left_out)) == pytest.approx(0.057, abs=0.005)
    assert mean(map(abs, fitted)) == pytest.approx(0.034, abs=0.005)


def by_kernels_alone(record: dict[str, str]) -> float:
    """The step with kernels as long as alone, waits for the slowest GPU apart. [s]"""
    job, gpus = job_of(record), int(record["gpus"])
    pace = waiting(Pace(), gpus)
    machine = machine_for(record)
    return simulate(job, architecture_of(record), machine, pace=pace, must_fit=False, most_events=0).step_time
