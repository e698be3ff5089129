"""Who sends what to whom: counts and relays that can be listed by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import network_fabrics as hand
from railwright.network import Network, solve
from railwright.traffic import Communicator, Groups, all_to_all, broadcast, double_tree, join, ring, send_recv


def group(*gpus: int) -> Communicator:
    return Communicator(np.array(gpus, np.int32))


def test_all_to_all_has_every_ordered_pair_once() -> None:
    fabric = hand.make(servers=3, gpus=2)
    traffic = all_to_all(fabric, group(4, 0, 3), 7.0, pxn=False)
    assert sorted(zip(traffic.src, traffic.dst, strict=True)) == [
        (0, 3),
        (0, 4),
        (3, 0),
        (3, 4),
        (4, 0),
        (4, 3),
    ]
    assert set(traffic.size) == {7.0}
    assert set(traffic.relay) == {-1}


def test_sizes_per_pair_follow_rank_order() -> None:
    fabric = hand.make(servers=3, gpus=2)
    traffic = all_to_all(fabric, group(4, 0), np.array([[9.0, 1.0], [2.0, 9.0]]), pxn=False)
    assert {(int(s), int(d)): z for s, d, z in zip(traffic.src, traffic.dst, traffic.size, strict=True)} == {
        (4, 0): 1.0,
        (0, 4): 2.0,
    }


def test_pxn_relays_through_the_source_servers_gpu_on_the_destinations_rail() -> None:
    """Servers of 2: GPU 0 (rail 0) reaches GPU 3 (rail 1) through GPU 1; GPUs 2 (rail 0) and 1 directly."""
    fabric = hand.make(servers=2, gpus=2)
    traffic = all_to_all(fabric, group(0, 1, 2, 3), 1.0, pxn=True)
    relay = {
        (int(s), int(d)): int(r) for s, d, r in zip(traffic.src, traffic.dst, traffic.relay, strict=True)
    }
    assert relay[0, 3] == 1
    assert relay[1, 2] == 0
    assert relay[3, 0] == 2
    assert relay[0, 2] == relay[0, 1] == -1


def test_pxn_uses_ranks_of_the_communicator_only() -> None:
    """NCCL's topology holds its own ranks alone: without GPU 1 in the group, 0 -> 3 goes direct."""
    fabric = hand.make(servers=2, gpus=2)
    traffic = all_to_all(fabric, group(0, 3), 1.0, pxn=True)
    assert set(traffic.relay) == {-1}


def test_send_recv_relays_through_any_gpu_of_the_domain() -> None:
    fabric = hand.make(servers=2, gpus=2)
    assert list(send_recv(fabric, [0], [3], 1.0, pxn=True).relay) == [1]


@pytest.mark.parametrize("pxn", [True, False])
@pytest.mark.parametrize("servers", [2, 3, 4])
def test_every_ring_visits_every_rank_once(servers: int, pxn: bool) -> None:
    fabric = hand.make(servers=servers, gpus=4)
    n = 4 * servers
    traffic = ring(fabric, Communicator(np.arange(n, dtype=np.int32)), 8.0, pxn)
    assert len(traffic) == 4 * n  # one ring per NIC
    assert traffic.size.sum() == pytest.approx(n * 8.0)
    for r in range(4):
        follow = dict(zip(traffic.src[r * n : (r + 1) * n], traffic.dst[r * n : (r + 1) * n], strict=True))
        walk, here = [], 0
        for _ in range(n):
            here = int(follow[here])
            walk.append(here)
        assert sorted(walk) == list(range(n))


def test_ring_inside_a_server_is_one_ring() -> None:
    fabric = hand.make(servers=2, gpus=4)
    traffic = ring(fabric, group(0, 2, 3), 5.0)
    assert list(zip(traffic.src, traffic.dst, traffic.size, strict=True)) == [
        (0, 2, 5.0),
        (2, 3, 5.0),
        (3, 0, 5.0),
    ]
    assert len(ring(fabric, group(3), 5.0)) == 0


def test_broadcast_is_the_ring_without_the_edge_into_the_root() -> None:
    fabric = hand.make(servers=2, gpus=2)
    everyone = group(0, 1, 2, 3)
    traffic = broadcast(fabric, everyone, 6.0, root=2)
    received = np.bincount(traffic.dst, weights=traffic.size, minlength=4)
    assert received == pytest.approx([6.0, 6.0, 0.0, 6.0])


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 30, 64])
def test_double_tree_spans_and_complements(count: int) -> None:
    """Both trees reach a root from everywhere, no node has more than 2 children, and at most one is inside
    both."""
    trees = double_tree(count)
    inner = []
    for parent in trees:
        assert np.count_nonzero(parent < 0) == 1
        for node in range(count):
            steps, at = 0, node
            while parent[at] >= 0:
                at, steps = int(parent[at]), steps + 1
                assert steps <= count
        children = np.bincount(parent[parent >= 0], minlength=count)
        assert children.max(initial=0) <= 2
        inner.append(children > 0)
    assert np.count_nonzero(inner[0] & inner[1]) <= 1


def test_join_keeps_all_demands() -> None:
    fabric = hand.make()
    parts = [send_recv(fabric, [0], [2], 1.0), send_recv(fabric, [1, 3], [3, 5], 2.0)]
    assert list(join(parts).size) == [1.0, 2.0, 2.0]
    assert len(join([])) == 0


def test_gpus_of_a_pcie_host_forward_nothing() -> None:
    fabric = hand.make(servers=2, gpus=2)
    everyone = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    for joined, relays in (("nvswitch", 4), ("pcie", 0)):
        one = replace(fabric, scale_up=joined)
        sent = all_to_all(one, everyone, 1.0, pxn=True)
        assert np.count_nonzero(sent.relay >= 0) == relays
        listed = solve(Network(one), sent)
        lifted = solve(Network(one), Groups.all_to_all([everyone.gpus], 1.0, True))
        assert lifted.time == pytest.approx(listed.time)
        assert np.allclose(lifted.load, listed.load)
