"""Solutions that can be done by hand, on fabrics whose NICs carry 50 byte/s and scale-up lanes 450 byte/s."""

from __future__ import annotations

import math

import numpy as np
import pytest

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, ecmp_distribution, solve
from railwright.network.routing.bottleneck import busiest
from railwright.traffic import Communicator, Traffic, all_to_all, ring, send_recv, tree


def world(fabric: Fabric) -> Communicator:
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32))


def shift(fabric: Fabric, distance: int, size: float) -> Traffic:
    gpus = np.arange(fabric.num_gpus)
    return send_recv(fabric, gpus, np.roll(gpus, -distance), size)


def test_one_transfer_crosses_one_leaf_in_size_over_nic_rate() -> None:
    fabric = hand.make(family="single-switch")
    answer = solve(Network(fabric), send_recv(fabric, [0], [2], 1000.0))
    assert answer.time == pytest.approx(1000 / 50)
    # two NICs (500 ns), one switch (200 ns), two cables of 10 m at 5 ns/m
    assert answer.latency[0] == pytest.approx(2 * 500e-9 + 200e-9 + 2 * 50e-9)
    assert answer.hops[0] == 1


def test_across_spines_three_switches_and_four_cables() -> None:
    fabric = hand.make(servers=4, servers_per_group=2, family="fat-tree")
    answer = solve(Network(fabric), send_recv(fabric, [0], [6], 1000.0))
    assert answer.hops[0] == 3
    assert answer.latency[0] == pytest.approx(2 * 500e-9 + 3 * 200e-9 + (10 + 30 + 30 + 10) * 5e-9)


def test_inside_a_server_the_scale_up_switch_alone() -> None:
    fabric = hand.make()
    answer = solve(Network(fabric), send_recv(fabric, [0], [1], 900.0))
    assert answer.time == pytest.approx(900 / 450)
    assert answer.hops[0] == 0
    assert answer.latency[0] == pytest.approx(100e-9)
    role = np.repeat(fabric.role, 2)
    assert answer.load[role != Role.SCALE_UP].sum() == 0


@pytest.mark.parametrize("senders", [1, 3, 7])
def test_incast_shares_the_receivers_nic(senders: int) -> None:
    """n senders of s bytes into one NIC: n s / rate."""
    fabric = hand.make(servers=8, gpus=1, family="single-switch")
    answer = solve(
        Network(fabric), send_recv(fabric, np.arange(1, senders + 1), np.zeros(senders, int), 100.0)
    )
    assert answer.finish == pytest.approx(np.full(senders, senders * 100 / 50))
    assert answer.bottleneck is not None
    assert answer.bottleneck.share == senders


def test_freed_bandwidth_is_taken_up() -> None:
    """100 and 300 bytes into one NIC of 50: both at 25 until t=4, then the 200 left at 50: t=8."""
    fabric = hand.make(servers=3, gpus=1, family="single-switch")
    answer = solve(Network(fabric), send_recv(fabric, [1, 2], [0, 0], np.array([100.0, 300.0])))
    assert answer.finish == pytest.approx([4.0, 8.0])


@pytest.mark.parametrize("routing", ["adaptive", "static"])
@pytest.mark.parametrize("distance", [1, 3, 4, 7])
def test_shift_permutation_is_free_of_contention_on_a_full_tree(routing: str, distance: int) -> None:
    """8 servers in 2 leaves of 4, 4 spines: every NIC sends at its full rate, whatever the shift."""
    fabric = hand.make(servers=8, gpus=1, family="fat-tree", servers_per_group=4, spines=4)
    assert solve(Network(fabric, routing), shift(fabric, distance, 100.0)).time == pytest.approx(2.0)  # type: ignore[arg-type]


def test_static_shift_on_parallel_cables() -> None:
    """2 spines with 2 parallel cables each carry 4 NICs per leaf without contention, up and down."""
    fabric = hand.make(servers=8, gpus=1, family="fat-tree", servers_per_group=4, spines=2, cables=2)
    for distance in range(1, 8):
        assert solve(Network(fabric, "static"), shift(fabric, distance, 100.0)).time == pytest.approx(2.0)


def test_two_to_one_oversubscription_halves_cross_leaf_traffic_only() -> None:
    fabric = hand.make(servers=8, gpus=1, family="fat-tree", servers_per_group=4, spines=2)
    across, within = shift(fabric, 4, 100.0), send_recv(fabric, [0, 1], [1, 0], 100.0)
    assert solve(Network(fabric), across).time == pytest.approx(2 * 2.0)
    assert solve(Network(fabric), within).time == pytest.approx(2.0)


