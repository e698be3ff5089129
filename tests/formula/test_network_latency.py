"""Where a path's fixed latency goes: by hand, beside published values, and always all of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import network_fabrics as hand
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.network.routing.latency import stretched
from railwright.network.routing.latency_parts import by_distance, haul, of_pair, of_pattern
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, all_to_all


def everyone(fabric: Fabric) -> Communicator:
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32))


def quantum_2() -> Fabric:
    network = ComputeNetwork(family="rail-optimised", switch="qm9700", servers_per_group=8)
    return build(Cluster(servers=16, server="dgx-h100", compute=network), load_catalog())


def test_a_pair_across_spines_in_parts() -> None:
    """Two NICs of 500 ns, three switches of 200, cables of 10, 30, 30 and 10 m at 5 ns/m."""
    network = Network(hand.make(servers=4, servers_per_group=2, family="fat-tree"))
    assert of_pair(network, 0, 6) == pytest.approx(
        {"NICs": 1e-6, "leaves": 400e-9, "spines": 200e-9, "NIC cables": 100e-9, "leaf-spine cables": 300e-9}
    )


def test_a_pair_inside_a_server() -> None:
    assert of_pair(Network(hand.make()), 0, 1) == {"scale-up switches": pytest.approx(100e-9)}
    assert of_pair(Network(hand.make()), 0, 0) == {}


def test_a_relay_saves_the_spine() -> None:
    network = Network(hand.make(servers=4, servers_per_group=2))
    direct, relayed = of_pair(network, 0, 5), of_pair(network, 0, 3, pxn=True)
    assert "spines" in direct
    assert "spines" not in relayed
    assert relayed["scale-up switches"] == pytest.approx(100e-9)


def test_published_switch_and_nic_values_make_the_path_of_a_superpod() -> None:
    """PHYSICS notes, section 7: InfiniBand switch 0.10-0.13 us, NIC 0.3-0.8 us a side, fibre 5 ns/m.

    One leaf: 2 NICs, 1 switch, 2 x 10 m; across spines: 3 switches, and 2 x 30 m more.
    """
    network = Network(quantum_2())
    near, far = of_pair(network, 0, 8), of_pair(network, 0, 9 * 8)
    for path, switches in ((near, 1), (far, 3)):
        assert 0.6e-6 <= path["NICs"] <= 1.6e-6
        assert 0.10e-6 <= (path["leaves"] + path.get("spines", 0.0)) / switches <= 0.13e-6
    assert sum(near.values()) == pytest.approx(1.2e-6 + 0.13e-6 + 20 * 5e-9)
    assert sum(far.values()) == pytest.approx(1.2e-6 + 3 * 0.13e-6 + 80 * 5e-9)


def test_demands_by_distance() -> None:
    """16 servers of 8 on rails of 2 groups: own server, own leaf, and three switches away."""
    fabric = quantum_2()
    reaches = by_distance(of_pattern(Network(fabric), all_to_all(fabric, everyone(fabric), 1.0, False)))
    assert [(r.hops, r.demands) for r in reaches] == [(0, 128 * 7), (1, 128 * 7), (3, 128 * 113)]
    assert [r.metres for r in reaches] == pytest.approx([0, 20, 80])
    assert reaches[2].worst == pytest.approx(reaches[2].mean)


def test_another_building_is_longer_cable() -> None:
    """Spines 2 km away instead of 30 m: two such cables on a path, 2 x 1,970 m x 5 ns/m more."""
    fabric = quantum_2()
    far = stretched(fabric, {Role.LEAF_SPINE: 2000.0})
    more = {
        part: time - of_pair(Network(fabric), 0, 72)[part]
        for part, time in of_pair(Network(far), 0, 72).items()
    }
    assert more.pop("leaf-spine cables") == pytest.approx(2 * 1970 * 5e-9)
    assert not any(more.values())
    assert of_pair(Network(far), 0, 8) == of_pair(Network(fabric), 0, 8)


def test_what_a_long_cable_holds() -> None:
    """10 km at 50 GB/s: 50 us one way, and 5 MB in flight over the round trip."""
    answer = haul(10e3, 50e9)
    assert answer.one_way == pytest.approx(50e-6)
    assert answer.in_flight == pytest.approx(5e6)


@settings(max_examples=40)
@given(
    st.sampled_from(["rail-optimised", "fat-tree", "single-switch"]),
    st.sampled_from(["adaptive", "ecmp", "static"]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_the_parts_are_the_whole(family: str, routing: str, pxn: bool, gpus: int, servers: int) -> None:
    fabric = hand.make(servers=servers, gpus=gpus, family=family, servers_per_group=2, spines=3)
    fabric = hand.with_capacity(fabric, {hand.links_of(fabric, Role.NODE_LEAF)[0]: 0.5})
    network = Network(fabric, routing)  # type: ignore[arg-type]
    traffic = all_to_all(fabric, everyone(fabric), 1.0, pxn)
    found = of_pattern(network, traffic)
    assert found.total == pytest.approx(solve(network, traffic).latency, rel=1e-12)
    if len(traffic):
        assert sum(found.worst().values()) == pytest.approx(found.total.max())
        assert sum(found.mean().values()) == pytest.approx(found.total.mean())
        assert sum(r.demands for r in by_distance(found)) == len(traffic)


def test_what_has_no_latency_is_refused() -> None:
    fabric = hand.make(family="single-switch")
    with pytest.raises(PlanError, match="no GPU 8; the 8 of this fabric are numbered from 0"):
        of_pair(Network(fabric), 0, 8)
    with pytest.raises(PlanError, match="-1 m"):
        stretched(fabric, {Role.NODE_LEAF: -1.0})
    with pytest.raises(PlanError, match="no spine-core cables"):
        stretched(fabric, {Role.SPINE_CORE: 100.0})
    with pytest.raises(PlanError, match="rate above 0"):
        haul(10.0, 0.0)
