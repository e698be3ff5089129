"""Hashed ECMP against closed forms: balls in bins, polarisation, NCCL's rounds and queue pairs."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

import network_fabrics as hand
from ecmp_closed_forms import busiest_bin, expected_busiest, polarised_share, shared_share
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, solve
from railwright.network.ecmp import sampled as ecmp
from railwright.network.ecmp.flows import all_to_all_stream
from railwright.network.ecmp.rounds import (
    all_to_all_rounds,
    channels_per_peer,
    queue_pairs_used,
    round_of_distance,
)
from railwright.traffic import Communicator, all_to_all, send_recv


def one_leaf_to_another(hosts: int, spines: int, uplink: float = 50.0) -> Fabric:
    """`hosts` servers of one GPU on each of two leaves; NICs 16 times as fast as the uplinks."""
    return hand.make(
        servers=2 * hosts, gpus=1, family="fat-tree", servers_per_group=hosts, spines=spines,
        nic=800.0, lane=9e9, uplink=uplink,
    )  # fmt: skip


def three_tiers(width: int) -> Fabric:
    """Two pods of one leaf each; spine i of either pod meets `width` cores of its own at 50 B/s each."""
    base = one_leaf_to_another(2 * width, width)
    spine0 = int(np.argmax(base.kind == Kind.SPINE))
    hosts = int(np.count_nonzero(base.role < Role.LEAF_SPINE))
    leaf0 = spine0 - 2
    rows = [(leaf0 + p, spine0 + p * width + i) for p in range(2) for i in range(width)]
    core0 = spine0 + 2 * width
    rows += [
        (spine0 + p * width + i, core0 + i * width + j)
        for p in range(2) for i in range(width) for j in range(width)
    ]  # fmt: skip
    roles = [Role.LEAF_SPINE] * (2 * width) + [Role.SPINE_CORE] * (2 * width * width)
    num = len(rows)
    new = width + width * width

    def grown(x: np.ndarray, value: float) -> np.ndarray:
        return np.concatenate([x[:spine0], np.full(width + new, value, x.dtype)])

    kind = grown(base.kind, Kind.SPINE)
    kind[core0:] = Kind.CORE
    rate = np.concatenate(
        [base.rate[:hosts], np.where(np.array(roles) == Role.LEAF_SPINE, 50.0 * width, 50.0)]
    )
    ends = np.array(rows, np.int32)
    ports = np.arange(1, num + 1, dtype=np.int32)
    return replace(
        base, kind=kind, server=grown(base.server, -1), rail=grown(base.rail, -1),
        group=grown(base.group, -1),
        latency=grown(base.latency, 0.0), a=np.concatenate([base.a[:hosts], ends[:, 0]]),
        b=np.concatenate([base.b[:hosts], ends[:, 1]]), port_a=np.concatenate([base.port_a[:hosts], ports]),
        port_b=np.concatenate([base.port_b[:hosts], ports]), rate=rate,
        length=np.concatenate([base.length[:hosts], np.zeros(num)]),
        role=np.concatenate([base.role[:hosts], np.array(roles, np.int32)]), capacity=np.repeat(rate, 2),
    )  # fmt: skip


def test_the_fullest_bin_as_counted_out() -> None:
    """4 balls in 3 bins: of 81 outcomes 3 leave 4 in one bin, 24 leave 3, 54 leave 2."""
    fullest = [max(np.bincount(t, minlength=3)) for t in itertools.product(range(3), repeat=4)]
    assert busiest_bin(4, 3) * 81 == pytest.approx(np.bincount(fullest, minlength=5))
    assert expected_busiest(4, 3) == pytest.approx((3 * 4 + 24 * 3 + 54 * 2) / 81)
    assert busiest_bin(40, 16).sum() == pytest.approx(1.0)
    assert shared_share(1, 8) == 0
    assert shared_share(2, 8) == pytest.approx(1 / 8)


@pytest.mark.parametrize(("flows", "spines"), [(8, 16), (16, 16), (32, 16), (48, 8)])
def test_flows_over_uplinks_collide_as_balls_in_bins(flows: int, spines: int) -> None:
    """Each flow crosses one uplink and the matching down-link: the time is the fullest bin's, over 50 B/s."""
    fabric = one_leaf_to_another(flows, spines)
    traffic = send_recv(fabric, np.arange(flows), np.arange(flows, 2 * flows), 50.0)
    answer = ecmp.sample(Network(fabric), traffic, range(200))
    chance = busiest_bin(flows, spines)
    mean = expected_busiest(flows, spines)
    sigma = math.sqrt(np.dot(chance, (np.arange(flows + 1) - mean) ** 2) / 200)
    assert answer.exact
    assert abs(answer.time.mean() - mean) < 4 * sigma
    assert answer.adaptive == pytest.approx(flows / spines)
    if flows <= spines:
        assert answer.colliding.mean() == pytest.approx(shared_share(flows, spines), abs=0.03)


