"""The graph whose symmetry flows obey: devices and cables as they are, groups of ranks, and the rails of PXN.

Legend: N devices, A groups, R rails, C cables, L = 2 C directed links.
Nodes are the devices, then the groups, then the rails.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.lifted.partition import Graph
from railwright.network.lifted.places import places_of
from railwright.network.routing.switching import splitmix
from railwright.traffic import Groups, domain_of_gpu, rail_of_gpu

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

NAMED_GROUPS = 64
"""Groups that are each told apart from all others; beyond, a refinement per group would take minutes."""

ODD = [
    np.uint64(x)
    for x in (
        0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9,
        0xD6E8FEB86659FD93, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB,
    )
]  # fmt: skip
"""Odd multipliers that keep the columns of a row apart; which ones is of no consequence."""


def symmetry_graph(fabric: Fabric, groups: Groups, mark: Longs) -> Graph:
    """Nodes and edges that routing, capacities and traffic depend on.

    mark  (L,) what else tells directed links apart, such as what explicit demands put on them

    Two nodes are left alike only if nothing here tells them apart.  What is told apart beforehand:
    one end of every failed or slow cable, every group (see "The trap" in docs/network/lifted.md), and GPUs
    that a rule of routing numbers.  More than NAMED_GROUPS groups are told apart by where their ranks sit
    (see `places`) and by their size instead.
    """
    devices = fabric.num_devices
    relayed = bool(groups.pxn.any())
    member = groups.gpus.astype(np.int64)
    of_group = devices + np.repeat(np.arange(groups.num_groups), np.diff(groups.ptr))
    turn, modulus = _turns(fabric, groups)
    gpu = np.arange(fabric.num_gpus)
    rails = int(fabric.rail.max(initial=-1)) + 1 if relayed else 0
    tails = [fabric.a.astype(np.int64), gpu, member]
    heads = [fabric.b.astype(np.int64), fabric.nic_of_gpu.astype(np.int64), of_group]
    there, back = _cable_words(fabric, mark)
    plain = [np.full(len(gpu), ODD[1]), splitmix(turn.astype(np.uint64) + ODD[2])]
    if relayed:
        tails.append(gpu)
        heads.append(devices + groups.num_groups + rail_of_gpu(fabric).astype(np.int64))
        plain.append(np.full(len(gpu), ODD[3]))
    nodes = devices + groups.num_groups + rails
    start = _start(fabric, groups, modulus, nodes)
    if groups.num_groups > NAMED_GROUPS:
        places = places_of(fabric, groups, _pods(fabric))
        tails += [places.gpu, nodes + places.place]
        heads += [nodes + places.at, devices + places.group]
        plain += [places.word, np.full(len(places.place), ODD[4])]
        start = np.concatenate([start, int(start.max(initial=0)) + 1 + places.kind])
        nodes += len(places.kind)
    tail, head = np.concatenate(tails), np.concatenate(heads)
    sender = np.concatenate([tail, head])
    word = np.concatenate([there, *plain, back, *plain])
    order = np.argsort(sender, kind="stable")
    to = np.concatenate([head, tail])[order].astype(np.int32)
    ptr = np.concatenate([[0], np.cumsum(np.bincount(sender, minlength=nodes))])
    return Graph(start, ptr, to, word[order])


def damaged(fabric: Fabric) -> Longs:
    """Cables that are failed or slow; where a whole role is so, those unlike the most frequent of it."""
    rate, there, back = fabric.rate, fabric.capacity[0::2], fabric.capacity[1::2]
    hurt = (there != rate) | (back != rate)
    for role in np.unique(fabric.role[hurt]):
        here = np.flatnonzero(fabric.role == role)
        columns = np.column_stack([rate, there, back])[here]
        kinds, which, number = np.unique(columns, axis=0, return_inverse=True, return_counts=True)
        usual = int(number.argmax())
        if kinds[usual].min() != kinds[usual, 0]:
            hurt[here] = which.reshape(-1) != usual
    return np.flatnonzero(hurt)


def _start(fabric: Fabric, groups: Groups, modulus: int, nodes: int) -> Longs:
    """(nodes,) what is known of each node alone; numbers of its own where it must stay apart."""
    devices = fabric.num_devices
    latency = np.unique(fabric.latency, return_inverse=True)[1].reshape(-1)
    known = fabric.kind.astype(np.int64) * (int(latency.max(initial=0)) + 1) + latency
    known[: fabric.num_gpus] = known[: fabric.num_gpus] * modulus + np.arange(fabric.num_gpus) % modulus
    known = np.unique(fabric.kind.astype(np.int64) << 40 | known, return_inverse=True)[1].reshape(-1)
    apart = np.zeros(nodes, bool)
    apart[_cover(fabric)] = True
    apart[_beside_dead_lanes(fabric)] = True
    known = np.concatenate([known, np.full(nodes - devices, int(known.max(initial=0)) + 1)])
    row = slice(devices, devices + groups.num_groups)
    if groups.num_groups > NAMED_GROUPS:
        kinds = np.unique(np.column_stack([groups.size, groups.pxn]), axis=0, return_inverse=True)[1]
        known[row] += 1 + kinds.reshape(-1)
    else:
        apart[row] = True
    if nodes > devices + groups.num_groups and _rails_mixed(fabric):
        apart[devices + groups.num_groups :] = True
    start: Longs = known.astype(np.int64)
    start[apart] = int(start.max(initial=0)) + 1 + np.flatnonzero(apart)
    return start


def _cover(fabric: Fabric) -> Longs:
    """Devices such that every damaged cable ends at one: of its two ends, the one with more such cables.

    The other end sees a damaged cable to a device known by name, so it is told apart as far as it differs:
    the neighbours of a dead switch stay alike, those of two single cables do not.
    """
    hurt = damaged(fabric)
    a, b = fabric.a[hurt], fabric.b[hurt]
    degree = np.bincount(np.concatenate([a, b]), minlength=fabric.num_devices)
    return _distinct(np.where(degree[a] >= degree[b], a, b))


def _beside_dead_lanes(fabric: Fabric) -> Longs:
    """GPUs that share a NIC with a damaged PCIe lane: the first one, by number, may serve the others."""
    hurt = damaged(fabric)
    hurt = hurt[fabric.role[hurt] == Role.PCIE]
    if not len(hurt):
        return np.zeros(0, np.int64)
    nic = np.zeros(fabric.num_devices, bool)
    ends = np.concatenate([fabric.a[hurt], fabric.b[hurt]])
    nic[ends[fabric.kind[ends] == Kind.NIC]] = True
    lanes = (fabric.role == Role.PCIE) & (nic[fabric.a] | nic[fabric.b])
    beside = np.concatenate([fabric.a[lanes], fabric.b[lanes]])
    return _distinct(beside[fabric.kind[beside] == Kind.GPU])


def _cable_words(fabric: Fabric, mark: Longs) -> tuple[Words, Words]:
    """What each cable's end b, and its end a, sees of it."""
    with np.errstate(over="ignore"):
        used = np.zeros(fabric.num_cables, np.uint64)
        lanes = np.flatnonzero(fabric.role == Role.PCIE)
        own = np.minimum(fabric.a[lanes], fabric.num_gpus - 1)
        used[lanes] = fabric.nic_of_gpu[own] == fabric.b[lanes]
        base = splitmix(fabric.role.astype(np.uint64) * ODD[5] + used)
        base += _bits(fabric.length) * ODD[0] + _bits(fabric.rate) * ODD[1]
        base += splitmix(_shared(fabric).astype(np.uint64) + ODD[1])
        marks = mark.astype(np.uint64) * ODD[2]
        each: Words = splitmix(_bits(fabric.capacity)) + marks
        there, back = each[0::2], each[1::2]
        return (
            splitmix(base + there * ODD[3] + back * ODD[4]),
            splitmix(base + back * ODD[3] + there * ODD[4]),
        )


