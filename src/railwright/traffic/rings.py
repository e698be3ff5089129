"""Ring patterns as NCCL lays them: one ring per NIC, each on its own rail.

Legend: n ranks, R rings, D scale-up domains of the communicator, in order of first rank.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.traffic.demand import Communicator, Traffic, join
from railwright.traffic.placement import domain_of_gpu

Ints = NDArray[np.int32]


def ring(fabric: Fabric, comm: Communicator, bytes_per_edge: float, pxn: bool = True) -> Traffic:
    """What a ring collective puts on the wire.

    bytes_per_edge  what each rank sends to its successor, all rings together [byte]:
                    2(n-1)/n S for all-reduce, (n-1)/n S for all-gather and reduce-scatter

    Each of the R rings carries bytes_per_edge / R, R being the NICs that every domain can offer, so each NIC
    sends that much once.  With `pxn` a ring enters a domain at the GPU of its NIC, visits the others, and the
    last one hands over to that same GPU, whose NIC sends: the edge stays on one rail.  Without it the last
    GPU sends through its own NIC and the next domain is entered on that rail and walked the other way round;
    an odd number of domains then leaves one cross-rail edge per ring.
    Inside one domain all rings load the switch alike, and one stands for all.
    Source: PHYSICS notes section 2 (Ring: each ring crosses each node once on one rail; NCCL 2.30 graph
    search with crossNic=0, and crossNic=2 without PXN).
    """
    return join(
        [_edges(order, forward, bytes_per_edge, r) for order, forward, r in _rings(fabric, comm, pxn)]
    )


def broadcast(fabric: Fabric, comm: Communicator, size: float, root: int = 0, pxn: bool = True) -> Traffic:
    """The same rings, each without the edge into the root: every rank but the last passes `size` on.

    size  bytes that every rank ends up with [byte]
    root  rank that holds them at the start
    """
    whole = ring(fabric, comm, size, pxn)
    keep = whole.dst != comm.gpus[root]
    return Traffic(whole.src[keep], whole.dst[keep], whole.relay[keep], whole.size[keep])


def local_members(fabric: Fabric, comm: Communicator) -> list[Ints]:
    """The communicator's GPUs, domain by domain in order of first rank, each domain in rank order."""
    domain = domain_of_gpu(fabric)[comm.gpus]
    _, first, group = np.unique(domain, return_index=True, return_inverse=True)
    return [comm.gpus[group == g] for g in np.argsort(first, kind="stable")]


def heads(fabric: Fabric, members: list[Ints]) -> Ints:
    """(D, R) the GPU at which channel r enters domain d: one per NIC, NICs in order of rail.

    R is the smallest number of NICs that any domain's members own.
    """
    if len({len(gpus) for gpus in members}) == 1:
        member = np.stack(members)
        nic = fabric.nic_of_gpu[member]
        ranked = np.sort(nic, axis=1)
        if np.all(ranked[:, 1:] != ranked[:, :-1]):
            # Every GPU has a NIC of its own and every domain as many: all domains at once.
            place = fabric.rail[nic].astype(np.int64) * fabric.num_gpus + member
            return np.take_along_axis(member, np.argsort(place, axis=1), axis=1)
    per_domain: list[Ints] = []
    for gpus in members:
        nics = fabric.nic_of_gpu[gpus]
        _, first = np.unique(nics, return_index=True)
        owners = gpus[first]
        per_domain.append(owners[np.lexsort((owners, fabric.rail[fabric.nic_of_gpu[owners]]))])
    rings = min(len(owners) for owners in per_domain)
    return np.stack([owners[:rings] for owners in per_domain])


def _rings(fabric: Fabric, comm: Communicator, pxn: bool) -> list[tuple[Ints, Ints, int]]:
    """(order of GPUs, relay of the edge leaving each, number of rings) of each ring."""
    if len(comm) < 2:
        return []
    members = local_members(fabric, comm)
    if len(members) == 1:
        return [(members[0], np.full(len(comm), -1, np.int32), 1)]
    entry = heads(fabric, members)
    if len({len(gpus) for gpus in members}) == 1:
        return _alike(fabric, np.stack(members), entry, pxn)
    return _walked(fabric, members, entry, pxn)


def _walked(fabric: Fabric, members: list[Ints], entry: Ints, pxn: bool) -> list[tuple[Ints, Ints, int]]:
    """`_rings` domain by domain: the definition."""
    num_rings = entry.shape[1]
    answer: list[tuple[Ints, Ints, int]] = []
    for r in range(num_rings):
        order: list[Ints] = []
        forward: list[Ints] = []
        for d, gpus in enumerate(members):
            walk = np.roll(gpus, -int(np.flatnonzero(gpus == entry[d, r])[0]))
            if not pxn and d % 2:
                walk = walk[::-1]
            via = np.full(len(walk), -1, np.int32)
            if pxn and fabric.nic_of_gpu[walk[-1]] != fabric.nic_of_gpu[entry[d, r]]:
                via[-1] = entry[d, r]
            order.append(walk)
            forward.append(via)
        answer.append((np.concatenate(order), np.concatenate(forward), num_rings))
    return answer


def _alike(fabric: Fabric, member: Ints, entry: Ints, pxn: bool) -> list[tuple[Ints, Ints, int]]:
    """`_walked` where every domain has as many members: all walks at once, (R, D, members of a domain).

    member  (D, members of a domain);  entry  (D, R)
    """
    each, num_rings = member.shape[1], entry.shape[1]
    at = np.argmax(member[:, None, :] == entry[:, :, None], axis=2)  # (D, R)
    place = (at[:, :, None] + np.arange(each)) % each
    walk = np.take_along_axis(member[:, None, :], place, axis=2)
    if not pxn:
        walk[1::2] = walk[1::2, :, ::-1].copy()
    via = np.full(walk.shape, -1, np.int32)
    if pxn:
        handed = fabric.nic_of_gpu[walk[:, :, -1]] != fabric.nic_of_gpu[entry]
        via[:, :, -1] = np.where(handed, entry, -1)
    order = walk.swapaxes(0, 1).reshape(num_rings, -1)
    forward = via.swapaxes(0, 1).reshape(num_rings, -1)
    return [(order[r], forward[r], num_rings) for r in range(num_rings)]


def _edges(order: Ints, forward: Ints, bytes_per_edge: float, num_rings: int) -> Traffic:
    size = np.full(len(order), bytes_per_edge / num_rings)
    following = np.concatenate((order[1:], order[:1]))
    return Traffic(order.astype(np.int32), following.astype(np.int32), forward, size)
