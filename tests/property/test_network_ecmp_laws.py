"""Laws of hashed ECMP on any fabric, fault and traffic; and over its seeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network import Network, ecmp_distribution, solve
from railwright.network.ecmp import sampled as ecmp
from railwright.network.ecmp.flows import Stream
from railwright.network.routing.paths import find_routes
from railwright.traffic import Communicator, Traffic, all_to_all, send_recv

QUICK = settings(max_examples=40)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Traffic]:
    """A small fabric with slow and failed links, a hash, and demands that may repeat or stay inside."""
    gpus = draw(st.integers(1, 3))
    fabric = hand.make(
        servers=draw(st.integers(2, 5)),
        gpus=gpus,
        family=draw(st.sampled_from(["rail-optimised", "fat-tree", "single-switch", "rail-only"])),
        spines=draw(st.integers(1, 3)),
        cables=draw(st.integers(1, 2)),
        servers_per_group=draw(st.integers(1, 3)),
        nic=draw(st.sampled_from([50.0, 120.0])),
        uplink=draw(st.sampled_from([25.0, 50.0])),
    )
    link = st.integers(0, fabric.num_links - 1)
    fabric = hand.with_capacity(
        fabric,
        dict.fromkeys(draw(st.lists(link, max_size=2)), 0.3)
        | dict.fromkeys(draw(st.lists(link, max_size=2)), 0.0),
    )
    if draw(st.booleans()) and gpus > 1:
        nics = fabric.nic_of_gpu.copy()
        nics[0] = nics[1]
        fabric = replace(fabric, nic_of_gpu=nics)
    network = Network(
        fabric, "ecmp", draw(st.integers(0, 2**32)), qps=draw(st.integers(1, 4)),
        salt=draw(st.sampled_from(["switch", "none"])), entropy=draw(st.sampled_from(["qp", "address"])),
    )  # fmt: skip
    if draw(st.booleans()):
        world = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
        return network, all_to_all(fabric, world, 10.0, draw(st.booleans()))
    gpu = st.integers(0, fabric.num_gpus - 1)
    pairs = draw(st.lists(st.tuples(gpu, gpu), min_size=1, max_size=20))
    sizes = st.sampled_from(draw(st.sampled_from([[10.0], [0.0, 10.0], [0.0, 10.0, 20.0, 33.0]])))
    size = np.array(draw(st.lists(sizes, min_size=len(pairs), max_size=len(pairs))))
    src, dst = np.array(pairs, np.int32).T
    return network, replace(send_recv(fabric, src, dst, 1.0), size=size)


def routed(network: Network, traffic: Traffic) -> Any:
    """The routes, or None where a pair is cut off: then sampling must say the same."""
    said = []
    for work in (lambda: find_routes(network, traffic), lambda: ecmp.sample(network, traffic, [0])):
        try:
            work()
            said.append("")
        except PlanError as refusal:
            said.append(str(refusal))
    assert said[0] == said[1]
    return None if said[0] else find_routes(network, traffic)


@QUICK
@given(cases())
def test_a_seed_means_what_it_means_to_solve(case: tuple[Network, Traffic]) -> None:
    """Same loads on every link, same finish of the last flow, whatever is hashed; and the same each time."""
    network, traffic = case
    routes = routed(network, traffic)
    assume(routes is not None)
    load, _ = ecmp.hashed_load(network, traffic, network.seed)
    assert load == pytest.approx(routes.carried(traffic.size, network.fabric.num_links))
    answer = ecmp.sample(network, traffic, [network.seed, 7])
    assert answer.exact
    assert answer.time[0] == pytest.approx(solve(network, traffic).time)
    again = ecmp.sample(network, traffic, [7, network.seed])
    assert np.array_equal(again.time[::-1], answer.time)
    assert np.array_equal(again.colliding[::-1], answer.colliding)
    assert again.worst[::-1] == answer.worst
    assert answer.adaptive <= solve(Network(network.fabric), traffic).time * (1 + 1e-9)


@QUICK
@given(cases())
def test_no_sample_beats_what_the_links_can_carry(case: tuple[Network, Traffic]) -> None:
    network, traffic = case
    assume(routed(network, traffic) is not None)
    fabric = network.fabric
    fluid, bound = (ecmp.sample(network, traffic, range(3), measure=m) for m in ("fluid", "busiest link"))
    assert np.all(fluid.time >= bound.time * (1 - 1e-9))
    assert not bound.exact
    out = np.where(traffic.relay >= 0, traffic.relay, traffic.src)
    away = fabric.server[traffic.src] != fabric.server[traffic.dst]
    for gpu in (out, traffic.dst):
        sent = np.bincount(fabric.nic_of_gpu[gpu[away]], traffic.size[away], fabric.num_devices)
        for nic in np.flatnonzero(sent):
            cables = np.flatnonzero((fabric.role == Role.NODE_LEAF) & (fabric.a == nic))
            assert bound.time.min() >= sent[nic] / fabric.rate[cables].sum() * (1 - 1e-9)
    assert np.all((fluid.colliding >= 0) & (fluid.colliding <= 1))
    assert np.all(fluid.slowdown >= 0)


@QUICK
@given(cases())
def test_a_stream_in_blocks_is_the_whole(case: tuple[Network, Traffic]) -> None:
    network, traffic = case
    keys = np.stack([traffic.src, traffic.dst, traffic.relay])
    rows = np.sort(np.unique(keys, axis=1, return_index=True)[1])
    part = [Traffic(traffic.src[r], traffic.dst[r], traffic.relay[r], traffic.size[r])
            for r in (rows[: len(rows) // 2], rows[len(rows) // 2 :])]  # fmt: skip
    whole = Traffic(traffic.src[rows], traffic.dst[rows], traffic.relay[rows], traffic.size[rows])
    assume(routed(network, whole) is not None)
    stream = Stream(len(rows), lambda: iter(part))
    assert np.array_equal(
        ecmp.hashed_load(network, stream, 5)[0], ecmp.hashed_load(network, whole, 5)[0]
    ) or ecmp.hashed_load(network, stream, 5)[0] == pytest.approx(ecmp.hashed_load(network, whole, 5)[0])


def test_over_many_seeds_equal_links_carry_equally() -> None:
    """12 flows over 6 uplinks, 400 seeds: each total is binomial, 800 within 5 deviations of 25.8."""
    fabric = hand.make(servers=24, gpus=1, family="fat-tree", servers_per_group=12, spines=3, cables=2)
    traffic = send_recv(fabric, np.arange(12), np.arange(12, 24), 1.0)
    total = sum(ecmp.hashed_load(Network(fabric), traffic, seed)[0] for seed in range(400))
    between = np.array(total)[hand.links_of(fabric, Role.LEAF_SPINE)]
    carried = between[between > 0]
    assert len(carried) == 12
    assert np.abs(carried - 800).max() < 5 * np.sqrt(4800 * 1 / 6 * 5 / 6)


def test_queue_pairs_of_solve_and_sample_agree_and_repeat() -> None:
    fabric = hand.make(servers=6, gpus=2, family="fat-tree", servers_per_group=2, spines=4)
    traffic = all_to_all(fabric, Communicator(np.arange(12, dtype=np.int32)), 3.0, False)
    network = Network(fabric, qps=3)
    times = ecmp_distribution(network, traffic, [1, 2, 3])
    assert times == pytest.approx(
        [solve(replace(network, routing="ecmp", seed=s), traffic).time for s in (1, 2, 3)]
    )
    assert np.array_equal(times, ecmp_distribution(network, traffic, [1, 2, 3]))
    nothing = send_recv(fabric, [], [], 1.0)
    assert ecmp.sample(network, nothing, [0]).time.tolist() == [0.0]
    assert ecmp.sample(network, nothing, [0]).slowdown.tolist() == [1.0]
