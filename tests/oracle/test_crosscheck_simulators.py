"""htsim, ASTRA-sim and SimAI read our files and answer; each where it is installed.

None is in a package registry: docs/network/crosscheck.md says how each is built and found.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from network_fabrics import make
from railwright.catalog import load_catalog
from railwright.crosscheck import SIMULATORS, Problem, crosscheck, make_problem
from railwright.fabric.graph import Fabric
from railwright.network import Network

MIB = 2.0**20


def check(name: str, problem: Problem, band: float, folder: Path) -> None:
    """Ours, counted as the simulator counts, is within the band, and not above it by more than 0.1 %."""
    if not SIMULATORS[name].find():
        pytest.skip(f"{name} is not installed; {SIMULATORS[name].how}")
    result = crosscheck(problem, folder / "out", [name], limit=60)
    other = ("astra-sim levels", "simai analytical")  # formulas that know no fabric
    assert all(row.status == "ran" for row in result.rows), result.rows
    same = [row for row in result.rows if row.simulator not in other]
    assert same
    for row in same:
        assert row.difference is not None
        assert -band <= row.difference <= 0.001, row


def problem(fabric: Fabric, pattern: str = "all-to-all") -> Problem:
    return make_problem("oracle", Network(fabric), load_catalog(), pattern, 16, 16 * MIB)


def flat() -> Fabric:
    return make(16, 1, "fat-tree", servers_per_group=4, spines=4, nic=50e9, lane=450e9, uplink=50e9)


@pytest.mark.parametrize("pattern", ["all-to-all", "send-recv", "ring"])
def test_htsim(pattern: str, tmp_path: Path) -> None:
    check("htsim", problem(flat(), pattern), 0.15, tmp_path)


@pytest.mark.parametrize("pattern", ["all-to-all", "send-recv", "ring"])
def test_astra_sim(pattern: str, tmp_path: Path) -> None:
    check("astra-sim", problem(flat(), pattern), 0.001, tmp_path)


def test_simai(tmp_path: Path) -> None:
    """Rails below one spine over two cables: nothing to hash, and the two cables must count as two."""
    rails = make(2, 8, "rail-optimised", spines=1, cables=2, nic=50e9, lane=450e9, uplink=50e9)
    check("simai", problem(rails), 0.05, tmp_path)