def test_more_flows_per_uplink_even_out() -> None:
    slow = [expected_busiest(f, 8) / (f / 8) for f in (8, 16, 32, 64, 128)]
    assert slow == sorted(slow, reverse=True)
    sampled = []
    for flows in (8, 32, 128):
        fabric = one_leaf_to_another(flows, 8)
        traffic = send_recv(fabric, np.arange(flows), np.arange(flows, 2 * flows), 50.0)
        sampled.append(ecmp.sample(Network(fabric), traffic, range(60)).slowdown.mean())
    assert sampled == sorted(sampled, reverse=True)


def test_queue_pairs_approach_adaptive_routing() -> None:
    """4 flows over 4 uplinks: with q queue pairs each, the fullest of 4 bins of 4q balls, over q."""
    fabric = one_leaf_to_another(4, 4)
    traffic = send_recv(fabric, np.arange(4), np.arange(4, 8), 50.0)
    means = []
    for qps in (1, 4, 16):
        answer = ecmp.sample(Network(fabric, qps=qps), traffic, range(100))
        means.append(answer.slowdown.mean())
        assert means[-1] == pytest.approx(expected_busiest(4 * qps, 4) / qps, rel=0.07)
    assert means == sorted(means, reverse=True)
    assert ecmp.sample(Network(fabric, qps=2048), traffic, range(2)).slowdown.max() < 1.07


def test_queue_pairs_do_nothing_where_only_addresses_are_hashed() -> None:
    fabric = one_leaf_to_another(8, 4)
    traffic = send_recv(fabric, np.arange(8), np.arange(8, 16), 50.0)
    one, many = (ecmp.sample(Network(fabric, qps=q, entropy="address"), traffic, range(20)) for q in (1, 16))
    assert np.array_equal(one.time, many.time)
    hashed = ecmp.sample(Network(fabric, qps=16), traffic, range(20))
    assert hashed.time.mean() < 0.8 * many.time.mean()


def test_demands_between_two_nics_share_their_path_where_only_addresses_are_hashed() -> None:
    fabric = one_leaf_to_another(2, 4)
    traffic = send_recv(fabric, [0] * 8, [2] * 8, 1.0)
    _, crossing = ecmp.hashed_load(Network(fabric, entropy="address"), traffic, 3)
    assert sorted(crossing[crossing > 0]) == [8, 8]
    assert solve(Network(fabric, "ecmp", 3, entropy="address"), traffic).time == pytest.approx(8 / 50)


