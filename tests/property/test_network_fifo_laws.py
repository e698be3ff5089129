"""Laws of the chunk FIFO on random fabrics, patterns and settings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import network_fabrics as hand
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network
from railwright.network.fifo.run import Framing, simulate
from railwright.network.routing.paths import Routes, find_routes
from railwright.traffic import Communicator, Traffic, all_to_all, send_recv
from railwright.traffic.order import ORDERS, places


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Traffic, dict[str, Any]]:
    family = draw(st.sampled_from(["rail-optimised", "fat-tree", "single-switch"]))
    fabric = hand.make(
        servers=draw(st.integers(2, 4)),
        gpus=draw(st.integers(1, 3)),
        family=family,
        spines=draw(st.integers(1, 3)),
        cables=draw(st.integers(1, 2)),
        servers_per_group=draw(st.integers(1, 2)),
        uplink=draw(st.sampled_from([25.0, 50.0, 120.0])),
    )
    gpus = st.integers(0, fabric.num_gpus - 1)
    pxn = draw(st.booleans())
    if draw(st.booleans()):
        comm = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
        traffic = all_to_all(fabric, comm, draw(st.sampled_from([7.0, 100.0])), pxn)
    else:
        pairs = draw(st.lists(st.tuples(gpus, gpus, st.sampled_from([0.0, 1.0, 33.0, 100.0])), max_size=12))
        columns = [np.array([p[k] for p in pairs]) for k in range(3)]
        traffic = send_recv(fabric, columns[0], columns[1], columns[2].astype(float), pxn)
    chunk = draw(st.sampled_from([4.0, 25.0, 200.0]))
    routing = draw(st.sampled_from(["adaptive", "ecmp", "static"]))
    given_: dict[str, Any] = {
        "order": places(fabric, traffic, draw(st.sampled_from(sorted(ORDERS))), seed=1),
        "chunk": chunk,
        "window": draw(st.sampled_from([None, 1, 3])),
        "done": draw(st.sampled_from(["sent", "delivered"])),
        "relay": draw(st.sampled_from(["chunk", "message"])),
        "buffer": draw(st.sampled_from([None, 1.1, 3.0])),
        "framing": draw(st.sampled_from([Framing(0, 0), Framing(10, 1), Framing(1000, 0)])),
    }
    if given_["buffer"]:
        payload, header = given_["framing"]
        given_["buffer"] *= chunk + (np.ceil(chunk / payload) * header if payload else 0)
    return Network(fabric, routing), traffic, given_


def _outside_spreads(fabric: Fabric, routes: Routes) -> NDArray[np.float64]:
    """(F,) seconds per byte of the slowest link that all of a demand crosses."""
    slowest = np.zeros(len(routes))
    rows = np.repeat(np.arange(len(routes)), np.diff(routes.ptr))
    np.maximum.at(slowest, rows, 1 / fabric.capacity[routes.link])
    return slowest


@settings(max_examples=150)
@given(cases())
def test_never_below_a_bound_and_nothing_is_lost(case: tuple[Network, Traffic, dict[str, Any]]) -> None:
    """No link carries more than it can until the end; no message beats its slowest link and its latency;
    every stage carries all bytes, with headers; everything arrives, whatever the buffers."""
    network, traffic, given_ = case
    fabric = network.fabric
    answer = simulate(network, traffic, **given_)
    routes = find_routes(network, traffic)
    load = answer.solution.load
    assert np.all(load <= fabric.capacity * answer.time * (1 + 1e-9))
    sends = (traffic.size > 0) & (traffic.src != traffic.dst)
    payload, header = given_["framing"]
    one_way = network.routing != "adaptive"  # a spread's chunks have links and latencies of their own
    if one_way and not header:
        assert load == pytest.approx(routes.carried(traffic.size * sends, fabric.num_links))
    slowest = routes.worst(1 / fabric.capacity) if one_way else _outside_spreads(fabric, routes)
    least = traffic.size * slowest + (routes.latency if one_way else 0.0)
    assert np.all(answer.finish[sends] >= least[sends] * (1 - 1e-9))
    assert not answer.finish[~sends].any()
    whole = routes.carried(traffic.size * sends, fabric.num_links)
    for role in (Role.SCALE_UP, Role.PCIE, Role.NODE_LEAF, Role.LEAF_SPINE):
        due = float(whole[np.repeat(fabric.role, 2) == role].sum())
        got = float(load[np.repeat(fabric.role, 2) == role].sum())
        if header:
            assert due * (1 + header / payload) * (1 - 1e-9) <= got <= due * (1 + header) * (1 + 1e-9)
        else:
            assert got == pytest.approx(due)
    if given_["buffer"] is not None:
        tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
        fed = tail >= fabric.num_gpus
        assert np.all(answer.queue[fed] <= given_["buffer"] * (1 + 1e-9))
    assert np.all(answer.posted <= answer.finish)


@settings(max_examples=30)
@given(cases())
def test_same_question_same_bytes(case: tuple[Network, Traffic, dict[str, Any]]) -> None:
    network, traffic, given_ = case
    one, two = simulate(network, traffic, **given_), simulate(network, traffic, **given_)
    for name in ("posted", "queue"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()
    assert one.finish.tobytes() == two.finish.tobytes()
    assert one.solution.load.tobytes() == two.solution.load.tobytes()


@settings(max_examples=30)
@given(cases(), st.integers(-3, 5))
def test_links_twice_as_fast_are_done_in_half_the_time(
    case: tuple[Network, Traffic, dict[str, Any]], power: int
) -> None:
    """Without latency, and exactly: powers of two do not round."""
    network, traffic, given_ = case
    none = np.zeros(network.fabric.num_links)
    quick = replace(network.fabric, capacity=network.fabric.capacity * 2.0**power)
    slow = simulate(network, traffic, **given_, delay=none)
    fast = simulate(Network(quick, network.routing), traffic, **given_, delay=none)
    assert np.array_equal(fast.finish * 2.0**power, slow.finish)
    assert np.array_equal(fast.queue, slow.queue)


@settings(max_examples=30)
@given(cases())
def test_adaptive_deals_each_link_its_share(case: tuple[Network, Traffic, dict[str, Any]]) -> None:
    """Uplinks of one leaf get what adaptive routing gives them, to a chunk for every pair of leaves."""
    network, traffic, given_ = case
    network = Network(network.fabric)
    given_["framing"] = Framing(0, 0)
    answer = simulate(network, traffic, **given_)
    routes = find_routes(network, traffic)
    sends = (traffic.size > 0) & (traffic.src != traffic.dst)
    due = routes.carried(traffic.size * sends, network.fabric.num_links)
    sizes = np.unique(traffic.size[sends])
    if len(sizes) <= 1:
        rows = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
        pairs = np.bincount(routes.spread_link, minlength=network.fabric.num_links)
        assert len(rows) == pairs.sum()
        chunk = float(sizes.max(initial=0.0))
        piece = chunk / max(np.ceil(chunk / answer.chunk), 1)
        assert np.all(np.abs(answer.solution.load - due) <= pairs * piece * 2 + 1e-9)
