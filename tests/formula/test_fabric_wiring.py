"""Which port of which device goes where, by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fabric_cases import built
from railwright import fabric
from railwright.catalog import load_catalog
from railwright.fabric import Kind, Role
from railwright.fabric.names import device_names
from railwright.spec.study import Cluster, ComputeNetwork

CATALOG = load_catalog()


def with_parts(**parts):
    """The shipped catalogue with some parts added: kind=[part, ...]."""
    return replace(
        CATALOG, **{k: {**getattr(CATALOG, k), **{p.name: p for p in v}} for k, v in parts.items()}
    )


def test_thirty_servers_rail_optimised():
    """30 servers x 8 NICs: a leaf per rail, 30 ports down, 32 up, 8 to each of 4 spines (8 x 32 = 4 x 64)."""
    f = built(30, family="rail-optimised")
    rows = fabric.cable_table(f)
    assert rows[0] == ("server-01/nic-0", 1, "leaf-01", 1, "node-leaf", 50e9, 10.0)
    assert rows[8 * 29 + 5] == ("server-30/nic-5", 1, "leaf-06", 30, "node-leaf", 50e9, 10.0)
    assert rows[240] == ("leaf-01", 33, "spine-01", 1, "leaf-spine", 50e9, 30.0)
    assert rows[240 + 32 * 2 + 8] == ("leaf-03", 41, "spine-02", 17, "leaf-spine", 50e9, 30.0)
    assert rows[-1] == ("leaf-08", 64, "spine-04", 64, "leaf-spine", 50e9, 30.0)
    assert len(rows) == 240 + 256


def test_devices_stand_in_the_documented_order():
    f = built(2, family="rail-optimised")
    inside = [Kind.GPU] * 16 + [Kind.NIC] * 16 + [Kind.SCALE_UP] * 2
    assert f.kind.tolist() == [*inside, *[Kind.LEAF] * 8, Kind.SPINE]
    assert f.rail.tolist() == [*range(8)] * 4 + [-1, -1] + [*range(8)] + [-1]
    assert f.server.tolist() == [0] * 8 + [1] * 8 + [0] * 8 + [1] * 8 + [0, 1] + [-1] * 9
    assert f.nic_of_gpu.tolist() == list(range(16, 32))
    names = [f.device_name(d) for d in (0, 15, 16, 31, 32, 34, 42)]
    assert names == [
        "server-01/gpu-0", "server-02/gpu-7", "server-01/nic-0", "server-02/nic-7",
        "server-01/nvswitch", "leaf-01", "spine-01",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("server", "name"),
    [
        ("dgx-h100", "nvswitch"),
        ("mi300x-8", "xgmi"),
        ("server-8x-l40s", "pcie"),
        ("server-8x-h100-pcie", "pcie"),
    ],
)
def test_what_joins_the_gpus_of_a_server_is_named_after_what_it_is(server, name):
    """An L40S has no NVLink, so its traffic inside a server goes over the host's PCIe, not an NVSwitch."""
    f = built(2, server=server, family="rail-optimised")
    assert f.device_name(int(f.devices(Kind.SCALE_UP)[1])) == f"server-02/{name}"
    assert f.link_name(0) == f"server-01/gpu-0 -> server-01/{name}"
    assert [n for n in device_names(f) if n.endswith(name)] == [f"server-01/{name}", f"server-02/{name}"]


@pytest.mark.parametrize("family", list(fabric.FAMILIES))
def test_cables_run_from_the_lower_device_to_the_upper(family):
    f = built(8, family=family)
    ends = {
        Role.SCALE_UP: (Kind.GPU, Kind.SCALE_UP),
        Role.PCIE: (Kind.GPU, Kind.NIC),
        Role.NODE_LEAF: (Kind.NIC, Kind.LEAF),
        Role.LEAF_SPINE: (Kind.LEAF, Kind.SPINE),
        Role.SPINE_CORE: (Kind.SPINE, Kind.CORE),
    }
    for role, (below, above) in ends.items():
        cables = f.role == role
        assert (f.kind[f.a[cables]] == below).all()
        assert (f.kind[f.b[cables]] == above).all()
    assert device_names(f) == [f.device_name(d) for d in range(f.num_devices)]


