"""The networks beside the compute network, break-out ports, cages and directors, by hand."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from fabric_cases import built
from railwright import fabric
from railwright.catalog import load_catalog
from railwright.fabric import Kind, Role
from railwright.fabric.names import device_names
from railwright.spec.study import Cluster, ComputeNetwork, Fault, ServiceNetwork

CATALOG = load_catalog()
COMPUTE = ComputeNetwork(family="rail-optimised", switch="qm9700")


def four(**networks):
    cluster = Cluster(servers=30, server="dgx-h100", compute=COMPUTE, **networks)
    return fabric.build_networks(cluster, CATALOG)


def test_four_networks_of_thirty_servers():
    """Storage: (30 + 6) x 2 ports of 200G on halves of 400G ports; in-band: 2 x 25G; out of band: 1 x 1G."""
    networks = four(
        storage=ServiceNetwork(
            family="rail-optimised", switch="qm9700", ports_per_server=2, breakout=2, hosts=6,
            oversubscription=2.0,
        ),
        inband=ServiceNetwork(
            family="dual-plane", switch="sn4600c", ports_per_server=2, rate="25 Gb/s", breakout=4,
            oversubscription=4.0,
        ),
        oob=ServiceNetwork(family="fat-tree", switch="ethernet-1g-48", oversubscription=4.0),
    )  # fmt: skip
    c = fabric.count_networks(networks, CATALOG)
    assert list(c) == ["compute", "storage", "inband", "oob"]
    assert c["compute"] == fabric.count(
        fabric.build(Cluster(servers=30, server="dgx-h100", compute=COMPUTE), CATALOG), CATALOG
    )
    # 36 hosts x 200G on each of 2 leaves: 18 whole ports; half of 7.2 Tb/s goes up: 9 ports of 400G, 9 each
    # from two leaves to one spine of 64.
    assert (c["storage"].servers, c["storage"].gpus) == (36, 0)
    assert (c["storage"].leaves, c["storage"].spines, c["storage"].node_leaf) == (2, 1, 72)
    assert c["storage"].leaf_spine == 18
    # 30 x 25G on each leaf: 8 ports of 100G; a quarter of 750 Gb/s goes up: 2 ports, to its plane's spine.
    assert (c["inband"].leaves, c["inband"].spines, c["inband"].leaf_spine) == (2, 2, 4)
    # 30 ports of 48: one switch.
    assert (c["oob"].leaves, c["oob"].spines, c["oob"].cables) == (1, 0, 30)
    for name, rows in fabric.network_cables(networks).items():
        assert len(rows) == c[name].cables
        assert len({(r.a, r.port_a) for r in rows} | {(r.b, r.port_b) for r in rows}) == 2 * len(rows)
    storage = fabric.network_cables(networks)["storage"]
    assert storage[0][:6] == ("server-01/nic-0", 1, "leaf-01", 1, "node-leaf", 25e9)
    assert storage[71][:4] == ("server-36/nic-0", 2, "leaf-02", 36)


def test_a_network_without_gpus_is_a_fabric_like_any_other():
    f = four(storage=ServiceNetwork(family="fat-tree", switch="qm8790", ports_per_server=2))["storage"]
    assert f.name == "storage: fat-tree, 30 x dgx-h100"
    assert (f.num_gpus, f.num_servers, f.gpus_per_server) == (0, 30, 0)
    assert len(f.devices(Kind.SCALE_UP)) == 0
    assert set(f.role.tolist()) == {Role.NODE_LEAF, Role.LEAF_SPINE}
    assert device_names(f) == [f.device_name(d) for d in range(f.num_devices)]
    assert fabric.hops_max(f) == 3
    assert fabric.bisection(f) == 15 * 2 * 25e9
    broken = fabric.apply_faults(f, (Fault(element="leaf-01"), Fault(element="server-30/nic-0 port 2")))
    assert np.count_nonzero(broken.capacity == 0) > 2


def test_no_network_but_compute_unless_asked_for():
    assert list(four()) == ["compute"]


@pytest.mark.parametrize("family", ["single-switch", "rail-only", "rail-optimised", "dual-plane"])
def test_broken_out_ports_are_numbered_in_parts(family):
    """4 servers x 8 NICs at 100G on quarters of 400G ports."""
    f = built(4, family=family, switch="qm9700", breakout=4)
    down, up = f.role == Role.NODE_LEAF, f.role == Role.LEAF_SPINE
    assert f.breakout == 4
    share = 2 if family == "dual-plane" else 1
    assert (f.rate[down] == 12.5e9).all(), "the leaf's part is the slower end: 100 Gb/s"
    first = f.b[down] == f.devices(Kind.LEAF)[0]
    ports = 32 if family == "single-switch" else 4
    assert f.port_b[down][first].tolist() == list(range(1, ports + 1))
    if up.any():
        # 4 x 100G take one port down and one up: the last one, 64, whose first part is 63 x 4 + 1 = 253.
        assert set(f.port_a[up].tolist()) == {253}
    assert np.count_nonzero(down) == 32 * share


def test_cages_hold_two_ports_of_a_twin_port_switch():
    """QM9700: 30 ports down take 15 cages of a leaf, 32 up take 16; a spine's 64 ports take 32."""
    c = fabric.count(built(30, family="rail-optimised", switch="qm9700"), CATALOG)
    assert c.cages == 8 * (15 + 16) + 4 * 32
    # SN5600: one 800G port per cage.  Below, two 400G cables share it; above, a cable has both ends' cages.
    f = built(30, family="rail-optimised", switch="sn5600", breakout=2)
    used = fabric.count(f, CATALOG)
    down, up = f.role == Role.NODE_LEAF, f.role == Role.LEAF_SPINE
    assert used.cages == np.count_nonzero(down) // 2 + 2 * np.count_nonzero(up)


