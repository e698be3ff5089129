"""Small hand-made fabrics for the tests of traffic and network: every number in them is chosen for easy sums.

One server has `gpus` GPUs with a NIC each; rails as given by `rail`; leaves join spines over `cables` cables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railwright.fabric.graph import Fabric, Role


def make(
    servers: int = 4,
    gpus: int = 2,
    family: str = "rail-optimised",
    spines: int = 2,
    cables: int = 1,
    servers_per_group: int = 0,
    nic: float = 50.0,
    lane: float = 450.0,
    uplink: float = 50.0,
) -> Fabric:
    """A fabric with rates in byte/s; pcie runs at twice the NIC's rate.

    family  'rail-optimised' (leaf per rail and group), 'rail-only' (the same without spines),
            'fat-tree' (leaf per group), 'single-switch'
    """
    per_group = servers_per_group or servers
    groups = -(-servers // per_group)
    rails = gpus if family.startswith("rail") else 1
    num_leaves = 1 if family == "single-switch" else groups * rails
    num_spines = 0 if family in ("rail-only", "single-switch") else spines
    num_gpus = servers * gpus
    nic0, su0 = num_gpus, 2 * num_gpus
    leaf0 = su0 + servers
    spine0 = leaf0 + num_leaves
    rows: list[tuple[int, int, int, int, float, float, int]] = []
    port = [0] * (spine0 + num_spines)

    def cable(a: int, b: int, rate: float, length: float, role: Role) -> None:
        ports = [0, 0]
        if role >= Role.NODE_LEAF:
            for k, device in enumerate((a, b)):
                port[device] += 1
                ports[k] = port[device]
        rows.append((a, b, ports[0], ports[1], rate, length, role))

    for g in range(num_gpus):
        cable(g, su0 + g // gpus, lane, 0.0, Role.SCALE_UP)
        cable(g, nic0 + g, 2 * nic, 0.0, Role.PCIE)
    for g in range(num_gpus):
        group, rail = g // gpus // per_group, g % gpus
        leaf = 0 if family == "single-switch" else group * rails + (rail if rails > 1 else 0)
        cable(nic0 + g, leaf0 + leaf, nic, 10.0, Role.NODE_LEAF)
    for leaf in range(num_leaves):
        for spine in range(num_spines):
            for _ in range(cables):
                cable(leaf0 + leaf, spine0 + spine, uplink, 30.0, Role.LEAF_SPINE)
    columns = list(zip(*rows, strict=True))
    ints = [np.array(c, np.int32) for c in columns[:4]]
    rate, length = np.array(columns[4], float), np.array(columns[5], float)
    servers_of = np.repeat(np.arange(servers), gpus)
    none = np.full(num_leaves + num_spines, -1)
    rail_of = np.tile(np.arange(gpus), servers) if rails > 1 else np.zeros(num_gpus, int)
    leaf_rail = np.arange(num_leaves) % rails if rails > 1 else np.full(num_leaves, -1)
    sizes = [num_gpus, num_gpus, servers, num_leaves, num_spines]
    delay = [0.0, 500e-9, 100e-9, 200e-9, 200e-9]
    return Fabric(
        name="hand-made",
        family=family,
        kind=np.repeat(np.arange(5), sizes).astype(np.int32),
        server=np.concatenate([servers_of, servers_of, np.arange(servers), none]).astype(np.int32),
        rail=np.concatenate(
            [rail_of, rail_of, np.full(servers, -1), leaf_rail, np.full(num_spines, -1)]
        ).astype(np.int32),
        group=np.full(sum(sizes), -1, np.int32),
        a=ints[0],
        b=ints[1],
        port_a=ints[2],
        port_b=ints[3],
        rate=rate,
        length=length,
        role=np.array(columns[6], np.int32),
        capacity=np.repeat(rate, 2),
        nic_of_gpu=np.arange(nic0, nic0 + num_gpus, dtype=np.int32),
        latency=np.repeat(delay, sizes),
        parts={},
    )


def with_capacity(fabric: Fabric, factor: dict[int, float]) -> Fabric:
    """The same fabric with some directed links at a fraction of their rate (0: failed)."""
    capacity = fabric.capacity.copy()
    for link, part in factor.items():
        capacity[link] *= part
    return replace(fabric, capacity=capacity)


def links_of(fabric: Fabric, role: Role) -> list[int]:
    """Directed links of one role, ascending."""
    return [int(x) for x in np.flatnonzero(np.repeat(fabric.role, 2) == role)]
