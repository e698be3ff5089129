"""Inside a director: a chassis that is itself a two-tier Clos of modules, sold and counted as one switch."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

import numpy as np

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Switch
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Floats, Ints, Kind, Role


def director_spines(ports: int, module_ports: int) -> int:
    """Spine modules that make a director of `ports` external ports non-blocking.

    ports         external ('southbound') ports; as many internal ones go up
    module_ports  ports of a switch module: a leaf module faces out with half of them

    The fewest spines whose ports take all internal links with an equal number from every leaf module.
    Raises PlanError when the external ports do not fill whole leaf modules, or outgrow two internal tiers.
    """
    half = module_ports // 2
    if module_ports < 2 or ports % half:
        raise PlanError(
            f"a director of {ports} ports cannot be built of {module_ports}-port modules: each leaf module "
            f"faces out with {half} ports, so the count has to be a multiple of {half}"
        )
    leaves = ports // half
    for spines in range(ceil(ports / module_ports), half + 1):
        if half % spines == 0 and leaves * (half // spines) <= module_ports:
            return spines
    raise PlanError(
        f"a director of {ports} ports needs {leaves} leaf modules, more than the {module_ports} a spine "
        f"module of {module_ports} ports joins; at most {module_ports * half} ports"
    )


def expand_directors(fabric: Fabric, catalog: Catalog) -> Fabric:
    """The fabric with every director of its top tier drawn as its leaf and spine modules.

    External port p of a director is port of leaf module p / half; each leaf module has as many links to every
    spine module of its chassis, over the backplane (length 0).  The modules become the two top
    tiers, chassis by chassis.  Each module takes a third of the director's catalogued latency.
    Raises PlanError when the top tier has no directors, or none whose modules are packet switches.
    """
    below, above = _top_tiers(fabric)
    switch = find(catalog.switches, fabric.parts[below.name.lower()])
    per_leaf, spines = _modules(switch)
    leaves = switch.ports // per_leaf
    chassis = len(fabric.devices(below))
    first = int(np.searchsorted(fabric.kind, below))
    links = _backplane(chassis, leaves, spines, per_leaf, first)
    outer = fabric.role == Role(int(fabric.role.max()))
    b, port_b = fabric.b.copy(), fabric.port_b.copy()
    b[outer] = first + (fabric.b[outer] - first) * leaves + (fabric.port_b[outer] - 1) // per_leaf
    port_b[outer] = (fabric.port_b[outer] - 1) % per_leaf + 1
    inside = len(links[0])
    rate: Floats = np.full(inside, switch.rate)
    modules = np.repeat([below, above], [chassis * leaves, chassis * spines])
    unit = np.concatenate([np.repeat(np.arange(chassis), n) for n in (leaves, spines)])

    def column(values: Ints) -> Ints:
        return np.concatenate([values[:first], values[first:][unit]]).astype(np.int32)

    return replace(
        fabric,
        kind=np.concatenate([fabric.kind[:first], modules]).astype(np.int32),
        server=column(fabric.server),
        rail=column(fabric.rail),
        group=column(fabric.group),
        latency=np.concatenate([fabric.latency[:first], np.full(len(modules), switch.latency / 3)]),
        a=np.concatenate([fabric.a, links[0]]),
        b=np.concatenate([b, links[2]]),
        port_a=np.concatenate([fabric.port_a, links[1]]),
        port_b=np.concatenate([port_b, links[3]]),
        rate=np.concatenate([fabric.rate, rate]),
        length=np.concatenate([fabric.length, np.zeros(inside)]),
        role=np.concatenate([fabric.role, np.full(inside, fabric.role.max() + 1, np.int32)]),
        capacity=np.concatenate([fabric.capacity, np.repeat(rate, 2)]),
        parts={**fabric.parts, above.name.lower(): switch.name},
        directors=chassis,
        notes=(
            *fabric.notes,
            f"{chassis} director(s) '{switch.name}' drawn as {leaves} leaf and {spines} spine modules each",
        ),
    )


def _top_tiers(fabric: Fabric) -> tuple[Kind, Kind]:
    """The tier whose directors are opened, and the tier their spine modules become."""
    if fabric.breakout > 1:
        raise PlanError("expand_directors: ports of a director that is drawn as modules are not broken out")
    if fabric.kind.max() == Kind.LEAF:
        return Kind.LEAF, Kind.SPINE
    if fabric.kind.max() == Kind.SPINE:
        return Kind.SPINE, Kind.CORE
    raise PlanError(
        "expand_directors: the directors are cores of three tiers, and their modules would be a fourth and "
        "fifth; leave them as units"
    )


def _modules(switch: Switch) -> tuple[int, int]:
    """External ports of a leaf module, and spine modules; PlanError where it is no Clos of switches."""
    spines = switch.director_spines
    module = switch.ports // spines if spines else 0
    if not spines:
        raise PlanError(
            f"expand_directors: '{switch.name}' is no director but a fixed switch; leave the setting out"
        )
    if switch.technology == "ethernet":
        raise PlanError(
            f"expand_directors: the fabric modules of '{switch.name}' pass cells, not packets: there are no "
            "ports inside that could be drawn; leave it as a unit"
        )
    if module % 2 or switch.ports % module or director_spines(switch.ports, module) != spines:
        raise PlanError(
            f"expand_directors: {switch.ports} ports over {spines} spine modules do not make a regular mesh; "
            "leave it as a unit"
        )
    return module // 2, spines


def _backplane(
    chassis: int, leaves: int, spines: int, half: int, first: int
) -> tuple[Ints, Ints, Ints, Ints]:
    """Leaf module, its port, spine module and its port of every link inside the directors."""
    links = half // spines
    up = np.tile(np.arange(half), chassis * leaves)
    leaf = np.repeat(np.arange(chassis * leaves), half)
    spine = leaf // leaves * spines + up // links
    columns = (
        first + leaf,
        half + 1 + up,
        first + chassis * leaves + spine,
        leaf % leaves * links + up % links + 1,
    )
    a, port_a, b, port_b = (c.astype(np.int32) for c in columns)
    return a, port_a, b, port_b
