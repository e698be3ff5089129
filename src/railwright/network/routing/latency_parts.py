"""Where the fixed latency of a path goes: NICs, switches, cables; for a pair, a pattern, a distance.

Legend: F demands, L directed links.
Launch, protocol and step costs are not here: they belong to `collectives`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Kind, Role
from railwright.network.routing.latency import METRE
from railwright.network.routing.paths import along, find_routes
from railwright.network.routing.solution import Network
from railwright.traffic import Traffic, send_recv

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]

_DEVICES = {
    Kind.NIC: "NICs",
    Kind.SCALE_UP: "scale-up switches",
    Kind.LEAF: "leaves",
    Kind.SPINE: "spines",
    Kind.CORE: "cores",
}
_CABLES = {
    Role.SCALE_UP: "scale-up lanes",
    Role.PCIE: "PCIe links",
    Role.NODE_LEAF: "NIC cables",
    Role.LEAF_SPINE: "leaf-spine cables",
    Role.SPINE_CORE: "spine-core cables",
}


@dataclass(frozen=True, eq=False)
class Latency:
    """The fixed latency of each demand's path, in parts; a mean over its paths where it is spread.

    parts    name -> (F,) [s]; they add to `total`
    hops     (F,) switches crossed
    metres   (F,) cable crossed [m]
    """

    parts: Mapping[str, Floats]
    hops: Ints
    metres: Floats

    @property
    def total(self) -> Floats:
        """(F,) one way, first byte. [s]"""
        total: Floats = np.sum(list(self.parts.values()), axis=0)
        return total

    def mean(self) -> dict[str, float]:
        """Part -> mean over the demands [s]; empty parts left out."""
        return {name: float(part.mean()) for name, part in self.parts.items() if part.any()}

    def worst(self) -> dict[str, float]:
        """Part -> of the demand with the largest latency, the first of equals [s]; empty parts left out."""
        if not len(self.hops):
            return {}
        at = int(np.flatnonzero(self.total >= self.total.max() * (1 - 1e-12))[0])
        return {name: float(part[at]) for name, part in self.parts.items() if part[at]}


@dataclass(frozen=True)
class Reach:
    """Demands that cross as many switches.

    hops          switches
    demands       how many
    metres        cable, mean [m]
    mean, worst   latency [s]
    """

    hops: int
    demands: int
    metres: float
    mean: float
    worst: float


@dataclass(frozen=True)
class Haul:
    """What a length of cable adds.

    metres    [m]
    one_way   [s]
    in_flight bytes that one direction of a link holds over the round trip: what a sender must have
              unacknowledged, and a lossless receiver must be able to buffer, for the link to stay full [byte]
    """

    metres: float
    one_way: float
    in_flight: float


def of_pattern(network: Network, traffic: Traffic) -> Latency:
    """The latency of every demand's path in parts; their sum is `Solution.latency`.

    A NIC's part is one side, host memory to wire, so PCIe is in it.  GPUs count 0, and so does a built
    fabric's scale-up switch: NCCL's cost of a step, to which collectives add these latencies, holds NVLink.
    Raises PlanError where a demand has no live path.
    """
    fabric = network.fabric
    routes = find_routes(network, traffic)
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    kind, role = fabric.kind[head], np.repeat(fabric.role, 2)
    length = np.repeat(fabric.length, 2)
    moves = traffic.src != traffic.dst
    parts: dict[str, Floats] = {}
    for device, name in _DEVICES.items():
        parts[name] = along(routes, np.where(kind == device, fabric.latency[head], 0.0)) * moves
    for cable, name in _CABLES.items():
        parts[name] = along(routes, np.where(role == cable, METRE * length, 0.0)) * moves
    return Latency(parts, routes.hops, along(routes, length) * moves)


def of_pair(network: Network, src: int, dst: int, pxn: bool = False) -> dict[str, float]:
    """Part -> latency from one GPU to another [s], empty parts left out.  Raises as `of_pattern`."""
    fabric = network.fabric
    for gpu in (src, dst):
        if not 0 <= gpu < fabric.num_gpus:
            raise PlanError(
                f"There is no GPU {gpu}; the {fabric.num_gpus} of this fabric are numbered from 0."
            )
    one = send_recv(fabric, np.array([src], np.int32), np.array([dst], np.int32), 1.0, pxn)
    return of_pattern(network, one).worst()


def by_distance(latency: Latency) -> tuple[Reach, ...]:
    """The demands of a pattern by the number of switches they cross, nearest first."""
    total = latency.total
    reaches = []
    for hops in np.unique(latency.hops).tolist():
        these = latency.hops == hops
        reaches.append(
            Reach(
                hops,
                int(np.count_nonzero(these)),
                float(latency.metres[these].mean()),
                float(total[these].mean()),
                float(total[these].max()),
            )
        )
    return tuple(reaches)


def haul(metres: float, rate: float) -> Haul:
    """What a cable run of some length adds, between rooms, buildings or cities.

    metres  of fibre, not of map [m]
    rate    of the link, one direction [byte/s]

    Amplifiers and dispersion compensation add to a long haul; transponders add some microseconds each.
    """
    if not (metres >= 0 and rate > 0):
        raise PlanError(
            f"A run of {metres:g} m at {rate:g} byte/s makes no sense; give 0 m or more and a rate above 0."
        )
    return Haul(metres, METRE * metres, 2 * METRE * metres * rate)
