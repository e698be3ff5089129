"""The lifted engine answers what the explicit one does with every demand listed, on any fabric and fault."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import lifted_cases
import network_fabrics as hand
import railwright.network.lifted.graph as symmetry
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.network import Network, solve
from railwright.network.fluid.symmetry import quotient, without_twins
from railwright.network.lifted import lift, solve_lifted, unequal_classes
from railwright.network.lifted.check import check
from railwright.network.lifted.partition import Partition, unstable
from railwright.network.maxmin import finish_times
from railwright.network.routing.bottleneck import demands_on
from railwright.network.routing.paths import find_routes
from railwright.traffic import Groups

THOROUGH = bool(os.environ.get("RAILWRIGHT_THOROUGH"))
CASES = settings(max_examples=6000 if THOROUGH else 100)
FEW = settings(max_examples=600 if THOROUGH else 20)
SEEDS = st.integers(0, 10**9)


def compare(fabric: Fabric, groups: Groups) -> None:
    """Times, loads, latency, hops and the busiest link of both, or the refusal of both."""
    network, listed = Network(fabric), groups.expand(fabric)
    assert len(listed) == len(groups)
    try:
        routes = find_routes(network, listed)
    except PlanError:
        with pytest.raises(PlanError):
            solve_lifted(network, groups)
        return
    capacity = fabric.capacity
    merged = quotient(without_twins(routes, capacity), listed.size, capacity, worthwhile=1.0)
    assert merged is not None
    finish = finish_times(merged[0])[merged[1]]
    answer = solve_lifted(network, groups)
    assert answer.exact
    assert answer.members is not None
    each = answer.members.astype(int)
    assert each.sum() == len(listed)
    assert np.allclose(np.sort(np.repeat(answer.finish, each)), np.sort(finish), rtol=1e-9, atol=0)
    assert answer.time == pytest.approx(finish.max(initial=0.0), rel=1e-9)
    load = routes.carried(listed.size, fabric.num_links)
    assert np.allclose(answer.load, load, rtol=1e-9, atol=1e-9 * load.max(initial=0.0))
    assert np.allclose(np.sort(np.repeat(answer.latency, each)), np.sort(routes.latency), rtol=1e-9)
    assert np.array_equal(np.sort(np.repeat(answer.hops, each)), np.sort(routes.hops))
    if answer.bottleneck is not None:
        assert answer.bottleneck.share == demands_on(routes, listed.size, answer.bottleneck.link)


@pytest.mark.parametrize("named", [64, 0], ids=["each group by name", "groups by place"])
@CASES
@given(SEEDS)
def test_lifted_equals_listed(named: int, seed: int) -> None:
    drawn = lifted_cases.case(seed)
    assume(drawn is not None)
    assert drawn is not None
    before, symmetry.NAMED_GROUPS = symmetry.NAMED_GROUPS, named
    try:
        compare(*drawn)
    finally:
        symmetry.NAMED_GROUPS = before


@FEW
@given(SEEDS)
def test_the_partition_is_equitable_demand_by_demand(seed: int) -> None:
    drawn = lifted_cases.case(seed)
    assume(drawn is not None)
    assert drawn is not None
    fabric, groups = drawn
    try:
        work = lift(Network(fabric), groups)
        find_routes(Network(fabric), groups.expand(fabric))
    except PlanError:
        assume(False)
    assert check(Network(fabric), work) is None
    assert unstable(work.graph, work.partition.label) == -1
    gpu = int(groups.gpus[seed % len(groups.gpus)])
    fine = work.partition.singled_out(work.graph, gpu)
    assert unstable(work.graph, fine.label) == -1
    assert np.array_equal(np.bincount(fine.label), fine.size[: fine.count])


def straddling() -> tuple[Fabric, Groups]:
    """Servers of two NICs on leaves of three: every second server has a NIC on each of two leaves."""
    fabric = hand.make(servers=6, gpus=2, family="fat-tree", spines=2, servers_per_group=3)
    cables = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    first = int(np.flatnonzero(fabric.kind == 3)[0])
    b = fabric.b.copy()
    b[cables] = first + np.array([0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1])
    return replace(fabric, b=b), Groups.all_to_all(np.arange(12), 1.0)


def test_servers_with_both_nics_on_a_leaf_are_not_like_those_on_two(monkeypatch: Any) -> None:
    """The first trap: refinement alone takes all servers for alike; here 4 and 2 of them differ."""
    fabric, groups = straddling()
    compare(fabric, groups)
    assert unequal_classes(Network(fabric), groups) is None
    monkeypatch.setattr(symmetry, "_shared", lambda fabric: np.zeros(fabric.num_cables, np.int64))
    breach = unequal_classes(Network(fabric), groups)
    assert breach is not None
    assert "its like." in breach.what
    with pytest.raises(AssertionError):
        compare(fabric, groups)


def test_groups_under_one_leaf_are_not_like_those_across_two(monkeypatch: Any) -> None:
    """The second trap: pairs of GPUs, under one leaf or two; neither named nor placed they look alike."""
    fabric = hand.make(servers=4, gpus=4, family="fat-tree", spines=1, servers_per_group=2)
    pairs = [[0, 4], [1, 5], [8, 12], [9, 13], [2, 10], [3, 11], [6, 14], [7, 15]]
    groups = Groups.all_to_all(np.array(pairs), 1.0)
    compare(fabric, groups)
    monkeypatch.setattr(symmetry, "NAMED_GROUPS", 0)
    compare(fabric, groups)
    places = symmetry.places_of(fabric, groups, np.zeros(fabric.num_devices, np.int64))
    none = np.zeros(0, np.int64)
    blind = replace(places, kind=none, gpu=none, at=none, word=places.word[:0], place=none, group=none)
    monkeypatch.setattr(symmetry, "places_of", lambda *_: blind)
    assert unequal_classes(Network(fabric), groups) is not None


def test_a_coarser_partition_is_found_out() -> None:
    """The check itself: classes of links lumped together are a breach that names two links."""
    fabric, groups = straddling()
    network = Network(fabric)
    work = lift(network, groups)
    cables = np.repeat(fabric.role, 2) == Role.NODE_LEAF
    lumped = np.where(cables, work.link_class[cables][0], work.link_class)
    breach = check(network, replace(work, link_class=lumped))
    assert breach is not None
    assert "does not carry what" in breach.what
    coarse = np.zeros(work.graph.num_nodes, np.int64)
    assert unstable(work.graph, coarse) >= 0


@FEW
@given(SEEDS)
def test_incremental_refinement_is_the_coarsest_from_scratch(seed: int) -> None:
    """Singling a node out touches its neighbourhood alone, and ends where refining anew ends."""
    drawn = lifted_cases.case(seed)
    assume(drawn is not None)
    assert drawn is not None
    fabric, groups = drawn
    graph = symmetry.symmetry_graph(fabric, groups, np.zeros(fabric.num_links, np.int64))
    node = seed % graph.num_nodes
    fine = Partition.coarsest(graph).singled_out(graph, node)
    start = graph.start.copy()
    start[node] = start.max() + 1
    anew = Partition.coarsest(replace(graph, start=start))
    both = np.unique(np.column_stack([fine.label, anew.label]), axis=0)
    assert len(both) == fine.count == anew.count


def test_the_same_input_gives_the_same_answer() -> None:
    drawn = next(c for c in map(lifted_cases.case, range(100)) if c is not None and c[0].num_gpus > 20)
    network = Network(drawn[0])
    one, two = solve(network, drawn[1]), solve(network, drawn[1])
    assert np.array_equal(one.finish, two.finish)
    assert np.array_equal(one.load, two.load)
    assert one.engine == two.engine