def test_one_hash_on_every_switch_leaves_most_cores_idle() -> None:
    """Spine i of 4 sees hashes of i modulo 4 only, so it uses 1 of its 4 cores, which carries all 4 parts."""
    fabric = three_tiers(4)
    traffic = send_recv(fabric, np.repeat(np.arange(8), 8), np.tile(np.arange(8, 16), 8), 1.0)
    upward = [y for y in hand.links_of(fabric, Role.SPINE_CORE) if y % 2 == 0]
    used = {}
    for salt in ("switch", "none"):
        load, _ = ecmp.hashed_load(Network(fabric, salt=salt, qps=64), traffic, 1)
        used[salt] = np.count_nonzero(load[upward]) / (len(upward) / 2)
        assert load[upward].sum() == pytest.approx(64.0)
    assert used == {"switch": 1.0, "none": polarised_share(4, 4)}
    slow = [ecmp.sample(Network(fabric, salt=s, qps=64), traffic, range(5)).slowdown.mean() for s in used]
    assert slow[0] < 1.2
    assert slow[1] == pytest.approx(4.0, rel=0.15)
    assert polarised_share(4, 3) == 1.0


def test_nccls_schedule_visits_distances_as_its_source_lists_them() -> None:
    """init.cc gives the sequence for 16: 0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8."""
    listed = [0, 1, 3, 6, 10, 15, 5, 12, 4, 13, 7, 2, 14, 11, 9, 8]
    assert np.argsort(round_of_distance(16)).tolist() == listed
    assert np.argsort(round_of_distance(11)).tolist() == [d for d in listed if d < 11]


@pytest.mark.parametrize(("servers", "channels", "per_peer"), [(16, 2, 1), (12, 4, 2), (6, 32, 4)])
def test_every_batch_of_rounds_is_a_permutation(servers: int, channels: int, per_peer: int) -> None:
    fabric = hand.make(servers=servers, gpus=8, family="fat-tree", servers_per_group=4)
    world = Communicator(np.arange(8 * servers, dtype=np.int32))
    traffic = all_to_all(fabric, world, 1.0, False)
    rounds = all_to_all_rounds(world, traffic, channels=channels, per_peer=per_peer)
    served = channels // per_peer * 8
    for w in range(int(rounds.window.max()) + 1):
        here = rounds.window == w
        sent, received = np.bincount(traffic.src[here]), np.bincount(traffic.dst[here])
        # The first window holds each rank's copy to itself, which is not a demand.
        assert sent.min() == sent.max() == received.min() == received.max()
        assert sent.max() <= served - (w == 0)
    assert len({*zip(traffic.src, rounds.lane, rounds.step, strict=True)}) == len(traffic.src) // (
        8 * servers - 1
    ) * (servers)


def test_channels_and_queue_pairs_of_one_message() -> None:
    # ceil(50 / 14) = 4 channels; 4 * 64/8 = 32 still fit, 4 * 128/8 do not
    assert [channels_per_peer(n, 50e9) for n in (16, 64, 128, 256, 1024)] == [4, 4, 2, 1, 1]
    assert channels_per_peer(16, 12.5e9) == 2
    assert queue_pairs_used(1e9, 4) == 4
    assert queue_pairs_used(200_000, 4) == 2
    assert queue_pairs_used(200_000, 4, split=True) == 4
    assert queue_pairs_used(0, 4) == 1


def test_rounds_cost_more_than_all_at_once_and_a_pipeline_lies_between() -> None:
    fabric = hand.make(servers=16, gpus=4, family="fat-tree", servers_per_group=2, spines=8, lane=9e9)
    world = Communicator(np.arange(64, dtype=np.int32))
    traffic = all_to_all(fabric, world, 50.0, False)
    network, seeds = Network(fabric), range(2)
    at_once = ecmp.sample(network, traffic, seeds)
    whole = all_to_all_rounds(world, traffic, group=4, channels=64)
    assert ecmp.sample(network, traffic, seeds, whole).time == pytest.approx(at_once.time)
    rounds = all_to_all_rounds(world, traffic, group=4, channels=2)
    turns = ecmp.sample(network, traffic, seeds, rounds)
    flowing = ecmp.sample(network, traffic, seeds, replace(rounds, pace="pipelined"))
    bound = ecmp.sample(network, traffic, seeds, measure="busiest link")
    assert turns.time.mean() > 1.1 * at_once.time.mean()
    assert np.all(flowing.time >= bound.time * (1 - 1e-9))
    assert bound.time.mean() < flowing.time.mean() < turns.time.mean()
    assert not flowing.exact
    assert "pipelined" in flowing.engine
    assert "4 rounds" in turns.engine


