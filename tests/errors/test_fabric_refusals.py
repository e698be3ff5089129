"""What cannot be built is refused with the reason, by how much, and what would work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError, RailwrightError
from railwright.spec.study import Cluster, ComputeNetwork, Fault

CATALOG = load_catalog()


def refusal(servers: int, catalog=CATALOG, server: str = "dgx-h100", faults=(), **network) -> str:
    network = {"switch": "qm9700", **network}
    cluster = Cluster(servers=servers, server=server, compute=ComputeNetwork(**network), faults=tuple(faults))
    with pytest.raises(RailwrightError) as refused:
        fabric.build(cluster, catalog)
    return str(refused.value)


# servers, network asked for, what the refusal says
SIZES = [
    (65, {"family": "single-switch"}, ["520 ports", "456 more than the 64", "at most 8 servers"]),
    (9, {"family": "fat-tree", "tiers": 1}, ["fat-tree: 9 servers", "72 ports", "8 more than the 64"]),
    (4, {"family": "single-switch", "tiers": 2}, ["2 tiers asked for", "fat-tree"]),
    (64, {"family": "rail-optimised", "servers_per_group": 40},
     ["40 servers on a leaf", "8 more than the 32", "at most 32"]),
    (64, {"family": "fat-tree", "tiers": 2, "spare_spines": 1},
     ["spare_spines 1", "32 face servers", "servers_per_group"]),
    (64, {"family": "rail-only", "tiers": 2, "spare_spines": 40}, ["rail-only: spare_spines 40"]),
    (512, {"family": "fat-tree", "tiers": 2}, ["4096 NIC ports", "2048 NIC ports", "320 switches"]),
    (10000, {"family": "rail-optimised"}, ["80000 NIC ports", "at most 65536"]),
    (9000, {"family": "fat-tree", "tiers": 2}, ["72000 NIC ports", "more ports"]),
    (4, {"family": "rail-optimised", "tiers": 1}, ["at least 2 tiers", "rail-only"]),
    (4000, {"family": "rail-only"}, ["4000 servers outgrow", "2048 servers", "3 tiers"]),
    (65, {"family": "rail-only", "tiers": 1}, ["65 ports", "has 64", "'auto'"]),
    (65, {"family": "rail-only", "tiers": 3}, ["at most 2 tiers"]),
    (64, {"family": "rail-optimised", "tiers": 2, "spines": 2},
     ["2 spines", "do not take 16 leaves", "3 tiers"]),
    (2048, {"family": "rail-optimised", "groups_per_pod": 4}, ["groups_per_pod 4", "64 groups"]),
]  # fmt: skip


@pytest.mark.parametrize(("servers", "network", "said"), SIZES, ids=[f"{s[0]}-{s[1]}" for s in SIZES])
def test_sizes_that_do_not_work(servers, network, said):
    text = refusal(servers, **network)
    for part in said:
        assert part in text


def test_more_rails_than_a_spine_reaches():
    # 144 NIC ports are few; 72 rails are what 64-port switches cannot mesh
    text = refusal(2, server="gb300-nvl72", family="rail-optimised", tiers=3)
    for part in (
        "72 leaves, one for each rail",
        "64 ports downwards reaches 32",
        "nics_per_tray",
        "fat-tree",
    ):
        assert part in text
    for build in ({"family": "fat-tree"}, {"family": "rail-optimised", "nics_per_tray": 4}):
        network = ComputeNetwork(switch="qm9700", **build)
        assert fabric.build(Cluster(servers=2, server="gb300-nvl72", compute=network), CATALOG)


def test_an_oversubscription_no_ports_divide():
    text = refusal(64, family="rail-optimised", oversubscription=1.37)
    assert "1.37" in text
    assert "26:19" in text
    assert "37:27" in text


def test_an_oversubscription_beyond_the_switch():
    assert "63" in refusal(64, family="fat-tree", oversubscription=100.0)


def test_core_oversubscription_no_ports_divide():
    text = refusal(512, family="rail-optimised", core_oversubscription=1.37)
    assert "core_oversubscription 1.37" in text
    assert "spine 'qm9700'" in text


@pytest.mark.parametrize("nics", [0, 3, 12])
@pytest.mark.parametrize("family", list(fabric.FAMILIES))
def test_nics_that_gpus_cannot_share(nics, family):
    odd = replace(CATALOG.servers["dgx-h100"], name="odd", nics=nics)
    text = refusal(2, replace(CATALOG, servers={"odd": odd}), "odd", family=family)
    assert f"{nics} NICs for 8 GPUs" in text


def test_an_unknown_part_names_the_nearest():
    assert "qm9700" in refusal(2, family="fat-tree", switch="qm970")
    assert "qm9700" in refusal(2, family="fat-tree", spine_switch="qm9701")


FAULTS = [
    ("lef-03", "did you mean 'leaf-03'"),
    ("switch-3", "names no element of this fabric"),
    ("", "names no element of this fabric"),
    ("leaf-09", "leaf-01 to leaf-08; did you mean 'leaf-08'"),
    ("leaf-00", "did you mean 'leaf-01'"),
    ("core-01", "this fabric has no core"),
    ("server-99", "server-01 to server-04"),
    ("server-02/nic-9", "server-02/nic-0 to server-02/nic-7"),
    ("leaf-03/nic-2", "names no element"),
    ("server-02/nic-", "names no element"),
    ("leaf-03 port 9", "uses 8 ports between 1 and 64; did you mean 'leaf-03 port 4'"),
    ("server-02 port 3", "'server-02/nic-0 port 1'"),
    ("server-02/gpu-1 port 1", "no numbered ports"),
]


@pytest.mark.parametrize(("element", "said"), FAULTS, ids=[f[0] or "empty" for f in FAULTS])
def test_faults_that_make_no_sense(element, said):
    assert said in refusal(4, family="rail-optimised", faults=[Fault(element=element)])


def test_a_slow_element_needs_a_rate():
    fault = Fault(element="leaf-01", state="slow")
    assert "says no rate" in refusal(4, family="rail-optimised", faults=[fault])


def test_a_server_without_a_live_nic_cannot_join():
    text = refusal(4, family="single-switch", faults=[Fault(element="leaf-01")])
    assert "server-01 has no live NIC left, so its 8 GPUs cannot join" in text


@pytest.mark.parametrize(("ports", "module"), [(217, 36), (1296, 36), (10, 1)])
def test_directors_that_cannot_be_built(ports, module):
    with pytest.raises(PlanError, match=f"a director of {ports} ports"):
        fabric.director_spines(ports, module)
