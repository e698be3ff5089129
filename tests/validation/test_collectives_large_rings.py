"""All-gathers of 512, 1,024 and 2,160 A100: how the latency of a long ring adds to what its wires take.

Polaris (Argonne): four A100 a node, two NICs of 200 Gb/s on Slingshot 11 through Amazon's libfabric plugin,
nccl-tests 2024-04-29; argonne-lcf/alcf-nccl-tests at 385be33, results_polaris, n128, n256 (settings 4 and 5)
and n540 (NCCL 2.21 and 2.18).  A step takes ten times as long there as over InfiniBand, so one point says how
long, and the others whether the sum is right.
"""

from __future__ import annotations

import numpy as np
import pytest

from railwright.collectives.group import Group
from railwright.collectives.ring import carried, hides

PLATEAU = 36.0e9
"""busbw of 1 GiB over 32 ranks there, where latencies are hidden. [byte/s]"""
FIRST = (512, 268_435_456, 22.996e-3)
"""Ranks, S [byte], time [s]: the point that the latency of a step is taken from."""
POINTS = [
    (512, 134_217_728, 22.398e-3),
    (512, 536_870_912, 23.488e-3),
    (512, 1_073_741_824, 32.943e-3),
    (1024, 268_435_456, 40.082e-3),
    (1024, 268_435_456, 45.143e-3),
    (1024, 536_870_912, 41.217e-3),
    (1024, 536_870_912, 44.203e-3),
    (1024, 1_073_741_824, 43.736e-3),
    (1024, 1_073_741_824, 45.853e-3),
    (2160, 536_855_040, 93.901e-3),
    (2160, 536_855_040, 94.793e-3),
    (2160, 1_073_710_080, 93.818e-3),
    (2160, 1_073_710_080, 99.572e-3),
]
"""From where a doubling of S costs less than twice: below, other protocols take part."""


def wires(ranks: int, size: float) -> tuple[Group, float, float]:
    """The group, and what its NICs and its lanes inside nodes take. [s]"""
    group = Group(ranks, ranks // 4, 2, 25e9, 300e9, "ampere", "amd")
    sent = size * (ranks - 1) / ranks
    return group, sent / PLATEAU, sent / carried("all_gather", "simple", group)


def waited(ranks: int, size: float, latency: float) -> float:
    """Time of an all-gather; `latency` of a step between nodes, with those inside that go with it. [s]"""
    group, network, inside = wires(ranks, size)
    steps = (group.nodes - 1) * latency
    return network + max(0.0, steps - hides("all_gather", group, network, inside))


def step() -> float:
    """Latency of a step between nodes, from the first point. [s]"""
    ranks, size, measured = FIRST
    group, network, inside = wires(ranks, size)
    return (measured - network + hides("all_gather", group, network, inside)) / (group.nodes - 1)


def test_one_point_says_the_others() -> None:
    errors = np.array([waited(ranks, size, step()) / measured - 1 for ranks, size, measured in POINTS])
    assert abs(errors).max() < 0.125
    assert np.sqrt((errors**2).mean()) < 0.075


def test_twice_the_bytes_in_the_same_time() -> None:
    """Where latencies bind, half of a step's wire time is all that bytes add, and less inside nodes."""
    for ranks, size in ((512, 134_217_728), (1024, 268_435_456), (2160, 536_855_040)):
        grown = waited(ranks, 2 * size, step()) / waited(ranks, size, step())
        assert 1.0 < grown < 1.08


def test_steps_inside_nodes_that_are_as_slow_wait_for_half_of_all_wires() -> None:
    group, network, _ = wires(512, 2**30)
    assert hides("all_gather", group, network, network) == pytest.approx(network / 2)
    assert hides("all_gather", group, network, 0.0) == pytest.approx(network * (1 - 127 / 511 / 2))
    assert hides("broadcast", group, network, network) == 0.0
    alone = Group(8, 1, 8, 25e9, 300e9, "ampere", "amd")
    assert hides("all_gather", alone, 0.0, 1.0) == 0.0
