"""Lanes: the one path of each connection, taken from the simulator's own routes, and the host routes of it.

A lane (u, v, k) carries bytes from GPU u to GPU v. Packets to v on it are addressed to 10.v.u.k+1, so every
namespace needs one host route per lane that crosses it, whatever the routing is: static tables, a hashed
choice, or, where the simulator spreads a demand, one lane per path with its share of the bytes.
Acknowledgements go to 10.u.v.k+1 on the lane (v, u, k), which is the simulator's path back.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from railwright.emulate.topology import NETWORK_MTU, Topology
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role
from railwright.network.routing.paths import find_routes
from railwright.network.routing.solution import Network
from railwright.traffic import Traffic

Links = tuple[int, ...]
Part = tuple[int, float]
"""Lane number and share of a message's bytes."""

MOST_LANES = 254
SMALLEST = 1e-9


@dataclass(frozen=True)
class Leg:
    """One hop of a demand from GPU to GPU, over all of its lanes: (lane, share), shares adding to 1."""

    src: int
    dst: int
    parts: tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class Lanes:
    """All lanes of some demands.

    paths  (u, v) -> the directed links of each lane, those inside a namespace left out
    legs   per demand: one leg, or two where a relay forwards
    """

    paths: dict[tuple[int, int], list[Links]]
    legs: tuple[tuple[Leg, ...], ...]


@dataclass(frozen=True)
class Route:
    """A host route in one namespace.

    node   namespace
    goal   address, '10.3.0.1'
    wire   cable id to send by
    first  whether packets of the lane begin here, and then their largest size [byte]
    """

    node: int
    goal: str
    wire: int
    mtu: int
    first: bool


def find_lanes(network: Network, topology: Topology, traffic: Traffic) -> Lanes:
    """The lanes of every demand, and of the way back of every lane.

    Raises PlanError where a demand has no live path, or more paths than addresses.
    """
    lanes: dict[tuple[int, int], list[Links]] = {}
    legs = tuple(
        _legs(network.fabric, topology, lanes, demand, ways)
        for demand, ways in zip(_demands(traffic), paths_of(network, traffic), strict=True)
    )
    alone = [(v, u) for u, v in lanes if (v, u) not in lanes]
    if alone:
        ends = np.array(alone, np.int32)
        back = Traffic(ends[:, 0], ends[:, 1], np.full(len(ends), -1, np.int32), np.ones(len(ends)))
        for demand, ways in zip(_demands(back), paths_of(network, back), strict=True):
            _legs(network.fabric, topology, lanes, demand, ways)
    for (u, v), there in sorted(lanes.items()):
        back_again = lanes[v, u]
        known = len(back_again)
        back_again.extend(back_again[k % known] for k in range(known, len(there)))
        if len(back_again) > MOST_LANES:
            raise PlanError(
                f"{topology.names[u]} reaches {topology.names[v]} by {len(there)} paths, more than the "
                f"{MOST_LANES} that can be emulated; set cluster.compute.routing to static"
            )
    return Lanes(lanes, legs)


def paths_of(network: Network, traffic: Traffic) -> list[list[tuple[float, Links]]]:
    """Per demand, the simulator's paths from GPU to GPU with the fraction of its bytes on each.

    A spread is taken apart into paths, the widest first; there are at most as many as it has links.
    """
    fabric = network.fabric
    routes = find_routes(network, traffic)
    ptr, link, weight = routes.flat()
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    answer = []
    for f in range(len(traffic)):
        on = link[ptr[f] : ptr[f + 1]]
        if routes.spread[f] < 0:
            answer.append([(1.0, tuple(on.tolist()))])
            continue
        left = dict(zip(on.tolist(), weight[ptr[f] : ptr[f + 1]].tolist(), strict=True))
        answer.append(_take_apart(left, tail, head, int(traffic.src[f]), int(traffic.dst[f])))
    return answer


def address(owner: int, peer: int, lane: int) -> str:
    """Of GPU `owner` towards `peer` on a lane."""
    return f"10.{owner}.{peer}.{lane + 1}"


