"""Laws that hold for every fabric, fault, routing and traffic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.network.fluid.symmetry import flow_system, quotient, refine, unequal, without_twins
from railwright.network.maxmin import FluidSystem, finish_times, last_before_change, load, max_min_rates
from railwright.network.routing.paths import find_routes
from railwright.traffic import Communicator, Traffic, all_to_all

QUICK = settings(max_examples=40)


@st.composite
def fabrics(draw: st.DrawFn) -> Fabric:
    gpus = draw(st.integers(1, 3))
    return hand.make(
        servers=draw(st.integers(2, 5)),
        gpus=gpus,
        family=draw(st.sampled_from(["rail-optimised", "fat-tree", "single-switch"])),
        spines=draw(st.integers(1, 3)),
        cables=draw(st.integers(1, 2)),
        servers_per_group=draw(st.integers(1, 3)),
        uplink=draw(st.sampled_from([25.0, 50.0])),
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Network, Traffic]:
    """A network, perhaps with slow or failed directed links, and random demands that it can route."""
    fabric = draw(fabrics())
    switch_links = hand.links_of(fabric, Role.LEAF_SPINE)
    all_links = list(range(fabric.num_links))
    broken = (
        dict.fromkeys(draw(st.lists(st.sampled_from(switch_links), max_size=2)), 0.0) if switch_links else {}
    )
    slow = dict.fromkeys(draw(st.lists(st.sampled_from(all_links), max_size=2)), 0.3)
    fabric = hand.with_capacity(fabric, slow | broken)
    gpu = st.integers(0, fabric.num_gpus - 1)
    pairs = draw(st.lists(st.tuples(gpu, gpu), min_size=1, max_size=25))
    sizes = draw(st.lists(st.sampled_from([0.0, 10.0, 20.0, 33.0]), min_size=len(pairs), max_size=len(pairs)))
    src, dst = np.array(pairs, np.int32).T
    traffic = Traffic(src, dst, np.full(len(src), -1, np.int32), np.array(sizes))
    network = Network(
        fabric, draw(st.sampled_from(["adaptive", "ecmp", "static"])), draw(st.integers(0, 2**32))
    )
    try:
        find_routes(network, traffic)
    except PlanError:
        assume(False)
    return network, traffic


@QUICK
@given(cases())
def test_bytes_are_conserved(case: tuple[Network, Traffic]) -> None:
    """At every device, what arrives plus what starts there is what leaves plus what ends there."""
    network, traffic = case
    fabric = network.fabric
    carried = solve(network, traffic).load
    balance = np.zeros(fabric.num_devices)
    for end, sign in ((fabric.a, 1), (fabric.b, -1)):
        np.add.at(balance, end, sign * (carried[1::2] - carried[0::2]))
    np.add.at(balance, traffic.src, traffic.size)
    np.add.at(balance, traffic.dst, -traffic.size)
    assert balance == pytest.approx(np.zeros(fabric.num_devices), abs=1e-9)


@QUICK
@given(cases())
def test_rates_are_feasible_and_max_min_fair(case: tuple[Network, Traffic]) -> None:
    """No link over capacity; every flow has a full link on which no other flow is faster."""
    network, traffic = case
    system = flow_system(find_routes(network, traffic), traffic.size, network.fabric.capacity)
    flows = np.flatnonzero((traffic.size > 0) & (np.diff(system.ptr) > 0))
    rate = max_min_rates(system, flows, system.capacity)
    used = load(system, flows, rate)
    assert np.all(used <= system.capacity * (1 + 1e-9))
    full = used >= system.capacity * (1 - 1e-9)
    fastest = np.zeros(len(system.capacity))
    for flow, r in zip(flows, rate, strict=True):
        links = system.link[system.ptr[flow] : system.ptr[flow + 1]]
        fastest[links] = np.maximum(fastest[links], r)
    for flow, r in zip(flows, rate, strict=True):
        links = system.link[system.ptr[flow] : system.ptr[flow + 1]]
        assert np.any(full[links] & (fastest[links] <= r * (1 + 1e-9)))


@QUICK
@given(cases())
def test_merging_alike_demands_changes_nothing_and_is_equitable(case: tuple[Network, Traffic]) -> None:
    network, traffic = case
    capacity = network.fabric.capacity
    routes = find_routes(network, traffic)
    plain = finish_times(flow_system(routes, traffic.size, capacity))
    slim = without_twins(routes, capacity)
    assert finish_times(flow_system(slim, traffic.size, capacity)) == pytest.approx(plain, rel=1e-9)
    merged = quotient(slim, traffic.size, capacity, worthwhile=1.0)
    assert merged is not None
    system, flow_class = merged
    assert finish_times(system)[flow_class] == pytest.approx(plain, rel=1e-9)
    colours = refine(routes, traffic.size, capacity)
    assert colours is not None
    assert unequal(routes, traffic.size, capacity, *colours) == 0


@QUICK
@given(cases())
def test_links_that_nothing_crosses_change_nothing(case: tuple[Network, Traffic]) -> None:
    network, traffic = case
    capacity = network.fabric.capacity
    routes = find_routes(network, traffic)
    few, crossed = routes.renumbered(len(capacity))
    load_of_all = routes.carried(traffic.size, len(capacity))
    assert np.array_equal(few.carried(traffic.size, len(crossed)), load_of_all[crossed])
    assert load_of_all.sum() == pytest.approx(load_of_all[crossed].sum())
    plain = finish_times(flow_system(routes, traffic.size, capacity))
    assert np.array_equal(finish_times(flow_system(few, traffic.size, capacity[crossed])), plain)


def test_the_equitability_check_can_fail() -> None:
    fabric = hand.make(servers=3, gpus=1, family="single-switch")
    traffic = Traffic(*(np.array(x, np.int32) for x in ([0, 1], [2, 0], [-1, -1])), np.array([1.0, 1.0]))
    routes = find_routes(Network(fabric), traffic)
    lumped = np.zeros(2, np.int32), np.repeat(fabric.role, 2)
    assert unequal(routes, traffic.size, fabric.capacity, *lumped) > 0


@QUICK
@given(cases())
def test_no_time_beats_physics_and_finish_times_add_up(case: tuple[Network, Traffic]) -> None:
    """Never faster than the busiest link allows, nor any demand faster than it would be alone."""
    network, traffic = case
    answer = solve(network, traffic)
    live = network.fabric.capacity > 0
    assert answer.time >= (answer.load[live] / network.fabric.capacity[live]).max(initial=0.0) * (1 - 1e-9)
    routes = find_routes(network, traffic)
    system = flow_system(routes, traffic.size, network.fabric.capacity)
    for flow in range(len(traffic)):
        span = slice(system.ptr[flow], system.ptr[flow + 1])
        alone = (traffic.size[flow] * system.weight[span] / system.capacity[system.link[span]]).max(
            initial=0.0
        )
        assert answer.finish[flow] >= alone * (1 - 1e-9)
    assert answer.time == answer.finish.max()


@QUICK
@given(cases(), st.sampled_from([0.5, 2.0, 8.0]))
def test_time_scales_with_sizes_and_against_bandwidth(case: tuple[Network, Traffic], factor: float) -> None:
    network, traffic = case
    base = solve(network, traffic).finish
    assert solve(network, traffic.scaled(factor)).finish == pytest.approx(base * factor, rel=1e-9)
    fabric = network.fabric
    faster = replace(fabric, capacity=fabric.capacity * factor, rate=fabric.rate * factor)
    assert solve(replace(network, fabric=faster), traffic).finish == pytest.approx(base / factor, rel=1e-9)


@QUICK
@given(cases(), st.randoms(use_true_random=False))
def test_order_of_demands_does_not_matter(case: tuple[Network, Traffic], random: Any) -> None:
    network, traffic = case
    order = np.arange(len(traffic))
    random.shuffle(order)
    mixed = Traffic(traffic.src[order], traffic.dst[order], traffic.relay[order], traffic.size[order])
    if network.routing == "ecmp":
        pairs = np.unique(np.stack([traffic.src, traffic.dst]), axis=1)
        assume(pairs.shape[1] == len(traffic))  # flows of one pair are told apart by their order
    assert solve(network, mixed).finish == pytest.approx(solve(network, traffic).finish[order], rel=1e-9)


@QUICK
@given(st.integers(0, 4), st.integers(0, 4), st.booleans(), st.sampled_from(["adaptive", "static"]))
def test_permuting_servers_changes_nothing(first: int, second: int, pxn: bool, routing: Any) -> None:
    """Swapping two servers' ranks in an all-to-all over one healthy group leaves its time alone."""
    fabric = hand.make(servers=5, gpus=2)
    gpus = np.arange(10, dtype=np.int32).reshape(5, 2)
    gpus[[first, second]] = gpus[[second, first]]
    swapped = solve(Network(fabric, routing), all_to_all(fabric, Communicator(gpus.reshape(-1)), 5.0, pxn))
    plain = solve(
        Network(fabric, routing), all_to_all(fabric, Communicator(np.arange(10, dtype=np.int32)), 5.0, pxn)
    )
    assert swapped.time == pytest.approx(plain.time, rel=1e-9)


