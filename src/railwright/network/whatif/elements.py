"""What can fail in a fabric: NICs, cables, switches and servers, by their names in the drawing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railwright.errors import PlanError, nearest
from railwright.fabric.graph import Fabric, Kind, Role, server_name
from railwright.spec.study import Fault

KINDS = ("nic", "cable", "slow-cable", "leaf", "spine", "core", "server")
"""What may be asked to fail: 'cable' is lost whole, 'slow-cable' trained at less than its rate."""

DEVICES = {
    "nic": Kind.NIC,
    "leaf": Kind.LEAF,
    "spine": Kind.SPINE,
    "core": Kind.CORE,
    "server": Kind.NIC,  # a server is known by its NICs
}

TIERS = {
    Role.NODE_LEAF: "NIC-leaf cable",
    Role.LEAF_SPINE: "leaf-spine cable",
    Role.SPINE_CORE: "spine-core cable",
}

SLOW = 0.5
"""Share of its rate that a slow cable keeps unless said otherwise: a link that trained at half its lanes."""


@dataclass(frozen=True, slots=True)
class Element:
    """One thing that can fail; a fabric has a hundred thousand, so it is small.

    kind    one of KINDS
    device  its device id; the server's number (from 0) for a server; -1 for a cable
    cable   its cable id, or -1
    left    share of its rate that it keeps; 0: none
    """

    kind: str
    device: int = -1
    cable: int = -1
    left: float = 0.0


def elements(fabric: Fabric, kinds: Sequence[str] = (), slow: float = SLOW) -> list[Element]:
    """Every live element of the kinds asked for, kind by kind; without kinds, of all.

    slow  share of its rate that a slow cable keeps, between 0 and 1

    An element that is dead already is left out, and so are links inside a director.
    Raises PlanError for an unknown kind, and for one that this fabric has none of.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise PlanError(
                f"no kind of element '{kind}'; known are {', '.join(KINDS)}{nearest(kind, KINDS)}"
            )
    if not 0 < slow < 1:
        raise PlanError(
            f"a slow cable keeps a share of its rate between 0 and 1, not {slow:g}; for a dead one, ask for "
            "the kind 'cable'"
        )
    found: list[Element] = []
    for kind in KINDS:
        if kinds and kind not in kinds:
            continue
        of_kind = _of_kind(fabric, kind, slow)
        if kinds and not of_kind:
            raise PlanError(f"this fabric has no live {kind} that could fail; leave that kind out")
        found += of_kind
    return found


def name(fabric: Fabric, element: Element) -> str:
    """As in the drawing; a cable by the port of its upper end, which is a switch."""
    if element.cable >= 0:
        return f"{fabric.device_name(int(fabric.b[element.cable]))} port {fabric.port_b[element.cable]}"
    if element.kind == "server":
        return server_name(element.device)
    return fabric.device_name(element.device)


def what(fabric: Fabric, element: Element) -> str:
    """The kind in words, cables by tier: 'leaf-spine cable', 'slow leaf-spine cable'."""
    if element.cable < 0:
        return "NIC" if element.kind == "nic" else element.kind
    tier = TIERS[Role(int(fabric.role[element.cable]))]
    return f"slow {tier}" if element.left else tier


def fault(fabric: Fabric, element: Element) -> Fault:
    """What the element suffers, in the study's vocabulary."""
    if not element.left:
        return Fault(element=name(fabric, element))
    links = fabric.capacity[2 * element.cable : 2 * element.cable + 2]
    rate = element.left * float(links.min())
    # Built as it is: a study's own file has to write the rate with a unit.
    return Fault.model_construct(element=name(fabric, element), state="slow", rate=rate)


def _of_kind(fabric: Fabric, kind: str, slow: float) -> list[Element]:
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    network = alive & (fabric.role >= Role.NODE_LEAF)
    if kind in ("cable", "slow-cable"):
        left = slow if kind == "slow-cable" else 0.0
        return [
            Element(kind, cable=c, left=left) for c in np.flatnonzero(network & ~fabric.backplane).tolist()
        ]
    busy = np.zeros(fabric.num_devices, bool)
    busy[fabric.a[network]] = busy[fabric.b[network]] = True
    devices = fabric.devices(DEVICES[kind])
    devices = devices[busy[devices]]
    numbers = np.unique(fabric.server[devices]) if kind == "server" else devices
    return [Element(kind, device=d) for d in numbers.tolist()]
