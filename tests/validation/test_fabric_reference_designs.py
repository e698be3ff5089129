"""Published fabrics, rebuilt port by port: the counts must be equal, not close.

Each table carries its source.  A row marked `memory` was not read in the source itself (none of the tests
here rest on such a row alone: its counts also follow from the sizing rules).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from fabric_cases import built
from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Counts
from railwright.spec.study import Fault

CATALOG = load_catalog()

# docs.nvidia.com/dgx-superpod/reference-architecture-scalable-infrastructure-b200, architecture chapter,
# table of SU, nodes, GPUs, leaves, spines, cores, and node-leaf, leaf-spine and spine-core cables (read).
DGX_SUPERPOD_B200 = [
    (2, 64, 512, 16, 8, 0, 512, 512, 0),
    (4, 128, 1024, 32, 16, 0, 1024, 1024, 0),
    (8, 256, 2048, 64, 32, 0, 2048, 2048, 0),
    (16, 512, 4096, 128, 128, 64, 4096, 4096, 4096),
    (32, 1024, 8192, 256, 256, 128, 8192, 8192, 8192),
    (64, 2048, 16384, 512, 512, 256, 16384, 16384, 16384),
]

# RA-11333-001 table 3 (memory; 4 SU = 127 nodes also in a third-party copy): SU, nodes, GPUs, leaves, spines,
# node-leaf cables with the 4 to the subnet-manager (UFM) servers, leaf-spine cables.
DGX_SUPERPOD_H100 = [
    (1, 31, 248, 8, 4, 252, 256),
    (2, 63, 504, 16, 8, 508, 512),
    (3, 95, 760, 24, 16, 764, 768),
    (4, 127, 1016, 32, 16, 1020, 1024),
]


def counts(servers: int, server: str, **network) -> Counts:
    return fabric.count(built(servers, server, **network), CATALOG)


@pytest.mark.parametrize("row", DGX_SUPERPOD_B200, ids=lambda r: f"{r[0]} SU")
def test_dgx_superpod_b200(row):
    units, nodes, *published = row
    c = counts(nodes, "dgx-b200", family="rail-optimised", switch="qm9700")
    assert [c.gpus, c.leaves, c.spines, c.cores, c.node_leaf, c.leaf_spine, c.spine_core] == published
    assert nodes == 32 * units
    assert c.hops_max == (5 if c.cores else 3)
    assert c.bisection == nodes // 2 * 8 * 50e9, "non-blocking: half of the NICs at 400 Gb/s"


@pytest.mark.parametrize("row", DGX_SUPERPOD_H100, ids=lambda r: f"{r[0]} SU, {r[1]} nodes")
def test_dgx_superpod_h100(row):
    """One server less than 32 per unit leaves leaf ports to the four UFM links: 8 x nodes + 4 cables."""
    units, nodes, *published = row
    c = counts(nodes, "dgx-h100", family="rail-optimised", switch="qm9700", reserved_ports=4)
    assert [c.gpus, c.leaves, c.spines, c.node_leaf, c.leaf_spine] == published
    assert c.cores == 0
    assert nodes == 32 * units - 1
    assert c.node_leaf == 8 * nodes + 4


def test_a_full_superpod_has_no_port_for_the_subnet_manager():
    with pytest.raises(PlanError, match=r"reserved_ports asks for 4 .* only 0 of 1024 .* leave out 1 server"):
        counts(128, "dgx-h100", family="rail-optimised", switch="qm9700", reserved_ports=4)


def test_lambda_echelon_four_leaves_two_spines():
    """Lambda's playbook slide (read): 40-port HDR, 20 links down a leaf, 10 to each of two spines."""
    f = built(10, "dgx-a100", family="fat-tree", switch="qm8790", servers_per_group=10)
    c = fabric.count(f, CATALOG)
    assert (c.leaves, c.spines, c.cores) == (4, 2, 0)
    assert (c.node_leaf, c.leaf_spine) == (80, 80)
    assert c.bisection == 40 * 25e9
    leaf_one = [row for row in fabric.cable_table(f) if row.a == "leaf-01"]
    assert [row.port_a for row in leaf_one] == list(range(21, 41))
    assert [row.b for row in leaf_one] == ["spine-01"] * 10 + ["spine-02"] * 10


