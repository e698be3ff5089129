"""The traffic that is priced with and without a failure, and which of it can still be delivered.

Legend: F demands; n ranks of a group; D scale-up domains; a signature is a set of parts of the network that
a NIC reaches, parts being what failures leave of the switches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from railwright import traffic
from railwright.errors import PlanError, nearest
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.traffic import Communicator, Groups, Traffic, domain_of_gpu
from railwright.traffic.per_fabric import per_fabric
from railwright.traffic.placement import relay

Flags = NDArray[np.bool_]
Longs = NDArray[np.int64]

LISTED = 10_000
"""Pairs of all-to-alls up to which they are written out; beyond, the lifted engine is the quicker."""

SIZE = float(2**30)
"""Bytes that each rank holds unless said otherwise; slowdowns do not depend on it."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """What all groups of ranks send at once.

    name    one of PATTERNS
    groups  ranks in order; a group that a failure leaves with one rank or none is silent
    pxn     whether pairs on different rails go through a GPU of the source's server on the destination's
    remap   whether the GPUs of a dead NIC send through another one; otherwise their server is left out
    size    bytes that each rank holds [byte]
    """

    name: str
    groups: tuple[Communicator, ...]
    pxn: bool = True
    remap: bool = True
    size: float = SIZE

    def __post_init__(self) -> None:
        if self.name not in PATTERNS:
            known = ", ".join(PATTERNS)
            raise PlanError(f"no pattern '{self.name}'; known are {known}{nearest(self.name, PATTERNS)}")

    @property
    def in_order(self) -> bool:
        """Whether the order of ranks decides who sends to whom."""
        return self.name != "all-to-all"

    @property
    def chained(self) -> bool:
        """Whether servers are joined in an order that closes up where one is left out, NIC by NIC."""
        return self.name in ("ring", "tree")

    @property
    def reorders(self) -> bool:
        """Whether the servers that stay are joined anew where one is left out: a tree is laid over them by
        their places, and a ring without PXN walks every other one backwards."""
        return self.name == "tree" or (self.name == "ring" and not self.pxn)


def world(fabric: Fabric) -> tuple[Communicator, ...]:
    """One group of all GPUs."""
    return (Communicator(np.arange(fabric.num_gpus, dtype=np.int32)),)


def demands(fabric: Fabric, pattern: Pattern, left_out: Collection[int] = ()) -> Traffic | Groups:
    """The pattern's demands among the GPUs of all servers but those left out.

    All-to-alls of more than LISTED pairs are described by their groups.
    """
    if not pattern.in_order:
        groups = [g for g in _remaining(fabric, pattern, left_out) if len(g) > 1]
        if sum(len(g) * (len(g) - 1) for g in groups) > LISTED:
            per_pair = [pattern.size / len(g) for g in groups]
            return Groups.all_to_all([g.gpus for g in groups], per_pair, pattern.pxn)
    return listed(fabric, pattern, left_out)


def listed(fabric: Fabric, pattern: Pattern, left_out: Collection[int] = ()) -> Traffic:
    """The same, written out."""
    sends = PATTERNS[pattern.name]
    partners = pattern.in_order and not pattern.chained
    whole = pattern.groups if partners else _remaining(fabric, pattern, left_out)
    sent = traffic.join([sends(fabric, g, pattern.size, pattern.pxn) for g in whole if len(g) > 1])
    if not (partners and left_out):
        return sent
    gone = np.isin(fabric.server[: fabric.num_gpus], list(left_out))
    keep = ~(gone[sent.src] | gone[sent.dst])
    return Traffic(sent.src[keep], sent.dst[keep], sent.relay[keep], sent.size[keep])


def ranks(fabric: Fabric, pattern: Pattern, left_out: Collection[int] = ()) -> int:
    """GPUs that take part, those of servers left out aside."""
    groups = _remaining(fabric, pattern, left_out)
    return len(np.unique(np.concatenate([g.gpus for g in groups]))) if groups else 0


def undeliverable(fabric: Fabric, pattern: Pattern, left_out: Collection[int] = ()) -> tuple[int, list[int]]:
    """Ordered pairs of the pattern without a live path, and servers to leave out so that the rest has one.

    The servers are found greedily: the one with the most such pairs goes first, of equals the first.
    """
    if pattern.in_order:
        return _in_order(fabric, pattern, left_out)
    pairs, gone = 0, set(left_out)
    for group in _remaining(fabric, pattern, left_out):
        lost, servers, _ = _all_pairs(fabric, group, pattern.pxn)
        pairs += lost
        gone.update(servers)
    return pairs, sorted(gone - set(left_out))


def hangs_on_order(fabric: Fabric, pattern: Pattern, left_out: Collection[int] = ()) -> bool:
    """Whether servers of an all-to-all that cannot meet were as good to keep, so that the first stayed."""
    return any(_all_pairs(fabric, group, pattern.pxn)[2] for group in _remaining(fabric, pattern, left_out))


def pairs_with(fabric: Fabric, pattern: Pattern, servers: Collection[int]) -> int:
    """Ordered pairs of the pattern with an end in one of some servers."""
    if not servers:
        return 0
    inside = np.isin(fabric.server[: fabric.num_gpus], list(servers))
    if pattern.in_order:
        sent = listed(fabric, pattern)
        return int(np.count_nonzero(inside[sent.src] | inside[sent.dst]))
    total = 0
    for group in pattern.groups:
        n, stay = len(group), int(np.count_nonzero(~inside[group.gpus]))
        total += n * (n - 1) - stay * (stay - 1)
    return total


def _all_to_all(fabric: Fabric, comm: Communicator, size: float, pxn: bool) -> Traffic:
    return traffic.all_to_all(fabric, comm, size / len(comm), pxn)


def _ring(fabric: Fabric, comm: Communicator, size: float, pxn: bool) -> Traffic:
    """All-reduce: every rank sends 2(n-1)/n of its bytes once around."""
    return traffic.ring(fabric, comm, 2 * (len(comm) - 1) / len(comm) * size, pxn)


def _tree(fabric: Fabric, comm: Communicator, size: float, pxn: bool) -> Traffic:
    """All-reduce over the double binary tree, whose edges stay on one rail whether PXN is on or not."""
    return traffic.tree(fabric, comm, size)


def _bisection(fabric: Fabric, comm: Communicator, size: float, pxn: bool) -> Traffic:
    """Rank i and rank i + n/2 send to each other: all bytes cross the middle of the group.

    A rank whose partner is left out is silent.
    """
    half = len(comm) // 2
    low, high = comm.gpus[:half], comm.gpus[half : 2 * half]
    return traffic.send_recv(fabric, np.concatenate([low, high]), np.concatenate([high, low]), size, pxn)


Sends = Callable[[Fabric, Communicator, float, bool], Traffic]

PATTERNS: Mapping[str, Sends] = {
    "all-to-all": _all_to_all,
    "ring": _ring,
    "tree": _tree,
    "bisection": _bisection,
}


def _remaining(fabric: Fabric, pattern: Pattern, left_out: Collection[int]) -> list[Communicator]:
    if not left_out:
        return list(pattern.groups)
    stays = ~np.isin(fabric.server[: fabric.num_gpus], list(left_out))
    return [Communicator(group.gpus[stays[group.gpus]], group.name) for group in pattern.groups]


def _in_order(fabric: Fabric, pattern: Pattern, left_out: Collection[int]) -> tuple[int, list[int]]:
    pairs, gone = -1, list(left_out)
    while True:
        sent = listed(fabric, pattern, gone)
        lost = ~_delivered(fabric, sent)
        if pairs < 0:
            pairs = int(np.count_nonzero(lost))
        if not lost.any():
            return pairs, sorted(set(gone) - set(left_out))
        ends = np.concatenate([sent.src[lost], sent.dst[lost]])
        gone.append(int(np.argmax(np.bincount(fabric.server[ends]))))


def _all_pairs(fabric: Fabric, group: Communicator, pxn: bool) -> tuple[int, list[int], bool]:
    """The same for all ordered pairs of a group, by kinds of scale-up domain instead of pair by pair, and
    whether only the order of kinds, or of a kind's domains, told who stays.

    A kind: which rails and which parts of the network the NICs of a domain's ranks have.  Whether two ranks
    meet depends on the kinds of their domains and their places in them.
    """
    reach, meets = _reach(fabric)
    gpus = np.sort(group.gpus)
    nic = fabric.nic_of_gpu[gpus]
    if not len(gpus) or meets[np.ix_(np.unique(reach[nic]), np.unique(reach[nic]))].all():
        return 0, [], False
    domain = domain_of_gpu(fabric)[gpus]
    gpus = gpus[np.argsort(domain, kind="stable")]
    members = np.split(gpus, np.flatnonzero(np.diff(np.sort(domain))) + 1)
    kinds: dict[tuple[bytes, bytes], list[int]] = {}
    for i, of_domain in enumerate(members):
        nics = fabric.nic_of_gpu[of_domain]
        kinds.setdefault((reach[nics].tobytes(), fabric.rail[nics].tobytes()), []).append(i)
    found = list(kinds.values())
    lost = np.zeros((len(found), len(found)), np.int64)
    for x, some in enumerate(found):
        for y, others in enumerate(found):
            if x == y and len(some) < 2:
                continue
            one, other = members[some[0]], members[others[1] if x == y else others[0]]
            src, dst = (end.reshape(-1) for end in np.meshgrid(one, other, indexing="ij"))
            via = relay(fabric, group.gpus, src, dst) if pxn else np.full(len(src), -1, np.int32)
            size = np.ones(len(src))
            lost[x, y] = np.count_nonzero(~_delivered(fabric, Traffic(src, dst, via, size)))
    count = np.array([len(some) for some in found])
    pairs = int((lost * (np.outer(count, count) - np.diag(count))).sum())

    apart = (lost + lost.T) > 0
    gpus_of = np.array(
        [len(members[some[0]]) * (1 if apart[k, k] else len(some)) for k, some in enumerate(found)]
    )
    owners = np.bincount(fabric.nic_of_gpu)
    crowd_of = np.array([owners[fabric.nic_of_gpu[members[some[0]]]].sum() for some in found])
    kept: list[int] = []
    tied = bool((np.diag(apart) & (np.array([len(some) for some in found]) > 1)).any())
    for k in np.lexsort((crowd_of, -gpus_of)).tolist():
        rivals = [j for j in kept if apart[k, j]]
        if not rivals:
            kept.append(k)
        tied |= any((gpus_of[j], crowd_of[j]) == (gpus_of[k], crowd_of[k]) for j in rivals)
    stays = {i for k in kept for i in (found[k][:1] if apart[k, k] else found[k])}
    gone = [fabric.server[members[i][0]] for i in range(len(members)) if i not in stays]
    return pairs, sorted({int(server) for server in gone}), tied


def _delivered(fabric: Fabric, sent: Traffic) -> Flags:
    """(F,) whether a live path joins the ends of each demand."""
    reach, meets = _reach(fabric)
    domain = domain_of_gpu(fabric)
    out = fabric.nic_of_gpu[np.where(sent.relay >= 0, sent.relay, sent.src)]
    into = fabric.nic_of_gpu[sent.dst]
    at_home: Flags = (domain[sent.src] == domain[sent.dst]) | (out == into)
    return at_home | meets[reach[out], reach[into]]


@lru_cache(maxsize=256)
def _parts(devices: int, lower: bytes, upper: bytes) -> Longs:
    """(devices,) part of the network that each is in, by the ends of the cables between switches.

    Most failures leave these as they were.
    """
    a, b = np.frombuffer(lower, np.int32), np.frombuffer(upper, np.int32)
    joined = coo_array((np.ones(len(a)), (a, b)), shape=(devices, devices))
    part: Longs = connected_components(csr_array(joined), directed=False)[1]
    return part


@per_fabric
def _reach(fabric: Fabric) -> tuple[Longs, Flags]:
    """(N,) signature of each NIC, and whether two signatures have a part in common."""
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    between = alive & (fabric.role >= Role.LEAF_SPINE)
    n = fabric.num_devices
    part = _parts(n, fabric.a[between].tobytes(), fabric.b[between].tobytes())
    down = alive & (fabric.role == Role.NODE_LEAF)
    _, column = np.unique(part[fabric.b[down]], return_inverse=True)
    nics = fabric.devices(Kind.NIC)
    touches = np.zeros((len(nics), int(column.max(initial=0)) + 1), bool)
    touches[fabric.a[down] - nics[0], column] = True
    signatures, which = np.unique(touches, axis=0, return_inverse=True)
    reach = np.zeros(n, np.int64)
    reach[nics] = which.reshape(-1)
    return reach, (signatures.astype(np.int64) @ signatures.T.astype(np.int64)) > 0