@QUICK
@given(st.integers(1, 4), st.integers(2, 4), st.integers(1, 3), st.data())
def test_one_more_spine_is_never_slower(spines: int, servers: int, gpus: int, data: st.DataObject) -> None:
    """Under adaptive routing, for the same demands."""
    pairs = data.draw(st.lists(st.tuples(*[st.integers(0, servers * gpus - 1)] * 2), min_size=1, max_size=20))
    src, dst = np.array(pairs, np.int32).T
    traffic = Traffic(src, dst, np.full(len(src), -1, np.int32), np.full(len(src), 10.0))
    times = [
        solve(Network(hand.make(servers, gpus, "fat-tree", spines=s, servers_per_group=2)), traffic).time
        for s in (spines, spines + 1)
    ]
    assert times[1] <= times[0] * (1 + 1e-9)


@QUICK
@given(cases())
def test_same_input_same_bytes(case: tuple[Network, Traffic]) -> None:
    first, again = solve(*case), solve(*case)
    assert first.finish.tobytes() == again.finish.tobytes()
    assert first.load.tobytes() == again.load.tobytes()
    assert first.bottleneck == again.bottleneck


@QUICK
@given(cases())
def test_ecmp_takes_one_live_shortest_path(case: tuple[Network, Traffic]) -> None:
    """Each demand's links join head to tail from source to destination, all live, as long as adaptive's."""
    network, traffic = case
    fabric = network.fabric
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    routes = find_routes(replace(network, routing="ecmp"), traffic)
    spread = find_routes(replace(network, routing="adaptive"), traffic)
    assert np.array_equal(routes.hops, spread.hops)
    for flow in range(len(traffic)):
        links = routes.link[routes.ptr[flow] : routes.ptr[flow + 1]]
        at = traffic.src[flow]
        for link in links:
            assert tail[link] == at
            assert fabric.capacity[link] > 0
            at = head[link]
        assert at == traffic.dst[flow]


