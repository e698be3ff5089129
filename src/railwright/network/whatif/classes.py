"""Elements whose failure has the same effect: colour refinement of the fabric with its traffic drawn in.

Legend: N nodes (devices, then hubs: one per server, rail and group of ranks), E directed edges of the graph
that is refined, C cables of the fabric.

Two elements of one colour see the same fabric and the same traffic around them to any distance.  That is
necessary for their failures to cost the same; tests/property/test_network_whatif_classes.py solves every
element by itself and compares.  Colours are 64-bit hashes that depend on the structure alone, not on
numbering, so colours of two graphs can be compared.
Source: Grohe, Kersting, Mladenov, Selman, "Dimension reduction via colour refinement", ESA 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from math import factorial, prod

import numpy as np
from numpy.typing import NDArray

from railwright.fabric import lost_servers
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.paths import find_routes
from railwright.network.routing.solution import Network
from railwright.network.routing.switching import splitmix
from railwright.network.whatif.elements import KINDS, Element, fault
from railwright.network.whatif.pattern import Pattern, listed
from railwright.network.whatif.price import after, arbitrary
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]


@dataclass(frozen=True, eq=False)
class Scene:
    """The graph that is refined.

    colour       (N,) what each node is to begin with
    tail, head   (E,) edges, by head; a node hears its in-edges
    label        (E,) what each edge is
    start        first edge of each node that has any; `heard` are those nodes
    cable_edge   (C,) edge that carries cable c from its lower to its upper end
    num_devices  nodes before the hubs; hub of server s is num_devices + s
    """

    colour: Words
    tail: Longs
    head: Longs
    label: Words
    start: Longs
    heard: Longs
    cable_edge: Longs
    reverse_edge: Longs
    num_devices: int


def classes(fabric: Fabric, patterns: Sequence[Pattern], found: Sequence[Element]) -> list[list[int]]:
    """The elements in classes of equal effect on every pattern: indices, by first member.

    Ends of links that are slow or dead already have colours of their own: then plain refinement, which can
    be too coarse where several faults meet (../shared/SYMMETRY notes, "the trap"), stays exact.
    """
    key = np.zeros(len(found), np.uint64)
    strands = np.array([_may_strand(fabric, element) for element in found], bool)
    for pattern in patterns:
        drawn = scene(fabric, pattern, placed=False)
        colour = element_colours(drawn, refine(drawn), found)
        if pattern.chained and strands.any():
            drawn = scene(fabric, pattern)
            colour = np.where(strands, element_colours(drawn, refine(drawn), found), colour)
        if pattern.in_order:
            for part in group(colour):
                gone = after(fabric, pattern, [found[part[0]]])[1]
                dead = lost_servers(fabric, [fault(fabric, found[part[0]])]) if gone else []
                if gone and (pattern.reorders or gone != dead):
                    # Which servers go, or which side of a cut, decides how the others are joined.
                    colour[part] = splitmix(colour[part] ^ splitmix(np.array(part, np.uint64)))
        else:
            for part in group(colour):
                if len(part) > 1 and arbitrary(fabric, pattern, [found[part[0]]]):
                    colour[part] = splitmix(colour[part] ^ splitmix(np.array(part, np.uint64)))
        key = splitmix(key) ^ colour
    return group(key)


def group(key: Words) -> list[list[int]]:
    """Indices of equal keys together, by first member."""
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    order = np.argsort(which, kind="stable")
    parts = np.split(order, np.cumsum(np.bincount(which))[:-1])
    return [parts[i].tolist() for i in np.argsort(first, kind="stable")]


def element_colours(drawn: Scene, colour: Words, found: Sequence[Element]) -> Words:
    """(elements,) colour of each: of its device, its server's hub, or both ends of its cable."""
    what = np.array([_word(e.kind, e.left) for e in found], np.uint64)
    device = np.array([_node(drawn, e) for e in found], np.int64)
    cable = np.array([e.cable for e in found], np.int64)
    edge = drawn.cable_edge[np.maximum(cable, 0)]
    ends = splitmix(splitmix(colour[drawn.tail[edge]]) ^ drawn.label[edge]) + colour[drawn.head[edge]]
    own = np.where(cable >= 0, splitmix(ends), colour[np.maximum(device, 0)])
    return splitmix(own ^ what)


