"""The busiest link, in words: what it is, how busy, and why it rather than its peers.

Legend: F demands, L directed links.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.paths import Routes
from railwright.network.routing.solution import Bottleneck, Network
from railwright.traffic.per_fabric import per_fabric

Floats = NDArray[np.float64]

TIER = {
    Role.SCALE_UP: "scale-up lanes",
    Role.PCIE: "PCIe links",
    Role.NODE_LEAF: "NIC cables",
    Role.LEAF_SPINE: "leaf-spine cables",
    Role.SPINE_CORE: "spine-core cables",
}

IN_USE = {
    Role.SCALE_UP: " of GPUs in use",
    Role.PCIE: " of GPUs in use",
    Role.NODE_LEAF: " in use",
    Role.LEAF_SPINE: " of leaves in use",
    Role.SPINE_CORE: " of spines in use",
}

EVEN = 1.05
"""Load over tier mean up to which a tier counts as evenly loaded."""


def busiest(
    network: Network, load: Floats, time: float, demands_across: Callable[[int], int]
) -> Bottleneck | None:
    """The link with the largest load / capacity; None when nothing was carried.

    load            (L,) bytes on each link
    time            the makespan [s]
    demands_across  how many demands cross a link
    """
    fabric = network.fabric
    busy = np.divide(load, fabric.capacity, out=np.zeros(len(load)), where=fabric.capacity > 0)
    if time <= 0 or not busy.any():
        return None
    link = busiest_link(busy)
    utilisation = min(float(busy[link]) / time, 1.0)
    share = demands_across(link)
    name = fabric.link_name(link)
    why = _why(network, link, name, load, share, utilisation)
    return Bottleneck(link, name, utilisation, share, why)


def busiest_link(busy: Floats) -> int:
    """The link of the largest load / capacity (L,): the first among equals, rounding aside.

    So the same input names the same link.
    """
    return int(np.flatnonzero(busy >= busy.max() * (1 - 1e-9))[0])


def demands_on(routes: Routes, size: Floats, link: int) -> int:
    """Demands with bytes that cross a link, whole or in part."""
    crossing = np.zeros(len(routes), bool)
    crossing[np.searchsorted(routes.ptr, np.flatnonzero(routes.link == link), side="right") - 1] = True
    spreads = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
    using = np.zeros(routes.num_spreads + 1, bool)
    using[spreads[(routes.spread_link == link) & (routes.spread_weight > 0)]] = True
    return int(np.count_nonzero((crossing | using[routes.spread]) & (size > 0)))


def _why(
    network: Network,
    link: int,
    name: str,
    load: Floats,
    share: int,
    utilisation: float,
) -> str:
    fabric = network.fabric
    role = Role(int(fabric.role[link // 2]))
    peers = _peers(fabric, link)
    used = _of_used(fabric, peers, load)
    skew = float(load[link] / load[used].mean())
    which = "" if len(used) == len(peers) else IN_USE[role]
    tier = f"{TIER[role]}{which}, {_direction(fabric, link)}"
    slow = fabric.capacity[link] < fabric.rate[link // 2] * (1 - 1e-9)
    demands = f"{share:,} demand{'s' if share != 1 else ''}"
    busy = f"busy {100 * utilisation:.0f} % of the time with {demands}"
    if slow:
        left = fabric.capacity[link] / fabric.rate[link // 2]
        return f"{name} is {busy}; it runs at {100 * left:.0f} % of its nominal rate."
    if skew <= EVEN:
        return f"{name} is {busy}, like all {len(used):,} {tier}: the tier is evenly full."
    reason = {
        Role.NODE_LEAF: "more demands meet at this NIC than at others",
        Role.PCIE: "more demands meet at this NIC than at others",
        Role.SCALE_UP: "more demands meet at this GPU than at others",
    }.get(role)
    if reason is None:
        reason = {
            "ecmp": "hash collision",
            "static": "destination tables put several senders on it",
            "tables": "the forwarding tables put more on it than on others",
            "adaptive": "the traffic or a fault loads its switch more than others",
        }[network.routing]
    return f"{name} is {busy}; it carries {skew:.1f} times the mean of the {tier}: {reason}."


def _direction(fabric: Fabric, link: int) -> str:
    tail, head = _ends(fabric)
    if Role(int(fabric.role[link // 2])) == Role.SCALE_UP:
        return "out of GPUs" if fabric.kind[tail[link]] == Kind.GPU else "into GPUs"
    return "upwards" if fabric.kind[head[link]] > fabric.kind[tail[link]] else "downwards"


def _peers(fabric: Fabric, link: int) -> NDArray[np.int64]:
    """Live links of the same role and direction."""
    tail, head = _ends(fabric)
    role = np.repeat(fabric.role, 2)
    alike = (role == role[link]) & (fabric.capacity > 0)
    alike &= (fabric.kind[head] > fabric.kind[tail]) == (fabric.kind[head[link]] > fabric.kind[tail[link]])
    return np.flatnonzero(alike)


def _of_used(fabric: Fabric, peers: NDArray[np.int64], load: Floats) -> NDArray[np.int64]:
    """Those links whose end nearer to the GPUs carries anything in their direction: servers and leaves that
    the traffic leaves alone say nothing of where it meets."""
    tail, head = _ends(fabric)
    lower = np.where(fabric.kind[tail[peers]] < fabric.kind[head[peers]], tail[peers], head[peers])
    return peers[np.isin(lower, lower[load[peers] > 0])]


@per_fabric
def _ends(fabric: Fabric) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    return tail, np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
