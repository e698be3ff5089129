"""Forwarding tables as a routing, by hand: what a bad table costs, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

import network_fabrics as hand
from export_fabrics import built
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind
from railwright.network import Network, Tables, own_tables, solve
from railwright.network.routing.tables import destinations, switches
from railwright.network.routing.tables_check import check_tables, differing
from railwright.traffic import Communicator, all_to_all, ring, send_recv


def link(fabric: Fabric, tail: str, head: str, nth: int = 0) -> int:
    """The nth live link from one device to another."""
    names = [fabric.device_name(d) for d in range(fabric.num_devices)]
    a, b = names.index(tail), names.index(head)
    up = [2 * c for c in np.flatnonzero((fabric.a == a) & (fabric.b == b)).tolist()]
    down = [2 * c + 1 for c in np.flatnonzero((fabric.a == b) & (fabric.b == a)).tolist()]
    return (up + down)[nth]


def changed(fabric: Fabric, entries: dict[tuple[str, int], int], base: Tables | None = None) -> Tables:
    """Our own tables with some entries (switch, destination) replaced."""
    out = (base or own_tables(fabric)).out.copy()
    names = [fabric.device_name(d) for d in switches(fabric).tolist()]
    for (switch, column), target in entries.items():
        out[names.index(switch), column] = target
    return Tables(out, "hand-made tables")


def over_one_link(fabric: Fabric) -> Tables:
    """Everything that leaves a leaf does so by its first cable to spine-01, and comes down by the first."""
    out = np.full_like(own_tables(fabric).out, -1)
    leaves = [f"leaf-{i + 1:02d}" for i in range(int(np.count_nonzero(fabric.kind == Kind.LEAF)))]
    for column, cable in enumerate(destinations(fabric).tolist()):
        home = fabric.device_name(int(fabric.b[cable]))
        for row, leaf in enumerate(leaves):
            out[row, column] = 2 * cable + 1 if leaf == home else link(fabric, leaf, "spine-01")
        out[len(leaves), column] = link(fabric, "spine-01", home)
    return Tables(out, "hand-made tables")


def everyone(fabric: Fabric) -> Communicator:
    return Communicator(np.arange(fabric.num_gpus, dtype=np.int32))


def across(fabric: Fabric) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    half = fabric.num_gpus // 2
    return np.arange(half), np.arange(half) + half


def test_all_over_one_of_two_spines_gives_half() -> None:
    """Two NICs of 50 B/s each side, two uplinks of 50 B/s: 100 B take 2 s on both spines, 4 s on one."""
    fabric = hand.make(4, 1, "fat-tree", spines=2, servers_per_group=2)
    traffic = send_recv(fabric, *across(fabric), 100.0)
    assert solve(Network(fabric), traffic).time == pytest.approx(2.0, rel=1e-12)
    bad = Network(fabric, "tables", tables=over_one_link(fabric))
    solved = solve(bad, traffic)
    assert solved.time == pytest.approx(4.0, rel=1e-12)
    assert solved.load[link(fabric, "leaf-01", "spine-01")] == 200.0
    assert solved.load[link(fabric, "leaf-01", "spine-02")] == 0.0
    assert solved.bottleneck is not None
    assert "forwarding tables" in solved.bottleneck.why


def test_all_over_one_of_two_cables_to_one_of_two_spines_gives_a_quarter() -> None:
    fabric = hand.make(4, 2, "fat-tree", spines=2, cables=2, servers_per_group=2)
    traffic = send_recv(fabric, *across(fabric), 100.0)
    adaptive = solve(Network(fabric), traffic).time
    tables = over_one_link(fabric)
    assert solve(Network(fabric, "tables", tables=tables), traffic).time == pytest.approx(
        4 * adaptive, rel=1e-12
    )
    use = check_tables(fabric, tables)
    assert use.check.valid
    assert use.destinations.tolist() == [4, 0, 0, 0, 4, 0, 0, 0]
    assert differing(fabric, tables, own_tables(fabric)) == (6, 8)


@pytest.mark.parametrize(
    "fabric",
    [
        hand.make(8, 2, "fat-tree", spines=4, cables=2, servers_per_group=2),
        hand.make(8, 2, "rail-optimised", spines=4, servers_per_group=4),
        hand.make(4, 2, "single-switch"),
        built(16, "fat-tree", tiers=3, servers_per_group=2, groups_per_pod=4),
        built(12, "rail-optimised", tiers=3, servers_per_group=2, groups_per_pod=2),
    ],
    ids=["tree", "rails", "one switch", "three tiers", "three tiers of rails"],
)
def test_our_static_routing_and_the_tables_written_out_from_it_agree(fabric: Fabric) -> None:
    tables = own_tables(fabric)
    assert check_tables(fabric, tables).check.valid
    for traffic in (
        all_to_all(fabric, everyone(fabric), 1e6, pxn=True),
        all_to_all(fabric, everyone(fabric), 1e6, pxn=False),
        ring(fabric, everyone(fabric), 1e6),
    ):
        static = solve(Network(fabric, "static"), traffic)
        table = solve(Network(fabric, "tables", tables=tables), traffic)
        np.testing.assert_allclose(table.finish, static.finish, rtol=1e-9)
        np.testing.assert_allclose(table.load, static.load, rtol=1e-9)
        np.testing.assert_array_equal(table.hops, static.hops)
        np.testing.assert_allclose(table.latency, static.latency, rtol=1e-9)


def test_after_a_fault_our_tables_avoid_the_dead_cable() -> None:
    whole = hand.make(8, 2, "fat-tree", spines=4, servers_per_group=2)
    dead = link(whole, "leaf-02", "spine-03")
    fabric = hand.with_capacity(whole, {dead: 0.0, dead ^ 1: 0.0})
    traffic = all_to_all(fabric, everyone(fabric), 1e6, pxn=False)
    tables = own_tables(fabric)
    assert check_tables(fabric, tables).check.valid
    assert solve(Network(fabric, "tables", tables=tables), traffic).time == pytest.approx(
        solve(Network(fabric, "static"), traffic).time, rel=1e-9
    )


def test_planes_of_two_port_nics_divide_evenly() -> None:
    """Each NIC has a port in each plane: half of the bytes by either, never from plane to plane."""
    fabric = built(4, "dual-plane")
    traffic = all_to_all(fabric, everyone(fabric), 1e6, pxn=False)
    tables = own_tables(fabric)
    solved = solve(Network(fabric, "tables", tables=tables), traffic)
    adaptive = solve(Network(fabric), traffic)
    assert solved.time == pytest.approx(adaptive.time, rel=1e-9)
    up = 2 * destinations(fabric)
    np.testing.assert_allclose(solved.load[up], adaptive.load[up], rtol=1e-9)


SMALL = hand.make(4, 1, "fat-tree", spines=2, servers_per_group=2)
LAST = 3  # server-04/nic-0, on leaf-02
WRONG = {
    "no route": ({("leaf-01", LAST): -1}, "leaf-01 has no route to server-04/nic-0"),
    "circle": (
        {
            ("leaf-01", LAST): link(SMALL, "leaf-01", "spine-01"),
            ("spine-01", LAST): link(SMALL, "spine-01", "leaf-01"),
        },
        "what is for server-04/nic-0 runs in a circle from leaf-01: leaf-01 -> spine-01 -> leaf-01",
    ),
    "wrong NIC": (
        {("leaf-02", LAST): 2 * int(destinations(SMALL)[2]) + 1},
        "leaf-02 sends what is for server-04/nic-0 to server-03/nic-0 instead",
    ),
}


@pytest.mark.parametrize("kind", WRONG)
def test_tables_that_do_not_deliver_are_refused_naming_switch_and_destination(kind: str) -> None:
    entries, sentence = WRONG[kind]
    tables = changed(SMALL, entries)
    check = check_tables(SMALL, tables).check
    assert not check.valid
    assert check.waits_in_circle is None
    assert set(check.failures) == {kind}
    assert check.reached == check.pairs - check.failures[kind]
    assert any(sentence in example for example in check.examples)
    with pytest.raises(
        PlanError, match=r"hand-made tables: .*so server-0[12]/nic-0 cannot reach it"
    ) as refused:
        solve(Network(SMALL, "tables", tables=tables), send_recv(SMALL, *across(SMALL), 1.0))
    assert sentence in str(refused.value)


def test_a_failed_cable_in_the_tables_is_named() -> None:
    dead = link(SMALL, "leaf-01", "spine-01")
    fabric = hand.with_capacity(SMALL, {dead: 0.0, dead ^ 1: 0.0})
    tables = changed(fabric, {("leaf-01", LAST): dead}, own_tables(SMALL))
    with pytest.raises(PlanError, match="by a failed cable, leaf-01 port 3 -> spine-01 port 1"):
        solve(Network(fabric, "tables", tables=tables), send_recv(fabric, *across(fabric), 1.0))
    assert "failed cable" in check_tables(fabric, tables).check.failures


def test_tables_of_another_fabric_and_none_at_all_are_refused() -> None:
    traffic = send_recv(SMALL, *across(SMALL), 1.0)
    other = own_tables(hand.make(6, 1, "fat-tree", spines=2, servers_per_group=2))
    with pytest.raises(PlanError, match="are for 5 switches and 6 NIC ports, the fabric has 4 and 4"):
        solve(Network(SMALL, "tables", tables=other), traffic)
    with pytest.raises(PlanError, match="has no tables"):
        solve(Network(SMALL, "tables"), traffic)


def test_detours_that_go_up_after_down_can_lock_up() -> None:
    """leaf-01 reaches server 3 by leaf-02 and server 2 by leaf-03: each detour ends on the link that the
    other holds, so the links wait in a circle.  One detour alone cannot lock up, but turns upwards."""
    fabric = hand.make(3, 1, "fat-tree", spines=2, servers_per_group=1)
    to_third = {
        ("leaf-01", 2): link(fabric, "leaf-01", "spine-01"),
        ("spine-01", 2): link(fabric, "spine-01", "leaf-02"),
        ("leaf-02", 2): link(fabric, "leaf-02", "spine-02"),
        ("spine-02", 2): link(fabric, "spine-02", "leaf-03"),
    }
    to_second = {
        ("leaf-01", 1): link(fabric, "leaf-01", "spine-02"),
        ("spine-02", 1): link(fabric, "spine-02", "leaf-03"),
        ("leaf-03", 1): link(fabric, "leaf-03", "spine-01"),
        ("spine-01", 1): link(fabric, "spine-01", "leaf-02"),
    }
    one = check_tables(fabric, changed(fabric, to_third)).check
    both = check_tables(fabric, changed(fabric, to_third | to_second)).check
    assert (one.valid, one.turns, one.longer, one.waits_in_circle) == (True, 1, 1, False)
    assert (both.valid, both.turns, both.longer, both.waits_in_circle) == (True, 2, 2, True)
    assert both.hops == {1: 3, 3: 4, 5: 2}


def test_rails_that_never_meet_are_no_missing_route() -> None:
    fabric = hand.make(4, 2, "rail-only")
    check = check_tables(fabric, own_tables(fabric)).check
    assert (check.pairs, check.reached, check.hops) == (8, 8, {1: 8})