def set_key(drawn: Scene, chosen: Sequence[Element]) -> int:
    """A word that is equal for sets of elements whose failure together has the same effect.

    Each element in turn is marked before the others, and the colours of all nodes are added up.
    """
    words: list[int] = []
    for i in range(len(chosen)):
        marks = [(element, 2 if j == i else 1) for j, element in enumerate(chosen)]
        words.append(int(splitmix(refine(drawn, marks)).sum(dtype=np.uint64)))
    return hash(tuple(sorted(words)))


def refine(drawn: Scene, marks: Sequence[tuple[Element, int]] = ()) -> Words:
    """(N,) colours of the coarsest equitable partition, elements marked with a number told from others."""
    colour, label = drawn.colour, drawn.label
    if marks:
        colour, label = colour.copy(), label.copy()
        for element, number in marks:
            word = _word(element.kind, element.left, number)
            if element.cable >= 0:
                for edge in (drawn.cable_edge[element.cable], drawn.reverse_edge[element.cable]):
                    label[edge] = splitmix(label[edge : edge + 1] + word)[0]
            else:
                node = _node(drawn, element)
                colour[node] = splitmix(colour[node : node + 1] + word)[0]
    kinds = 0
    heard = np.zeros(len(colour), np.uint64)
    with np.errstate(over="ignore"):
        while True:
            said = splitmix(splitmix(colour)[drawn.tail] ^ label)
            heard[drawn.heard] = np.add.reduceat(said, drawn.start)
            colour = splitmix(splitmix(colour) + heard)
            number = len(np.unique(colour))
            if number == kinds:
                return colour
            kinds = number


