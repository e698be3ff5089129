"""All-to-alls whose time follows by hand, up to sizes that nobody can list."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.network.lifted import unequal_classes
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator, Groups, all_to_all, ring, together

NIC = 50e9


def dgx(gpus: int, **network: object) -> Fabric:
    plan = ComputeNetwork.model_validate({"family": "fat-tree", "switch": "qm9700"} | network)
    return build(Cluster(servers=gpus // 8, server="dgx-h100", compute=plan), load_catalog())


def everyone(fabric: Fabric, pxn: bool = False) -> Groups:
    return Groups.all_to_all(np.arange(fabric.num_gpus), 1e6, pxn)


@pytest.mark.parametrize("pxn", [False, True])
@pytest.mark.parametrize("family", ["fat-tree", "rail-optimised"])
def test_full_bisection_is_bound_by_nics(family: str, pxn: bool) -> None:
    """32,768 GPUs: 1.07e9 demands; each NIC sends 1 MB to 32,760 GPUs outside its server: 655.2 ms."""
    fabric = dgx(32_768, family=family, tiers=3)
    answer = solve(Network(fabric), everyone(fabric, pxn))
    assert answer.members is not None
    assert answer.members.sum() == 32_768 * 32_767
    assert answer.time == pytest.approx(32_760 * 1e6 / NIC, rel=1e-9)
    assert answer.exact
    up = (np.repeat(fabric.role, 2) == Role.NODE_LEAF) & (np.arange(fabric.num_links) % 2 == 0)
    assert answer.load[up] == pytest.approx(32_760 * 1e6, rel=1e-12)


def test_oversubscription_divides_what_leaves_a_leaf() -> None:
    """3:1, 48 GPUs down and 16 links up: 48 x (n - 48) MB leave a leaf over 16 links."""
    fabric = dgx(3_072, tiers=2, oversubscription=3.0)
    answer = solve(Network(fabric), everyone(fabric))
    assert answer.time == pytest.approx(48 * (3_072 - 48) * 1e6 / (16 * NIC), rel=1e-9)


def test_one_failed_uplink_leaves_31() -> None:
    """Two tiers, 32 down, 32 up, one uplink lost: 32 x (n - 32) MB leave its leaf over 31 links."""
    fabric = dgx(1_024, tiers=2, spines=32)
    cable = int(np.flatnonzero(fabric.role == Role.LEAF_SPINE)[0])
    capacity = fabric.capacity.copy()
    capacity[2 * cable : 2 * cable + 2] = 0.0
    broken = replace(fabric, capacity=capacity)
    answer = solve(Network(broken), everyone(broken))
    assert answer.time == pytest.approx(32 * (1_024 - 32) * 1e6 / (31 * NIC), rel=1e-9)
    assert answer.bottleneck is not None
    assert "leaf-01" in answer.bottleneck.name


def test_expert_groups_and_data_parallel_rings_together() -> None:
    """Groups of 8 servers beside one ring per GPU place: on full bisection each NIC's bytes add up.

    Each GPU sends 1 MB to 56 GPUs of its group outside its server, and 100 MB to its ring's next server.
    """
    fabric = dgx(4_096, family="rail-optimised", tiers=3)
    gpus = np.arange(4_096, dtype=np.int32)
    rings = [ring(fabric, Communicator(gpus[place::8]), 100e6) for place in range(8)]
    both = together([Groups.all_to_all(gpus.reshape(-1, 64), 1e6, True), *rings])
    assert len(both) == 4_096 * 63 + 4_096
    answer = solve(Network(fabric), both)
    assert answer.members is not None
    assert answer.members.sum() == len(both)
    assert answer.time == pytest.approx(156e6 / NIC, rel=1e-9)


def test_groups_are_listed_as_all_to_all_lists_them() -> None:
    fabric = dgx(64, tiers=2)
    rows = np.arange(64, dtype=np.int32).reshape(2, 32)
    groups = Groups.all_to_all(rows, [1.0, 2.0], [True, False])
    listed = groups.expand(fabric)
    want = [all_to_all(fabric, Communicator(rows[g]), 1.0 + g, pxn=g == 0) for g in range(2)]
    assert len(groups) == len(listed) == 2 * 32 * 31
    assert np.array_equal(listed.relay, np.concatenate([t.relay for t in want]))
    assert np.array_equal(listed.size, np.concatenate([t.size for t in want]))
    assert groups.scaled(3.0).size.tolist() == [3.0, 6.0]


def test_explicit_demands_alone_keep_their_entries() -> None:
    fabric = dgx(64, tiers=2)
    traffic = ring(fabric, Communicator(np.arange(64, dtype=np.int32)), 8e6)
    lifted, listed = solve(Network(fabric), traffic, "lifted"), solve(Network(fabric), traffic)
    assert lifted.members is None
    assert lifted.finish == pytest.approx(listed.finish, rel=1e-9)
    assert lifted.load == pytest.approx(listed.load, rel=1e-9)


def test_other_routings_list_the_demands_or_refuse() -> None:
    fabric = dgx(64, tiers=2)
    groups = everyone(fabric)
    listed = solve(Network(fabric, "static"), groups)
    assert len(listed.finish) == 64 * 63
    with pytest.raises(PlanError, match="needs routing 'adaptive', and this network's is 'ecmp'"):
        solve(Network(fabric, "ecmp"), groups, "lifted")
    large = dgx(8_192, tiers=3)
    with pytest.raises(PlanError, match="67,100,672 demands of groups are more than"):
        solve(Network(large, "ecmp"), everyone(large))


@pytest.mark.parametrize(
    ("rows", "size", "words"),
    [([[0, 1, 1]], 1.0, "holds GPU 1 twice"), ([[0, 1]], -1.0, "sends -1 bytes per pair")],
)
def test_groups_refuse(rows: list[list[int]], size: float, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        Groups.all_to_all(rows, size)


def test_the_check_of_a_real_fabric_with_a_fault_finds_nothing() -> None:
    fabric = dgx(256, tiers=2, spines=16)
    cable = int(np.flatnonzero(fabric.role == Role.LEAF_SPINE)[3])
    capacity = fabric.capacity.copy()
    capacity[2 * cable] = 0.0
    broken = replace(fabric, capacity=capacity)
    assert unequal_classes(Network(broken), everyone(broken, True)) is None
