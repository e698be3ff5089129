"""What it takes to grow a cluster: the parts to add, and the cables that have to be pulled again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric.building import build, order, size
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.fabric.wired.counting import optics
from railwright.spec.study import Cluster


@dataclass(frozen=True)
class Growth:
    """From one cluster to a larger one of the same network section.

    gpus      GPUs of the larger one
    switches, cables, optics  parts to buy beyond those that are there; cables that move are not bought again
    moved     cables that are there and lead elsewhere in the larger one: to be pulled again
    reason    why the larger one cannot be built; '' when it can
    """

    gpus: int
    switches: int = 0
    cables: int = 0
    optics: int = 0
    moved: int = 0
    reason: str = ""


def growth(now: Cluster, later: Cluster, catalog: Catalog) -> Growth:
    """What growing from one cluster to the other takes; both as their network sections ask for them.

    Raises PlanError when the smaller one cannot be built.
    """
    small = build(now, catalog)
    try:
        large = build(later, catalog)
    except PlanError as refusal:
        return Growth(later.servers * small.gpus_per_server, reason=str(refusal))
    # The sizes say the same as the graphs, without their bisections.
    before, after = size(order(now, catalog)), size(order(later, catalog))
    return Growth(
        gpus=large.num_gpus,
        switches=after.switches - before.switches,
        cables=after.cables - before.cables,
        optics=optics(large) - optics(small),
        moved=moved_cables(small, large),
    )


def moved_cables(small: Fabric, large: Fabric) -> int:
    """Cables of the smaller fabric that the larger one does not have from the same port to the same port.

    Devices are the same when they have the same kind and number: 'leaf-03' stays 'leaf-03'.
    """
    moved = 0
    for role in (Role.NODE_LEAF, Role.LEAF_SPINE, Role.SPINE_CORE):
        before, after = _ends(small, role), _ends(large, role)
        moved += int(np.count_nonzero(~np.isin(before, after)))
    return moved


def _ends(fabric: Fabric, role: Role) -> NDArray[np.int64]:
    """One number per cable of a role: both devices by their number among their kind, and both ports."""
    cables = np.flatnonzero((fabric.role == role) & ~fabric.backplane)
    first = np.searchsorted(fabric.kind, np.arange(len(Kind)))
    ports = 2**11 * fabric.breakout

    def end(device: NDArray[np.int32], port: NDArray[np.int32]) -> NDArray[np.int64]:
        among = device[cables] - first[fabric.kind[device[cables]]]
        return among.astype(np.int64) * ports + port[cables]

    return end(fabric.a, fabric.port_a) * 2**31 + end(fabric.b, fabric.port_b)
