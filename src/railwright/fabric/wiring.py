"""From a plan to the graph: every device numbered, every cable from a port to a port, in whole arrays.

Legend: G GPUs, K NIC ports (K = servers x endpoints_per_server), D leaves, S spines, T cores; C cables.
On a leaf, ports 1.. face servers and the last ports are uplinks: a bundle of `leaf_spine_links` for spine 1,
the next bundle for spine 2, and so on.  On a spine, ports 1.. face leaves in leaf order and the last ports
are uplinks, bundled by core in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Floats, Ints, Kind, Role
from railwright.fabric.plan import Order, Plan


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


@dataclass(frozen=True)
class Numbering:
    """First device id of each kind, in the order of `graph.Kind`; then the number of devices."""

    nic: int
    scale_up: int
    leaf: int
    spine: int
    core: int
    end: int


def wire(order: Order, plan: Plan) -> Fabric:
    """The fabric of a plan, healthy.  Raises PlanError when NICs cannot be shared evenly by the GPUs."""
    server = order.server
    _check_sharing(order)
    ids = _number(order, plan)
    lengths = order.network.lengths
    leaf_of_port, port_on_leaf = leaf_ports(plan)
    nic_ports = np.arange(plan.servers * plan.endpoints_per_server, dtype=np.int32)
    gpus = np.arange(ids.nic, dtype=np.int32)
    gpu_of_lane, nic_of_lane = _pcie_lanes(order)
    scale_up = order.gpu.scale_up_bandwidth
    ls_leaf, ls_spine, ls_leaf_port, ls_spine_port = _leaf_spine(order, plan)
    sc_spine, sc_core, sc_spine_port, sc_core_port = _spine_core(order, plan)
    none = np.zeros
    cables = [
        Cables(
            Role.SCALE_UP,
            gpus,
            (ids.scale_up + gpus // server.gpus).astype(np.int32),
            none(len(gpus), np.int32),
            none(len(gpus), np.int32),
            scale_up or order.nic.pcie_bandwidth,
            0.0,
        ),
        Cables(
            Role.PCIE,
            gpu_of_lane,
            ids.nic + nic_of_lane,
            none(len(gpu_of_lane), np.int32),
            none(len(gpu_of_lane), np.int32),
            order.nic.pcie_bandwidth,
            0.0,
        ),
        Cables(
            Role.NODE_LEAF,
            ids.nic + nic_ports // order.nic.ports,
            ids.leaf + leaf_of_port,
            nic_ports % order.nic.ports + 1,
            port_on_leaf,
            order.node_rate,
            lengths.node_leaf,
        ),
        Cables(
            Role.LEAF_SPINE,
            ids.leaf + ls_leaf,
            ids.spine + ls_spine,
            ls_leaf_port,
            ls_spine_port,
            order.leaf_spine_rate,
            lengths.leaf_spine,
        ),
        Cables(
            Role.SPINE_CORE,
            ids.spine + sc_spine,
            ids.core + sc_core,
            sc_spine_port,
            sc_core_port,
            order.spine_core_rate,
            lengths.spine_core,
        ),
    ]
    rate = _each(cables, [c.rate for c in cables])
    return Fabric(
        name=f"{plan.family}, {plan.servers} x {server.name}",
        family=plan.family,
        **_devices(order, plan, ids),
        a=_joined([c.a for c in cables]),
        b=_joined([c.b for c in cables]),
        port_a=_joined([c.port_a for c in cables]),
        port_b=_joined([c.port_b for c in cables]),
        rate=rate,
        length=_each(cables, [c.length for c in cables]),
        role=_each(cables, [float(c.role) for c in cables]).astype(np.int32),
        capacity=np.repeat(rate, 2),
        nic_of_gpu=(
            ids.nic + gpus // server.gpus * server.nics + _nic_of_local_gpu(order)[gpus % server.gpus]
        ),
        parts=_parts(order, plan),
        notes=_notes(order, plan),
        reserved_ports=plan.reserved_ports,
    )


def leaf_ports(plan: Plan) -> tuple[Ints, Ints]:
    """Leaf (from 0) and port (from 1) of every NIC port (K,), server by server."""
    per_server = plan.endpoints_per_server
    index = np.arange(plan.servers * per_server, dtype=np.int32)
    server = index // per_server
    group, place = server // plan.servers_per_group, server % plan.servers_per_group
    if plan.rail_leaves:
        return group * plan.leaves_per_group + index % per_server, place + 1
    in_group = place * per_server + index % per_server
    per_leaf = -(-plan.servers_per_group * per_server // plan.leaves_per_group)
    return group * plan.leaves_per_group + in_group // per_leaf, in_group % per_leaf + 1


def leaf_planes(plan: Plan) -> tuple[Ints, Ints, Ints]:
    """Pod, plane and place within its plane of every leaf (D,)."""
    leaf = np.arange(plan.leaves, dtype=np.int32)
    group, within = leaf // plan.leaves_per_group, leaf % plan.leaves_per_group
    pod, place = group // plan.groups_per_pod, group % plan.groups_per_pod
    if plan.planes == 1:
        return pod, np.zeros_like(pod), place * plan.leaves_per_group + within
    return pod, within, place


def _number(order: Order, plan: Plan) -> Numbering:
    nic = plan.servers * order.server.gpus
    scale_up = nic + plan.servers * order.server.nics
    leaf = scale_up + plan.servers
    spine = leaf + plan.leaves
    core = spine + plan.spines
    return Numbering(nic, scale_up, leaf, spine, core, core + plan.cores)


def _check_sharing(order: Order) -> None:
    server = order.server
    few, many = sorted((server.gpus, server.nics))
    if few == 0 or many % few:
        raise PlanError(
            f"server '{server.name}' has {server.nics} NICs for {server.gpus} GPUs, which cannot be shared evenly; "
            "one of the two counts has to divide the other"
        )


def _nic_of_local_gpu(order: Order) -> Ints:
    """The NIC each GPU of a server sends through; its first one when it has several."""
    return (np.arange(order.server.gpus) * order.server.nics // order.server.gpus).astype(np.int32)


def _pcie_lanes(order: Order) -> tuple[Ints, Ints]:
    """GPU and NIC (both counted over all servers) of every GPU-NIC lane, NIC by NIC."""
    gpus, nics = order.server.gpus, order.server.nics
    lanes = max(gpus, nics)
    lane = np.arange(lanes * order.servers, dtype=np.int32)
    server, local = lane // lanes, lane % lanes
    return server * gpus + local * gpus // lanes, server * nics + local * nics // lanes


def _leaf_spine(order: Order, plan: Plan) -> tuple[Ints, Ints, Ints, Ints]:
    """Leaf, spine, leaf port and spine port of every leaf-spine cable, leaf by leaf."""
    pod, plane, place = leaf_planes(plan)
    links, spines, uplinks = plan.leaf_spine_links, plan.spines_per_plane, plan.leaf_uplinks
    if not uplinks:
        return _nothing(4)
    leaf = np.repeat(np.arange(plan.leaves, dtype=np.int32), uplinks)
    up = np.tile(np.arange(uplinks, dtype=np.int32), plan.leaves)
    spine = (pod[leaf] * plan.planes + plane[leaf]) * spines + up // links
    return leaf, spine, order.leaf.ports - uplinks + up + 1, place[leaf] * links + up % links + 1


def _spine_core(order: Order, plan: Plan) -> tuple[Ints, Ints, Ints, Ints]:
    """Spine, core, spine port and core port of every spine-core cable, spine by spine."""
    links, uplinks = plan.spine_core_links, plan.spine_uplinks
    if not uplinks:
        return _nothing(4)
    spine = np.repeat(np.arange(plan.spines, dtype=np.int32), uplinks)
    up = np.tile(np.arange(uplinks, dtype=np.int32), plan.spines)
    pod_and_plane, core_set = spine // plan.spines_per_plane, spine % plan.spines_per_plane
    core = core_set * plan.cores_per_set + up // links
    return spine, core, order.spine.ports - uplinks + up + 1, pod_and_plane * links + up % links + 1


def _devices(order: Order, plan: Plan, ids: Numbering) -> dict[str, Ints | Floats]:
    """The per-device columns of the graph."""
    server = order.server
    counts = [ids.nic, ids.scale_up - ids.nic, plan.servers, plan.leaves, plan.spines, plan.cores]
    servers = np.arange(plan.servers, dtype=np.int32)
    server_of = np.concatenate([np.repeat(servers, server.gpus), np.repeat(servers, server.nics), servers])
    local_nic = np.arange(server.nics, dtype=np.int32)
    pod, plane, _ = leaf_planes(plan)
    nowhere = np.full
    leaf_rail = np.arange(plan.leaves, dtype=np.int32) % plan.leaves_per_group // order.nic.ports
    spine_place = np.arange(plan.spines, dtype=np.int32) // max(plan.spines_per_plane, 1)
    rails = [
        np.tile(_nic_of_local_gpu(order), plan.servers),
        np.tile(local_nic, plan.servers),
        nowhere(plan.servers, -1),
        leaf_rail if plan.rail_leaves else nowhere(plan.leaves, -1),
        spine_place % plan.planes // order.nic.ports if plan.planes > 1 else nowhere(plan.spines, -1),
        nowhere(plan.cores, -1),
    ]
    groups = [
        server_of // plan.servers_per_group,
        np.arange(plan.leaves, dtype=np.int32) // plan.leaves_per_group,
        spine_place // plan.planes if plan.cores else nowhere(plan.spines, -1),
        nowhere(plan.cores, -1),
    ]
    latency = [0.0, order.nic.latency, 0.0, order.leaf.latency, order.spine.latency, order.core.latency]
    return {
        "kind": np.repeat(np.arange(len(Kind), dtype=np.int32), counts),
        "server": np.concatenate([server_of, np.full(ids.end - ids.leaf, -1)]).astype(np.int32),
        "rail": _joined(rails),
        "group": _joined(groups),
        "latency": np.repeat(np.array(latency), counts),
    }


def _parts(order: Order, plan: Plan) -> dict[str, str]:
    parts = {
        "server": order.server.name,
        "gpu": order.gpu.name,
        "nic": order.nic.name,
        "leaf": order.leaf.name,
    }
    if plan.spines:
        parts["spine"] = order.spine.name
    if plan.cores:
        parts["core"] = order.core.name
    return parts


def _notes(order: Order, plan: Plan) -> tuple[str, ...]:
    notes = list(plan.notes)
    if not order.gpu.scale_up_bandwidth and order.server.gpus > 1:
        notes.append(
            f"GPU '{order.gpu.name}' has no scale-up link: GPUs of a server talk through the host at the NIC's "
            "PCIe bandwidth"
        )
    if order.nic.rate > order.leaf.rate:
        notes.append(
            f"NIC '{order.nic.name}' is faster than a port of '{order.leaf.name}'; its cables run at the port's rate"
        )
    if plan.spines:
        down = plan.leaf_ports * order.node_rate
        actual = down / (plan.leaf_uplinks * order.leaf_spine_rate)
        notes.append(
            f"leaves: {plan.leaf_ports} ports down, {plan.leaf_uplinks} up "
            f"({plan.leaf_spine_links} to each of {plan.spines_per_plane} spines), oversubscription {actual:.3g}"
        )
    return tuple(notes)


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts).astype(np.int32)


def _each(cables: list[Cables], values: list[float]) -> Floats:
    return np.repeat(np.array(values, dtype=np.float64), [len(c.a) for c in cables])


def _nothing(columns: int) -> tuple[Ints, ...]:
    return tuple(np.zeros(0, np.int32) for _ in range(columns))
