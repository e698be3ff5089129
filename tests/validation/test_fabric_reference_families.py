"""Published fabrics of the later families, rebuilt port by port: the counts must be equal, not close.

A row that was read only in somebody's summary, or is from memory, says so; none rests on such a row alone,
because its counts follow from the sizing rules too.
"""

from __future__ import annotations

import numpy as np
import pytest

from fabric_cases import built
from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Kind, Published, Role, Wanted
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

CATALOG = load_catalog()


def counts(servers: int, server: str, **network):
    return fabric.count(built(servers, server, **network), CATALOG)


# docs.nvidia.com/dgx-superpod/reference-architecture/scalable-infrastructure-b300-xdr, architecture chapter,
# table 3 (read 2026-11-20): SU, nodes, leaves, spines, node-leaf and leaf-spine cables.  The regular mesh
# makes 288 nodes take 18 spines where 16 would have the ports: 72 uplinks do not divide over 16.
DGX_SUPERPOD_B300_XDR = [
    (1, 72, 8, 4, 576, 576),
    (2, 144, 16, 8, 1152, 1152),
    (4, 288, 32, 18, 2304, 2304),
    (8, 576, 64, 36, 4608, 4608),
    (18, 1296, 144, 72, 10368, 10368),
]


@pytest.mark.parametrize("row", DGX_SUPERPOD_B300_XDR, ids=lambda r: f"{r[0]} SU")
def test_dgx_superpod_b300_xdr(row):
    units, nodes, *published = row
    c = counts(nodes, "dgx-b300", family="rail-optimised", switch="q3400-ra")
    assert nodes == 72 * units
    assert [c.leaves, c.spines, c.node_leaf, c.leaf_spine] == published
    assert (c.cores, c.hops_max) == (0, 3)
    assert c.cages == c.node_leaf / 2 + c.leaf_spine, "twin-port cages, all full: a cage per two ends"


def test_the_gpu_count_of_its_largest_row_does_not_fit_its_cables():
    """The same table gives 9,216 GPUs for 1,296 nodes of 8; its 10,368 cables are right, the GPUs are not."""
    said = Published(leaves=144, spines=72, node_leaf=10368, leaf_spine=10368)
    assert "1152 more than 9216 NIC ports" in (fabric.explain(said, Wanted(9216, 144)) or "")
    assert fabric.explain(said, Wanted(1296 * 8, 144)) is None


@pytest.mark.parametrize("units", [1, 2, 4, 8, 16])
def test_dgx_superpod_gb300(units):
    """NVIDIA's GB300 reference architecture, in a third party's summary (read_third_party): per unit of 8
    racks two leaves for each of 4 rails; 16 units under 72 spines of 144 ports, 128 of them to leaves."""
    f = built(8 * units, "gb300-nvl72", family="rack-rails", switch="q3400-ra")
    c = fabric.count(f, CATALOG)
    assert c.gpus == 576 * units
    assert c.leaves == 8 * units
    assert np.unique(f.rail[f.devices(Kind.LEAF)], return_counts=True)[1].tolist() == [2 * units] * 4
    assert f.rail.max() == 3
    if units == 16:
        assert c.spines == 72
        per_spine = np.bincount(f.b[f.role == Role.LEAF_SPINE])[f.devices(Kind.SPINE)]
        assert per_spine.tolist() == [128] * 72


HPN = {
    "family": "dual-plane",
    "switch": "th5-400g",
    "breakout": 2,
    "servers_per_group": 128,
    "oversubscription": 128 * 200 / (60 * 400),
}


def test_alibaba_hpn_pod():
    """15 segments of 128 hosts, 15,360 GPUs, 16 ToRs a segment, 128 x 200G down each (read_third_party).

    60 x 400G up to 60 aggregation switches per plane is from memory; that 120 ToRs with 60 uplinks take 60
    switches of a plane follows.  Two planes, so a ToR sees one port of each NIC of its rail and segment.
    """
    f = built(15 * 128, "hgx-h100", tiers=2, **HPN)
    c = fabric.count(f, CATALOG)
    assert c.gpus == 15360
    assert c.leaves == 15 * 16
    down = f.role == Role.NODE_LEAF
    assert set(np.bincount(f.b[down])[f.devices(Kind.LEAF)].tolist()) == {128}
    assert (f.rate[down] == 200e9 / 8).all()
    assert (f.rate[f.role == Role.LEAF_SPINE] == 400e9 / 8).all()
    assert c.spines == 2 * 60
    assert c.leaf_spine == 240 * 60
    assert c.hops_max == 3


