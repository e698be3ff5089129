"""Rounds of pair tests that run at the same time without meeting on a cable: group testing on known routing.

Every NIC is in one pair of each round, tested both ways.  Partners change from round to round, so that what
two slow pairs have in common is soon one element.  Legend: F NICs' GPUs, L directed links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.paths import Routing, traffic_of
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.network.routing.paths import find_routes

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

TRIES = 10
"""Passes over the GPUs still without a partner; those left then pair under their own leaf."""


@dataclass(frozen=True, eq=False)
class Round:
    """Pairs that run at the same time.

    a, b    (n,) GPU ids of the partners
    shared  (n,) most pairs that share a cable with this one, itself included: 1 is a clean test
    """

    a: Ints
    b: Ints
    shared: Ints

    def __len__(self) -> int:
        return len(self.a)

    def transfers(self) -> tuple[Ints, Ints]:
        """(src, dst) of all transfers: each pair there, then each pair back."""
        return np.concatenate([self.a, self.b]), np.concatenate([self.b, self.a])


def rounds(
    fabric: Fabric, routing: Routing, count: int, seed: int = 0, avoid: Ints | None = None
) -> list[Round]:
    """`count` rounds over all GPUs with a NIC of their own.

    avoid  GPUs that are left out
    Raises PlanError when fewer than two GPUs are left, or none can reach another.
    """
    _, first = np.unique(fabric.nic_of_gpu, return_index=True)
    gpus = first.astype(np.int64)
    if avoid is not None:
        gpus = gpus[~np.isin(gpus, avoid)]
    if len(gpus) < 2 or fabric.num_servers < 2:
        raise PlanError("pair tests need two servers at least; a single server is tested from inside")
    rng = np.random.default_rng(seed)
    leaf, seat = _seats(fabric, gpus)
    met: set[tuple[int, int]] = set()
    return [_round(fabric, routing, gpus, leaf, seat, rng, number, met) for number in range(count)]


def _round(
    fabric: Fabric,
    routing: Routing,
    gpus: Ints,
    leaf: Ints,
    seat: Ints,
    rng: np.random.Generator,
    number: int,
    met: set[tuple[int, int]],
) -> Round:
    load = np.zeros(fabric.num_links, np.int64)
    left = np.ones(len(gpus), np.bool_)
    pairs: list[tuple[int, int]] = []
    for attempt in range(TRIES):
        a, b = _proposed(fabric, gpus, leaf, seat, np.flatnonzero(left), rng, number, attempt)
        if not len(a):
            break
        keep = _accepted(fabric, routing, gpus[a], gpus[b], load)
        fresh = [k for k in np.flatnonzero(keep).tolist() if (int(a[k]), int(b[k])) not in met]
        for k in fresh:
            pairs.append((int(a[k]), int(b[k])))
            left[[a[k], b[k]]] = False
        load += _loads(fabric, routing, gpus[a[fresh]], gpus[b[fresh]])
    for mine in _by_leaf(leaf, left, rng):
        for one, other in zip(mine[0::2], mine[1::2], strict=False):
            pairs.append((int(one), int(other)))
            left[[one, other]] = False
    rest = np.flatnonzero(left)
    rng.shuffle(rest)
    for one, other in zip(rest[0::2].tolist(), rest[1::2].tolist(), strict=False):
        if fabric.server[gpus[one]] != fabric.server[gpus[other]] and _reach(
            fabric, routing, gpus[[one]], gpus[[other]]
        ):
            pairs.append((one, other))
    met.update(pairs)
    met.update((b, a) for a, b in pairs)
    ordered = np.array(sorted((min(p), max(p)) for p in pairs), np.int64).reshape(-1, 2)
    one, other = gpus[ordered[:, 0]], gpus[ordered[:, 1]]
    return Round(one, other, _shared(fabric, routing, one, other))


def _proposed(
    fabric: Fabric,
    gpus: Ints,
    leaf: Ints,
    seat: Ints,
    left: Ints,
    rng: np.random.Generator,
    number: int,
    attempt: int,
) -> tuple[Ints, Ints]:
    """Pairs of places in `gpus`, on different leaves and servers.

    First leaf by leaf, seats turned by the number of the round: a subnet manager deals destinations to
    spines by their seat, so such pairs seldom meet.  Then at random.
    """
    if attempt < 2:
        order = rng.permutation(np.unique(leaf[left]))
        found_a: list[Ints] = []
        found_b: list[Ints] = []
        for one, other in zip(order[0::2], order[1::2], strict=False):
            mine, theirs = left[leaf[left] == one], left[leaf[left] == other]
            size = min(len(mine), len(theirs))
            mine, theirs = mine[np.argsort(seat[mine])], theirs[np.argsort(seat[theirs])]
            found_a.append(mine[:size])
            found_b.append(np.roll(theirs, -number)[:size])
        a = np.concatenate(found_a) if found_a else left[:0]
        b = np.concatenate(found_b) if found_b else left[:0]
    else:
        mixed = rng.permutation(left)
        half = len(mixed) // 2
        a, b = mixed[:half], mixed[half : 2 * half]
    good = (leaf[a] != leaf[b]) & (fabric.server[gpus[a]] != fabric.server[gpus[b]])
    return a[good], b[good]


def _accepted(fabric: Fabric, routing: Routing, a: Ints, b: Ints, load: Ints) -> NDArray[np.bool_]:
    """Which pairs, taken in turn, meet no other on a cable; where paths are hashed, all that reach."""
    keep = np.zeros(len(a), np.bool_)
    if not _reach(fabric, routing, a, b):
        return np.array([_reach(fabric, routing, a[[k]], b[[k]]) for k in range(len(a))], np.bool_)
    if not routing.certain:
        return ~keep
    ptr, link, _ = find_routes(
        routing.network(fabric), traffic_of(np.concatenate([a, b]), np.concatenate([b, a]))
    ).flat()
    busy = load.copy()
    number = len(a)
    for k in range(number):
        mine = np.concatenate([link[ptr[k] : ptr[k + 1]], link[ptr[number + k] : ptr[number + k + 1]]])
        if not busy[mine].any():
            busy[mine] += 1
            keep[k] = True
    return keep


def _reach(fabric: Fabric, routing: Routing, a: Ints, b: Ints) -> bool:
    try:
        find_routes(routing.network(fabric), traffic_of(np.concatenate([a, b]), np.concatenate([b, a])))
    except PlanError:
        return False
    return True


def _loads(fabric: Fabric, routing: Routing, a: Ints, b: Ints) -> Ints:
    """(L,) transfers of these pairs, both ways, on each link; 0 everywhere where paths are hashed."""
    if not len(a) or not routing.certain:
        return np.zeros(fabric.num_links, np.int64)
    traffic = traffic_of(np.concatenate([a, b]), np.concatenate([b, a]))
    routes = find_routes(routing.network(fabric), traffic)
    return np.rint(routes.carried(np.ones(len(traffic)), fabric.num_links)).astype(np.int64)


def _shared(fabric: Fabric, routing: Routing, a: Ints, b: Ints) -> Ints:
    """(n,) most transfers on any link of each pair; 1 where paths are hashed."""
    if not len(a) or not routing.certain:
        return np.ones(len(a), np.int64)
    traffic = traffic_of(np.concatenate([a, b]), np.concatenate([b, a]))
    routes = find_routes(routing.network(fabric), traffic)
    worst = routes.worst(routes.carried(np.ones(len(traffic)), fabric.num_links))
    return np.rint(np.maximum(worst[: len(a)], worst[len(a) :])).astype(np.int64)


def _by_leaf(leaf: Ints, left: NDArray[np.bool_], rng: np.random.Generator) -> list[Ints]:
    """Places still free, leaf by leaf, shuffled."""
    free = np.flatnonzero(left)
    return [rng.permutation(free[leaf[free] == k]) for k in np.unique(leaf[free])]


def _seats(fabric: Fabric, gpus: Ints) -> tuple[Ints, Ints]:
    """(leaf, seat on it) of each GPU's NIC; of several leaves the first."""
    down = np.flatnonzero(fabric.role == Role.NODE_LEAF)
    home = np.full(fabric.num_devices, -1, np.int64)
    home[fabric.a[down][::-1]] = fabric.b[down][::-1]
    leaf = home[fabric.nic_of_gpu[gpus]]
    seat = np.zeros(len(gpus), np.int64)
    for k in np.unique(leaf):
        at = np.flatnonzero(leaf == k)
        seat[at] = np.arange(len(at))
    return leaf, seat
