"""Ring patterns as NCCL lays them: one ring per NIC, each on its own rail.

Legend: n ranks, R rings, D scale-up domains of the communicator, in order of first rank, k ranks in each;
G communicators of the same n, D and k.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    an odd number of domains then leaves one cross-rail edge per ring.  GPUs that meet over PCIe have no PXN,
    and the last one reaches the ring's NIC through the host: its edge stays on the rail either way.
    Inside one domain all rings load the switch alike, and one stands for all.
    Source: PHYSICS notes section 2 (Ring: each ring crosses each node once on one rail; NCCL 2.30 graph
    search with crossNic=0, and crossNic=2 without PXN).
    """
    return rings(fabric, [comm], [bytes_per_edge], pxn)


def rings(
    fabric: Fabric, comms: Sequence[Communicator], bytes_per_edge: Sequence[float], pxn: bool = True
) -> Traffic:
    """`ring` of every communicator, one after the other."""
    pxn = pxn or fabric.scale_up == "pcie"
    sizes = {len(comm) for comm in comms}
    laid = None
    if len(sizes) == 1 and sizes != {1}:
        laid = _alike(fabric, np.stack([comm.gpus for comm in comms]), pxn)
        if laid is None and len(comms) == 1:
            laid = _walked(fabric, comms[0], pxn)
    if laid is not None:
        return _edges(*laid, bytes_per_edge)
    each = zip(comms, bytes_per_edge, strict=True) if len(comms) > 1 else ()
    return join([ring(fabric, comm, size, pxn) for comm, size in each])


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
        found = _entries(fabric, np.stack(members)[None])
        assert found is not None, "one communicator has one number of channels"
        entry: Ints = found[0]
        return entry
    per_domain: list[Ints] = []
    for gpus in members:
        nics = fabric.nic_of_gpu[gpus]
        _, first = np.unique(nics, return_index=True)
        owners = gpus[first]
        per_domain.append(owners[np.lexsort((owners, fabric.rail[fabric.nic_of_gpu[owners]]))])
    rings = min(len(owners) for owners in per_domain)
    return np.stack([owners[:rings] for owners in per_domain])


def _blocks(fabric: Fabric, gpus: Ints) -> Ints | None:
    """(G, D, k) of communicators (G, n) that hold domain after domain, as many GPUs of each; None for
    others."""
    domain = domain_of_gpu(fabric)[gpus]
    width = int(np.argmax(np.append(domain[0] != domain[0, 0], True)))
    if gpus.shape[1] % width:
        return None
    member, place = (found.reshape(len(gpus), -1, width) for found in (gpus, domain))
    apart = np.sort(place[:, :, 0], axis=1)
    if np.any(place != place[:, :, :1]) or np.any(apart[:, 1:] == apart[:, :-1]):
        return None
    return member


def _entries(fabric: Fabric, member: Ints) -> Ints | None:
    """(G, D, R) `heads` of communicators (G, D, k); None where R differs between them."""
    nic = fabric.nic_of_gpu[member]
    by_nic = np.argsort(nic, axis=-1, kind="stable")
    ranked = np.take_along_axis(nic, by_nic, axis=-1)
    again = np.zeros(member.shape, bool)
    np.put_along_axis(again, by_nic[..., 1:], ranked[..., 1:] == ranked[..., :-1], axis=-1)
    channels = np.unique((~again).sum(axis=-1).min(axis=-1))
    if len(channels) > 1:
        return None
    place = fabric.rail[nic].astype(np.int64) * fabric.num_gpus + member
    place[again] = np.iinfo(np.int64).max
    first: Ints = np.take_along_axis(member, np.argsort(place, axis=-1)[..., : channels[0]], axis=-1)
    return first


def _walked(fabric: Fabric, comm: Communicator, pxn: bool) -> tuple[Ints, Ints]:
    """(1, R, n) order of GPUs of each ring and relay of the edge leaving each, domain by domain: the
    definition."""
    members = local_members(fabric, comm)
    if len(members) == 1:
        return members[0][None, None], np.full((1, 1, len(comm)), -1, np.int32)
    entry = heads(fabric, members)
    orders: list[Ints] = []
    forwards: list[Ints] = []
    for r in range(entry.shape[1]):
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
        orders.append(np.concatenate(order))
        forwards.append(np.concatenate(forward))
    return np.stack(orders)[None], np.stack(forwards)[None]


def _alike(fabric: Fabric, gpus: Ints, pxn: bool) -> tuple[Ints, Ints] | None:
    """`_walked` of communicators (G, n) at once, (G, R, n); None where they are not laid alike."""
    member = _blocks(fabric, gpus)
    if member is None:
        return None
    if member.shape[1] == 1:
        return member, np.full(member.shape, -1, np.int32)
    entry = _entries(fabric, member)
    if entry is None:
        return None
    at = np.argmax(member[:, :, None, :] == entry[..., None], axis=-1)  # (G, D, R)
    place = (at[..., None] + np.arange(member.shape[2])) % member.shape[2]
    walk = np.take_along_axis(member[:, :, None, :], place, axis=-1)
    if not pxn:
        walk[:, 1::2] = walk[:, 1::2, :, ::-1].copy()
    via = np.full(walk.shape, -1, np.int32)
    if pxn:
        handed = fabric.nic_of_gpu[walk[..., -1]] != fabric.nic_of_gpu[entry]
        via[..., -1] = np.where(handed, entry, -1)
    order, forward = (found.swapaxes(1, 2).reshape(*entry.shape[::2], -1) for found in (walk, via))
    return order, forward


def _edges(order: Ints, forward: Ints, bytes_per_edge: Sequence[float]) -> Traffic:
    """Of rings (G, R, n): every GPU to the next one, with its share of its communicator's bytes."""
    size = np.repeat(np.array(bytes_per_edge) / order.shape[1], order[0].size)
    src, dst = (found.reshape(-1).astype(np.int32) for found in (order, np.roll(order, -1, axis=-1)))
    return Traffic(src, dst, forward.reshape(-1), size)