def test_three_tiers_join_spine_j_of_every_pod_and_rail_to_core_set_j():
    """16 units: 4 pods x 8 rails x (4 leaves, 4 spines), 4 sets of 16 cores, 2 cables from spine to core."""
    f = built(512, server="dgx-b200", family="rail-optimised")
    spine0, core0 = int(f.devices(Kind.SPINE)[0]), int(f.devices(Kind.CORE)[0])
    up = f.role == Role.SPINE_CORE
    spine, core = f.a[up] - spine0, f.b[up] - core0
    assert (spine % 4 == core // 16).all()
    pairs, cables = np.unique(spine * 64 + core, return_counts=True)
    assert len(pairs) == 128 * 16
    assert (cables == 2).all()
    mesh = f.role == Role.LEAF_SPINE
    leaf_rail, spine_rail = f.rail[f.a[mesh]], f.rail[f.b[mesh]]
    assert (leaf_rail == spine_rail).all()
    assert (f.group[f.a[mesh]] // 4 == f.group[f.b[mesh]]).all()


def test_rail_only_joins_no_two_rails():
    """65 servers outgrow a 64-port switch: three leaves per rail under that rail's own spines."""
    f = built(65, family="rail-only")
    mesh = f.role == Role.LEAF_SPINE
    assert mesh.any()
    assert (f.rail[f.a[mesh]] == f.rail[f.b[mesh]]).all()
    assert fabric.hops_max(f) == 3
    flat = built(64, family="rail-only")
    assert not (flat.role == Role.LEAF_SPINE).any()
    assert fabric.hops_max(flat) == 1
    assert fabric.bisection(flat) == 32 * 8 * 50e9


def test_two_ports_of_a_nic_go_to_two_leaves_of_its_rail():
    dual = replace(CATALOG.nics["cx7-400"], name="dual-200", rate=25e9, ports=2)
    server = replace(CATALOG.servers["dgx-h100"], name="dual", nic="dual-200")
    f = built(4, "dual", with_parts(nics=[dual], servers=[server]), switch="qm8700", family="rail-optimised")
    cables = f.role == Role.NODE_LEAF
    assert np.count_nonzero(cables) == 4 * 16
    assert f.port_a[cables].tolist() == [1, 2] * 32
    assert (f.rail[f.a[cables]] == f.rail[f.b[cables]]).all()
    leaves_of_nic = f.b[cables].reshape(-1, 2)
    assert (leaves_of_nic[:, 0] != leaves_of_nic[:, 1]).all()


@pytest.mark.parametrize(("gpus", "nics"), [(8, 4), (8, 2), (8, 1), (4, 8), (1, 1)])
def test_gpus_share_nics_evenly(gpus, nics):
    server = replace(CATALOG.servers["dgx-h100"], name="odd", gpus=gpus, nics=nics)
    f = built(3, "odd", catalog=with_parts(servers=[server]), family="rail-optimised")
    shared = np.bincount(f.nic_of_gpu - 3 * gpus, minlength=3 * nics)
    assert shared.sum() == 3 * gpus
    assert shared.max() == max(1, gpus // nics)
    lanes = f.role == Role.PCIE
    assert np.count_nonzero(lanes) == 3 * max(gpus, nics)
    assert (f.server[f.a[lanes]] == f.server[f.b[lanes]]).all()
    assert set(zip(range(3 * gpus), f.nic_of_gpu.tolist(), strict=True)) <= set(
        zip(f.a[lanes].tolist(), f.b[lanes].tolist(), strict=True)
    )


@pytest.mark.parametrize("server", ["workstation-4x-l40s", "workstation-2x-l40s"])
def test_gpus_without_scale_up_meet_on_the_host(server):
    # over their own PCIe 4.0 x16, whatever the NIC beside them has: 16 lanes of 3.0, or 8
    f = built(2, server, switch="sn3700c", family="single-switch")
    inside = f.role == Role.SCALE_UP
    assert (f.rate[inside] == 31.5e9).all()
    assert any("no scale-up link" in note for note in f.notes)


def test_a_gpu_reaches_its_nic_through_the_slower_slot():
    """An L40S has PCIe 4.0, the ConnectX-7 beside it 5.0; a B300 and its ConnectX-8 both have 6.0."""
    for server, switch, rate in (("server-8x-l40s", "qm9700", 31.5e9), ("dgx-b300", "q3400-ra", 121e9)):
        f = built(2, server, switch=switch, family="single-switch")
        assert (f.rate[f.role == Role.PCIE] == rate).all()


def test_a_hopper_gpu_behind_a_connectx_8_keeps_its_own_slot(tmp_path):
    """PCIe 5.0: H200 with NICs of 800 Gb/s were predicted to send 96 GB/s through 63."""
    own = tmp_path / "own.yaml"
    own.write_text("servers: {fast: {like: hgx-h200, nic: cx8-800}}\n")
    compute = ComputeNetwork(family="single-switch", switch="sn5600")
    f = fabric.build(Cluster(servers=2, server="fast", compute=compute), load_catalog(own))
    assert (f.rate[f.role == Role.PCIE] == 63e9).all()
    assert (f.rate[f.role == Role.NODE_LEAF] == 100e9).all()


def test_a_cable_runs_at_its_slower_end():
    slow_spine = built(8, family="fat-tree", servers_per_group=4, switch="sn5600", spine_switch="sn5400")
    assert (slow_spine.rate[slow_spine.role == Role.NODE_LEAF] == 50e9).all()
    assert (slow_spine.rate[slow_spine.role == Role.LEAF_SPINE] == 50e9).all()
    fast_leaf = built(16, family="fat-tree", servers_per_group=4, switch="sn5600")
    up = np.count_nonzero(fast_leaf.role == Role.LEAF_SPINE)
    assert up == 64, "4 leaves x 32 NICs at 400 Gb/s need 16 uplinks of 800 Gb/s each"
    assert any("takes a whole one" in note for note in fast_leaf.notes)


def test_optics_are_two_per_cable_that_copper_does_not_reach():
    """30 servers: 240 cables of 2 m in copper, 256 of 30 m in fibre."""
    f = built(30, family="rail-optimised", lengths={"node_leaf": "2 m"})
    c = fabric.count(f, CATALOG)
    assert c.optics == 2 * 256
    assert c.switch_power == 12 * CATALOG.switches["qm9700"].power_max
    assert c.unrated == 0


def test_switches_whose_power_no_source_gives_are_counted_beside_the_sum():
    """30 servers under 8 leaves of 1,800 W and 4 spines of a switch without a figure."""
    f = built(30, family="rail-optimised", switch="th4-400g", spine_switch="sn5400")
    c = fabric.count(f, CATALOG)
    assert c.switch_power == 8 * 1800
    assert c.unrated == 4


@pytest.mark.parametrize("oversubscription", [1.0, 2.0, 3.0])
def test_bisection_is_what_the_uplinks_of_one_half_carry(oversubscription):
    """Fat tree, whole leaves in each half: half of the NICs over the oversubscription."""
    f = built(48, family="fat-tree", oversubscription=oversubscription, servers_per_group=3)
    assert fabric.bisection(f) == pytest.approx(24 * 8 * 50e9 / oversubscription)


@pytest.mark.parametrize("family", ["fat-tree", "rail-optimised"])
def test_one_leaf_needs_no_spine(family):
    """20 servers with one NIC each share one leaf; a second tier would join nothing."""
    host = replace(CATALOG.servers["dgx-h100"], name="host", gpus=1, nics=1)
    f = built(20, "host", catalog=with_parts(servers=[host]), family=family)
    assert len(f.devices(Kind.LEAF)) == 1
    assert not len(f.devices(Kind.SPINE))
    assert fabric.bisection(f) == 10 * 50e9


@pytest.mark.parametrize("family", ["fat-tree", "rail-optimised"])
def test_32768_gpus(family):
    """Twice the largest DGX SuperPOD: P^3/8 = 32,768 ports at P = 64 take 1,024 + 1,024 + 512 switches."""
    c = fabric.count(built(4096, family=family), CATALOG)
    assert (c.gpus, c.leaves, c.spines, c.cores) == (32768, 1024, 1024, 512)
    assert c.cables == 3 * 32768
    assert c.bisection == 16384 * 50e9