@QUICK
@given(st.data())
def test_coarse_finishes_stay_close(data: st.DataObject) -> None:
    """Handing freed bandwidth on up to 0.5 % late moves finish times by a few such steps at most."""
    sizes = data.draw(st.lists(st.floats(1.0, 2.0), min_size=12, max_size=12))
    ptr = np.arange(13, dtype=np.int64) * 2
    link = np.array([[k % 4, 4 + (k * 5) % 3] for k in range(12)], np.int32).reshape(-1)
    system = FluidSystem(ptr, link, np.ones(24), np.full(7, 3.0), np.array(sizes), np.ones(12))
    exact, coarse = finish_times(system), finish_times(system, tolerance=0.005)
    assert coarse == pytest.approx(exact, rel=0.03)


def test_rates_hold_until_a_slow_flow_leaves_a_faster_one_behind() -> None:
    due = np.array([1.0, 2.0, 3.0])
    assert last_before_change(due, np.array([9.0, 5.0, 1.0]), 1e-9) == 2
    assert last_before_change(due, np.array([9.0, 1.0, 5.0]), 1e-9) == 1
    assert last_before_change(due, np.array([1.0, 9.0, 5.0]), 1e-9) == 0
    assert last_before_change(np.array([1.0, 1.0, 1.0]), np.array([5.0, 5.0, 5.0]), 1e-9) == 2
