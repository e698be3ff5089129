"""Which elements a transfer between two GPUs crosses, as entries of `Rates`.

Legend: M transfers, P entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.diagnose.elements import Elements
from railwright.diagnose.evidence import ANY, IN, OUT, Rates
from railwright.errors import RailwrightError
from railwright.fabric.graph import Fabric, Kind
from railwright.network.routing.paths import find_routes
from railwright.network.routing.solution import Network
from railwright.network.routing.tables import Tables
from railwright.traffic.demand import Traffic

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Crossed:
    """(P,) entries: transfer, element, way, weight."""

    obs: Ints
    element: Ints
    way: Ints
    weight: Floats


@dataclass(frozen=True)
class Routing:
    """How the machine chooses paths: 'static' (our own tables), 'tables' (those given), 'ecmp', 'adaptive'.

    Paths are certain under tables; under 'ecmp' each transfer takes one of the shortest paths, nobody knows
    which; under 'adaptive' its bytes take them all.
    """

    name: str
    tables: Tables | None = None

    @property
    def certain(self) -> bool:
        return self.name in ("static", "tables")

    def network(self, fabric: Fabric) -> Network:
        """The network whose routes are the paths, or the even spread over all of them."""
        if self.name == "tables":
            return Network(fabric, "tables", tables=self.tables)
        return Network(fabric, "static" if self.name == "static" else "adaptive")


def traffic_of(src: Ints, dst: Ints) -> Traffic:
    """One direct transfer of a byte from each GPU of `src` to that of `dst`."""
    none = np.full(len(src), -1, np.int32)
    return Traffic(src.astype(np.int32), dst.astype(np.int32), none, np.ones(len(src)))


def crossed(elements: Elements, routing: Routing, src: Ints, dst: Ints) -> Crossed:
    """The elements that transfers between GPUs cross: GPUs, NICs, servers, cables and switches.

    Inside one server only its two GPUs and the server count.  Raises PlanError where there is no path.
    """
    fabric = need_fabric(elements)
    routes = find_routes(routing.network(fabric), traffic_of(src, dst))
    ptr, link, weight = routes.flat()
    obs = np.repeat(np.arange(len(src)), np.diff(ptr))
    cable = elements.of_cable[link // 2]
    pulled = cable >= 0
    head = np.where(link % 2, fabric.a[link // 2], fabric.b[link // 2])
    switch = fabric.kind[head] >= Kind.LEAF
    each = np.arange(len(src))
    far = fabric.server[src] != fabric.server[dst]
    one = np.ones(len(src))
    parts = [
        (obs[pulled], cable[pulled], (link % 2)[pulled].astype(np.int64), weight[pulled]),
        (obs[switch], elements.of_device[head[switch]], np.full(switch.sum(), ANY), weight[switch]),
        (each, elements.of_device[src], np.full(len(src), OUT), one),
        (each, elements.of_device[dst], np.full(len(src), IN), one),
        (each[far], elements.of_device[fabric.nic_of_gpu[src[far]]], np.full(far.sum(), OUT), one[far]),
        (each[far], elements.of_device[fabric.nic_of_gpu[dst[far]]], np.full(far.sum(), IN), one[far]),
        (each, elements.of_server[fabric.server[src]], np.full(len(src), ANY), one),
        (each[far], elements.of_server[fabric.server[dst[far]]], np.full(far.sum(), ANY), one[far]),
    ]
    return _merged(
        np.concatenate([p[0] for p in parts]),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
        np.concatenate([p[3] for p in parts]),
    )


def both_ways(one: Crossed, other: Crossed) -> Crossed:
    """Entries of transfers that are measured with their way back as one number."""
    return _merged(
        np.concatenate([one.obs, other.obs]),
        np.concatenate([one.element, other.element]),
        np.full(len(one.obs) + len(other.obs), ANY),
        np.concatenate([one.weight, other.weight]),
        most=True,
    )


def rates_of(
    crossing: Crossed, routing: Routing, y: Floats, sigma: Floats, labels: Sequence[str], source: str
) -> Rates:
    """Measured transfers with the elements they cross."""
    spread = np.full(len(crossing.obs), routing.name == "adaptive")
    return Rates(
        y, sigma, crossing.obs, crossing.element, crossing.way, crossing.weight, spread, labels, source
    )


def need_fabric(elements: Elements) -> Fabric:
    """The fabric; RailwrightError where no topology was given."""
    if elements.fabric is None:
        raise RailwrightError(
            "transfers between GPUs say nothing about elements without a topology; give the study of the "
            "machine, or --machine with its ibnetdiscover dump"
        )
    return elements.fabric


def _merged(obs: Ints, element: Ints, way: Ints, weight: Floats, most: bool = False) -> Crossed:
    """Each (transfer, element, way) once: weights add up, or the larger counts."""
    size = int(element.max(initial=0)) + 1
    key, where = np.unique((obs.astype(np.int64) * size + element) * 3 + way, return_inverse=True)
    where = where.reshape(-1)
    if most:
        total = np.zeros(len(key))
        np.maximum.at(total, where, weight)
    else:
        total = np.bincount(where, weight, len(key)).astype(np.float64)
    return Crossed(key // 3 // size, key // 3 % size, key % 3, np.minimum(total, 1.0))
