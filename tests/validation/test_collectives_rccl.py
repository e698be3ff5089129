"""RCCL on AMD's meshes of links, in no record and no fit: published busbw of large messages.

A server's eight GPUs have a link to each of the seven others and no switch, so that a group uses the links
among its own members (`Group.reach`).  All of rccl-tests:
- MI355X: mit-orcd/amd-benchmarks at f58939d, amd-cloud/results/rccl.csv (ROCm 7.14, 8 GB; all-to-all 4 GB);
- MI300X and MI325X: hisohara/ai-scripts at 7b8b1ec, training/01_rccl-smoketest/README.md (400 Gb/s a GPU;
  MI325X with Broadcom's adapters, taken here as the catalogue's);
- MI300X of Azure: samuel-bohman/AI-benchmarking-guide at 3de0c29, Azure_Results/ND_MI300X_v5_results.md.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean

import numpy as np
import pytest

from railwright.collectives import predict
from railwright.collectives.prediction import Op
from railwright.measure.machines import published_machine
from railwright.traffic.demand import Communicator

GB = 2**30

INSIDE: list[tuple[str, Op, float, dict[int, float]]] = [
    ("MI355X", "all_reduce", 8 * GB, {2: 59.67, 4: 169.78, 8: 396.58}),
    ("MI355X", "all_gather", 8 * GB, {2: 59.8, 4: 167.86, 8: 389.2}),
    ("MI355X", "reduce_scatter", 8 * GB, {2: 57.76, 4: 166.62, 8: 387.34}),
    ("MI355X", "all_to_all", 4 * GB, {2: 58.19, 4: 154.11, 8: 346.42}),
    ("MI355X", "sendrecv", 8 * GB, {2: 58.44, 4: 60.42, 8: 60.22}),
    ("MI300X", "all_reduce", 8 * GB, {8: 315.69}),
    ("MI325X", "all_reduce", 8 * GB, {8: 318.37}),
]
"""busbw by number of GPUs of one server. [GB/s]"""

ACROSS = [
    ("MI300X", 16, {0.25: 293.75, 1: 340.75, 4: 353.4, 16: 357.46}),
    ("MI325X", 16, {4: 347.23, 8: 349.2, 16: 350.24}),
    ("MI325X", 32, {4: 348.12, 8: 349.92, 16: 350.59}),
    ("MI325X", 64, {4: 344.13, 8: 349.98, 16: 350.84}),
    ("MI355X", 16, {0.25: 304.67, 1: 364.39, 4: 368.22, 8: 369.04}),
]
"""busbw of an all-reduce over whole servers by message size in GiB. [GB/s]"""

MI300X_SIZES = {16: 195.85, 64: 271.51, 256: 304.96, 1024: 313.66, 8192: 315.69}
"""busbw of an all-reduce over 8 GPUs by message size in MiB. [GB/s]"""


def busbw(gpu: str, op: Op, size: float, ranks: int) -> float:
    """As predicted on the first GPUs of usual servers. [GB/s]"""
    machine = published_machine(gpu, max(ranks, 8), None)
    return predict(machine, op, size, [Communicator(np.arange(ranks, dtype=np.int32))]).busbw / 1e9


@pytest.mark.parametrize(("gpu", "op", "size", "measured"), INSIDE)
def test_a_group_has_the_links_among_its_members(
    gpu: str, op: Op, size: float, measured: dict[int, float]
) -> None:
    """Within 15 % of each; drawn as a switch, two GPUs came out five times too fast."""
    for ranks, rate in measured.items():
        assert busbw(gpu, op, size, ranks) == pytest.approx(rate, rel=0.15), ranks


@pytest.mark.parametrize("ranks", [5, 6, 7])
def test_numbers_without_a_decomposition_have_one_ring(ranks: int) -> None:
    """47.6 to 48.0 GB/s measured: less than two GPUs' and an eighth of eight's."""
    assert busbw("MI355X", "all_reduce", 8 * GB, ranks) == pytest.approx(48, rel=0.15)


@pytest.mark.parametrize(("gpu", "ranks", "measured"), ACROSS)
def test_rings_over_servers_leave_each_once(gpu: str, ranks: int, measured: dict[float, float]) -> None:
    """More than the same links give inside one server, as measured; each within a tenth."""
    errors = [busbw(gpu, "all_reduce", size * GB, ranks) / rate - 1 for size, rate in measured.items()]
    assert max(map(abs, errors)) < 0.10
    assert mean(map(abs, errors)) < 0.06


def test_sizes_from_16_megabytes_on() -> None:
    errors = [busbw("MI300X", "all_reduce", s * 2**20, 8) / rate - 1 for s, rate in MI300X_SIZES.items()]
    assert max(map(abs, errors)) < 0.05


SHOWN: dict[str, list[tuple[str, Op, float, int]]] = {
    "all-reduce on 2, 4, 8 MI355X": [("MI355X", "all_reduce", 8, n) for n in (2, 4, 8)],
    "all-reduce on 5, 6, 7 MI355X": [("MI355X", "all_reduce", 8, n) for n in (5, 6, 7)],
    "all-reduce on 3 MI355X": [("MI355X", "all_reduce", 8, 3)],
    "all-to-all on 2, 4, 8 MI355X": [("MI355X", "all_to_all", 4, n) for n in (2, 4, 8)],
    "send to a neighbour, MI355X": [("MI355X", "sendrecv", 8, 8)],
    "all-reduce on 8 MI300X": [("MI300X", "all_reduce", 8, 8)],
    "all-reduce on 16 MI300X; 16, 32, 64 MI325X; 400 Gb/s a GPU": [
        ("MI300X", "all_reduce", 16, 16),
        *(("MI325X", "all_reduce", 16, n) for n in (16, 32, 64)),
    ],
}
"""Row of the page -> GPU, collective, size [GiB] and ranks of each of its predictions."""


@pytest.mark.parametrize("row", SHOWN)
def test_the_page_shows_what_is_predicted(row: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "collectives.md").read_text(encoding="utf-8")
    (line,) = (line for line in page.splitlines() if line.startswith(f"| {row} |"))
    shown = [int(n) for n in re.findall(r"\d+", line.split("|")[3])]
    assert shown == [round(busbw(gpu, op, size * GB, n)) for gpu, op, size, n in SHOWN[row]]