def test_pxn_on_rails_keeps_all_to_all_off_the_spines() -> None:
    """Each NIC sends its (n - 2) off-server messages: 14 of 100 bytes at 50; nothing crosses a spine."""
    fabric = hand.make(servers=8, gpus=2)
    role = np.repeat(fabric.role, 2)
    relayed = solve(Network(fabric), all_to_all(fabric, world(fabric), 100.0, pxn=True))
    direct = solve(Network(fabric), all_to_all(fabric, world(fabric), 100.0, pxn=False))
    assert relayed.load[role == Role.LEAF_SPINE].sum() == 0
    assert relayed.time == pytest.approx(14 * 100 / 50)
    assert relayed.hops.max() == 1
    # direct: half of the 112 x 2 cross-server pairs change rail, and climb and descend once each
    assert direct.load[role == Role.LEAF_SPINE].sum() == pytest.approx(2 * 100 * 112)
    assert direct.hops.max() == 3


@pytest.mark.parametrize("pxn", [True, False])
def test_ring_all_reduce_loads_every_nic_with_its_share(pxn: bool) -> None:
    """2(n-1)/n S over 2 NICs per server, each direction; on rails no spine is crossed."""
    fabric, size = hand.make(servers=4, gpus=2), 1600.0
    n = fabric.num_gpus
    edge = 2 * (n - 1) / n * size
    answer = solve(Network(fabric), ring(fabric, world(fabric), edge, pxn))
    role = np.repeat(fabric.role, 2)
    assert answer.load[role == Role.NODE_LEAF] == pytest.approx(np.full(2 * n, edge / 2))
    assert answer.load[role == Role.LEAF_SPINE].sum() == 0
    # each GPU passes one edge on over NVLink, the hand-over to the ring's NIC included
    assert answer.load[role == Role.SCALE_UP].max() <= edge * (1 + 1e-9)


def test_ring_of_part_of_each_server_stays_on_its_rail() -> None:
    fabric = hand.make(servers=4, gpus=4)
    answer = solve(Network(fabric), ring(fabric, Communicator(np.array([2, 6, 10, 14], np.int32)), 100.0))
    used = np.flatnonzero(answer.load[np.repeat(fabric.role, 2) == Role.NODE_LEAF])
    assert len(used) == 8  # one NIC per server, both directions
    assert answer.time == pytest.approx(100 / 50)


def test_double_tree_sends_twice_the_data_per_server() -> None:
    """A server that is inner in one tree and leaf in the other sends 4 halves: 2 S over its NICs."""
    fabric, size = hand.make(servers=8, gpus=2), 800.0
    answer = solve(Network(fabric), tree(fabric, world(fabric), size))
    up = [x for x in hand.links_of(fabric, Role.NODE_LEAF) if x % 2 == 0]
    total = 2 * 2 * 7 * size / 2  # 2 trees, up and down, 7 edges, half of the data each
    assert answer.load[up].sum() == pytest.approx(total)
    assert answer.load[up].max() == pytest.approx(2 * size / 2)


def test_rail_only_without_pxn_is_refused_with_the_reason() -> None:
    fabric = hand.make(family="rail-only")
    with pytest.raises(PlanError, match=r"server-01/gpu-0 cannot reach server-02/gpu-1: .*rail-only.*PXN"):
        solve(Network(fabric), all_to_all(fabric, world(fabric), 1.0, pxn=False))
    assert solve(Network(fabric), all_to_all(fabric, world(fabric), 1.0, pxn=True)).time > 0


def test_a_cut_nic_and_a_cut_spine_are_named() -> None:
    fabric = hand.make(servers=4, gpus=1, family="fat-tree", servers_per_group=2, spines=1)
    cable = hand.links_of(fabric, Role.NODE_LEAF)[0]
    with pytest.raises(PlanError, match="server-01/nic-0 has no live cable to a leaf"):
        solve(Network(hand.with_capacity(fabric, {cable: 0.0})), send_recv(fabric, [0], [1], 1.0))
    up = hand.links_of(fabric, Role.LEAF_SPINE)[0]
    with pytest.raises(PlanError, match="no live path leads from leaf-01 to leaf-02; repair"):
        solve(Network(hand.with_capacity(fabric, {up: 0.0})), send_recv(fabric, [0], [2], 1.0))


