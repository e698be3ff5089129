"""The published package: its tables are read as the shipped constants were made, and points beat fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.compute.gemm import Shape
from railwright.measure.optables.attending import attention
from railwright.measure.optables.fitting import Found, Tables
from railwright.measure.optables.package import installed, settings, systems
from railwright.measure.optables.products import products
from railwright.measure.optables.routed import SIZES, WANTED
from railwright.measure.optables.source import Source, read_source, rounded, subject_of
from railwright.serving.kernels.constants import kernels_of
from railwright.serving.kernels.measured import attention_fit, gemm_fit
from railwright.serving.kernels.times import AttentionRow, Floats, GemmRow, Speeds, gemm_seconds
from railwright.shipped import read_data

L40S, A100 = Speeds(362.05e12, 0.864e12, 142), Speeds(312e12, 2.039e12, 108)


def _absent() -> str:
    """Why the package's tables cannot be read here, '' where they can."""
    pytest.importorskip("pyarrow", reason="pyarrow (extra 'kernels') is not installed")
    try:
        version = metadata.version("aiconfigurator-core")
    except metadata.PackageNotFoundError:
        return "aiconfigurator-core (extra 'kernels') is not installed"
    return "" if version.startswith("0.12.") else f"aiconfigurator-core {version}, not 0.12"


pytestmark = pytest.mark.skipif(bool(_absent()), reason=_absent() or "-")


@pytest.fixture(scope="module")
def source() -> Source:
    return read_source(installed(), load_catalog().gpus["a100-sxm-80"], "vllm")


def test_every_folder_of_the_package_is_known_and_its_current_versions_are_read() -> None:
    package = installed()
    assert set(package.systems()) == set(systems())
    assert package.current("h100_sxm", "trtllm") == "1.3.0rc20", "newer drops hold single kernels"
    assert package.current("a100_sxm", "vllm") == "0.14.0"
    assert package.all_versions("h100_pcie", "vllm") == ()


def shipped() -> Iterator[Found]:
    """Attention of L40S under vLLM, products of A100 by SGLang's table, as tools/fit_serving.py does."""
    gpus, package = load_catalog().gpus, installed()
    a100 = subject_of(gpus["a100-sxm-80"], "a100_sxm")
    # with the data sheet's peak: the catalogue's is rounded
    l40s = replace(subject_of(gpus["l40s"], "l40s"), speeds=L40S)
    yield from attention(Tables(package, {"vllm": "0.24.0"}, filled=False), l40s, ("vllm",))
    yield from products(Tables(package, {"sglang": "0.5.10"}, filled=False), a100, "sglang")


def test_shipped_constants_come_from_this_code() -> None:
    found = list(shipped())
    assert {one.path[-1] for one in found} >= {"decode_bf16", "prefill_bf16", "bf16"}
    for one in found:
        rows = read_data("serving", f"kernels/{'a100' if one.path[0] == 'gemm' else 'l40s'}.yaml")
        for key in one.path:
            rows = rows[key]
        assert (rows["table"], rows["rows"]) == (one.table, one.fit.rows)
        own = {name: rows[name] for name in one.constants}
        # what a constant is where it decides nothing may differ from machine to machine; times may not
        np.testing.assert_allclose(times(one.path, rounded(one)), times(one.path, own), rtol=0.01)


def times(path: tuple[str, ...], constants: dict[str, Any]) -> Floats:
    """Seconds at some shapes, by the constants of a kernel."""
    sizes = np.array([1.0, 8, 64, 512, 4096])
    if path[0] == "gemm":
        return gemm_fit(GemmRow(**constants), A100, 1.0, 2.0, False)(np.array([8192.0, 4096.0]), sizes, sizes)
    kind, _, byte = path[-1].rpartition("_")
    fit = attention_fit(kind, AttentionRow(**constants), L40S, 1.0 if byte == "fp8" else 2.0)
    return fit(np.array([8.0, 32.0, 512.0]), np.array([1.0, 8, 64])[:, None], sizes[None, 1:])


def test_kernels_that_are_left_out_are_there_and_slow() -> None:
    """Each against the same shapes by another engine or version: an entry that has served its time goes."""
    beside = {
        "fp8": ("h200_sxm", "vllm/0.24.0", "vllm/0.19.0"),
        "w4a16_mxfp4": ("h100_sxm", "sglang/0.5.14", "vllm/0.24.0"),
    }
    beside["int4_wo"] = ("h200_sxm", "vllm/0.19.0", "sglang/0.5.10")
    for one in settings()["left_out"]:
        system, slow, other = beside[one["dtype"]]
        assert system in one["systems"]
        assert slow.startswith(one["engine"])
        mine = latencies(f"{system}/moe/{slow}", one["dtype"], one["kernel"])
        theirs = latencies(f"{system}/moe/{other}", one["dtype"], None)
        shared = [mine[shape] / theirs[shape] for shape in mine if shape in theirs]
        assert len(shared) > 50, one
        assert np.median(shared) > 1.8, one


def latencies(folder: str, dtype: str, kernel: str | None) -> dict[tuple[float, ...], float]:
    """Milliseconds by shape, of tokens dealt evenly."""
    table = installed().read(f"{folder}/moe_perf.parquet", (*WANTED, *SIZES))
    assert table is not None
    keep = (table["moe_dtype"].astype(str) == dtype) & (table["distribution"].astype(str) == "balanced")
    if kernel:
        keep &= table["kernel_source"].astype(str) == kernel
    shapes = zip(*(np.asarray(table[name], float)[keep] for name in SIZES), strict=True)
    return dict(zip(shapes, np.asarray(table["latency"], float)[keep], strict=True))


def test_points_are_nearer_than_the_fit_at_shapes_left_out(source: Source) -> None:
    assert {line.found.path[0] for line in source.lines} == {
        "gemm",
        "attention",
    }  # its experts are of prompts alone
    for line in source.lines:
        assert line.judged.near < 0.8 * line.judged.fit, line.found.path
        assert line.judged.near < 12.0, line.found.path


def test_a_row_of_the_package_is_met(source: Source, tmp_path: Path) -> None:
    file = tmp_path / "a100.kernels.json"
    file.write_text(source.text(), encoding="utf-8")
    gpu = load_catalog().gpus["a100-sxm-80"]
    kernels = kernels_of(gpu, "vllm", str(file))
    row, peak, width, quantise = kernels.gemm("bf16")
    name = "a100_sxm/gemm/sglang/0.5.10/gemm_perf.parquet"
    table = installed().read(name, ("gemm_dtype", "m", "n", "k", "latency"))
    assert table is not None
    at = (table["n"] == 8192) & (table["k"] == 4096) & (table["gemm_dtype"] == "bfloat16")
    m = np.asarray(table["m"], float)[at]
    shape = Shape(m, np.full_like(m, 8192.0), np.full_like(m, 4096.0))
    told = gemm_seconds(shape, row, kernels.speeds, peak, width, quantise)
    np.testing.assert_allclose(told * 1e3, np.asarray(table["latency"], float)[at], rtol=1e-4)