def scene(fabric: Fabric, pattern: Pattern, placed: bool = True) -> Scene:
    """The fabric and the pattern's traffic as one graph with labels.

    placed  tell a server's GPUs and NICs apart where the pattern is chained (once a NIC is dead, its server
            offers one channel less, and channels join NICs in order of rail) or relayed (once a GPU has
            moved, PXN picks among the owners of its rail by the GPUs' numbers)
    """
    n, servers = fabric.num_devices, fabric.num_servers
    gpus, nics = np.arange(fabric.num_gpus), fabric.devices(Kind.NIC).astype(np.int64)
    first_nic, per_server = int(nics[0]), len(nics) // servers
    rails = int(fabric.rail.max(initial=-1)) + 1
    rail_hub, group_hub = n + servers, n + servers + rails
    size = group_hub + len(pattern.groups)

    beside = first_nic + (nics - first_nic) // per_server * per_server + (nics - first_nic + 1) % per_server
    inside = np.flatnonzero(fabric.server >= 0)
    on_rail = np.flatnonzero((fabric.rail >= 0) & (fabric.kind == Kind.NIC))
    members = np.concatenate([g.gpus for g in pattern.groups]).astype(np.int64)
    of_group = np.repeat(np.arange(len(pattern.groups)), [len(g) for g in pattern.groups])
    lower, upper = fabric.a.astype(np.int64), fabric.b.astype(np.int64)
    role = fabric.role.astype(np.uint64)
    capacity = splitmix(np.ascontiguousarray(fabric.capacity).view(np.uint64))
    # Refinement alone cannot tell two cables to one switch from two cables to two alike switches.
    _, twin, twins = np.unique(lower * n + upper, return_inverse=True, return_counts=True)
    with np.errstate(over="ignore"):
        cable = splitmix(splitmix(capacity[0::2]) + capacity[1::2] + role)
        cable = splitmix(cable + twins[twin].astype(np.uint64))
        cable = splitmix(cable + _beside(fabric))
    pairs: list[tuple[Longs, Longs, Words]] = [
        (lower, upper, cable),
        _plain(gpus, fabric.nic_of_gpu.astype(np.int64), 101),
        # A dead NIC's GPU moves to the next NIC of the server: order among NICs counts.
        (nics, beside, _same_leaves(fabric, nics, beside)),
        _plain(inside, n + fabric.server[inside], 103),
        _plain(on_rail, rail_hub + fabric.rail[on_rail], 104),
        _plain(members, group_hub + of_group, 105),
    ]
    if pattern.in_order:
        sent = listed(fabric, pattern)
        amount = splitmix(np.ascontiguousarray(sent.size).view(np.uint64) ^ _way(fabric, sent))
        src, dst = sent.src.astype(np.int64), sent.dst.astype(np.int64)
        via = np.flatnonzero(sent.relay >= 0)
        relay = sent.relay[via].astype(np.int64)
        pairs += [(src, dst, amount ^ np.uint64(106)), (src[via], relay, amount[via] ^ np.uint64(107))]
    tail = np.concatenate([x for a, b, _ in pairs for x in (a, b)])
    head = np.concatenate([x for a, b, _ in pairs for x in (b, a)])
    label = np.concatenate([x for _, _, w in pairs for x in (splitmix(w), splitmix(w ^ np.uint64(2**63)))])
    order = np.argsort(head, kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    heard, start = np.unique(head[order], return_index=True)
    cables = fabric.num_cables
    return Scene(
        _first_colours(fabric, placed and (pattern.chained or pattern.pxn), size),
        tail[order],
        head[order],
        label[order],
        start,
        heard,
        place[:cables],
        place[cables : 2 * cables],
        n,
    )


def _beside(fabric: Fabric) -> Words:
    """(C,) for a NIC's cable, how many its server has to that leaf and to that pod; 0 for other cables.

    Refinement alone cannot tell two NICs on one leaf from two on leaves alike.
    """
    word = np.zeros(fabric.num_cables, np.uint64)
    up = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    server = fabric.server[fabric.a[up]].astype(np.int64)
    for place in (fabric.b[up], fabric.group[fabric.b[up]]):
        _, which, count = np.unique(
            server * (fabric.num_devices + 1) + place, return_inverse=True, return_counts=True
        )
        word[up] = splitmix(word[up] ^ count[which].astype(np.uint64))
    return word


def _same_leaves(fabric: Fabric, one: Longs, other: Longs) -> Words:
    """(pairs,) a word that says whether two NICs have the same leaves: refinement sees no circles."""
    up = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    with np.errstate(over="ignore"):
        leaves = np.zeros(fabric.num_devices, np.uint64)
        np.add.at(leaves, fabric.a[up], splitmix(fabric.b[up].astype(np.uint64)))
    return np.where(leaves[one] == leaves[other], np.uint64(102), np.uint64(108))


def _way(fabric: Fabric, sent: Traffic) -> Words:
    """(F,) how far each demand goes and over how many links: refinement alone sees no circles, so not whether
    the next rank of a ring is under the same leaf, in the same pod or beyond."""
    routes = find_routes(Network(fabric), sent)
    width = np.diff(routes.spread_ptr)
    links = np.where(routes.spread >= 0, width[routes.spread], 0) if len(width) else np.zeros(len(sent), int)
    return splitmix(routes.hops.astype(np.uint64) << np.uint64(32) | links.astype(np.uint64))


def _may_strand(fabric: Fabric, element: Element) -> bool:
    """Whether its failure can leave a NIC without a leaf."""
    if element.cable >= 0:
        return element.kind == "cable" and int(fabric.role[element.cable]) == Role.NODE_LEAF
    return element.kind in ("nic", "leaf", "server")


def _first_colours(fabric: Fabric, placed: bool, size: int) -> Words:
    """Kind of each device; where asked for, also its place in the server."""
    n = fabric.num_devices
    colour = np.full(size, 50, np.uint64)
    colour[:n] = fabric.kind
    if placed:
        host = np.flatnonzero(fabric.server >= 0)
        number = np.zeros(n, np.int64)
        for kind in (Kind.GPU, Kind.NIC):
            devices = fabric.devices(kind)
            number[devices] = np.arange(len(devices)) % max(len(devices) // fabric.num_servers, 1)
        colour[host] += np.uint64(1000) * (number[host] + 1).astype(np.uint64)
    hurt = np.flatnonzero(
        (np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) < fabric.rate)
        & (fabric.role >= Role.SCALE_UP)
    )
    ends = np.unique(np.concatenate([fabric.a[hurt], fabric.b[hurt]]))
    colour[ends] += np.uint64(1 << 40) * (ends + 1).astype(np.uint64)
    colour[n : n + fabric.num_servers] = 51
    return splitmix(colour)


def _plain(lower: NDArray[np.integer], upper: NDArray[np.integer], what: int) -> tuple[Longs, Longs, Words]:
    return lower.astype(np.int64), upper.astype(np.int64), np.full(len(lower), what, np.uint64)


def _node(drawn: Scene, element: Element) -> int:
    return element.device + (drawn.num_devices if element.kind == "server" else 0)


@cache
def _word(kind: str, left: float, number: int = 0) -> np.uint64:
    """A word for what happens to an element; Python's own hash of a string differs from run to run."""
    word = np.zeros(1, np.uint64)
    for part in (KINDS.index(kind), round(left * 1e9), number):
        word = splitmix(word ^ np.array([part], np.uint64))
    return np.uint64(word[0])


def class_sets(
    drawn: Scene, found: Sequence[Element], k: int, limit: int
) -> list[tuple[tuple[int, ...], int]] | None:
    """One k-set of elements (by index) for each class of alike ones, and how many sets are in the class.

    None when there are more than `limit` classes.  Elements are chosen one after the other, each marked
    before the next is; sets are met once per order of equal elements, which the count divides out.
    """
    of = np.zeros(len(found), np.int64)
    for number, part in enumerate(group(element_colours(drawn, refine(drawn), found))):
        of[part] = number
    sets: list[tuple[tuple[int, ...], Fraction]] = []

    def extend(chosen: tuple[int, ...], ways: int) -> bool:
        if len(chosen) == k:
            repeats = np.unique(of[list(chosen)], return_counts=True)[1]
            sets.append((chosen, Fraction(ways, prod(factorial(int(r)) for r in repeats))))
            return len(sets) <= limit
        marks = [(found[i], place + 1) for place, i in enumerate(chosen)]
        for part in group(element_colours(drawn, refine(drawn, marks), found)):
            rest = [i for i in part if i not in chosen]
            late = not chosen or (rest and of[rest[0]] >= of[chosen[-1]])
            if rest and late and not extend((*chosen, rest[0]), ways * len(rest)):
                return False
        return True

    return _whole(drawn, found, sets) if extend((), 1) else None


def _whole(
    drawn: Scene, found: Sequence[Element], sets: Sequence[tuple[tuple[int, ...], Fraction]]
) -> list[tuple[tuple[int, ...], int]]:
    """The same with whole counts: a set met in two orders that are not alike is half in each."""
    first: dict[int, int] = {}
    count: list[tuple[tuple[int, ...], Fraction]] = []
    for chosen, number in sets:
        if number.denominator == 1:
            count.append((chosen, number))
            continue
        key = set_key(drawn, [found[i] for i in chosen])
        if key in first:
            known = first[key]
            count[known] = count[known][0], count[known][1] + number
        else:
            first[key] = len(count)
            count.append((chosen, number))
    return [(chosen, int(number)) for chosen, number in count]