def test_a_director_drawn_as_its_modules_is_still_counted_as_one():
    """CS7520, 216 ports: 12 leaf modules of 18 ports out and 18 in, 6 spine modules, 3 links between each."""
    unit = built(54, "dgx-1-v100", family="single-switch", switch="cs7520")
    drawn = built(54, "dgx-1-v100", family="single-switch", switch="cs7520", expand_directors=True)
    assert [len(drawn.devices(k)) for k in (Kind.LEAF, Kind.SPINE)] == [12, 6]
    inside = drawn.role == Role.LEAF_SPINE
    assert np.count_nonzero(inside) == 216
    pairs, links = np.unique(np.stack([drawn.a[inside], drawn.b[inside]]), axis=1, return_counts=True)
    assert (pairs.shape[1], set(links.tolist())) == (12 * 6, {3})
    ends = np.concatenate([drawn.a * 1000 + drawn.port_a, drawn.b * 1000 + drawn.port_b])[
        np.tile(drawn.role >= Role.NODE_LEAF, 2)
    ]
    assert len(np.unique(ends)) == len(ends)
    assert drawn.port_b[inside].max() == 36
    assert drawn.port_a[inside].min() == 19
    one, modules = fabric.count(unit, CATALOG), fabric.count(drawn, CATALOG)
    for field in fields(one):
        if field.name != "hops_max":
            assert getattr(one, field.name) == getattr(modules, field.name), field.name
    assert (one.hops_max, modules.hops_max) == (1, 3)
    assert len(fabric.cable_table(drawn)) == len(fabric.cable_table(unit)) == 216
    way = 3 * drawn.latency[drawn.devices(Kind.LEAF)[0]]
    assert way == pytest.approx(unit.latency[unit.devices(Kind.LEAF)[0]])


def test_directors_as_spines_become_spine_and_core_modules():
    f = built(
        81, "dgx-1-v100", family="fat-tree", switch="sb7800", spine_switch="cs7520", tiers=2,
        expand_directors=True,
    )  # fmt: skip
    unit = built(81, "dgx-1-v100", family="fat-tree", switch="sb7800", spine_switch="cs7520", tiers=2)
    one, modules = fabric.count(unit, CATALOG), fabric.count(f, CATALOG)
    assert f.directors == one.spines == modules.spines
    assert len(f.devices(Kind.SPINE)) == 12 * one.spines
    assert len(f.devices(Kind.CORE)) == 6 * one.spines
    assert (one.cables, one.bisection) == (modules.cables, modules.bisection)
    core = f.role == Role.SPINE_CORE
    chassis = (f.a[core] - f.devices(Kind.SPINE)[0]) // 12
    assert (chassis == (f.b[core] - f.devices(Kind.CORE)[0]) // 6).all(), "backplanes join one chassis each"
