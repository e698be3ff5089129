"""What holds for every network beside the compute network that can be built."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Kind, Role
from railwright.fabric.networks import service_order
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

CATALOG = load_catalog()
COMPUTE = ComputeNetwork(family="rail-only", switch="qm9700")


@st.composite
def clusters(draw):
    """One storage network of a kind that is sold: 1 to 400 Gb/s, one to four ports a server."""
    network = ServiceNetwork(
        family=draw(st.sampled_from(["single-switch", "fat-tree", "clos", "rail-optimised", "dual-plane"])),
        switch=draw(st.sampled_from(["ethernet-1g-48", "sn3700c", "qm8790", "qm9700", "sn5600"])),
        ports_per_server=draw(st.integers(1, 4)),
        rate=draw(st.sampled_from([None, "1 Gb/s", "10 Gb/s", "25 Gb/s", "100 Gb/s", "200 Gb/s"])),
        hosts=draw(st.integers(0, 8)),
        breakout=draw(st.sampled_from([1, 1, 2, 4])),
        oversubscription=draw(st.sampled_from([1.0, 2.0, 3.0])),
        tiers=draw(st.sampled_from(["auto", "auto", 2])),
    )
    return Cluster(servers=draw(st.integers(1, 60)), server="dgx-h100", compute=COMPUTE, storage=network)


@settings(max_examples=120)
@given(clusters())
def test_a_network_without_gpus_obeys_the_laws_of_fabrics(cluster):
    """Ports once, within the switch and at the slower end's rate; the plan's counts; what up-links carry."""
    try:
        f = fabric.build_networks(cluster, CATALOG)["storage"]
    except PlanError:
        assume(False)
        raise
    asked = service_order(cluster, cluster.storage, CATALOG)
    plan, c = fabric.size(asked), fabric.count(f, CATALOG)
    assert (c.leaves, c.spines, c.cores) == (plan.leaves, plan.spines, plan.cores)
    assert (c.node_leaf, c.leaf_spine, c.spine_core) == (plan.node_leaf, plan.leaf_spine, plan.spine_core)
    assert (c.servers, c.gpus) == (cluster.servers + cluster.storage.hosts, 0)
    assert c.node_leaf == c.servers * cluster.storage.ports_per_server
    rows = fabric.cable_table(f)
    ends = [(r.a, r.port_a) for r in rows] + [(r.b, r.port_b) for r in rows]
    assert len(set(ends)) == 2 * c.cables
    down, up = f.role == Role.NODE_LEAF, f.role == Role.LEAF_SPINE
    assert f.port_b[down].max() <= asked.leaf_endpoints
    share = asked.leaf.rate / cluster.storage.breakout
    assert (f.rate[down] == min(cluster.storage.rate or share, share)).all()
    leaves = f.devices(Kind.LEAF)
    into = np.bincount(f.b[down], f.rate[down], f.num_devices)[leaves]
    out_of = np.bincount(f.a[up], f.rate[up], f.num_devices)[leaves]
    if up.any():
        assert (into <= cluster.storage.oversubscription * out_of * (1 + 1e-9)).all()
    used = np.bincount(f.b[down] * 1000 + (f.port_b[down] - 1) // f.breakout, minlength=1)
    ports = np.bincount(np.flatnonzero(used) // 1000, minlength=f.num_devices)[leaves]
    uplinks = np.bincount(f.a[up], minlength=f.num_devices)[leaves]
    assert (ports + uplinks <= asked.leaf.ports).all()
