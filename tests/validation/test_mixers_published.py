"""Linear mixers against what is published of them: parameters, FLOPs, kernels and steps."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from statistics import mean

import pytest

from railwright.catalog import load_catalog
from railwright.compute import kernel_time
from railwright.measure.machines import Unsupported
from railwright.measure.training.models import HYBRIDS
from railwright.measure.training.replay import record_row, records
from railwright.model import count_parameters, flops_per_token, load_model
from railwright.model.operators.delta import delta_blocks
from railwright.model.operators.kernels import Block
from railwright.model.operators.mamba import mamba_blocks
from railwright.model.shape.architecture import LinearMixer


@pytest.mark.parametrize(
    ("name", "total", "active", "band"),
    [
        # Nemotron-H (arXiv 2504.03624), table 1
        ("nemotron-h-56b", 5.6e10, 5.6e10, 0.01),
        # nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B: 31.6 billion, 3.6 active with the embedding
        ("nemotron-3-nano-30b-a3b", 3.16e10, 3.6e9, 0.01),
        # nvidia/NVIDIA-Nemotron-3-Super-120B-A12B, technical report: 120.6 billion, 12.7 active
        ("nemotron-3-super-120b-a12b", 1.206e11, 1.27e10, 0.01),
        # Qwen/Qwen3-Next-80B-A3B-Instruct: 80 billion, 79 without embeddings
        ("qwen3-next-80b-a3b", 8e10, 3.9e9, 0.01),
    ],
)
def test_parameters_are_the_published_ones(name: str, total: float, active: float, band: float) -> None:
    count = count_parameters(load_model(name))
    assert count.total == pytest.approx(total, rel=band)
    assert count.active == pytest.approx(active, rel=band)


def test_model_flops_are_those_of_nvidias_readme() -> None:
    """NVIDIA/dgxc-benchmarking v25.05, nemotronh/README.md: 2.816e15 for one sequence of 8,192 tokens."""
    flops = flops_per_token(load_model("nemotron-h-56b"), 8192).total * 8192
    assert flops == pytest.approx(2.816e15, rel=0.002)


H20 = {"convolution": 65, "inverse": 45 + 86, "writes": 79, "state passing": 188, "output": 129}
"""Microseconds of a gated delta net's kernels on H20: 4,096 tokens, 16 heads of keys and 32 of values, 128
wide.  Source: infersim (alibaba), bench_data/gdn/prefill/h20/4-16-128-32-128.csv (conv; kkt and tril; wu;
chunk_gdn; chunk_o)."""


def told(blocks: list[Block], gpu: str) -> dict[str, float]:
    """Predicted microseconds of the forward kernels."""
    on = load_catalog().gpus[gpu]
    return {
        b.forward.name.removeprefix("mixer ").removeprefix("chunk "): 1e6 * kernel_time(b.forward, on)
        for b in blocks
    }


def delta(keys: int, values: int, tokens: int) -> list[Block]:
    mixer = LinearMixer("gated_deltanet", heads=values, value_dim=128, key_heads=keys, key_dim=128)
    return delta_blocks(mixer, tokens, tokens, 1, "bf16")


def test_kernels_in_chunks_take_what_was_measured_on_three_gpus() -> None:
    """`compute.time.SCAN_WORK` is the mean of these three: each is met within a fifth, where HBM's rate says
    half (H800) and a third (B200) of what was measured."""
    own = told(delta(16, 32, 4096), "h20")
    assert sum(own[n] for n in H20) == pytest.approx(sum(H20.values()), rel=0.2)
    # flashinfer pull request 3001: flash-linear-attention 0.4.2, 8,192 tokens, 4 and 16 heads, 0.424 ms
    fla = told(delta(4, 16, 8192), "b200-sxm")
    chunks = sum(fla[n] for n in ("inverse", "writes", "state passing", "output"))
    assert chunks == pytest.approx(424, rel=0.2)
    # tile-ai/tilelang be9c08f6, benchmark/mamba2/README.md: 8 sequences of 8,192 tokens, 1.278 ms
    mixer = LinearMixer("mamba2", heads=80, value_dim=64, key_heads=1, key_dim=128, chunk=256)
    scan = told(mamba_blocks(mixer, 8 * 8192, 8192, 1, "bf16"), "h800")["scan"]
    assert scan == pytest.approx(1278, rel=0.05)


@cache
def errors() -> dict[tuple[str, str], list[float]]:
    """Of the published steps of models with linear layers, by model and GPU."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records():
        if record["model"] not in HYBRIDS:
            continue
        try:
            row = record_row(record, "training")
        except Unsupported:
            continue
        found[record["model"], record["gpu"]].append(row.predicted / row.measured - 1)
    return found


@pytest.mark.parametrize(
    ("model", "gpu", "count", "error"),
    [
        ("nemotronh-56b", "H100", 7, -0.017),
        ("nemotron-3-nano-30b-a3b", "H100", 4, 0.025),
        ("nemotron-3-nano-30b-a3b", "B200", 1, -0.047),
        ("nemotron-3-nano-30b-a3b", "B300", 4, -0.067),
        ("nemotron-3-nano-30b-a3b", "GB200", 5, -0.049),
        ("nemotron-3-nano-30b-a3b", "GB300", 6, -0.069),
        ("nemotron-3-super-120b-a12b", "B200", 2, -0.040),
        ("nemotron-3-super-120b-a12b", "B300", 3, -0.148),
        ("nemotron-3-super-120b-a12b", "GB200", 5, 0.081),
        ("nemotron-3-super-120b-a12b", "GB300", 5, -0.066),
    ],
)
def test_steps_that_no_fit_has_seen(model: str, gpu: str, count: int, error: float) -> None:
    """In the mean; first scored -12, -1 to -17 and +5 to -24 %, before kernels in chunks were held against
    measured ones, and Nemotron-H -14.6 % until its script said that it hides no tensor parallelism.  No
    constant is fitted to any of them."""
    found = errors()[model, gpu]
    assert len(found) == count
    assert mean(found) == pytest.approx(error, abs=0.005)


def test_all_of_them_together() -> None:
    every = [e for found in errors().values() for e in found]
    assert len(every) == 42
    assert mean(abs(e) for e in every) == pytest.approx(0.059, abs=0.002)
    assert mean(every) == pytest.approx(-0.034, abs=0.002)


def test_steps_of_nemotron_h_are_met_at_every_size() -> None:
    assert all(-0.045 < error < 0.005 for error in errors()["nemotronh-56b", "H100"])