def test_a_slow_uplink_gets_less_and_costs_its_capacity_only() -> None:
    """2 uplinks of 50, one at a fifth: 60 in all; 2 NICs send 100 bytes each across: 200 / 60."""
    fabric = hand.make(servers=4, gpus=1, family="fat-tree", servers_per_group=2, spines=2)
    slow = hand.with_capacity(fabric, {hand.links_of(fabric, Role.LEAF_SPINE)[0]: 0.2})
    answer = solve(Network(slow), send_recv(slow, [0, 1], [2, 3], 100.0))
    assert answer.time == pytest.approx(200 / 60)


def test_a_remapped_nic_is_reached_through_its_neighbour() -> None:
    """GPU 0 sends through GPU 1's NIC: over the scale-up switch, and both share one NIC."""
    from dataclasses import replace

    fabric = hand.make(servers=2, gpus=2, family="single-switch")
    nics = fabric.nic_of_gpu.copy()
    nics[0] = nics[1]
    moved = replace(fabric, nic_of_gpu=nics)
    answer = solve(Network(moved), send_recv(moved, [0, 1], [2, 3], 100.0))
    assert answer.finish == pytest.approx([4.0, 4.0])
    lanes = np.flatnonzero((np.repeat(moved.role, 2) == Role.SCALE_UP) & (answer.load > 0))
    assert [moved.link_name(int(x)) for x in lanes] == [
        "server-01/gpu-0 -> server-01/nvswitch",
        "server-01/nvswitch -> server-01/gpu-1",
    ]


def test_ecmp_worst_link_is_as_balls_in_bins() -> None:
    """32 flows of one leaf hashed over 16 spines: the worst uplink has about F/M + sqrt(2 (F/M) ln M) flows.

    Uplinks far faster than NICs would hide it, so they are made the only limit (NICs 16 times faster).
    The formula is an asymptotic mean; the sampled mean must lie within a quarter of it.
    """
    fabric = hand.make(
        servers=64, gpus=1, family="fat-tree", servers_per_group=32, spines=16, nic=800.0, lane=9e9
    )
    traffic = send_recv(fabric, np.arange(32), np.arange(32, 64), 50.0)
    times = ecmp_distribution(Network(fabric), traffic, list(range(60)))
    expected = 32 / 16 + math.sqrt(2 * 32 / 16 * math.log(16))
    assert times.std() > 0
    assert times.mean() == pytest.approx(expected, rel=0.25)
    even = solve(Network(fabric), traffic).time
    assert even == pytest.approx(32 / 16)


def test_nothing_to_send() -> None:
    fabric = hand.make()
    nothing = send_recv(fabric, [], [], 1.0)
    for traffic in (nothing, send_recv(fabric, [0, 1], [2, 3], 0.0), send_recv(fabric, [1], [1], 5.0)):
        answer = solve(Network(fabric), traffic)
        assert answer.time == 0
        assert answer.bottleneck is None
        assert len(answer.finish) == len(traffic)


def test_the_bottleneck_says_why() -> None:
    fabric = hand.make(servers=8, gpus=1, family="fat-tree", servers_per_group=4, spines=4)
    collided = next(
        answer
        for answer in (solve(Network(fabric, "ecmp", seed), shift(fabric, 4, 100.0)) for seed in range(20))
        if answer.time > 2.001
    )
    assert collided.bottleneck is not None
    assert "hash collision" in collided.bottleneck.why
    assert collided.bottleneck.name in collided.bottleneck.why
    assert collided.bottleneck.utilisation == pytest.approx(1.0)
    even = solve(Network(fabric), shift(fabric, 4, 100.0)).bottleneck
    assert even is not None
    assert "evenly full" in even.why
    assert fabric.kind[fabric.a[even.link // 2]] in (Kind.NIC, Kind.LEAF)


def test_servers_without_traffic_make_no_link_of_others_crowded() -> None:
    """A ring on two of eight servers fills its NICs evenly; where one uplink of a leaf takes all of three
    senders, the leaf's other three are idle, and that is why."""
    fabric = hand.make(servers=8, gpus=1, family="fat-tree", servers_per_group=4, spines=4)
    few = solve(Network(fabric), send_recv(fabric, [0, 1], [1, 0], 1.0)).bottleneck
    assert few is not None
    assert few.why.endswith(", like all 2 NIC cables in use, upwards: the tier is evenly full.")
    static = Network(fabric, "static")
    load = solve(static, send_recv(fabric, [0, 1, 2], [4, 4, 4], 1.0)).load
    load[np.repeat(fabric.role != Role.LEAF_SPINE, 2)] = 0.0
    said = busiest(static, load, 3.0, lambda link: 3)
    assert said is not None
    assert "4.0 times the mean of the leaf-spine cables of leaves in use, upwards: dest" in said.why
