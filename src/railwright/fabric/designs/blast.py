"""How much one dead device takes with it: the fault domains of a fabric's switches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright.fabric.graph import Fabric, Kind, Role


@dataclass(frozen=True)
class FaultDomain:
    """What the worst single switch takes with it.

    device           the worst one: most GPUs off the network, then most GPUs without their own NIC
    gpus             GPUs it hurts: those off the network, else those whose NIC has no way left
    cut_off          GPUs off the network: no NIC of their server reaches the largest part that stays joined
    cut_off_by_leaf  the same for the worst leaf
    without_nic      GPUs whose NIC has no other leaf; they share their neighbours' NICs when those live
    slowed           GPUs whose NIC loses some of its ports, not all
    """

    device: str
    gpus: int
    cut_off: int
    cut_off_by_leaf: int
    without_nic: int
    slowed: int


def largest_fault_domain(fabric: Fabric) -> FaultDomain:
    """The worst single switch of a healthy fabric; of equals the lowest tier, then the first."""
    without, slowed, off = _leaf_losses(fabric)
    leaves = fabric.devices(Kind.LEAF)
    worst = int(np.lexsort((-slowed, -without, -off))[0])
    leaf_off = max(int(off[worst]), _cut_off(fabric, int(leaves[worst])))
    best = (leaf_off, int(without[worst]), int(slowed[worst]), int(leaves[worst]))
    for kind in (Kind.SPINE, Kind.CORE):
        # All spines of a pod and plane have the same cables; the first ones belong to a full pod.
        if len(fabric.devices(kind)):
            device = int(fabric.devices(kind)[0])
            if (lost := _cut_off(fabric, device)) > best[0]:
                best = (lost, 0, 0, device)
    cut_off, without_nic, some, device = best
    return FaultDomain(
        device=fabric.device_name(device),
        gpus=cut_off or without_nic,
        cut_off=cut_off,
        cut_off_by_leaf=leaf_off,
        without_nic=without_nic,
        slowed=some,
    )


def _leaf_losses(fabric: Fabric) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Per leaf: GPUs whose NIC is on it alone, GPUs whose NIC is on it too, GPUs of servers on it alone."""
    down = fabric.role == Role.NODE_LEAF
    first_leaf, nics = int(fabric.devices(Kind.LEAF)[0]), fabric.devices(Kind.NIC)
    leaves = len(fabric.devices(Kind.LEAF))
    nic, leaf = fabric.a[down] - nics[0], (fabric.b[down] - first_leaf).astype(np.int64)
    pairs = np.unique(nic * leaves + leaf)
    nic, leaf = pairs // leaves, pairs % leaves
    homes = np.bincount(nic, minlength=len(nics))
    users = np.bincount(fabric.nic_of_gpu - nics[0], minlength=len(nics))
    alone = homes[nic] == 1
    without = np.bincount(leaf[alone], users[nic[alone]], leaves).astype(np.int64)
    slowed = np.bincount(leaf[~alone], users[nic[~alone]], leaves).astype(np.int64)
    server_pairs = np.unique(fabric.server[nics[nic]].astype(np.int64) * leaves + leaf)
    server, on = server_pairs // leaves, server_pairs % leaves
    only = np.bincount(server, minlength=fabric.num_servers)[server] == 1
    off = np.bincount(on[only], minlength=leaves).astype(np.int64) * fabric.gpus_per_server
    return without, slowed, off


def _cut_off(fabric: Fabric, device: int) -> int:
    """GPUs of servers that are not joined with most others once the device is dead, servers relaying."""
    if fabric.num_servers == 1:
        return 0
    cables = fabric.role >= Role.NODE_LEAF
    cables &= (fabric.a != device) & (fabric.b != device)
    node = np.where(fabric.server >= 0, fabric.server, fabric.num_servers + np.arange(fabric.num_devices))
    a, b = node[fabric.a[cables]], node[fabric.b[cables]]
    size = fabric.num_servers + fabric.num_devices
    _, part = connected_components(csr_array(coo_array((np.ones(len(a)), (a, b)), shape=(size, size))))
    return int(fabric.num_servers - np.bincount(part[: fabric.num_servers]).max()) * fabric.gpus_per_server
