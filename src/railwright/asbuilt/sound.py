"""The machine as it would be without its defects, and that machine with its defects marked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from railwright.asbuilt.compare_plan import label
from railwright.asbuilt.fabric import fabric_names, to_fabric
from railwright.asbuilt.infer_machine import Inferred
from railwright.asbuilt.wiring import Link, Wiring
from railwright.catalog.parts import Catalog
from railwright.fabric.graph import Fabric, Role


def sound_wiring(machine: Inferred) -> Wiring:
    """What the machine's regularity says it was meant to be: every planned cable, up, at its planned speed.

    Where nothing is expected of a cable's speed, the speed found stands.
    """
    found = {frozenset({(link.a, link.a_port), (link.b, link.b_port)}): link for link in machine.wiring.links}
    links = []
    for plan in machine.design.links:
        there = found.get(frozenset({(plan.a, plan.a_port), (plan.b, plan.b_port)}))
        width = plan.width or (there.width if there else 0)
        speed = plan.speed or (there.speed if there else "")
        rate = plan.rate or (there.rate if there else 0.0)
        length = there.length if there else 0.0
        links.append(Link(plan.a, plan.a_port, plan.b, plan.b_port, width, speed, rate, True, length))
    return Wiring(f"{machine.wiring.source}, made sound", machine.design.nodes, tuple(links))


def marked_fabric(
    machine: Inferred, catalog: Catalog, server: str | None = None
) -> tuple[Fabric, dict[str, str]]:
    """The sound fabric with what is missing failed and what is slow slowed, for a drawing; and its names.

    Raises PlanError as `to_fabric` does.
    """
    sound = sound_wiring(machine)
    fabric = to_fabric(sound, catalog, server)
    names = fabric_names(sound, fabric)
    nodes = machine.wiring.nodes
    carried: dict[frozenset[tuple[str, int]], float] = {}
    for link in machine.wiring.links:
        ends = frozenset({(label(nodes[link.a]), link.a_port), (label(nodes[link.b]), link.b_port)})
        carried[ends] = link.rate if link.up else 0.0
    capacity = fabric.capacity.copy()
    for c in np.flatnonzero(fabric.role >= Role.NODE_LEAF):
        ends = frozenset(
            (names.get(name := fabric.device_name(int(device)), name), int(port))
            for device, port in ((fabric.a[c], fabric.port_a[c]), (fabric.b[c], fabric.port_b[c]))
        )
        left = carried.get(ends, 0.0)
        capacity[2 * c : 2 * c + 2] = np.minimum(capacity[2 * c : 2 * c + 2], left)
    return replace(fabric, capacity=capacity), names