def test_edr_fabric_of_four_leaves_and_two_spines():
    """A real ibnetdiscover file of 2023-12-18 (read): 36 ports, 24 down, 12 up, 96 hosts, 144 links."""
    one_nic = replace(CATALOG.servers["dgx-1-v100"], name="host", gpus=1, nics=1)
    catalog = replace(CATALOG, servers={**CATALOG.servers, "host": one_nic})
    f = built(96, "host", catalog, family="fat-tree", switch="sb7800", oversubscription=2.0)
    c = fabric.count(f, catalog)
    assert (c.leaves, c.spines, c.node_leaf, c.leaf_spine) == (4, 2, 96, 48)
    assert c.bisection == pytest.approx(24 * 12.5e9), "2:1: half of the 48 NICs of one half"


def test_cs7520_is_non_blocking_with_six_spine_modules():
    """Mellanox CS7520 (read): 216 southbound ports, spine modules of 36 ports, 216 northbound: six."""
    assert fabric.director_spines(216, 36) == 6 == CATALOG.switches["cs7520"].director_spines
    assert CATALOG.switches["cs7520"].ports == 216


META_32K = {
    "family": "fat-tree",
    "switch": "th4-400g",
    "tiers": 3,
    "servers_per_group": 2,
    "spine_switch": "arista-7800-576",
    "spines": 16,
    "spare_spines": 2,
    "groups_per_pod": 256,
}


def test_meta_32k_racks_and_cluster_switches():
    """32,768 GPUs, racks of 16 (two servers): 2,048 ToRs and 18 cluster switches per layer (read)."""
    f = built(4096, "hgx-h100", **META_32K)
    c = fabric.count(f, CATALOG)
    assert c.gpus == 32768
    assert c.leaves == 2048
    assert c.spines == 8 * 18
    assert c.leaf_spine == 2048 * 18


def test_meta_pod_of_the_24k_cluster_survives_two_of_18_cluster_switches():
    """3,072 GPUs per pod: 192 ToRs with 18 uplinks, 3,456 links; 18 = 16 x 1.125 (SIGCOMM'24, summarised).

    Two cluster switches lost: each ToR keeps 16 uplinks for its 16 GPUs.  A third one costs a sixteenth.
    """
    pod = {k: v for k, v in META_32K.items() if k != "groups_per_pod"} | {"tiers": 2}
    full = 192 * 8 * 50e9

    def left(lost: int) -> float:
        faults = tuple(Fault(element=f"spine-{i:02d}") for i in (3, 11, 18)[:lost])
        return fabric.bisection(built(384, "hgx-h100", faults=faults, **pod))

    c = counts(384, "hgx-h100", **pod)
    assert (c.gpus, c.leaves, c.spines, c.leaf_spine) == (3072, 192, 18, 3456)
    assert [left(n) for n in (0, 1, 2)] == [full] * 3
    assert left(3) == full * 15 / 16


def test_two_tiers_cannot_join_4096_gpus_at_64_ports():
    """A public sheet plans 512 nodes on 192 switches in two tiers; it takes 320 in three (read)."""
    with pytest.raises(PlanError) as refusal:
        counts(512, "dgx-h100", family="rail-optimised", switch="qm9700", tiers=2)
    text = str(refusal.value)
    assert "cannot join 4096 NIC ports" in text
    assert "2048 NIC ports" in text
    assert "128 leaves, 128 spines and 64 cores (320 switches)" in text
    c = counts(512, "dgx-h100", family="rail-optimised", switch="qm9700", tiers=3)
    assert c.switches == 320
    assert c.cables == 12288
