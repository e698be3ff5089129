"""Random fabrics of every family, damaged, with random groups: what the lifted engine is compared on.

A case follows from its seed alone.  `None` where the plan, the damage or the traffic is refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import network_fabrics as hand
from railwright.catalog import find, load_catalog
from railwright.errors import PlanError, SpecError
from railwright.fabric import apply_faults, build
from railwright.fabric.graph import Fabric, Role
from railwright.spec.study import Cluster, ComputeNetwork, Fault
from railwright.traffic import Communicator, Groups, Traffic, join, ring, send_recv

FAMILIES = (
    "fat-tree",
    "rail-optimised",
    "fat-tree",
    "rail-optimised",
    "rail-only",
    "dual-plane",
    "rack-rails",
)
MOST_GPUS = 130


def case(seed: int) -> tuple[Fabric, Groups] | None:
    rng = np.random.default_rng(seed)
    try:
        fabric = damaged(some_fabric(rng), rng)
        if fabric.num_gpus > MOST_GPUS:
            return None
        return fabric, some_groups(fabric, rng)
    except (PlanError, SpecError):
        return None


def some_fabric(rng: np.random.Generator) -> Fabric:
    if rng.random() < 0.2:
        return hand.make(
            servers=int(rng.integers(2, 8)),
            gpus=int(rng.integers(1, 4)),
            family=str(rng.choice(["rail-optimised", "fat-tree", "single-switch", "rail-only"])),
            spines=int(rng.integers(1, 4)),
            cables=int(rng.integers(1, 3)),
            servers_per_group=int(rng.integers(1, 4)),
            uplink=float(rng.choice([25.0, 50.0])),
        )
    catalog = load_catalog()
    switch, server = find(catalog.switches, "qm9700"), find(catalog.servers, "dgx-h100")
    gpus = int(rng.choice([1, 2, 2, 4]))
    nics = int(rng.choice([n for n in (1, 2, 4) if n <= gpus]))
    catalog = replace(
        catalog,
        switches={**catalog.switches, "qm9700": replace(switch, ports=int(rng.choice([4, 6, 8, 12])))},
        servers={**catalog.servers, "dgx-h100": replace(server, gpus=gpus, nics=nics)},
    )
    chosen: dict[str, object] = {"family": str(rng.choice(FAMILIES)), "switch": "qm9700"}
    tiers = int(rng.choice([0, 0, 2, 3]))
    chosen |= {"tiers": tiers} if tiers else {}
    for name, chance, values in (
        ("servers_per_group", 0.5, range(1, 5)),
        ("oversubscription", 0.3, (1.0, 2.0, 3.0)),
        ("core_oversubscription", 0.3, (1.0, 2.0)),
        ("spare_spines", 0.3, (1,)),
        ("groups_per_pod", 0.5 if tiers == 3 else 0.0, range(1, 4)),
    ):
        if rng.random() < chance:
            chosen[name] = rng.choice(list(values)).item()
    network = ComputeNetwork.model_validate(chosen)
    return build(Cluster(servers=int(rng.integers(2, 28)), server="dgx-h100", compute=network), catalog)


def damaged(fabric: Fabric, rng: np.random.Generator) -> Fabric:
    """Up to five faults: failed or slow, both ways or one, or a dead device; GPUs move off dead NICs."""
    capacity = fabric.capacity.copy()
    cables = np.flatnonzero(fabric.role >= Role.NODE_LEAF)
    for _ in range(int(rng.integers(0, 6))):
        what, cable = int(rng.integers(0, 7)), int(rng.choice(cables))
        if what <= 2:
            capacity[2 * cable : 2 * cable + 2] = 0.0
        elif what == 3:
            capacity[2 * cable : 2 * cable + 2] *= rng.choice([0.25, 0.5])
        elif what == 4:
            capacity[2 * cable + int(rng.integers(2))] *= rng.choice([0.0, 0.5])
        elif what == 5:
            other = int(rng.integers(fabric.num_cables))
            capacity[2 * other : 2 * other + 2] *= 0.5
        else:
            device = int(rng.choice(np.flatnonzero(fabric.kind >= 1)))
            touched = np.flatnonzero((fabric.a == device) | (fabric.b == device))
            capacity[2 * touched] = capacity[2 * touched + 1] = 0.0
    hurt = replace(fabric, capacity=capacity)
    # A fault that takes nothing away has the GPUs of dead NICs moved, as faults of a study do.
    gentle = Fault(element=fabric.device_name(int(fabric.a[cables[0]])), state="slow", rate="9999 Tb/s")
    return apply_faults(hurt, [gentle]) if fabric.name != "hand-made" else hurt


def some_groups(fabric: Fabric, rng: np.random.Generator) -> Groups:
    gpus = np.arange(fabric.num_gpus, dtype=np.int32)
    pattern, width = int(rng.integers(0, 6)), int(rng.integers(2, 9))
    if pattern == 2:
        parts = [gpus[i::width] for i in range(width)]
    elif pattern == 3:
        parts = [gpus[i : i + width] for i in range(0, len(gpus), width)]
    elif pattern == 4:
        chosen = rng.permutation(gpus)[: int(rng.integers(2, len(gpus) + 1))]
        parts = [chosen[i :: width // 2] for i in range(width // 2)]
    else:
        parts = [gpus]
    parts = [part for part in parts if len(part)]
    size = rng.choice([1e6, 2e6], len(parts))
    pxn = rng.integers(0, 2, len(parts)).astype(bool) if pattern == 4 else bool(rng.integers(2))
    explicit = some_demands(fabric, gpus, rng) if rng.random() < 0.35 else None
    return Groups.all_to_all(parts, size, pxn, explicit)


def some_demands(fabric: Fabric, gpus: np.ndarray, rng: np.random.Generator) -> Traffic:
    kind = int(rng.integers(0, 3))
    if kind == 0:
        return ring(fabric, Communicator(gpus), 3e6, pxn=bool(rng.integers(2)))
    if kind == 1:
        step = fabric.gpus_per_server
        rows = [gpus[i::step] for i in range(step)]
        return join([ring(fabric, Communicator(row), 3e6) for row in rows if len(row) > 1])
    number = int(rng.integers(1, 20))
    src, dst = rng.integers(0, len(gpus), number), rng.integers(0, len(gpus), number)
    return send_recv(fabric, src, dst, rng.choice([1e6, 5e6], number))
