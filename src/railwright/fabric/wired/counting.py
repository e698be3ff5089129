"""A fabric's parts counted from its graph, with its longest way and its bisection."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import dijkstra, maximum_flow

from railwright.catalog import find
from railwright.catalog.parts import Catalog
from railwright.fabric.counts import Counts
from railwright.fabric.graph import Fabric, Floats, Ints, Kind, Role
from railwright.fabric.wired.breakout import pieces, reserved_pieces
from railwright.units import GIGABIT

COPPER_REACH = 3.0
"""Longest passive copper cable at 100 Gb/s per lane [m]; a longer cable takes a transceiver at each end.

Source: NVIDIA, "LinkX 100G-PAM4 Product Line Overview" (docs.nvidia.com/networking, page of 2025-11-27):
direct attached copper reaches 3 m.  Active copper (to 5 m) counts as a pair of transceivers here.
"""
TWISTED_PAIR = GIGABIT
"""Fastest port that is a socket for twisted pair, which takes no transceiver [byte/s]: 1000BASE-T."""
TWISTED_PAIR_REACH = 100.0
"""Longest twisted pair [m]: 1000BASE-T (IEEE 802.3ab)."""


def count(fabric: Fabric, catalog: Catalog) -> Counts:
    """The parts of the scale-out network; faults do not remove a part, but lower the bisection.

    A director is one switch, also where it is drawn as its modules.
    """
    cabled = (fabric.role >= Role.NODE_LEAF) & ~fabric.backplane
    by_role = np.bincount(fabric.role[cabled], minlength=len(Role))
    by_kind = _units(fabric)
    tiers = [
        (int(by_kind[kind]), find(catalog.switches, fabric.parts[part]).power_max)
        for kind, part in ((Kind.LEAF, "leaf"), (Kind.SPINE, "spine"), (Kind.CORE, "core"))
        if part in fabric.parts
    ]
    return Counts(
        servers=fabric.num_servers,
        gpus=fabric.num_gpus,
        leaves=int(by_kind[Kind.LEAF]),
        spines=int(by_kind[Kind.SPINE]),
        cores=int(by_kind[Kind.CORE]),
        node_leaf=int(by_role[Role.NODE_LEAF]) + fabric.reserved_ports,
        leaf_spine=int(by_role[Role.LEAF_SPINE]),
        spine_core=int(by_role[Role.SPINE_CORE]),
        optics=optics(fabric),
        switch_power=sum(number * each for number, each in tiers),
        hops_max=hops_max(fabric),
        bisection=bisection(fabric),
        cages=_cages(fabric, catalog, cabled),
        unrated=sum(number for number, each in tiers if not each),
    )


def optics(fabric: Fabric) -> int:
    """Transceivers: two per cable longer than the reach of copper, those of reserved ports included.

    A breakout cable has one at every leg and one in the port that it splits.
    """
    reach = np.where(fabric.rate <= TWISTED_PAIR, TWISTED_PAIR_REACH, COPPER_REACH)
    beyond = fabric.length > reach
    cabled = (fabric.role >= Role.NODE_LEAF) & ~fabric.backplane
    to_nodes = beyond[fabric.role == Role.NODE_LEAF]
    far = np.flatnonzero(cabled & beyond)
    reserved = (fabric.reserved_ports + reserved_pieces(fabric)) * int(to_nodes[0])
    return len(far) + len(pieces(fabric, far)) + reserved


def hops_max(fabric: Fabric) -> int:
    """Switches on the longest of the shortest ways between two leaves that the network joins.

    Where rails meet only inside servers (rail-only), that is within a rail.
    """
    first = int(fabric.devices(Kind.LEAF)[0])
    leaves = len(fabric.devices(Kind.LEAF))
    between = fabric.role >= Role.LEAF_SPINE
    size = fabric.num_devices - first
    a, b = fabric.a[between] - first, fabric.b[between] - first
    steps = csr_array(coo_array((np.ones(len(a)), (a, b)), shape=(size, size)))
    above = steps[:leaves]
    # Leaves with the same spines are at the same distances: one of each kind is enough.
    alike = {above.indices[above.indptr[i] : above.indptr[i + 1]].tobytes(): i for i in range(leaves)}
    far = dijkstra(steps, directed=False, indices=sorted(alike.values()), unweighted=True)[:, :leaves]
    return int(far[np.isfinite(far)].max()) + 1


def bisection(fabric: Fabric) -> float:
    """What the first half of the servers can send to the second at once, one direction [byte/s].

    A maximum flow over the network's links as faults leave them.  Switches with the same neighbours at the
    same capacities are merged first: swapping two of them changes nothing, so some maximum flow treats them
    alike, and the merged network has the same maximum.
    """
    edges = _halves(fabric)
    if edges is None:
        return 0.0
    tail, head, weight = _merged(*edges)
    # The flow is solved in whole numbers: exactly in the rates' common divisor, else in 2^-30 of their sum.
    whole_bytes = np.rint(weight).astype(np.int64)
    unit = float(np.gcd.reduce(whole_bytes)) if np.array_equal(whole_bytes, weight) else 0.0
    if not unit or weight.sum() / unit > 2**30:
        unit = float(weight.sum()) / 2**30
    whole = np.rint(weight / unit).astype(np.int32)
    size = int(max(tail.max(), head.max())) + 1
    graph = csr_array(coo_array((whole, (tail, head)), shape=(size, size)))
    return float(maximum_flow(graph, 0, 1).flow_value * unit)


def _units(fabric: Fabric) -> Ints:
    """Devices of each kind as they are bought."""
    by_kind = np.bincount(fabric.kind, minlength=len(Kind)).astype(np.int32)
    if fabric.directors:
        top = int(fabric.kind.max())
        by_kind[top - 1 : top + 1] = fabric.directors, 0
    return by_kind


def _cages(fabric: Fabric, catalog: Catalog, cabled: NDArray[np.bool_]) -> int:
    """Switch cages that hold an end of one of the cables."""
    ends = np.concatenate([fabric.a[cabled], fabric.b[cabled]])
    ports = np.concatenate([fabric.port_a[cabled], fabric.port_b[cabled]]) - 1
    total = 0
    for kind, part in ((Kind.LEAF, "leaf"), (Kind.SPINE, "spine"), (Kind.CORE, "core")):
        at = fabric.kind[ends] == kind
        if not at.any():
            continue
        switch = find(catalog.switches, fabric.parts[part])
        parts = fabric.breakout if kind == Kind.LEAF else 1
        cage = ports[at] * switch.cages // (switch.ports * parts)
        total += len(np.unique(ends[at].astype(np.int64) * (switch.cages + 1) + cage))
    return total


def _halves(fabric: Fabric) -> tuple[Ints, Ints, Floats] | None:
    """Directed edges of the switch network, with all servers of each half drawn as one node: 0 sends to 1."""
    first = int(fabric.devices(Kind.LEAF)[0])
    node = np.arange(fabric.num_devices, dtype=np.int32) - first + 2
    servers = np.arange(first)
    node[servers] = (fabric.server[servers] >= fabric.num_servers // 2).astype(np.int32)
    cables = np.flatnonzero(fabric.role >= Role.NODE_LEAF)
    a, b = node[fabric.a[cables]], node[fabric.b[cables]]
    tail, head = np.concatenate([a, b]), np.concatenate([b, a])
    weight = np.concatenate([fabric.capacity[2 * cables], fabric.capacity[2 * cables + 1]])
    useful = (weight > 0) & (tail != 1) & (head != 0)
    if not useful.any() or not (tail[useful] == 0).any() or not (head[useful] == 1).any():
        return None
    return _summed(tail[useful], head[useful], weight[useful])


def _summed(tail: Ints, head: Ints, weight: Floats) -> tuple[Ints, Ints, Floats]:
    """Parallel edges added up."""
    size = int(max(tail.max(), head.max())) + 1
    pairs, where = np.unique(tail.astype(np.int64) * size + head, return_inverse=True)
    total = np.bincount(where, weight).astype(np.float64)
    return (pairs // size).astype(np.int32), (pairs % size).astype(np.int32), total


def _merged(tail: Ints, head: Ints, weight: Floats) -> tuple[Ints, Ints, Floats]:
    """Edges after merging nodes with equal rows (neighbours and weights), until no two are equal."""
    while True:
        size = int(max(tail.max(), head.max())) + 1
        rows = csr_array(coo_array((weight, (tail, head)), shape=(size, size)))
        columns = csr_array(coo_array((weight, (head, tail)), shape=(size, size)))
        known: dict[tuple[bytes, ...], int] = {}
        new = np.zeros(size, np.int32)
        for node in range(size):
            key: tuple[bytes, ...] = (bytes([node]),) if node < 2 else _row(rows, node) + _row(columns, node)
            new[node] = known.setdefault(key, len(known))
        if len(known) == size:
            return tail, head, weight
        tail, head, weight = _summed(new[tail], new[head], weight)


def _row(matrix: csr_array, node: int) -> tuple[bytes, bytes]:
    """A node's neighbours and weights, as something that can be compared."""
    part = slice(matrix.indptr[node], matrix.indptr[node + 1])
    order = np.argsort(matrix.indices[part])
    return matrix.indices[part][order].tobytes(), matrix.data[part][order].tobytes()
