"""The devices of a planned fabric: their numbers, and the columns that say where each one is.

GPUs come first (server by server), then NICs (server by server), one scale-up device per server (none where
servers count as hosts without GPUs, on storage and management networks), then leaves
(group by group), spines (pod by pod, plane by plane) and cores (set by set).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Gpu
from railwright.fabric.graph import Floats, Ints, Kind
from railwright.fabric.plan import Order, Plan


def counts(order: Order, plan: Plan) -> tuple[int, ...]:
    """Devices of each `Kind`, in its order."""
    server = order.server
    scale_up = plan.servers if server.gpus else 0
    inside = (plan.servers * server.gpus, plan.servers * server.nics, scale_up)
    return (*inside, plan.leaves, plan.spines, plan.cores)


def first(order: Order, plan: Plan, kind: Kind) -> int:
    """Id of the first device of a kind."""
    return sum(counts(order, plan)[:kind])


def kinds(order: Order, plan: Plan) -> Ints:
    return np.repeat(np.arange(len(Kind), dtype=np.int32), counts(order, plan))


def servers(order: Order, plan: Plan) -> Ints:
    """Server of every device; -1 for the network's switches."""
    server = np.arange(plan.servers)
    inside = [np.repeat(server, order.server.gpus), np.repeat(server, order.server.nics)]
    inside += [server] if order.server.gpus else []
    return joined([*inside, np.full(plan.switches, -1)])


def rails(order: Order, plan: Plan) -> Ints:
    """Rail of every device: a NIC's place in its server or tray, and what serves only NICs of that place."""
    leaf = np.arange(plan.leaves) % plan.leaves_per_group // order.nic.ports
    spine = _spine_planes(plan) % plan.planes // order.nic.ports
    return joined(
        [
            np.tile(nic_of_local_gpu(order) % order.rails, plan.servers),
            np.tile(np.arange(order.server.nics) % order.rails, plan.servers),
            np.full(plan.servers if order.server.gpus else 0, -1),
            leaf if plan.rail_leaves else np.full(plan.leaves, -1),
            spine if 1 < plan.planes == plan.leaves_per_group else np.full(plan.spines, -1),
            np.full(plan.cores, -1),
        ]
    )


def groups(order: Order, plan: Plan) -> Ints:
    """Group of everything in a server and of every leaf; pod of every spine where there are pods."""
    server = servers(order, plan)
    spine = _spine_planes(plan) // plan.planes
    return joined(
        [
            server[server >= 0] // plan.servers_per_group,
            np.arange(plan.leaves) // plan.leaves_per_group,
            spine if plan.cores else np.full(plan.spines, -1),
            np.full(plan.cores, -1),
        ]
    )


def latencies(order: Order, plan: Plan) -> Floats:
    """Time to cross every device [s]; what NVLink and PCIe add is in NCCL's own cost per step."""
    by_kind = [0.0, order.nic.latency, 0.0, order.leaf.latency, order.spine.latency, order.core.latency]
    return np.repeat(np.array(by_kind), counts(order, plan))


def nic_of_local_gpu(order: Order) -> Ints:
    """The NIC each GPU of a server sends through; its first one when it has several."""
    return (np.arange(order.server.gpus) * order.server.nics // max(order.server.gpus, 1)).astype(np.int32)


def scale_up_name(gpu: Gpu) -> str:
    """What joins the GPUs of a server: 'nvswitch', AMD's 'xgmi', or the host's 'pcie'."""
    if not gpu.scale_up_bandwidth:
        return "pcie"
    return "xgmi" if gpu.vendor.lower() == "amd" else "nvswitch"


def joined(parts: Sequence[NDArray[np.signedinteger[Any]]]) -> Ints:
    """One column out of its parts."""
    return np.concatenate(parts).astype(np.int32)


def _spine_planes(plan: Plan) -> NDArray[np.int64]:
    """Plane of every spine, counted through all pods."""
    return np.arange(plan.spines) // max(plan.spines_per_plane, 1)
