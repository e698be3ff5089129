"""All-to-all of 16 MiB per rank at 50 GB/s per rank, by other simulators, against ours.

Source of the figures: issue 4 of this project, "Orientation, measured once on a 2-core machine".
It names no setup; each is taken from what the simulator does by itself, and never from its result.
"""

from __future__ import annotations

import numpy as np
import pytest

from network_fabrics import make
from railwright.catalog import load_catalog
from railwright.crosscheck import Problem, make_problem
from railwright.crosscheck.astra import stored_whole
from railwright.crosscheck.htsim import FRAMING as HTSIM
from railwright.crosscheck.packets import in_packets
from railwright.crosscheck.simai import FRAMING as SIMAI
from railwright.fabric.graph import Kind, Role
from railwright.network import Network

RATE = 50e9
SIZE = 16 * 2.0**20
US = 1e-6

BAND = 0.05
"""Issue 4: within 5 % of the packet simulators' figures."""


def flat(ranks: int) -> Problem:
    """One GPU per server, 16 servers a leaf, as many up-links as down-links."""
    fabric = make(ranks, 1, "fat-tree", servers_per_group=16, spines=16, nic=RATE, lane=9 * RATE, uplink=RATE)
    return make_problem("flat", Network(fabric), load_catalog(), "all-to-all", ranks, SIZE)


def rails(ranks: int) -> Problem:
    """Servers of eight GPUs on NVLink, a leaf per rail, up-links for all that comes from below."""
    servers = ranks // 8
    fabric = make(servers, 8, "rail-optimised", spines=servers, nic=RATE, lane=9 * RATE, uplink=RATE)
    return make_problem("rails", Network(fabric), load_catalog(), "all-to-all", ranks, SIZE)


def nic_bound(problem: Problem) -> float:
    """Bytes that the busiest NIC sends, over its rate."""
    fabric, traffic = problem.fabric, problem.traffic
    away = fabric.server[traffic.src] != fabric.server[traffic.dst]
    return float(np.bincount(traffic.src[away], weights=traffic.size[away]).max() / RATE)


@pytest.mark.parametrize(("ranks", "figure"), [(64, 347.8), (256, 352.0)])
def test_simgrid(ranks: int, figure: float) -> None:
    """SimGrid's default charges 5 % of a flow to its way back (network/crosstraffic); links of 1 us.

    Run here with that setting SimGrid 3.32 says 347.82 and 351.95; without it, what our fluid says.
    """
    ours = flat(ranks).answer[0].time
    assert ours == pytest.approx((ranks - 1) / ranks * SIZE / RATE, rel=1e-9)
    assert (1.05 * ours + 1 * US) / US == pytest.approx(figure, rel=2e-4)


@pytest.mark.parametrize(("ranks", "figure"), [(64, 350.2), (256, 357.6)])
def test_htsim_eqds(ranks: int, figure: float) -> None:
    """64 bytes of header in packets of 4,150, 0.99 of a link granted, a round trip."""
    problem = flat(ranks)
    ours = in_packets(problem, HTSIM["htsim_eqds"]) / US
    assert figure * (1 - BAND) <= ours <= figure
    assert ours * US >= nic_bound(problem)


@pytest.mark.parametrize(("ranks", "figure"), [(16, 177.0), (32, 261.6), (64, 309.6)])
def test_simai_ns3(ranks: int, figure: float) -> None:
    """48 bytes of header before 9,000 of payload, 6 us before a send; no PXN, which it does not model."""
    problem = rails(ranks)
    ours = in_packets(problem, SIMAI) / US
    assert ours == pytest.approx(figure, rel=BAND)
    assert ours * US >= nic_bound(problem)


def test_the_nic_bound_of_sixty_four_ranks() -> None:
    """56 of 64 parts leave a server of eight: 14 MiB at 50 GB/s are 293.6 us, and ours is not below it."""
    problem = rails(64)
    assert nic_bound(problem) / US == pytest.approx(293.6, abs=0.05)
    assert problem.answer[0].time >= nic_bound(problem) * (1 - 1e-12)


def test_astra_sim_crossbar_of_1024_ranks() -> None:
    """Its GB are 2**30 bytes: 313 us are below 16 MiB over 50e9 B/s, and above 16 MiB over 50 x 2**30."""
    ours = stored_whole(1023 / 1024 * SIZE, SIZE / 1024, 50 * 2.0**30, 0.25 * US) / US
    assert ours == pytest.approx(313, rel=0.002)


def test_a_hundred_times_less_processor_time_than_packets() -> None:
    """7 s for 64 ranks and 789 s for 256, on the machine of the issue; ours include finding the routes."""
    for ranks, theirs in ((64, 7.0), (256, 789.0)):
        assert flat(ranks).answer[1] < theirs / 100


def test_fabrics_are_as_described() -> None:
    assert np.count_nonzero(flat(64).fabric.kind == Kind.LEAF) == 4
    fabric = rails(16).fabric
    assert (
        fabric.rate[fabric.role == Role.LEAF_SPINE].sum() == fabric.rate[fabric.role == Role.NODE_LEAF].sum()
    )
