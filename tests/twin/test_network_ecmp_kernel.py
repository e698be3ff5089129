"""The compiled walk, count and filling of hashed flows give what their NumPy definitions give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import network_fabrics as hand
from railwright.fabric.graph import Role
from railwright.network import Network
from railwright.network.ecmp import sampled as ecmp
from railwright.network.ecmp import walk as ecmp_walk
from railwright.network.ecmp.flows import blocks, switched
from railwright.network.ecmp.fluid import columns_of, fluid_time
from railwright.network.ecmp.rounds import all_to_all_rounds
from railwright.network.maxmin import max_min_rates
from railwright.traffic import Communicator, all_to_all, join


def case(**how: Any) -> tuple[Network, Any]:
    """48 GPUs on a fat tree with a slow, a failed and some parallel cables; some demands twice."""
    fabric = hand.make(servers=12, gpus=4, family="fat-tree", servers_per_group=3, spines=3, cables=2)
    links = hand.links_of(fabric, Role.LEAF_SPINE)
    fabric = hand.with_capacity(fabric, {links[3]: 0.4, links[12]: 0.0})
    traffic = all_to_all(fabric, Communicator(np.arange(48, dtype=np.int32)), 7.0, False)
    return Network(fabric, **how), join([traffic, traffic.scaled(1.0)])


@pytest.mark.parametrize("how", [{}, {"qps": 5}, {"salt": "none"}, {"entropy": "address", "qps": 2}])
def test_walks_are_the_same(how: dict[str, Any]) -> None:
    network, traffic = case(**how)
    ready = switched(network, traffic)
    (block,) = blocks(ready, traffic)
    flows, ways, qps = block.hashed, ready.ways, ready.qps
    num = network.fabric.num_links
    kernels, seed = ecmp_walk.kernels(), ecmp_walk.mixed_seed(11)
    table = (ways.ptr, ways.link, ways.to, ways.salt)
    load, crossing, their_load, their_crossing = (
        np.zeros(num),
        np.zeros(num, int),
        np.zeros(num),
        np.zeros(num, int),
    )
    ecmp_walk.carry(flows, ways, qps, 11, load, crossing)
    kernels.carry(
        flows.word, flows.number, flows.start, flows.size / qps, qps, seed, *table, their_load, their_crossing
    )
    assert their_load == pytest.approx(load, rel=1e-12)
    assert np.array_equal(their_crossing, crossing)
    assert crossing.sum() > 0
    into = np.full((len(flows), 2 + qps * ways.hops), -1, np.int32)
    kernels.follow(flows.word, flows.number, flows.start, qps, seed, *table, ways.hops, 2, into)
    assert np.array_equal(into[:, 2:], ecmp_walk.follow(flows, ways, qps, 11))
    hot = np.random.default_rng(0).random(num) < 0.2
    met = kernels.meet(flows.word, flows.number, flows.start, qps, seed, *table, hot)
    assert met == ecmp_walk.meet(flows, ways, qps, 11, hot) > 0


@pytest.mark.parametrize("qps", [1, 3])
def test_rates_are_the_same(qps: int) -> None:
    network, traffic = case(qps=qps)
    ready = switched(network, traffic)
    (block,) = blocks(ready, traffic)
    fabric = network.fabric
    plain, compiled = (columns_of(fabric, block, ready.ways, qps, 4, c) for c in (False, True))
    assert np.array_equal(plain.link, compiled.link)
    some = np.flatnonzero(np.random.default_rng(2).random(len(block)) < 0.7)
    system = plain.system(fabric.capacity, block.hashed.size)
    defined = max_min_rates(system, some, fabric.capacity)
    assert compiled.rates(some, fabric.capacity) == pytest.approx(defined, rel=1e-9)
    assert plain.rates(some, fabric.capacity) == pytest.approx(defined, rel=1e-9)
    sizes = block.hashed.size
    times = [fluid_time(c, sizes, fabric.capacity) for c in (plain, compiled)]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize("pace", [None, "synchronised", "pipelined"])
def test_samples_are_the_same(pace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network, _ = case(qps=2)
    world = Communicator(np.arange(48, dtype=np.int32))
    traffic = all_to_all(network.fabric, world, 7.0, False)
    rounds = None if pace is None else all_to_all_rounds(world, traffic, group=4, channels=2, pace=pace)
    answers = []
    for threshold in (10**9, 0):
        monkeypatch.setattr(ecmp, "COMPILED_FROM", threshold)
        answers.append(ecmp.sample(network, traffic, [0, 1], rounds))
    assert answers[0].time == pytest.approx(answers[1].time, rel=1e-9)
    assert answers[0].colliding == pytest.approx(answers[1].colliding)
    assert answers[0].worst == answers[1].worst
