"""What single failures cost where the answer can be worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from network_fabrics import make, with_capacity
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Kind
from railwright.network import Network
from railwright.network.whatif.pattern import Pattern, world
from railwright.network.whatif.sets import random_failures
from railwright.network.whatif.single import compare, relays, routings, single_failures
from railwright.network.whatif.spares import spare_spines
from railwright.spec.study import Cluster, ComputeNetwork
from railwright.traffic import Communicator

CATALOG = load_catalog()


def effects(built, pattern="all-to-all", pxn=True, kinds=(), routing="adaptive", **asked):
    sent = Pattern(pattern, world(built), pxn)
    result = single_failures(Network(built, routing), sent, kinds, **asked)
    return {effect.what: effect for effect in result.effects}


@pytest.mark.parametrize("spines", [2, 3, 4])
def test_one_spine_of_s_costs_s_over_s_minus_one_where_uplinks_are_the_limit(spines) -> None:
    """A GPU a leaf, uplinks as fast as its NIC: all bytes climb, and s - 1 spines carry what s did."""
    built = make(
        servers=6, gpus=1, family="fat-tree", spines=spines, servers_per_group=1, uplink=50.0 / spines
    )
    effect = effects(built, kinds=["spine"])["spine"]
    assert effect.slowdown == pytest.approx(spines / (spines - 1))
    assert effect.count == spines
    assert effect.lost_gpus == 0


def test_one_of_two_cables_to_each_spine_costs_a_quarter_of_the_uplinks() -> None:
    """Two spines of two cables each: three cables carry what four did on that leaf, 4/3."""
    built = make(servers=6, gpus=1, family="fat-tree", spines=2, cables=2, servers_per_group=1, uplink=12.5)
    effect = effects(built, kinds=["cable"])["leaf-spine cable"]
    assert effect.slowdown == pytest.approx(4 / 3)
    assert effect.count == 24


def test_a_slow_uplink_costs_what_it_lost() -> None:
    """Four uplinks, one at half rate: 3.5 carry what 4 did; at a fifth: 3.2."""
    built = make(servers=6, gpus=1, family="fat-tree", spines=4, servers_per_group=1, uplink=12.5)
    assert effects(built, kinds=["slow-cable"])["slow leaf-spine cable"].slowdown == pytest.approx(4 / 3.5)
    fifth = effects(built, kinds=["slow-cable"], slow=0.2)
    assert fifth["slow leaf-spine cable"].slowdown == pytest.approx(4 / 3.2)


def test_the_gpu_of_a_dead_nic_doubles_the_load_of_the_next_nic() -> None:
    built = make(servers=4, gpus=4, spines=4)
    found = effects(built, kinds=["nic", "cable"])
    for what in ("NIC", "NIC-leaf cable"):
        assert found[what].slowdown == pytest.approx(2.0)
        assert found[what].moved_gpus == 1
        assert found[what].lost_gpus == 0
    assert "1 GPU moved to another NIC" in found["NIC"].why


def test_a_ring_loses_the_dead_nics_channel() -> None:
    """Four rings of a quarter each become three of a third each: 4/3."""
    built = make(servers=4, gpus=4, spines=4)
    assert effects(built, "ring", kinds=["nic"])["NIC"].slowdown == pytest.approx(4 / 3)


def test_a_dead_server_loses_its_gpus_and_their_pairs_and_slows_nobody() -> None:
    built = make(servers=4, gpus=2)
    effect = effects(built, kinds=["server"])["server"]
    assert effect.lost_gpus == 2
    assert effect.lost_pairs == 8 * 7 - 6 * 5
    # 6 ranks instead of 8, the same bytes each: 4/6 of them leave the server instead of 6/8.
    assert effect.slowdown == pytest.approx((4 / 6) / (6 / 8))


def test_the_only_switch_takes_all_with_it() -> None:
    built = make(servers=3, gpus=2, family="single-switch")
    effect = effects(built, kinds=["leaf"])["leaf"]
    assert (effect.slowdown, effect.lost_gpus, effect.lost_pairs) == (None, 6, 30)
    assert "no group has two ranks left" in effect.why


def test_a_leaf_without_spines_left_is_cut_off_and_counted() -> None:
    """One spine: without it four leaves are islands; the first one goes on alone."""
    built = make(servers=4, gpus=2, family="fat-tree", spines=1, servers_per_group=1)
    effect = effects(built, kinds=["spine"])["spine"]
    assert effect.lost_gpus == 6
    assert effect.lost_pairs == 8 * 6
    assert effect.slowdown is not None


def test_the_worst_failure_leaves_the_least_work() -> None:
    """Six of eight GPUs lost, and the other two faster than before, stood below a slow cable; so it was with
    the worst of all sets of two."""
    built = make(servers=4, gpus=2, family="fat-tree", spines=1, servers_per_group=1)
    network, sent = Network(built), Pattern("all-to-all", world(built))
    result = single_failures(network, sent)
    first = result.effects[0]
    assert (first.what, first.lost_gpus) == ("spine", 6)
    assert first.slowdown is not None
    assert first.slowdown < 1
    assert first.work == pytest.approx(2 / 8)
    assert [e.work for e in result.effects] == sorted(e.work for e in result.effects)
    assert all(e.work == pytest.approx((8 - e.lost_gpus) / 8 / max(1, e.slowdown)) for e in result.effects)
    two = random_failures(network, sent, 2).worst
    assert two.lost_gpus >= 6
    assert two.work <= first.work


def test_on_a_rail_only_fabric_a_dead_nic_loses_its_server() -> None:
    """No NIC of it is left on that rail, and nobody else forwards into it."""
    built = make(servers=4, gpus=2, family="rail-only")
    effect = effects(built, kinds=["nic"])["NIC"]
    assert effect.lost_gpus == 2
    assert effect.lost_pairs > 0


def test_two_rails_dead_in_one_server_share_the_two_that_are_left() -> None:
    """Any two NICs: the worst pair sits side by side, so that three GPUs would meet; spread, two and two."""
    built = make(servers=3, gpus=4, spines=4)
    result = random_failures(Network(built), Pattern("all-to-all", world(built)), 2, kinds=["nic"])
    assert (result.sets, result.exact) == (12 * 11 // 2, True)
    assert result.p50 == pytest.approx(2.0)
    assert result.worst.slowdown == pytest.approx(2.0)


def test_a_sample_repeats_with_its_seed_and_agrees_with_all_sets() -> None:
    built = make(servers=4, gpus=2, spines=2, servers_per_group=2)
    sent = Pattern("all-to-all", world(built))
    whole = random_failures(Network(built), sent, 2, kinds=["spine", "leaf"])
    assert whole.exact
    one = random_failures(Network(built, "static"), sent, 2, samples=30, seed=3, kinds=["spine", "leaf"])
    again = random_failures(Network(built, "static"), sent, 2, samples=30, seed=3, kinds=["spine", "leaf"])
    assert one == again
    assert not one.exact
    assert one.sets == 30


def test_relays_carry_a_dead_rail_and_leaving_the_server_out_costs_its_gpus() -> None:
    built = make(servers=4, gpus=4, spines=2, uplink=50.0)
    table = compare(relays(Network(built), Pattern("all-to-all", world(built))), ["nic", "leaf"])
    assert table.setups == ("moved, PXN", "moved, direct", "left out, PXN")
    dead_nic = next(row for row in table.rows if row[0].what == "NIC")
    assert dead_nic[0].slowdown == pytest.approx(2.0)
    assert dead_nic[0].lost_gpus == 0
    assert dead_nic[2].lost_gpus == 4
    assert dead_nic[2].slowdown < 1
    dead_leaf = next(row for row in table.rows if row[0].what == "leaf")
    assert dead_leaf[2].slowdown is None  # every server has a GPU on that rail


def test_without_nvlink_and_for_trees_there_is_no_pxn_to_compare() -> None:
    built = make(servers=4, gpus=4, spines=2, uplink=50.0)
    all_to_all, tree = (Pattern(name, world(built)) for name in ("all-to-all", "tree"))
    assert tuple(relays(Network(replace(built, scale_up="pcie")), all_to_all)) == ("moved", "left out")
    assert tuple(relays(Network(built), tree)) == ("moved", "left out")
    assert not any(sent.pxn for _, sent in relays(Network(built), tree).values())


def test_routings_of_a_fabric_with_one_way_are_not_compared() -> None:
    for family in ("single-switch", "rail-only"):
        built = make(servers=4, gpus=2, family=family)
        with pytest.raises(PlanError, match="one way from NIC to NIC, so there are no routings to compare"):
            routings(Network(built), Pattern("all-to-all", world(built)))


def test_all_routings_lose_at_least_what_the_spine_carried() -> None:
    built = make(servers=6, gpus=1, family="fat-tree", spines=3, servers_per_group=1, uplink=50.0 / 3)
    table = compare(routings(Network(built), Pattern("all-to-all", world(built))), ["spine"])
    adaptive, static, ecmp = table.rows[0]
    assert adaptive.slowdown == pytest.approx(1.5)
    times = [t * e.slowdown for t, e in zip(table.times, (adaptive, static, ecmp), strict=True)]
    assert times[0] <= min(times[1:]) * (1 + 1e-9)
    assert ecmp.least <= ecmp.slowdown <= ecmp.most


def test_spare_spines_carry_as_many_dead_ones_and_no_more() -> None:
    """Racks of one server, 8 NICs at 8 uplinks: s of s + spares dead beyond the spares cost s / (s - 1)."""
    catalog = replace(CATALOG, switches={"sw": replace(CATALOG.switches["qm9700"], name="sw", ports=20)})
    network = ComputeNetwork(
        family="clos", switch="sw", tiers=2, servers_per_group=1, spines=8, spare_spines=1
    )
    cluster = Cluster(servers=6, server="dgx-h100", compute=network)
    result = spare_spines(cluster, catalog, lambda built: Pattern("bisection", world(built), False), more=1)
    assert result.as_written == 1
    bare, written, more = result.rows
    assert bare.slowdown == pytest.approx((1.0, 8 / 7, 8 / 6))
    assert written.slowdown == pytest.approx((1.0, 1.0, 8 / 7))
    assert more.slowdown == pytest.approx((1.0, 1.0, 1.0))
    assert "1 dead spine at no cost, the next costs 14.3 %" in result.words[0]


def test_a_cluster_without_room_for_a_spare_says_so() -> None:
    catalog = replace(CATALOG, switches={"sw": replace(CATALOG.switches["qm9700"], name="sw", ports=16)})
    network = ComputeNetwork(family="clos", switch="sw", tiers=2, servers_per_group=1, spines=8)
    cluster = Cluster(servers=6, server="dgx-h100", compute=network)
    result = spare_spines(cluster, catalog, lambda built: Pattern("all-to-all", world(built)), more=1)
    assert result.rows[1].refused
    assert "cannot be built" in result.words[-1]


def test_faults_of_the_study_are_there_before() -> None:
    """One of four uplinks is dead already: of the three left, another one costs 3/2."""
    whole = make(servers=6, gpus=1, family="fat-tree", spines=4, servers_per_group=1, uplink=12.5)
    spine = int(whole.devices(Kind.SPINE)[0])
    dead = np.flatnonzero(whole.b == spine)
    built = with_capacity(whole, {int(link): 0.0 for cable in dead for link in (2 * cable, 2 * cable + 1)})
    effect = effects(built, kinds=["spine"])["spine"]
    assert effect.count == 3
    assert effect.slowdown == pytest.approx(1.5)


def test_groups_run_at_once_and_a_group_that_is_gone_is_silent() -> None:
    built = make(servers=4, gpus=2)
    pairs = tuple(Communicator(np.array(g, np.int32)) for g in ([0, 2], [4, 6]))
    result = single_failures(Network(built), Pattern("all-to-all", pairs), ["server"])
    assert sum(e.count for e in result.effects) == 4
    assert {e.lost_gpus for e in result.effects} == {1}
    assert {e.lost_pairs for e in result.effects} == {2}
