"""Patterns as messages: played without a network, every all-reduce adds up and every relay forwards."""

import pytest

from emulate_cases import FAMILIES, network, sixteen
from railwright.emulate.lanes import find_lanes
from railwright.emulate.orders import run_order
from railwright.emulate.patterns import PATTERNS, pattern
from railwright.emulate.predict import predict
from railwright.emulate.suspects import suspects
from railwright.emulate.topology import topology
from railwright.errors import PlanError


def ends(script, message):
    traffic = script.traffic
    stops = [int(traffic.src[message.demand]), int(traffic.dst[message.demand])]
    relay = int(traffic.relay[message.demand])
    if relay >= 0 and relay not in stops:
        stops.insert(1, relay)
    return stops[message.leg], stops[message.leg + 1]


def played(script, gpus, last_first):
    """Vectors after all messages, sent as soon as they may be, in one of two opposite orders."""
    vectors = [[gpu + 1] * script.chunks for gpu in range(gpus)]
    arrived = {gpu: set() for gpu in range(gpus)}
    left = list(range(len(script.messages)))
    while left:
        ready = [
            m
            for m in left
            if arrived[ends(script, script.messages[m])[0]].issuperset(script.messages[m].after)
        ]
        assert ready, "messages wait for one another in a circle"
        number = ready[-1] if last_first else ready[0]
        left.remove(number)
        message = script.messages[number]
        src, dst = ends(script, message)
        arrived[dst].add(number)
        for c in range(message.chunks[0], sum(message.chunks)):
            before = vectors[dst][c] if message.then == "add" else 0
            vectors[dst][c] = vectors[src][c] + before
    return vectors


@pytest.mark.parametrize("last_first", [False, True])
@pytest.mark.parametrize("name", ["ring", "hierarchical"])
@pytest.mark.parametrize("family", ["rail-optimised", "single-switch", "one NIC for four GPUs"])
def test_every_gpu_ends_with_the_sum_of_all(name, family, last_first):
    """GPU g holds g + 1 everywhere, so the sum is n (n + 1) / 2, whatever order messages overtake in."""
    fabric = network(family).fabric
    n = fabric.num_gpus
    vectors = played(pattern(name, fabric, 64), n, last_first)
    assert vectors == [[n * (n + 1) // 2] * n] * n


@pytest.mark.parametrize("name", ["all-to-all", "pxn"])
def test_every_pair_gets_its_block_once(name):
    fabric = sixteen("rail-optimised", 1.0).fabric
    script = pattern(name, fabric, 100)
    last = {}
    for message in script.messages:
        last[message.demand] = ends(script, message)[1]
    got = {(int(s), int(d)) for s, d in zip(script.traffic.src, script.traffic.dst, strict=True)}
    assert got == {(u, v) for u in range(16) for v in range(16) if u != v}
    assert all(last[f] == int(d) for f, d in enumerate(script.traffic.dst))


def test_closed_forms_of_sixteen_gpus():
    """Blocks of 64 KiB at 25 Mbit/s take 20.97 ms. Rails direct: 12 per NIC at 1:1; 36 per uplink at 4:1.

    ToR at 4:1: 48 blocks per uplink. PXN on rails: 12 per NIC. One ring: 30 steps of one block; at 4:1 the
    four edges that leave rail 3 share its uplink. Hierarchical at 1:1: 6 steps between servers, and twice 3
    messages of 4 blocks at 14 times the rate inside.
    """
    block = 65536 * 8 / 25e6
    expected = [
        ("rail-optimised", 1.0, "all-to-all", 12),
        ("rail-optimised", 4.0, "all-to-all", 36),
        ("rail-optimised", 4.0, "pxn", 12),
        ("fat-tree", 4.0, "all-to-all", 48),
        ("fat-tree", 4.0, "pxn", 48),
        ("rail-optimised", 1.0, "ring", 30),
        ("rail-optimised", 4.0, "ring", 120),
        ("rail-optimised", 1.0, "hierarchical", 6 + 2 * 3 * 4 / 14),
        ("rail-optimised", 4.0, "send-recv", 16),
    ]
    for family, over, name, blocks in expected:
        net = sixteen(family, over)
        times = predict(net, pattern(name, net.fabric, 65536), topology(net.fabric, 25e6 / 8).scale)
        assert times["fluid"] == pytest.approx(blocks * block, rel=1e-6), (family, over, name)
        assert times["fifo"] >= times["fluid"], "queues and headers only cost"


@pytest.mark.parametrize("name", PATTERNS)
@pytest.mark.parametrize("family", FAMILIES)
def test_pieces_of_all_lanes_add_up_to_the_messages(name, family):
    if family == "rack-rails" or (family == "rail-only" and name in ("all-to-all", "ring")):
        pytest.skip("72 GPUs say no more here; a rail-only fabric has no way between rails but PXN")
    net = network(family)
    script = pattern(name, net.fabric, 20000)
    lanes = find_lanes(net, topology(net.fabric), script.traffic)
    order = run_order(script, lanes, net.fabric.num_gpus, 1.0, 1.0)
    sent = [send for part in order["gpus"] for send in part["sends"]]
    assert sorted(send[0] for send in sent) == list(range(len(script.messages)))
    assert all(sum(size for _, size in send[3]) == send[2] for send in sent)
    opened = sum(len(part["lanes_out"]) for part in order["gpus"])
    assert opened == sum(part["lanes_in"] for part in order["gpus"])


def test_the_suspect_is_what_missing_pairs_and_only_they_cross():
    crossed = {
        (0, 1): frozenset({"leaf-01", "spine-01"}),
        (0, 2): frozenset({"leaf-01"}),
        (1, 2): frozenset({"leaf-02", "spine-01"}),
        (2, 1): frozenset({"leaf-02", "spine-01"}),
    }
    best, second = suspects({(0, 1), (0, 2)}, crossed)[:2]
    assert (best.name, best.missing, best.crossing, best.score) == ("leaf-01", 2, 2, 1.0)
    # spine-01: one missing pair crosses it, of 3 that do and one more that is missing.
    assert (second.name, second.score) == ("spine-01", 1 / 4)


def test_an_unknown_pattern_is_refused_with_the_nearest():
    with pytest.raises(PlanError, match="no pattern 'alltoall' to emulate; did you mean 'all-to-all'"):
        pattern("alltoall", sixteen("fat-tree", 1.0).fabric, 1024)
