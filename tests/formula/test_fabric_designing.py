"""Designs side by side: what is offered, what one switch takes with it, and what growth costs."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import RailwrightError
from railwright.fabric import Requirement
from railwright.spec.study import Cluster, ComputeNetwork, Fault

CATALOG = load_catalog()


def offered(gpus: int, server: str = "dgx-h100", **wanted):
    wanted = {"switches": ("qm9700",), **wanted}
    return fabric.design(Requirement(gpus, server, **wanted), CATALOG)


def cluster(servers: int, **network):
    return Cluster(servers=servers, server="dgx-h100", compute=ComputeNetwork(switch="qm9700", **network))


def test_every_family_is_offered_or_refused_with_its_reason():
    options = offered(1024)
    assert {o.family for o in options} == set(fabric.FAMILIES) - {"clos", "rack-rails"}
    assert [o.feasible for o in options] == sorted((o.feasible for o in options), reverse=True)
    rails = next(o for o in options if o.family == "rail-optimised")
    assert (rails.counts.leaves, rails.counts.spines, rails.counts.cables) == (32, 16, 2048)
    single = next(o for o in options if o.family == "single-switch")
    assert "1024 ports of one switch" in single.reason
    assert single.counts is None


def test_switches_offered_speak_what_the_nics_do():
    """Pollara speaks Ethernet only, ConnectX-7 both."""
    for server, known in (("mi350x-8", {"ethernet"}), ("mi300x-8", {"ethernet", "infiniband"})):
        options = offered(64, server, switches=())
        assert {CATALOG.switches[o.switch].technology for o in options} == known


def test_an_option_is_the_study_that_it_says():
    for option in offered(1000, grow_to=4000, spines_lost=1):
        if option.counts is not None:
            asked = Cluster(servers=option.servers, server="dgx-h100", compute=option.network)
            assert fabric.count(fabric.build(asked, CATALOG), CATALOG) == option.counts


def test_leaves_are_filled_so_that_few_spines_share_their_uplinks():
    """165 servers at 1.5:1: full leaves have 38 ports down and 26 up, and 5 leaves x 13 cables are one more
    than a spine takes, so it was 13 spines a rail with 2 each.  33 a leaf, as many leaves, need 22 up: two
    spines a rail with 11 cables to each of 5 leaves."""
    rails = next(o for o in offered(1320, oversubscription=1.5) if o.family == "rail-only")
    assert rails.network.servers_per_group == 33
    assert (rails.counts.leaves, rails.counts.spines) == (5 * 8, 2 * 8)
    assert (rails.plan.leaf_spine_links, rails.plan.leaf_uplinks) == (11, 22)
    assert rails.counts.cables == 1320 + 40 * 22


def test_a_spare_spine_is_a_spare_of_few():
    """125 servers, any spine of a rail may die: 5 leaves of 25 a rail, 25 up over 3 spines with 9 cables
    each, and a fourth.  With 31 a leaf it was one cable to each of 32."""
    rails = next(o for o in offered(1000, spines_lost=1) if o.family == "rail-only")
    assert (rails.counts.leaves, rails.plan.spines_per_plane, rails.plan.leaf_spine_links) == (40, 4, 9)


def test_racks_share_leaves_where_each_spans_several_anyway():
    """80 NVL72 at 3:1: a leaf of 64 ports has 48 down, so that a rack alone takes two leaves of 36, and five
    racks take eight of 45.  A server of 8 NICs stays on one leaf, though more would fit that are spread."""
    wanted = {"oversubscription": 3, "spines_lost": 2, "families": ("fat-tree",)}
    (racks,) = offered(5760, "gb200-nvl72", **wanted)
    assert (racks.network.servers_per_group, racks.counts.leaves, racks.counts.switches) == (5, 128, 230)
    alone = racks.network.model_copy(update={"servers_per_group": 1})
    one_each = Cluster(servers=80, server="gb200-nvl72", compute=alone)
    assert fabric.size(fabric.order(one_each, CATALOG)).switches == 286
    (servers,) = offered(1952, "mi300x-8", **wanted)
    assert (servers.plan.leaves_per_group, servers.plan.servers_per_group) == (1, 5)


def test_groups_stay_full_where_that_is_least():
    """1,024 GPUs fill leaves of 32 and spines of 64: nothing is smaller."""
    assert all(o.network.servers_per_group is None for o in offered(1024))
    # Growing to 2,048, whole groups are what it grows by: smaller ones would take more leaves then.
    growing = [o for o in offered(800, grow_to=2048) if o.feasible and not o.prepared]
    assert growing
    assert all(o.network.servers_per_group is None for o in growing)


@settings(max_examples=15)
@given(
    st.integers(10, 2400), st.sampled_from([1.0, 1.5, 2.0, 3.0]), st.integers(0, 1),
    st.sampled_from(["fat-tree", "rail-optimised", "rail-only", "dual-plane"]),
)  # fmt: skip
def test_no_other_size_of_groups_takes_fewer_switches_or_cables(gpus, ratio, lost, family):
    (option,) = offered(gpus, oversubscription=ratio, spines_lost=lost, families=(family,))
    assume(option.plan is not None)
    for servers in range(max(1, option.plan.servers_per_group - 16), option.plan.servers_per_group + 17):
        network = option.network.model_copy(update={"servers_per_group": servers})
        asked = Cluster(servers=option.servers, server="dgx-h100", compute=network)
        try:
            other = fabric.size(fabric.order(asked, CATALOG))
        except RailwrightError:
            continue
        if other.leaves_per_group == option.plan.leaves_per_group and other.tiers >= option.plan.tiers > 1:
            mine = option.plan.switches, option.plan.cables
            assert mine <= (other.switches, other.cables)


def test_a_rack_is_offered_with_four_rails():
    """72 GPUs x 16: every NIC of the rack being a rail is no option."""
    options = offered(72 * 16, "gb200-nvl72")
    assert "rail-optimised" not in {o.family for o in options}
    rails = next(o for o in options if o.family == "rack-rails")
    assert rails.counts.leaves == 16 * 4
    assert rails.fault.gpus == 18


# family, servers -> GPUs off the network, GPUs without their NIC, GPUs with half of it, when a leaf dies
LEAF_LOSS = [
    ("single-switch", 8, (64, 64, 0)),  # everything
    ("fat-tree", 64, (32, 32, 0)),  # four servers with all of their NICs
    ("rail-optimised", 64, (0, 32, 0)),  # one rail of 32 servers: their other NICs carry on
    ("rail-only", 64, (0, 64, 0)),  # one rail of all
    ("dual-plane", 64, (0, 0, 42)),  # one port of one NIC of 42 servers (42 down, 21 up at 400G)
]


@pytest.mark.parametrize(("family", "servers", "lost"), LEAF_LOSS, ids=lambda x: str(x))
def test_what_one_dead_leaf_takes_with_it(family, servers, lost):
    fault = fabric.largest_fault_domain(fabric.build(cluster(servers, family=family), CATALOG))
    assert (fault.cut_off, fault.without_nic, fault.slowed) == lost
    assert fault.device == "leaf-01"


def test_one_spine_alone_is_the_worst_device():
    """Four leaves of 2 servers under one spine of 64 ports: without it three quarters are cut off."""
    f = fabric.build(cluster(8, family="fat-tree", servers_per_group=2, tiers=2), CATALOG)
    assert fabric.count(f, CATALOG).spines == 1
    fault = fabric.largest_fault_domain(f)
    assert (fault.device, fault.cut_off, fault.cut_off_by_leaf) == ("spine-01", 48, 16)


def test_spines_may_die_where_that_was_asked_for():
    """Two dead spines of the planned plane leave every leaf as many uplinks as it has servers."""
    option = next(o for o in offered(512, spines_lost=2) if o.family == "rail-optimised")
    faults = tuple(Fault(element=f"spine-{i:02d}") for i in (1, 2))
    asked = Cluster(servers=64, server="dgx-h100", compute=option.network, faults=faults)
    assert fabric.bisection(fabric.build(asked, CATALOG)) == 256 * 50e9


def test_one_leaf_may_die_only_where_servers_stand_on_several():
    options = offered(512, leaf_lost=True)
    assert {o.family for o in options if o.feasible} == {"rail-optimised", "rail-only", "dual-plane"}
    assert "takes 32 GPUs off the network" in next(o for o in options if o.family == "fat-tree").reason


def test_growth_by_hand():
    """64 servers, 16 leaves under 8 spines (4 cables to each); 128: 32 leaves, 16 spines, 2 cables to each.

    Leaf-spine cables of the 64 that stay: a leaf's bundle of 4 becomes two bundles of 2.  512 + 512
    cables and 24 switches are new; with 16 spines from the start nothing moves.
    """
    now = cluster(64, family="rail-optimised")
    grown = fabric.growth(now, cluster(128, family="rail-optimised"), CATALOG)
    assert (grown.gpus, grown.switches, grown.cables) == (1024, 24, 1024)
    assert 0 < grown.moved <= 512
    ready = fabric.growth(
        cluster(64, family="rail-optimised", spines=16),
        cluster(128, family="rail-optimised", spines=16), CATALOG,
    )  # fmt: skip
    assert (ready.switches, ready.cables, ready.moved) == (16, 1024, 0)


def test_growth_that_cannot_be_is_refused_with_its_reason():
    option = next(o for o in offered(1024, grow_to=80000) if o.family == "rail-optimised")
    assert not option.feasible
    assert "cannot grow to 80000 GPUs" in option.reason
    assert "at most 65536" in option.reason


def test_prepared_designs_move_fewer_cables():
    options = offered(1024, grow_to=4096)
    ready = {o.family: o for o in options if o.prepared}
    assert set(ready) >= {"fat-tree", "rail-optimised", "dual-plane"}
    for option in options:
        if not option.prepared and option.family in ready:
            assert ready[option.family].growth.moved < option.growth.moved
            assert ready[option.family].counts.switches >= option.counts.switches


@settings(max_examples=25)
@given(st.sampled_from(["fat-tree", "rail-optimised", "dual-plane"]), st.integers(1, 40), st.integers(0, 40))
def test_growth_adds_up(family, servers, more):
    """What is there and stays, and what is bought, are the larger cluster; nothing moves without growth."""
    now, later = cluster(servers, family=family), cluster(servers + more, family=family)
    grown = fabric.growth(now, later, CATALOG)
    small, large = (fabric.count(fabric.build(c, CATALOG), CATALOG) for c in (now, later))
    assume(not grown.reason)
    assert small.switches + grown.switches == large.switches
    assert small.cables + grown.cables == large.cables
    assert grown.moved <= small.cables
    if not more:
        assert (grown.switches, grown.cables, grown.moved) == (0, 0, 0)


def test_the_lines_fit_eighty_columns_and_say_everything():
    options = offered(1024, grow_to=4096, switches=())
    said = fabric.lines(options)
    assert max(map(len, said)) <= 80
    text = "\n".join(said)
    assert "not possible:" in text
    assert "1,016 cables pulled again" in text
    assert (
        sum(line.startswith(tuple(fabric.FAMILIES)) for line in said) == sum(o.feasible for o in options) + 1
    )
    assert fabric.lines([]) == []


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"gpus": 0}, "at least one"),
        ({"gpus": 64, "grow_to": 32}, "growth to 32 GPUs is less than the 64"),
        ({"gpus": 64, "oversubscription": 0.5}, "oversubscription 0.5: give 1 "),
        ({"gpus": 64, "oversubscription": float("nan")}, "oversubscription nan: give 1 "),
        ({"gpus": 64, "spines_lost": -1}, "-1 spines that may be lost: give 0 or more"),
        ({"gpus": 64, "families": ("fat-tre",)}, "did you mean 'fat-tree'"),
        ({"gpus": 64, "switches": ("qm970",)}, "qm9700"),
        ({"gpus": 64, "server": "dgx-1-h100"}, "dgx-h100"),
    ],
)
def test_requirements_that_say_nothing(wanted, said):
    with pytest.raises(RailwrightError, match=said):
        fabric.design(Requirement(**{"server": "dgx-h100", **wanted}), CATALOG)


def test_one_switch_is_offered_once_unless_it_can_grow_as_a_tree():
    """40 GPUs fit one switch under either name; only the tree grows from it."""
    assert [o.family for o in offered(40, families=("single-switch", "fat-tree"))] == ["single-switch"]
    growing = offered(40, grow_to=400, families=("single-switch", "fat-tree"))
    first = growing[0]
    assert (first.family, first.counts.switches, first.growth.gpus) == ("fat-tree", 1, 400)
    assert "cannot grow" in next(o for o in growing if o.family == "single-switch").reason
