"""Destination-based tables: destinations are dealt evenly; shifts do not collide on a full tree."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import network_fabrics as hand
from railwright.catalog import load_catalog
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, solve
from railwright.network.routing.paths import find_routes
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, all_to_all, send_recv


def ends(fabric: Fabric) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    return (
        np.stack([fabric.a, fabric.b], axis=1).reshape(-1),
        np.stack([fabric.b, fabric.a], axis=1).reshape(-1),
    )


def loads(fabric: Fabric, climbing: bool) -> list[list[int]]:
    """Per switch, how many destinations each of its upper ports serves, one direction, under all traffic.

    climbing  True: destinations that the switch sends up through the port; False: destinations below it
              that others reach down through the port
    """
    everyone = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    traffic = all_to_all(fabric, everyone, 1.0, pxn=False)
    routes = find_routes(Network(fabric, "static"), traffic)
    tail, head = ends(fabric)
    destination = np.repeat(traffic.dst, np.diff(routes.ptr))
    pairs = np.unique(routes.link.astype(np.int64) * fabric.num_gpus + destination)
    count = np.bincount(pairs // fabric.num_gpus, minlength=fabric.num_links)
    lower, upper = (tail, head) if climbing else (head, tail)
    between = (fabric.kind[lower] >= Kind.LEAF) & (fabric.kind[upper] > fabric.kind[lower])
    return [count[between & (lower == switch)].tolist() for switch in np.unique(lower[between]).tolist()]


def real(servers: int, **network: object) -> Fabric:
    plan = ComputeNetwork(switch="qm9700", **network)  # type: ignore[arg-type]
    return build(Cluster(servers=servers, server="dgx-h100", compute=plan), load_catalog())


@settings(max_examples=25)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(1, 4), st.integers(1, 2), st.integers(1, 3))
def test_what_lies_below_a_switch_is_dealt_evenly_to_its_upper_ports(
    servers: int, gpus: int, spines: int, cables: int, per_group: int
) -> None:
    """Any shape of two tiers: destinations that come down through each port differ by at most one."""
    fabric = hand.make(servers, gpus, "fat-tree", spines, cables, servers_per_group=per_group)
    assert all(max(ports) - min(ports) <= 1 for ports in loads(fabric, climbing=False))


@pytest.mark.parametrize("climbing", [True, False])
@pytest.mark.parametrize(
    "fabric",
    [
        hand.make(8, 1, "fat-tree", spines=4, servers_per_group=4),
        hand.make(8, 2, "fat-tree", spines=4, cables=2, servers_per_group=4),
        hand.make(8, 2, "rail-optimised", spines=4, servers_per_group=4),
    ],
    ids=["tree", "parallel cables", "rails"],
)
def test_destinations_per_up_port_differ_by_at_most_one(fabric: Fabric, climbing: bool) -> None:
    assert all(max(ports) - min(ports) <= 1 for ports in loads(fabric, climbing))


@pytest.mark.parametrize(
    "fabric",
    [
        real(16, family="fat-tree", tiers=3, servers_per_group=2, groups_per_pod=4),
        real(24, family="rail-optimised", tiers=3, servers_per_group=4, groups_per_pod=2),
    ],
    ids=["tree", "rail planes"],
)
def test_three_tiers_are_dealt_evenly_at_every_switch(fabric: Fabric) -> None:
    assert np.any(fabric.kind == Kind.CORE)
    assert all(max(ports) - min(ports) <= 1 for ports in loads(fabric, climbing=False))


def test_a_rail_uses_all_core_uplinks_of_its_planes() -> None:
    """PXN all-to-all keeps destinations on their rail: static tables carry it as adaptive routing does."""
    fabric = real(24, family="rail-optimised", tiers=3, servers_per_group=4, groups_per_pod=2)
    everyone = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    traffic = all_to_all(fabric, everyone, 1e6, pxn=True)
    static, adaptive = (solve(Network(fabric, name), traffic) for name in ("static", "adaptive"))
    core = np.repeat(fabric.role, 2) == Role.SPINE_CORE
    assert np.all(static.load[core] > 0)
    assert static.time == pytest.approx(adaptive.time, rel=0.01)


@pytest.mark.parametrize("shift", [1, 5, 16, 33, 64, 100])
def test_shifts_do_not_collide_on_three_full_tiers(shift: int) -> None:
    """16 servers in 8 leaves of 16 NICs with 16 links up each: every GPU sends at its NIC's full rate."""
    fabric = real(16, family="fat-tree", tiers=3, servers_per_group=2, groups_per_pod=4)
    gpus = np.arange(fabric.num_gpus)
    across = send_recv(fabric, gpus, np.roll(gpus, -shift), 1e6)
    static = solve(Network(fabric, "static"), across).time
    assert static == pytest.approx(solve(Network(fabric, "adaptive"), across).time, rel=1e-9)
