"""What holds for every fabric that can be built."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, maximum_flow

from railwright import fabric
from railwright.catalog import load_catalog
from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind, Role
from railwright.spec.study import Cluster, ComputeNetwork

CATALOG = load_catalog()
QM9700, DGX = CATALOG.switches["qm9700"], CATALOG.servers["dgx-h100"]
RATIOS = [1.0, 1.5, 2.0, 3.0]


@st.composite
def orders(draw, families=tuple(fabric.FAMILIES), ratios=tuple(RATIOS)):
    """A small cluster of small switches, buildable or not."""
    ports = draw(st.sampled_from([8, 12, 16, 20, 32]))
    gpus = draw(st.sampled_from([1, 2, 4, 8]))
    nics = draw(st.sampled_from([n for n in (1, 2, 4, 8) if n <= gpus]))
    nic = replace(CATALOG.nics["cx7-400"], ports=draw(st.sampled_from([1, 1, 2])))
    catalog = replace(
        CATALOG,
        nics={"cx7-400": nic},
        servers={"s": replace(DGX, name="s", gpus=gpus, nics=nics)},
        switches={"sw": replace(QM9700, name="sw", ports=ports)},
    )
    network = ComputeNetwork(
        family=draw(st.sampled_from(families)),
        switch="sw",
        tiers=draw(st.sampled_from(["auto", "auto", 2, 3])),
        oversubscription=draw(st.sampled_from(ratios)),
        core_oversubscription=draw(st.sampled_from([1.0, 1.0, 2.0])),
        spare_spines=draw(st.sampled_from([0, 0, 1, 2])),
        servers_per_group=draw(st.sampled_from([None, None, 1, 2, 3])),
        breakout=draw(st.sampled_from([1, 1, 2, 4])),
        nic_ports=draw(st.sampled_from([None, None, 2, 3])),
        nics_per_tray=draw(st.sampled_from([None, *(n for n in (1, 2, 4) if nics % n == 0)])),
    )
    return Cluster(servers=draw(st.integers(1, 40)), server="s", compute=network), catalog


def built(order) -> Fabric:
    cluster, catalog = order
    try:
        return fabric.build(cluster, catalog)
    except PlanError:
        assume(False)
        raise


@settings(max_examples=150)
@given(orders())
def test_ports(order):
    """No port is used twice, none lies beyond the switch, and every NIC port has its cable.

    Where leaf ports are broken out: a server cable takes one part of a port, an uplink all parts of it.
    """
    f = built(order)
    ports = order[1].switches["sw"].ports
    parts = f.breakout
    cabled = f.role >= Role.NODE_LEAF
    ends = np.concatenate([f.a[cabled], f.b[cabled]]), np.concatenate([f.port_a[cabled], f.port_b[cabled]])
    used = ends[0].astype(np.int64) * 10_000 + ends[1]
    assert len(np.unique(used)) == len(used)
    on_switch = f.kind[ends[0]] >= Kind.LEAF
    assert ends[1].min() >= 1
    assert ends[1][f.kind[ends[0]] > Kind.LEAF].max(initial=0) <= ports
    assert ends[1][on_switch].max() <= ports * parts
    down, up = f.role == Role.NODE_LEAF, f.role == Role.LEAF_SPINE
    assert ((f.port_a[up] - 1) % parts == 0).all(), "an uplink begins at the first part of its port"
    whole = f.a[up].astype(np.int64) * 10_000 + (f.port_a[up] - 1) // parts
    split = f.b[down].astype(np.int64) * 10_000 + (f.port_b[down] - 1) // parts
    assert not np.isin(split, whole).any()
    per_leaf = np.bincount(np.unique(np.concatenate([whole, split])) // 10_000)
    assert per_leaf.max() <= ports
    asked = fabric.order(*order)
    assert np.count_nonzero(down) == asked.endpoints
    assert (f.rate[down] <= asked.leaf.rate / parts).all()


@settings(max_examples=80)
@given(orders(families=("dual-plane",)))
def test_planes_meet_in_the_cores_at_the_earliest(order):
    """Port p of every NIC is on leaves of plane p alone, and no leaf or spine is on two planes."""
    f = built(order)
    planes = fabric.order(*order).nic.ports
    down, mesh = f.role == Role.NODE_LEAF, f.role == Role.LEAF_SPINE
    plane = np.full(f.num_devices, -1)
    plane[f.b[down]] = f.port_a[down] - 1
    assert (plane[f.b[down]] == f.port_a[down] - 1).all()
    plane[f.b[mesh]] = plane[f.a[mesh]]
    assert (plane[f.b[mesh]] == plane[f.a[mesh]]).all()
    assert len(np.unique(plane[f.devices(Kind.LEAF)])) == planes


@settings(max_examples=80)
@given(orders(families=("rack-rails", "rail-optimised", "rail-only")))
def test_a_leaf_serves_one_rail_whose_nics_stand_at_one_place_of_their_trays(order):
    f = built(order)
    asked = fabric.order(*order)
    down = f.role == Role.NODE_LEAF
    nic, leaf = f.a[down], f.b[down]
    place = (nic - f.devices(Kind.NIC)[0]) % asked.server.nics % asked.rails
    assert (f.rail[nic] == place).all()
    assert (f.rail[leaf] == place).all()
    assert (f.rail[f.nic_of_gpu] == f.rail[: f.num_gpus]).all()


@settings(max_examples=100)
@given(orders())
def test_the_plan_and_the_graph_agree(order):
    f = built(order)
    cluster, catalog = order
    plan = fabric.size(fabric.order(cluster, catalog))
    c = fabric.count(f, catalog)
    assert (plan.leaves, plan.spines, plan.cores) == (c.leaves, c.spines, c.cores)
    assert (plan.node_leaf, plan.leaf_spine, plan.spine_core) == (c.node_leaf, c.leaf_spine, c.spine_core)
    assert plan.switches == c.switches
    assert c.hops_max <= 2 * plan.tiers - 1
    fullest = np.bincount(f.b[f.role == Role.NODE_LEAF]).max()
    assert fullest == plan.leaf_ports


@settings(max_examples=100)
@given(orders())
def test_every_two_servers_are_joined(order):
    """By the switches alone; in a rail-only fabric rail by rail."""
    f = built(order)
    wires = f.role >= Role.NODE_LEAF
    a, b = f.a[wires], f.b[wires]
    size = f.num_devices
    _, part = connected_components(coo_array((np.ones(len(a)), (a, b)), shape=(size, size)))
    nics = f.devices(Kind.NIC)
    if f.family != "rail-only":
        assert len(np.unique(part[nics])) == 1
        return
    for rail in np.unique(f.rail[nics]):
        parts = len(np.unique(part[nics[f.rail[nics] == rail]]))
        assert parts == 1


@settings(max_examples=100)
@given(orders())
def test_the_mesh_is_regular(order):
    """Where two switches are joined at all, every such pair of the tier has as many cables."""
    f = built(order)
    for role in (Role.LEAF_SPINE, Role.SPINE_CORE):
        cables = f.role == role
        _, per_pair = np.unique(
            f.a[cables].astype(np.int64) * f.num_devices + f.b[cables], return_counts=True
        )
        assert len(np.unique(per_pair)) <= 1
        _, per_switch = np.unique(f.a[cables], return_counts=True)
        assert len(np.unique(per_switch)) <= 1, "every switch of a tier has as many uplinks"


@settings(max_examples=80)
@given(orders(ratios=(1.0,)), st.sampled_from(RATIOS[1:]))
def test_the_oversubscription_asked_for_is_kept(order, ratio):
    cluster, catalog = order
    cluster = cluster.model_copy(
        update={"compute": cluster.compute.model_copy(update={"oversubscription": ratio})}
    )
    f = built((cluster, catalog))
    up = np.bincount(f.a[f.role == Role.LEAF_SPINE], minlength=f.num_devices)
    down = np.bincount(f.b[f.role == Role.NODE_LEAF], minlength=f.num_devices)
    assume(up.any())
    leaves = f.devices(Kind.LEAF)
    asked = fabric.order(cluster, catalog)
    into, out_of = down[leaves] * asked.node_rate, up[leaves] * asked.leaf_spine_rate
    assert (into <= ratio * out_of * (1 + 1e-9)).all()


@settings(max_examples=80)
@given(orders(ratios=(1.0,)), st.sampled_from(RATIOS[1:]))
def test_more_oversubscription_never_takes_more_cables(order, ratio):
    """With the same groups of servers under the leaves, and no spares.

    (A spare takes a bundle of every leaf: fewer spines with thicker bundles save switches but not cables.)
    """
    cluster, catalog = order
    assume(cluster.compute.spare_spines == 0)
    tight = fabric_plan(cluster, catalog)
    assume(tight is not None)
    same_groups = {
        "servers_per_group": tight.servers_per_group,
        "oversubscription": ratio,
        "tiers": tight.tiers,
    }
    loose = fabric_plan(
        cluster.model_copy(update={"compute": cluster.compute.model_copy(update=same_groups)}), catalog
    )
    assume(loose is not None)
    assume(loose.leaves_per_group == tight.leaves_per_group)
    assert loose.cables <= tight.cables


def fabric_plan(cluster, catalog):
    try:
        return fabric.size(fabric.order(cluster, catalog))
    except PlanError:
        return None


@settings(max_examples=30)
@given(orders())
def test_the_same_order_gives_the_same_bytes(order):
    f, g = built(order), built(order)
    for field in fields(f):
        left, right = getattr(f, field.name), getattr(g, field.name)
        same = left.tobytes() == right.tobytes() if isinstance(left, np.ndarray) else left == right
        assert same, field.name


@settings(max_examples=60)
@given(orders(), st.randoms(use_true_random=False))
def test_bisection_is_the_maximum_flow_of_the_unmerged_network(order, random):
    """Against the plain definition, on fabrics with some cables dead or slowed at random."""
    f = built(order)
    capacity = f.capacity.copy()
    for cable in np.flatnonzero(f.role >= Role.LEAF_SPINE):
        if random.random() < 0.2:
            capacity[2 * cable : 2 * cable + 2] *= random.choice([0.0, 0.5])
    f = replace(f, capacity=capacity)
    half = f.num_servers // 2
    source, sink = f.num_devices, f.num_devices + 1
    node = np.arange(f.num_devices)
    inside = f.server >= 0
    node[inside] = np.where(f.server[inside] < half, source, sink)
    cables = np.flatnonzero(f.role >= Role.NODE_LEAF)
    tail = np.concatenate([node[f.a[cables]], node[f.b[cables]]])
    head = np.concatenate([node[f.b[cables]], node[f.a[cables]]])
    # 50e9 byte/s over 1 to 3 ports of a NIC and 1, 2 or 4 parts of a leaf port, halved at random.
    unit = 50e9 / 24
    units = np.rint(np.concatenate([capacity[2 * cables], capacity[2 * cables + 1]]) / unit).astype(np.int32)
    plain = maximum_flow(coo_array((units, (tail, head)), shape=(sink + 1, sink + 1)).tocsr(), source, sink)
    assert fabric.bisection(f) == pytest.approx(plain.flow_value * unit)