def host_routes(fabric: Fabric, topology: Topology, lanes: Lanes) -> list[Route]:
    """One route per lane and namespace on its way, in order of lane."""
    return [
        route
        for (u, v), several in sorted(lanes.paths.items())
        for k, links in enumerate(several)
        for route in routes_along(fabric, topology, address(v, u, k), links)
    ]


def routes_along(fabric: Fabric, topology: Topology, goal: str, links: Links) -> list[Route]:
    """Routes to one address along one path."""
    crosses_network = any(fabric.role[link // 2] != Role.SCALE_UP for link in links)
    mtu = NETWORK_MTU if crosses_network else 0
    return [
        Route(int(topology.node_of[_tail(fabric, link)]), goal, link // 2, mtu, first=i == 0)
        for i, link in enumerate(links)
    ]


def primary_routes(network: Network, topology: Topology, pairs: Traffic) -> list[Route]:
    """Routes to 10.v.v.1, the one address of each GPU that an unmodified library knows.

    They are those of the static tables, where the way to a destination does not depend on the source.
    """
    found: dict[tuple[int, str], Route] = {}
    for (_, v, _), ways in zip(
        _demands(pairs), paths_of(replace(network, routing="static"), pairs), strict=True
    ):
        links = _wires_only(network.fabric, topology, ways[0][1])
        for route in routes_along(network.fabric, topology, address(v, v, 0), links):
            first = found.setdefault((route.node, route.goal), route)
            if route.first and not first.first:
                found[route.node, route.goal] = replace(first, mtu=max(first.mtu, route.mtu), first=True)
    return list(found.values())


def _demands(traffic: Traffic) -> list[tuple[int, int, int]]:
    return list(zip(traffic.src.tolist(), traffic.dst.tolist(), traffic.relay.tolist(), strict=True))


def _legs(
    fabric: Fabric,
    topology: Topology,
    lanes: dict[tuple[int, int], list[Links]],
    demand: tuple[int, int, int],
    ways: list[tuple[float, Links]],
) -> tuple[Leg, ...]:
    src, dst, relay = demand
    stops = [src, dst] if relay in (-1, src, dst) else [src, relay, dst]
    shares: list[dict[int, float]] = [{} for _ in stops[1:]]
    for share, links in ways:
        cut = 0
        if len(stops) == 3:
            cut = 1 + next(i for i, link in enumerate(links) if _tail(fabric, link ^ 1) == relay)
        for part, (u, v), of in zip(
            [links] if len(stops) == 2 else [links[:cut], links[cut:]],
            pairwise(stops),
            shares,
            strict=True,
        ):
            several = lanes.setdefault((u, v), [])
            wired = _wires_only(fabric, topology, part)
            if wired not in several:
                several.append(wired)
            lane = several.index(wired)
            of[lane] = of.get(lane, 0.0) + share
    return tuple(Leg(u, v, tuple(of.items())) for u, v, of in zip(stops[:-1], stops[1:], shares, strict=True))


def _wires_only(fabric: Fabric, topology: Topology, links: Links) -> Links:
    node = topology.node_of
    return tuple(x for x in links if node[_tail(fabric, x)] != node[_tail(fabric, x ^ 1)])


def _take_apart(
    left: dict[int, float], tail: np.ndarray, head: np.ndarray, src: int, dst: int
) -> list[tuple[float, Links]]:
    """Paths of a flow given by its fraction on each link, widest link first at every device."""
    out: dict[int, list[int]] = {}
    for link in sorted(left):
        out.setdefault(int(tail[link]), []).append(link)
    paths: list[tuple[float, Links]] = []
    total = 0.0
    while total < 1.0 - SMALLEST:
        here, links = src, []
        while here != dst:
            link = max(out[here], key=lambda x: (left[x], -x))
            links.append(link)
            here = int(head[link])
        share = min(left[link] for link in links)
        for link in links:
            left[link] -= share
        total += share
        paths.append((share, tuple(links)))
    return [(share / total, links) for share, links in paths]


def _tail(fabric: Fabric, link: int) -> int:
    return int(fabric.b[link // 2] if link % 2 else fabric.a[link // 2])