def _distinct(devices: Ints) -> Longs:
    different: Longs = np.unique(devices).astype(np.int64)
    return different


def _bits(column: NDArray[np.float64]) -> Words:
    word: Words = np.ascontiguousarray(column).view(np.uint64)
    return word


def _shared(fabric: Fabric) -> Longs:
    """(C,) of a cable from a NIC to a leaf: how many its server has to that leaf, and to that leaf's pod.

    Refinement sees neighbours and no circles: without this, servers with both NICs on one leaf look like
    those with a NIC on each of two.
    """
    answer = np.zeros(fabric.num_cables, np.int64)
    cable = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    server, leaf = fabric.server[fabric.a[cable]].astype(np.int64), fabric.b[cable].astype(np.int64)
    for place in (leaf, _pods(fabric)[leaf]):
        key = server * fabric.num_devices + place
        order = np.argsort(key, kind="stable")
        fresh = np.flatnonzero(np.diff(key[order], prepend=-1) != 0)
        number = np.diff(fresh, append=len(order))
        here = np.empty(len(cable), np.int64)
        here[order] = np.repeat(number, number)
        answer[cable] = answer[cable] * fabric.num_devices + here
    return answer


def _pods(fabric: Fabric) -> Longs:
    """(N,) which switches hang together below the cores."""
    inner = fabric.role == Role.LEAF_SPINE
    ends = (fabric.a[inner], fabric.b[inner])
    joined = coo_array((np.ones(len(ends[0]), np.int8), ends), shape=(fabric.num_devices, fabric.num_devices))
    pod: Longs = connected_components(csr_array(joined), directed=False)[1].astype(np.int64)
    return pod


def _rails_mixed(fabric: Fabric) -> bool:
    """Whether some leaf joins NICs of several rails."""
    cable = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    rail, leaf = fabric.rail[fabric.a[cable]], fabric.b[cable]
    first = np.full(fabric.num_devices, -1, np.int64)
    first[leaf] = rail
    return bool(np.any(first[leaf] != rail))


def _turns(fabric: Fabric, groups: Groups) -> tuple[Longs, int]:
    """Each rank's place among the relays of its domain and rail, and what GPU numbers are taken modulo.

    Several relays share pairs by the sum of two GPU numbers modulo their number (`placement.relay`), so GPUs
    whose numbers differ there are not alike.  Where every relay is alone, all places are 0 and the modulus 1.
    """
    turn = np.zeros(len(groups.gpus), np.int64)
    modulus = 1
    if not groups.pxn.any():
        return turn, modulus
    domain, rail = domain_of_gpu(fabric).astype(np.int64), rail_of_gpu(fabric)
    width = int(rail.max(initial=0)) + 2
    row = np.repeat(np.arange(groups.num_groups), np.diff(groups.ptr))
    slot = (row * fabric.num_devices + domain[groups.gpus]) * width + rail[groups.gpus]
    order = np.lexsort((groups.gpus, slot))
    fresh = np.flatnonzero(np.diff(slot[order], prepend=-1) != 0)
    several = np.diff(fresh, append=len(order))
    turn[order] = np.arange(len(order)) - np.repeat(fresh, several)
    turn[~groups.pxn[row]] = 0
    for number in np.unique(several[groups.pxn[row[order[fresh]]]]).tolist():
        modulus = int(np.lcm(modulus, number))
    return turn, modulus
