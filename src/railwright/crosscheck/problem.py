"""One problem for every simulator: a network, its demands in whole bytes, and the ways they take.

Legend: F demands, W ways (a demand that spreads has several), L directed links; CSR pairs are ptr, link.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Catalog
from railwright.errors import PlanError, among
from railwright.export.sheet import METRE
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, Solution, solve
from railwright.network.routing.paths import Routes, find_routes
from railwright.traffic import Communicator, Traffic, all_to_all, ring, send_recv

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

MOST_DEMANDS = 100_000
"""Demands written out at most: the slowest of the simulators needs hours for that many already."""


@dataclass(frozen=True, eq=False)
class Ways:
    """Single paths.

    demand     (W,) demand each belongs to
    size       (W,) bytes it carries, whole numbers; the parts of a demand sum to it
    ptr, link  (W+1,), (P,) directed links crossed, in order
    """

    demand: Longs
    size: Floats
    ptr: Longs
    link: Ints

    def __len__(self) -> int:
        return len(self.demand)


@dataclass(frozen=True, eq=False)
class Problem:
    """What every simulator is given.

    name     of the study, for the head of files
    pattern  a row of PATTERNS
    ranks    GPUs that take part, in rank order
    size     bytes as asked for: per rank for an all-to-all, per message otherwise
    traffic  demands that start together, of whole bytes
    """

    name: str
    network: Network
    catalog: Catalog
    pattern: str
    ranks: Communicator
    size: float
    traffic: Traffic

    @property
    def fabric(self) -> Fabric:
        return self.network.fabric

    @property
    def everyone(self) -> bool:
        """Whether all GPUs of the fabric take part, in their order."""
        return np.array_equal(self.ranks.gpus, np.arange(self.fabric.num_gpus))

    @cached_property
    def routes(self) -> Routes:
        return find_routes(self.network, self.traffic)

    @cached_property
    def answer(self) -> tuple[Solution, float]:
        """What our engine says, and the processor time that took, routes included [s]."""
        before = time.process_time()
        solution = solve(self.network, self.traffic)
        return solution, time.process_time() - before

    @cached_property
    def ways(self) -> Ways:
        return ways(self.routes, self.traffic.size, self.fabric)

    @cached_property
    def crossing(self) -> NDArray[np.bool_]:
        """(F,) demands that leave their scale-up domain."""
        return self.routes.hops > 0

    @cached_property
    def wire_latency(self) -> float:
        """Longest delay between two NICs over the demands: cables and switches, without the NICs [s]."""
        f, (ptr, link, weight) = self.fabric, self.routes.flat()
        head = np.stack([f.b, f.a], axis=1).reshape(-1)
        delay = METRE * np.repeat(f.length, 2) + np.where(f.kind[head] >= Kind.LEAF, f.latency[head], 0.0)
        delay[np.repeat(f.role, 2) < Role.NODE_LEAF] = 0.0
        rows = np.repeat(np.arange(len(self.routes)), np.diff(ptr))
        return float(np.bincount(rows, weights=delay[link] * weight, minlength=1).max(initial=0.0))

    def with_sizes(self, size: Floats) -> Problem:
        """The same demands with other sizes (F,) [byte]."""
        return replace(self, traffic=replace(self.traffic, size=size))


def make_problem(
    name: str, network: Network, catalog: Catalog, pattern: str, num_ranks: int, size: float
) -> Problem:
    """The demands of a pattern over the first `num_ranks` GPUs of a fabric, in whole bytes.

    size  [byte]: an all-to-all divides it over all ranks, the sender included, as nccl-tests does;
          'ring' sends it from each rank to the next, 'send-recv' to the one half the group away
    Raises PlanError for an unknown pattern, a wrong number of ranks, or a size below one byte per message.
    """
    if pattern not in PATTERNS:
        raise PlanError(f"no pattern '{pattern}'{among(pattern, PATTERNS)}")
    have = network.fabric.num_gpus
    if not 2 <= num_ranks <= have:
        raise PlanError(f"{num_ranks} ranks are asked for; it can be 2 to {have}, the GPUs of the fabric")
    demands = num_ranks * (num_ranks - 1) if pattern in ("all-to-all", "pxn") else num_ranks
    if demands > MOST_DEMANDS:
        raise PlanError(
            f"{num_ranks} ranks are {demands:,} demands, and at most {MOST_DEMANDS:,} are written out for "
            f"other simulators; take at most {int(MOST_DEMANDS**0.5)} ranks"
        )
    ranks = Communicator(np.arange(num_ranks, dtype=np.int32))
    traffic = PATTERNS[pattern](network.fabric, ranks, size)
    whole = np.floor(traffic.size)
    if len(whole) and whole.min() < 1:
        raise PlanError(
            f"{size:g} bytes over {num_ranks} ranks leave less than one byte for a message; "
            f"take at least {num_ranks} bytes"
        )
    return Problem(name, network, catalog, pattern, ranks, size, replace(traffic, size=whole))


def ways(routes: Routes, size: Floats, fabric: Fabric) -> Ways:
    """Every demand as single paths.

    A spread is taken apart greedily: from its beginning always along the link with most left, until nothing
    is left; the parts cross every link with the spread's fractions.  Demands that cross no link have no way.
    """
    parts = [_paths_of(routes, row, fabric) for row in range(routes.num_spreads)]
    demand: list[int] = []
    amount: list[float] = []
    links: list[list[int]] = []
    for i in range(len(routes)):
        own = routes.link[routes.ptr[i] : routes.ptr[i + 1]].tolist()
        row = int(routes.spread[i])
        if row < 0:
            if own:
                demand.append(i)
                amount.append(float(size[i]))
                links.append(own)
            continue
        cut = _cut(own, fabric)
        for share, (_, path) in zip(
            _shares(float(size[i]), [w for w, _ in parts[row]]), parts[row], strict=True
        ):
            if share > 0:
                demand.append(i)
                amount.append(share)
                links.append(own[:cut] + path + own[cut:])
    ptr = np.cumsum([0, *map(len, links)])
    flat = [link for path in links for link in path]
    return Ways(np.array(demand, np.int64), np.array(amount), ptr.astype(np.int64), np.array(flat, np.int32))


def _all_to_all(fabric: Fabric, ranks: Communicator, size: float) -> Traffic:
    return all_to_all(fabric, ranks, size / len(ranks), pxn=False)


def _pxn(fabric: Fabric, ranks: Communicator, size: float) -> Traffic:
    return all_to_all(fabric, ranks, size / len(ranks), pxn=True)


def _send_recv(fabric: Fabric, ranks: Communicator, size: float) -> Traffic:
    return send_recv(fabric, ranks.gpus, np.roll(ranks.gpus, -(len(ranks) // 2)), size)


PATTERNS: Mapping[str, Callable[[Fabric, Communicator, float], Traffic]] = {
    "all-to-all": _all_to_all,
    "pxn": _pxn,
    "ring": ring,
    "send-recv": _send_recv,
}
"""Pattern -> its demands."""


def _shares(size: float, fractions: list[float]) -> list[float]:
    """Whole bytes in proportion to fractions, which sum to 1; no byte is lost."""
    ends = np.rint(np.cumsum(fractions) * size)
    ends[-1] = size
    return [float(x) for x in np.diff(ends, prepend=0.0)]


def _cut(own: list[int], fabric: Fabric) -> int:
    """Place in a demand's own links where its spread belongs: before the first that comes from a switch,
    or, where NICs begin the spread themselves, before the first that leads down to a GPU's PCIe lane."""
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    kinds = fabric.kind[tail[own]].tolist()
    seen_nic = False
    for place, kind in enumerate(kinds):
        if kind >= Kind.LEAF:
            return place
        if kind == Kind.NIC:
            # The first NIC's own cable leads up; a PCIe lane that starts at a NIC leads down.
            if fabric.role[own[place] // 2] == Role.PCIE:
                return place
            seen_nic = True
    assert seen_nic, "a spread begins at a NIC or a leaf"
    return len(own)


def _paths_of(routes: Routes, row: int, fabric: Fabric) -> list[tuple[float, list[int]]]:
    """(fraction, links) of the single paths a spread is made of."""
    at = slice(int(routes.spread_ptr[row]), int(routes.spread_ptr[row + 1]))
    left = dict(zip(routes.spread_link[at].tolist(), routes.spread_weight[at].tolist(), strict=True))
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    out: dict[int, list[int]] = {}
    entered = set()
    for link in left:
        out.setdefault(int(tail[link]), []).append(link)
        entered.add(int(head[link]))
    (start,) = [node for node in out if node not in entered]
    found: list[tuple[float, list[int]]] = []
    remaining = 1.0
    while remaining > 1e-12:
        path: list[int] = []
        node = start
        while node in out:
            link = max(out[node], key=lambda one: (left[one], -one))
            path.append(link)
            node = int(head[link])
        amount = min(left[link] for link in path)
        if amount <= 1e-12:
            break
        for link in path:
            left[link] -= amount
        found.append((amount, path))
        remaining -= amount
    total = sum(amount for amount, _ in found)
    return [(amount / total, path) for amount, path in found]
