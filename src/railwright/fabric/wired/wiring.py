"""From a plan to the graph: every cable from a port to a port, in whole arrays.

Legend: G GPUs, K NIC ports (K = servers x endpoints_per_server), D leaves, S spines, C cables.
On a leaf, ports 1.. face servers and the last ports are uplinks: a bundle of `leaf_spine_links` for spine 1,
the next bundle for spine 2, and so on.  On a spine, ports 1.. face leaves in leaf order and the last ports
are uplinks, bundled by core in the same way.  With breakout cables ports of leaves are numbered in parts
(see `Fabric.breakout`), as SONiC numbers the lanes of a port: NIC ports take one part each, uplinks all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.fabric.graph import Fabric, Floats, Ints, Kind, Role
from railwright.fabric.plan import Order, Plan
from railwright.fabric.wired import devices


@dataclass(frozen=True, eq=False)
class Cables:
    """Cables of one role: device and port of both ends, rate [byte/s] and length [m]."""

    role: Role
    a: Ints
    b: Ints
    port_a: Ints
    port_b: Ints
    rate: float
    length: float


def wire(order: Order, plan: Plan) -> Fabric:
    """The fabric of a plan, healthy."""
    server = order.server
    cables = [make(order, plan) for make in (_scale_up, _pcie, _node_leaf, _leaf_spine, _spine_core)]
    rate = _each(cables, [c.rate for c in cables])
    gpus = np.arange(plan.servers * server.gpus, dtype=np.int32)
    each = max(server.gpus, 1)
    nics = gpus // each * server.nics + devices.nic_of_local_gpu(order)[gpus % each]
    return Fabric(
        name=f"{plan.family}, {plan.servers} x {server.name}",
        family=plan.family,
        kind=devices.kinds(order, plan),
        server=devices.servers(order, plan),
        rail=devices.rails(order, plan),
        group=devices.groups(order, plan),
        a=devices.joined([c.a for c in cables]),
        b=devices.joined([c.b for c in cables]),
        port_a=devices.joined([c.port_a for c in cables]),
        port_b=devices.joined([c.port_b for c in cables]),
        rate=rate,
        length=_each(cables, [c.length for c in cables]),
        role=_each(cables, [c.role for c in cables]).astype(np.int32),
        capacity=np.repeat(rate, 2),
        nic_of_gpu=(devices.first(order, plan, Kind.NIC) + nics).astype(np.int32),
        latency=devices.latencies(order, plan),
        parts=_parts(order, plan),
        generation=order.gpu.generation if server.gpus else "",
        notes=_notes(order, plan),
        reserved_ports=plan.reserved_ports,
        breakout=order.network.breakout,
        scale_up=devices.scale_up_name(order.gpu),
    )


def leaf_ports(plan: Plan) -> tuple[Ints, Ints]:
    """Leaf (from 0) and port (from 1) of every NIC port (K,), server by server."""
    per_server = plan.endpoints_per_server
    index = np.arange(plan.servers * per_server, dtype=np.int32)
    server = index // per_server
    group, place = server // plan.servers_per_group, server % plan.servers_per_group
    if plan.rail_leaves:
        nth = index % per_server
        leaf = group * plan.leaves_per_group + nth % plan.leaves_per_group
        return leaf, place * plan.ports_per_rail + nth // plan.leaves_per_group + 1
    in_group = place * per_server + index % per_server
    leaf = group * plan.leaves_per_group + in_group // plan.ports_per_leaf
    return leaf, in_group % plan.ports_per_leaf + 1


def leaf_planes(plan: Plan) -> tuple[Ints, Ints, Ints]:
    """Pod, plane and place within its plane of every leaf (D,)."""
    leaf = np.arange(plan.leaves, dtype=np.int32)
    group, within = leaf // plan.leaves_per_group, leaf % plan.leaves_per_group
    pod, place = group // plan.groups_per_pod, group % plan.groups_per_pod
    return pod, within % plan.planes, place * (plan.leaves_per_group // plan.planes) + within // plan.planes


def _scale_up(order: Order, plan: Plan) -> Cables:
    gpu = np.arange(plan.servers * order.server.gpus, dtype=np.int32)
    device = devices.first(order, plan, Kind.SCALE_UP) + gpu // max(order.server.gpus, 1)
    rate = order.gpu.scale_up_bandwidth or order.gpu.slot
    return Cables(Role.SCALE_UP, gpu, device, np.zeros_like(gpu), np.zeros_like(gpu), rate, 0.0)


def _pcie(order: Order, plan: Plan) -> Cables:
    """A lane from every GPU to every NIC it shares, NIC by NIC."""
    gpus, nics = order.server.gpus, order.server.nics
    lanes = max(gpus, nics) if gpus else 0
    lane = np.arange(lanes * plan.servers, dtype=np.int32)
    each = max(lanes, 1)
    server, local = lane // each, lane % each
    gpu = server * gpus + local * gpus // each
    nic = devices.first(order, plan, Kind.NIC) + server * nics + local * nics // each
    rate = order.gpu.lane_to(order.nic)
    return Cables(Role.PCIE, gpu, nic, np.zeros_like(gpu), np.zeros_like(gpu), rate, 0.0)


def _node_leaf(order: Order, plan: Plan) -> Cables:
    leaf, port = leaf_ports(plan)
    index = np.arange(len(leaf), dtype=np.int32)
    return Cables(
        Role.NODE_LEAF,
        devices.first(order, plan, Kind.NIC) + index // order.nic.ports,
        devices.first(order, plan, Kind.LEAF) + leaf,
        index % order.nic.ports + 1,
        port,
        order.node_rate,
        order.network.lengths.node_leaf,
    )


def _leaf_spine(order: Order, plan: Plan) -> Cables:
    """Leaf by leaf, spine by spine of its plane."""
    pod, plane, place = leaf_planes(plan)
    links, uplinks = max(plan.leaf_spine_links, 1), plan.leaf_uplinks
    leaf = np.repeat(np.arange(plan.leaves, dtype=np.int32), uplinks)
    up = np.tile(np.arange(uplinks, dtype=np.int32), plan.leaves)
    spine = (pod[leaf] * plan.planes + plane[leaf]) * plan.spines_per_plane + up // links
    return Cables(
        Role.LEAF_SPINE,
        devices.first(order, plan, Kind.LEAF) + leaf,
        devices.first(order, plan, Kind.SPINE) + spine,
        (order.leaf.ports - uplinks + up) * order.network.breakout + 1,
        place[leaf] * links + up % links + 1,
        order.leaf_spine_rate,
        order.network.lengths.leaf_spine,
    )


def _spine_core(order: Order, plan: Plan) -> Cables:
    """Spine by spine, core by core of its set."""
    links, uplinks = max(plan.spine_core_links, 1), plan.spine_uplinks
    spine = np.repeat(np.arange(plan.spines, dtype=np.int32), uplinks)
    up = np.tile(np.arange(uplinks, dtype=np.int32), plan.spines)
    per_plane = max(plan.spines_per_plane, 1)
    core = spine % per_plane * plan.cores_per_set + up // links
    return Cables(
        Role.SPINE_CORE,
        devices.first(order, plan, Kind.SPINE) + spine,
        devices.first(order, plan, Kind.CORE) + core,
        order.spine.ports - uplinks + up + 1,
        spine // per_plane * links + up % links + 1,
        order.spine_core_rate,
        order.network.lengths.spine_core,
    )


def _parts(order: Order, plan: Plan) -> dict[str, str]:
    parts = {"server": order.server.name}
    if order.server.gpus:
        parts |= {"gpu": order.gpu.name, "nic": order.nic.name}
    parts["leaf"] = order.leaf.name
    if plan.spines:
        parts["spine"] = order.spine.name
    if plan.cores:
        parts["core"] = order.core.name
    return parts


def _notes(order: Order, plan: Plan) -> tuple[str, ...]:
    notes: list[str] = []
    if not order.gpu.scale_up_bandwidth and order.server.gpus > 1:
        notes.append(
            f"GPU '{order.gpu.name}' has no scale-up link: GPUs of a server talk through the host at the "
            "NIC's PCIe bandwidth"
        )
    parts = order.network.breakout
    port = f"a port of '{order.leaf.name}'" if parts == 1 else f"1/{parts} of a port of '{order.leaf.name}'"
    if order.nic.rate > order.leaf.rate / parts:
        notes.append(f"NIC '{order.nic.name}' is faster than {port}; its cables run at the port's rate")
    if order.nic.rate < order.leaf.rate / parts:
        notes.append(
            f"NIC '{order.nic.name}' is slower than {port} and takes a whole one; `breakout` splits it"
        )
    if plan.spines:
        down = plan.leaf_ports * order.node_rate
        actual = down / (plan.leaf_uplinks * order.leaf_spine_rate)
        spines = f"each of {plan.spines_per_plane} spines" if plan.spines_per_plane > 1 else "the spine"
        notes.append(
            f"fullest leaf: {plan.leaf_ports} ports down, {plan.leaf_uplinks} up ({plan.leaf_spine_links} to "
            f"{spines}), oversubscription {actual:.3g}"
        )
    return tuple(notes)


def _each(cables: list[Cables], values: list[float]) -> Floats:
    """One value per role, repeated for its cables."""
    return np.repeat(np.array(values, dtype=np.float64), [len(c.a) for c in cables])
