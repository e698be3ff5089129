"""Where GPUs sit: their rail, their scale-up domain, and which GPU owns a NIC on a rail.

Legend: G GPUs; n ranks of a communicator.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Role
from railwright.traffic.per_fabric import per_fabric

Ints = NDArray[np.int32]


@per_fabric
def rail_of_gpu(fabric: Fabric) -> Ints:
    """(G,) rail of the NIC that each GPU sends through. Read-only."""
    rail = fabric.rail[fabric.nic_of_gpu]
    rail.setflags(write=False)
    return rail


@per_fabric
def domain_of_gpu(fabric: Fabric) -> Ints:
    """(G,) scale-up domain of each GPU: device id of its scale-up switch, or its own id where it has none.

    Read-only.
    """
    domain = np.arange(fabric.num_gpus, dtype=np.int32)
    lanes = fabric.role == Role.SCALE_UP
    for gpu, switch in ((fabric.a[lanes], fabric.b[lanes]), (fabric.b[lanes], fabric.a[lanes])):
        inward = gpu < fabric.num_gpus
        domain[gpu[inward]] = switch[inward]
    domain.setflags(write=False)
    return domain


@per_fabric
def can_relay(fabric: Fabric) -> bool:
    """Whether PXN can send anything another way: several scale-up domains, in one of them GPUs on different
    rails, and NVLink (or its like) between these."""
    domain, rail = domain_of_gpu(fabric), rail_of_gpu(fabric)
    domains = len(np.unique(domain))
    places = len(np.unique(np.column_stack([domain, rail]), axis=0))
    return fabric.scale_up != "pcie" and 1 < domains < places


def relay(fabric: Fabric, members: Ints, src: Ints, dst: Ints) -> Ints:
    """The GPU that forwards each pair under PXN, or -1 where the pair goes direct.

    members  GPUs that may forward: the ranks of the communicator (NCCL's topology holds no others)
    src, dst (F,) GPU ids

    A pair of different scale-up domains whose NICs are on different rails goes through the member of the
    source's domain that owns a NIC on the destination's rail; several owners share the sources in turn.
    GPUs that meet over PCIe forward nothing.
    Source: PHYSICS notes on NCCL 2.30, src/graph/paths.cc ("PXN = PCI + NVLink") and src/graph/topo.cc (only
    the communicator's own GPUs are kept in its topology).
    """
    domain, rail = domain_of_gpu(fabric), rail_of_gpu(fabric)
    answer = np.full(len(src), -1, np.int32)
    if fabric.scale_up == "pcie":
        return answer
    crossing = np.flatnonzero((domain[src] != domain[dst]) & (rail[src] != rail[dst]))
    if not len(crossing):
        return answer
    owners = np.unique(members)
    width = int(rail.max()) + 2
    slot = domain[owners].astype(np.int64) * width + rail[owners]
    owners = owners[np.argsort(slot, kind="stable")]
    slot = np.sort(slot)
    wanted = domain[src[crossing]].astype(np.int64) * width + rail[dst[crossing]]
    first = np.searchsorted(slot, wanted, side="left")
    count = np.searchsorted(slot, wanted, side="right") - first
    found = count > 0
    turn = (src[crossing] + dst[crossing])[found] % count[found]
    answer[crossing[found]] = owners[first[found] + turn]
    return answer
