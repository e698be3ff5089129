"""A design that cannot work is explained: which count, by how much, and what would do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Published, Wanted
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

CATALOG = load_catalog()
WANTED = Wanted(endpoints=2048, ports=64)
SOUND = Published(
    tiers=2, switches=96, leaves=64, spines=32, cores=0, cables=4096, node_leaf=2048, leaf_spine=2048,
    spine_core=0,
)  # fmt: skip
THREE = Published(
    tiers=3, switches=320, leaves=128, spines=128, cores=64, cables=12288, node_leaf=4096, leaf_spine=4096,
    spine_core=4096,
)  # fmt: skip


def test_sound_designs_need_no_explanation():
    assert fabric.explain(SOUND, WANTED) is None
    assert fabric.explain(THREE, Wanted(4096, 64)) is None
    assert fabric.explain(Published(), WANTED) is None


# what is made wrong in a sound design, what is wanted, what the explanation says
BROKEN = [
    ("one tier", Published(tiers=1), Wanted(65, 64), ["1 tier", "at most 64", "1 too many"]),
    ("no three tiers", Published(tiers=2), Wanted(70000, 64), ["no three tiers", "more ports"]),
    ("switches", Published(switches=90), WANTED, ["90 switches are 6 (6%) short", "at least 96"]),
    ("cables", Published(tiers=2, cables=4000), WANTED, ["4000 cables are 96 short", "at least 4096"]),
    ("sum of switches", replace(SOUND, switches=100), WANTED, ["up to 96 switches, 4 fewer than the 100"]),
    ("sum of cables", replace(SOUND, cables=4095), WANTED, ["add up to 4096 cables, 1 more than the 4095"]),
    ("leaves", replace(SOUND, leaves=60, switches=92, leaf_spine=2040), WANTED,
     ["60 leaves have 3840 ports, 256 fewer than the 2048 downwards and 2048 upwards", "64 leaves would do"]),
    ("reserved ports", SOUND, replace(WANTED, reserved=4),
     ["4 fewer than the 2052 downwards", "2048 cables below the leaves are 4 fewer", "2052 would do"]),
    ("ports without a cable", replace(SOUND, node_leaf=2000, cables=4048), WANTED,
     ["2000 cables below the leaves are 48 fewer", "48 ports would stay without a cable"]),
    ("cables to nothing", replace(SOUND, node_leaf=2112, cables=4160, leaves=66, switches=98), WANTED,
     ["2112 cables below the leaves are 64 more", "lead to nothing"]),
    ("oversubscription", replace(SOUND, leaf_spine=1024, cables=3072), WANTED,
     ["1024 leaf-spine cables are 1024 short of the 2048", "they make it 2:1"]),
    ("uneven leaves", replace(SOUND, leaf_spine=2050, cables=4098, spines=33, switches=97), WANTED,
     ["2050 leaf-spine cables do not divide over 64 leaves", "2048 or 2112 would"]),
    ("uneven spines", replace(SOUND, spines=33, switches=97), WANTED,
     ["32 uplinks of a leaf do not divide over 33 spines", "33 uplinks would"]),
    ("spine ports", replace(SOUND, spines=16, switches=80), WANTED,
     ["16 spines have 1024 ports, 1024 fewer than the 2048 cables from the leaves", "32 spines would do"]),
    ("spine ports up and down", replace(THREE, spines=64, switches=256), Wanted(4096, 64),
     ["64 spines have 4096 ports, 4096 fewer than the 4096 cables from the leaves and 4096 to the cores",
      "128 spines would do"]),
    ("core links", replace(THREE, spine_core=2048, cables=10240), Wanted(4096, 64),
     ["2048 spine-core cables are 2048 short of the 4096", "1:1"]),
    ("core ports", replace(THREE, cores=32, switches=288), Wanted(4096, 64),
     ["32 cores have 2048 ports, 2048 fewer than the 4096", "64 cores would do"]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "published", "wanted", "said"), BROKEN, ids=[b[0] for b in BROKEN])
def test_what_is_wrong_is_said(name, published, wanted, said):
    why = fabric.explain(published, wanted)
    assert why is not None, name
    for part in said:
        assert part in why, why
    assert why.endswith(".")


@settings(max_examples=150)
@given(
    st.sampled_from(["fat-tree", "rail-optimised", "dual-plane", "rail-only"]),
    st.integers(1, 300),
    st.sampled_from([1.0, 2.0, 3.0]),
    st.integers(0, 4),
)
def test_what_can_be_built_is_never_explained_away(family, servers, ratio, reserved):
    """Every fabric that Railwright wires passes, as what it is and with any one of its counts left out."""
    cluster = Cluster(
        servers=servers,
        server="dgx-h100",
        compute=ComputeNetwork(
            family=family, switch="qm9700", oversubscription=ratio, reserved_ports=reserved
        ),
    )
    try:
        asked = fabric.order(cluster, CATALOG)
        plan = fabric.size(asked)
    except PlanError:
        assume(False)
        raise
    # The bounds are for ports of one rate: dual-plane's 200G ports take whole ones here, uplinks are 400G.
    slower = asked.node_rate / asked.leaf_spine_rate
    wanted = Wanted(
        endpoints=asked.endpoints,
        ports=64,
        reserved=reserved,
        oversubscription=ratio / slower,
        planes=plan.planes,
    )
    said = Published(
        plan.tiers, plan.switches, plan.leaves, plan.spines, plan.cores, plan.cables, plan.node_leaf,
        plan.leaf_spine, plan.spine_core,
    )  # fmt: skip
    if plan.tiers == 1:
        wanted = replace(wanted, ports=64 * plan.leaves)  # Rails that nothing joins are a network each.
    assert fabric.explain(said, wanted) is None
    assert fabric.explain(replace(said, leaf_spine=None, node_leaf=None), wanted) is None
    assert fabric.explain(replace(said, tiers=None), wanted) is None


@settings(max_examples=100)
@given(st.integers(1, 70000), st.sampled_from([16, 36, 40, 64, 128]), st.sampled_from([1.0, 2.0]))
def test_the_fewest_switches_have_the_ports_and_one_less_has_not(endpoints, ports, ratio):
    from railwright.fabric.designs.explaining import fewest, reach

    wanted = Wanted(endpoints, ports, oversubscription=ratio)
    tiers = next((t for t in (1, 2, 3) if endpoints <= reach(wanted, t)), None)
    assume(tiers is not None)
    need = sum(fewest(wanted, tiers))
    assert fabric.explain(Published(tiers=tiers, switches=need), wanted) is None
    if need > 1:
        assert "short" in (fabric.explain(Published(tiers=tiers, switches=need - 1), wanted) or "")


# servers, server, network asked for, what the refusal says
REFUSED = [
    (8, "dgx-h100", {"family": "dual-plane", "nic_ports": 1}, ["has 1 port", "nic_ports to 2"]),
    (8, "dgx-h100", {"family": "dual-plane", "tiers": 1}, ["at least 2 tiers", "rail-only"]),
    (8, "gb200-nvl72", {"family": "rack-rails", "tiers": 1}, ["at least 2 tiers"]),
    (8, "gb200-nvl72", {"family": "rack-rails", "servers_per_group": 2},
     ["2 servers puts 36 NIC ports on a leaf", "4 more than the 32", "at most 1"]),
    (8, "dgx-h100", {"family": "rack-rails", "nics_per_tray": 3}, ["nics_per_tray 3", "8 NICs"]),
    (2, "gb200-nvl72", {"family": "rack-rails", "nics_per_tray": 1},
     ["72 NIC ports on a leaf", "take a switch with more ports"]),
    (9, "dgx-h100", {"family": "single-switch"},
     ["72 ports of one switch, 8 more than the 64", "at most 8 servers fit"]),
    (1, "gb200-nvl72", {"family": "single-switch"}, ["1 server x 72 NIC ports", "not one server fits"]),
    (8, "dgx-h100", {"family": "single-switch", "expand_directors": True}, ["'qm9700' is no director"]),
    (512, "dgx-h100", {"family": "fat-tree", "expand_directors": True}, ["cores of three tiers"]),
    (8, "dgx-h100", {"family": "single-switch", "switch": "arista-7800-576", "expand_directors": True},
     ["pass cells"]),
    (8, "dgx-1-v100", {"family": "single-switch", "switch": "cs7520", "breakout": 2,
      "expand_directors": True}, ["not broken out"]),
    (512, "dgx-h100", {"family": "rail-optimised", "cores": 3}, ["cores 3", "do not mesh evenly"]),
]  # fmt: skip


@pytest.mark.parametrize(("servers", "server", "network", "said"), REFUSED, ids=lambda x: str(x)[:40])
def test_new_families_that_do_not_work(servers, server, network, said):
    asked = ComputeNetwork(**{"switch": "qm9700", **network})
    with pytest.raises(PlanError) as refusal:
        fabric.build(Cluster(servers=servers, server=server, compute=asked), CATALOG)
    for part in said:
        assert part in str(refusal.value)


def test_a_network_beside_compute_that_does_not_work_says_which():
    cluster = Cluster(
        servers=30,
        server="dgx-h100",
        compute=ComputeNetwork(family="rail-optimised", switch="qm9700"),
        storage=ServiceNetwork(family="single-switch", switch="qm8790", ports_per_server=2),
    )
    with pytest.raises(PlanError, match=r"storage: single-switch: 30 servers .* need 60 ports"):
        fabric.build_networks(cluster, CATALOG)
