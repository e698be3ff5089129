"""Every cable of the network as a row: what an installer labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from railwright.fabric.graph import Fabric, Role
from railwright.fabric.names import device_names


class CableRow(NamedTuple):
    """One cable: port to port, its role in words, nominal rate [byte/s] and length [m]."""

    a: str
    port_a: int
    b: str
    port_b: int
    role: str
    rate: float
    length: float


ROLE_WORDS = {Role.NODE_LEAF: "node-leaf", Role.LEAF_SPINE: "leaf-spine", Role.SPINE_CORE: "spine-core"}


def cable_table(fabric: Fabric) -> list[CableRow]:
    """The network's cables in the order of the graph, without lanes inside servers and directors."""
    names = device_names(fabric)
    pulled = np.flatnonzero((fabric.role >= Role.NODE_LEAF) & ~fabric.backplane)
    columns = (fabric.a, fabric.port_a, fabric.b, fabric.port_b, fabric.role, fabric.rate, fabric.length)
    return [
        CableRow(names[a], port_a, names[b], port_b, ROLE_WORDS[Role(role)], rate, length)
        for a, port_a, b, port_b, role, rate, length in zip(
            *(c[pulled].tolist() for c in columns), strict=True
        )
    ]
