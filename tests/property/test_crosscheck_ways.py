"""Single paths carry what the demands carry, whole bytes, over links that join."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from network_fabrics import links_of, make, with_capacity
from railwright.catalog import load_catalog
from railwright.crosscheck import PATTERNS, make_problem
from railwright.crosscheck.packets import Framing, in_packets
from railwright.fabric.graph import Role
from railwright.network import Network

CATALOG = load_catalog()


@settings(max_examples=40)
@given(
    family=st.sampled_from(["fat-tree", "rail-optimised", "single-switch"]),
    routing=st.sampled_from(["adaptive", "ecmp", "static"]),
    pattern=st.sampled_from(sorted(PATTERNS)),
    servers=st.integers(2, 6),
    spines=st.integers(1, 3),
    cables=st.integers(1, 2),
    slow=st.floats(0.1, 1.0),
    size=st.integers(100, 10**6),
)
def test_ways_are_the_demands(family, routing, pattern, servers, spines, cables, slow, size):  # type: ignore[no-untyped-def]
    fabric = make(servers, 2, family, spines, cables, servers_per_group=2)
    if up := links_of(fabric, Role.LEAF_SPINE):
        fabric = with_capacity(fabric, {up[0]: slow, up[-1]: slow})
    problem = make_problem("ways", Network(fabric, routing, 3), CATALOG, pattern, 2 * servers, size)
    ways, traffic = problem.ways, problem.traffic
    assert (ways.size == np.rint(ways.size)).all()
    np.testing.assert_array_equal(np.bincount(ways.demand, ways.size, len(traffic)), traffic.size)
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    for i in range(len(ways)):
        path = ways.link[ways.ptr[i] : ways.ptr[i + 1]]
        assert tail[path[0]] == traffic.src[ways.demand[i]]
        assert head[path[-1]] == traffic.dst[ways.demand[i]]
        assert (head[path[:-1]] == tail[path[1:]]).all()
    load = np.bincount(ways.link, np.repeat(ways.size, np.diff(ways.ptr)), fabric.num_links)
    # A whole byte per way at most is moved by rounding.
    np.testing.assert_allclose(load, problem.answer[0].load, atol=len(ways) + 1e-6)


@settings(max_examples=20)
@given(header=st.integers(0, 200), payload=st.integers(500, 9000), granted=st.floats(0.5, 1.0))
def test_packets_are_never_quicker_than_the_fluid(header: int, payload: int, granted: float) -> None:
    fabric = make(4, 1, "fat-tree", servers_per_group=2, nic=50e9, lane=450e9, uplink=50e9)
    problem = make_problem("framed", Network(fabric), CATALOG, "all-to-all", 4, 1e6)
    assert in_packets(problem, Framing(payload + header, header, granted)) > problem.answer[0].time