def test_a_stream_is_the_same_traffic() -> None:
    fabric = hand.make(servers=8, gpus=2, family="fat-tree", servers_per_group=2, spines=3)
    world = Communicator(np.random.default_rng(1).permutation(16).astype(np.int32))
    for pxn in (False, True):
        listed = all_to_all(fabric, world, 9.0, pxn)
        stream = all_to_all_stream(fabric, world, 9.0, pxn)
        assert sum(len(b) for b in stream.blocks()) == len(stream) == len(listed)
        one, two = (ecmp.sample(Network(fabric, qps=2), t, range(3)) for t in (listed, stream))
        assert np.array_equal(one.time, two.time)
        assert one.percentiles == two.percentiles


def test_a_link_that_failed_sends_more_over_its_neighbour() -> None:
    """Leaf 2 loses one of two cables from spine 2: its other one carries half of all instead of a quarter."""
    fabric = hand.make(servers=32, gpus=1, family="fat-tree", servers_per_group=16, spines=2, cables=2)
    uplink = hand.links_of(fabric, Role.LEAF_SPINE)[12]
    broken = hand.with_capacity(fabric, {uplink: 0.0, uplink + 1: 0.0})
    traffic = send_recv(fabric, np.arange(16), np.arange(16, 32), 1.0)
    network = Network(broken, qps=256)
    load, _ = ecmp.hashed_load(network, traffic, 0)
    down = [y for y in hand.links_of(fabric, Role.LEAF_SPINE) if y % 2 == 1]
    into = [load[y] for y in down if fabric.a[y // 2] == fabric.a[uplink // 2]]
    assert sorted(into)[-1] == pytest.approx(8.0, rel=0.06)
    assert load[uplink] == load[uplink + 1] == 0


@pytest.mark.parametrize(
    ("say", "call"),
    [
        ("no seeds", lambda f, t: ecmp.sample(Network(f), t, [])),
        ("qps is 0", lambda f, t: ecmp.sample(Network(f, qps=0), t)),
        ("no measure", lambda f, t: ecmp.sample(Network(f), t, measure="quick")),
        ("do not divide", lambda f, t: all_to_all_rounds(Communicator(np.arange(4, dtype=np.int32)), t, 3)),
        ("outside the communicator", lambda f, t: all_to_all_rounds(
            Communicator(np.arange(2, dtype=np.int32)), t, 2)),
        ("rounds are given for", lambda f, t: ecmp.sample(
            Network(f), t.scaled(2.0), rounds=all_to_all_rounds(
                Communicator(np.arange(4, dtype=np.int32)), send_recv(f, [0], [1], 1.0), 4))),
    ],
)  # fmt: skip
def test_mistakes_are_said(say: str, call) -> None:
    fabric = hand.make(servers=4, gpus=1, family="fat-tree", servers_per_group=2)
    with pytest.raises(PlanError, match=say):
        call(fabric, all_to_all(fabric, Communicator(np.arange(4, dtype=np.int32)), 1.0, False))


def test_a_cut_off_pair_is_named_as_by_solve() -> None:
    fabric = hand.make(servers=4, gpus=1, family="fat-tree", servers_per_group=2)
    cut = hand.with_capacity(fabric, dict.fromkeys(hand.links_of(fabric, Role.LEAF_SPINE), 0.0))
    traffic = send_recv(cut, [0, 1], [1, 2], 1.0)
    with pytest.raises(PlanError) as ours:
        ecmp.sample(Network(cut), traffic)
    with pytest.raises(PlanError) as theirs:
        solve(Network(cut, "ecmp"), traffic)
    assert str(ours.value) == str(theirs.value)
