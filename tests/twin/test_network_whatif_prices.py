"""Sets of failures priced by bounds and kept pieces, and each solved from nothing, every event played."""

from dataclasses import replace

import numpy as np
import pytest

from fabric_cases import built
from railwright.network import Network, solve
from railwright.network.routing.routes import Routes
from railwright.network.whatif.elements import elements
from railwright.network.whatif.pattern import Pattern, demands, world
from railwright.network.whatif.price import after, price


@pytest.mark.parametrize("pattern", ["all-to-all", "ring"])
@pytest.mark.parametrize("routing", ["adaptive", "static", "ecmp"])
@pytest.mark.parametrize("family", ["rail-optimised", "fat-tree"])
def test_any_three_failures_cost_what_they_cost_alone(family, routing, pattern):
    fabric = built(4, family=family, tiers=2, servers_per_group=2, oversubscription=2.0)
    network, sent = Network(fabric, routing, 3), Pattern(pattern, world(fabric))
    found, rng = elements(fabric), np.random.default_rng(7)
    for _ in range(25):
        failed = [found[i] for i in rng.choice(len(found), 3, replace=False)]
        priced = price(network, sent, failed)
        broken, gone, _ = after(replace(fabric), sent, failed)
        alone = demands(broken, sent, gone)
        if priced.time is None:
            assert not len(alone)
            continue
        played = solve(Network(broken, routing, 3), alone, "numpy")
        assert priced.time == pytest.approx(played.time, rel=1e-9)
        assert priced.solution.load == pytest.approx(played.load, rel=1e-9)


def test_the_largest_amount_of_each_row_is_that_of_an_addition_one_by_one():
    rng = np.random.default_rng(1)
    length = rng.integers(0, 4, 200)
    length[[0, 7, 199]] = 0
    ptr = np.concatenate([[0], np.cumsum(length)])
    link = rng.integers(0, 30, ptr[-1]).astype(np.int32)
    none = np.zeros(0, np.int32)
    routes = Routes(
        ptr, link, np.full(200, -1, np.int32), np.zeros(1, np.int64), none, np.zeros(0),
        np.zeros(200, np.int32), np.zeros(200),
    )  # fmt: skip
    amount = rng.normal(size=30)
    expected = np.zeros(200)
    np.maximum.at(expected, np.repeat(np.arange(200), length), amount[link])
    assert np.array_equal(routes.worst(amount), expected)
