"""Which engine answers is a matter of size, not of the answer: bounds, compiled and coarse runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import network_fabrics as hand
import railwright.network.solve  # noqa: F401  (the module, beside the function of its name)
from railwright.errors import PlanError
from railwright.fabric.graph import Role
from railwright.network import Network, solve
from railwright.traffic import Communicator, Traffic, all_to_all


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Set the limits of `railwright.network.solve` for one test."""
    import sys

    def limit(**values: int) -> None:
        for name, value in values.items():
            monkeypatch.setattr(sys.modules["railwright.network.solve"], name, value)

    return limit


def case(routing: Any = "ecmp") -> tuple[Network, Traffic]:
    fabric = hand.make(servers=4, gpus=3, spines=2, servers_per_group=2)
    fabric = hand.with_capacity(fabric, {hand.links_of(fabric, Role.LEAF_SPINE)[3]: 0.25})
    sizes = np.random.default_rng(5).uniform(1.0, 2.0, (12, 12))
    traffic = all_to_all(fabric, Communicator(np.arange(12, dtype=np.int32)), sizes, pxn=False)
    return Network(fabric, routing, seed=3), traffic


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
def test_the_bound_is_below_and_its_loads_are_the_same(engines: Any, routing: Any) -> None:
    network, traffic = case(routing)
    exact = solve(network, traffic)
    engines(LARGEST=50, BLOCK=17)
    bound = solve(network, traffic)
    assert exact.exact
    assert not bound.exact
    assert bound.engine.startswith("lower bound")
    assert bound.load == pytest.approx(exact.load, rel=1e-12)
    assert bound.latency == pytest.approx(exact.latency)
    assert np.array_equal(bound.hops, exact.hops)
    busy = exact.load / np.where(network.fabric.capacity > 0, network.fabric.capacity, np.inf)
    assert bound.time == pytest.approx(busy.max())
    assert bound.time <= exact.time * (1 + 1e-12)
    assert bound.bottleneck is not None
    assert exact.bottleneck is not None
    assert (bound.bottleneck.link, bound.bottleneck.share) == (exact.bottleneck.link, exact.bottleneck.share)


def test_compiled_and_coarse_say_so_and_agree(engines: Any) -> None:
    network, traffic = case()
    exact = solve(network, traffic)
    assert "NumPy" in exact.engine
    engines(COMPILED_FROM=10)
    compiled = solve(network, traffic)
    assert "numba" in compiled.engine
    assert compiled.exact
    assert compiled.finish == pytest.approx(exact.finish, rel=1e-9)
    engines(EXACT_UP_TO=10, SPARSE=0)
    coarse = solve(network, traffic)
    assert "0.5%" in coarse.engine
    assert not coarse.exact
    assert coarse.finish == pytest.approx(exact.finish, rel=0.03)


def test_a_relay_in_another_server_is_refused() -> None:
    network, _ = case()
    wrong = Traffic(*(np.array([x], np.int32) for x in (0, 11, 4)), np.array([1.0]))
    with pytest.raises(PlanError, match="its relay is not in the source's scale-up domain"):
        solve(network, wrong)