def test_alibaba_hpn_core():
    """Above two pods: 8 uplinks an aggregation switch, 15:1 (memory); the planes meet in the cores."""
    c = counts(
        2 * 15 * 128, "hgx-h100", tiers=3, groups_per_pod=15, core_oversubscription=15.0, **HPN
    )  # fmt: skip
    assert (c.gpus, c.spines) == (30720, 2 * 120)
    assert c.spine_core == 240 * 8
    assert c.hops_max == 5


def test_meta_clos_is_the_fat_tree_under_another_name():
    """16 GPUs a rack under one ToR, 192 racks, 18 cluster switches, 2 spare (SIGCOMM'24, summarised)."""
    pod = {"switch": "th4-400g", "spine_switch": "arista-7800-576", "tiers": 2, "servers_per_group": 2,
           "spines": 16, "spare_spines": 2}  # fmt: skip
    clos = counts(384, "hgx-h100", family="clos", **pod)
    assert clos == counts(384, "hgx-h100", family="fat-tree", **pod)
    assert (clos.gpus, clos.leaves, clos.spines, clos.leaf_spine) == (3072, 192, 18, 3456)


def echelon(servers: int):
    """Lambda Echelon, one rack: 40-port HDR for compute and for storage, 100 GbE in-band, 1 GbE OOB."""
    return Cluster(
        servers=servers,
        server="dgx-a100",
        compute=ComputeNetwork(family="single-switch", switch="qm8790"),
        storage=ServiceNetwork(family="single-switch", switch="qm8790", ports_per_server=2),
        inband=ServiceNetwork(family="single-switch", switch="sn3700c"),
        oob=ServiceNetwork(family="single-switch", switch="ethernet-1g-48"),
    )


def test_lambda_echelon_single_rack():
    """Whitepaper v1.2 (read): 8 + 2 + 1 + 1 = 12 cables a server; the compute leaf takes five servers."""
    one = fabric.count_networks(fabric.build_networks(echelon(1), CATALOG), CATALOG)
    assert [(name, c.cables) for name, c in one.items()] == [
        ("compute", 8), ("storage", 2), ("inband", 1), ("oob", 1)
    ]  # fmt: skip
    full = fabric.build_networks(echelon(5), CATALOG)
    assert sum(len(rows) for rows in fabric.network_cables(full).values()) == 5 * 12
    rates = {name: {row.rate for row in rows} for name, rows in fabric.network_cables(full).items()}
    assert rates == {"compute": {25e9}, "storage": {25e9}, "inband": {12.5e9}, "oob": {0.125e9}}
    with pytest.raises(PlanError, match=r"48 ports of one switch, 8 more than the 40"):
        fabric.build_networks(echelon(6), CATALOG)


def test_two_tiers_over_2048_ports_of_a_public_sheet():
    """'H100 Freakonomics' (read): 512 nodes on 192 switches in 2 layers; 320 are needed, it is 40 % short."""
    why = fabric.explain(Published(tiers=2, switches=192), Wanted(endpoints=4096, ports=64))
    assert why is not None
    for part in ("at most 2048", "4096 are wanted", "320 switches (128 leaves, 128 spines, 64 cores)",
                 "192 planned are 40% short"):  # fmt: skip
        assert part in why
    why = fabric.explain(Published(tiers=2, switches=768), Wanted(endpoints=16384, ports=64))
    assert "1280 switches (512 leaves, 512 spines, 256 cores)" in (why or "")


def test_imbue_511_nodes():
    """511 nodes, not 512, on the 320 switches and 12,288 cables of 16 units (read_third_party).

    One node's ports are left to the subnet manager's machines: with all 512 the same switches are one short.
    """
    said = Published(tiers=3, switches=320, cables=12288)
    assert fabric.explain(said, Wanted(endpoints=511 * 8, ports=64, reserved=8)) is None
    full = fabric.explain(said, Wanted(endpoints=512 * 8, ports=64, reserved=8)) or ""
    assert "320 switches are 1 (0.3%) short: 4104 NIC and reserved ports take at least 321" in full
    c = counts(511, "dgx-h100", family="rail-optimised", switch="qm9700", reserved_ports=8)
    assert (c.switches, c.cables, c.hops_max) == (320, 12288, 5)
