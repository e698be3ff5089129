"""Faults put on an emulated fabric: elements that are slow, that lose packets, or that are dead."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from railwright.errors import PlanError
from railwright.fabric import apply_faults
from railwright.fabric.graph import Fabric, Ints, Role
from railwright.fabric.names import find_devices
from railwright.spec.study import Fault

When = Literal["known", "before", "during"]


@dataclass(frozen=True)
class Faults:
    """What is wrong, by element: 'leaf-03', 'server-07/nic-2', 'leaf-03 port 37'.

    slow  (element, fraction of its rate left)
    loss  (element, fraction of packets that it loses)
    dead  (element, when): 'known': routes go around it, as after a fabric manager's sweep; 'before': dead
          when connections are opened, routes do not know; 'during': it dies in mid-run
    """

    slow: tuple[tuple[str, float], ...] = ()
    loss: tuple[tuple[str, float], ...] = ()
    dead: tuple[tuple[str, When], ...] = ()

    @property
    def unknown_to_routes(self) -> tuple[tuple[str, When], ...]:
        return tuple((element, when) for element, when in self.dead if when != "known")


def with_faults(fabric: Fabric, faults: Faults) -> Fabric:
    """The fabric as its routing, and the engines, know it: slow elements slow, known dead ones gone.

    Raises PlanError for an unknown element, or a fraction out of range.
    """
    known = [Fault(element=element) for element, when in faults.dead if when == "known"]
    fabric = apply_faults(fabric, known)
    capacity = fabric.capacity.copy()
    for element, fraction in faults.slow:
        if not 0 < fraction <= 1:
            raise PlanError(
                f"--slow {element}={fraction:g}: the fraction of the rate that is left lies above 0 and is "
                "at most 1; for nothing left use --dead"
            )
        cables = cables_of(fabric, element)
        capacity[2 * cables] *= fraction
        capacity[2 * cables + 1] *= fraction
    for element, rate in faults.loss:
        if not 0 < rate < 1:
            raise PlanError(f"--loss {element}={rate:g}: the fraction of packets lost lies between 0 and 1")
    return replace(fabric, capacity=capacity)


def cables_of(fabric: Fabric, element: str) -> Ints:
    """The network cables that an element names; scale-up lanes and PCIe where it has none.

    Raises PlanError, with the nearest name, for an element that the fabric does not have.
    """
    devices, port = find_devices(fabric, element)
    at_a, at_b = np.isin(fabric.a, devices), np.isin(fabric.b, devices)
    if port:
        at_a &= fabric.port_a == port
        at_b &= fabric.port_b == port
    touched = np.flatnonzero(at_a | at_b)
    network = touched[fabric.role[touched] >= Role.NODE_LEAF]
    return (network if len(network) else touched).astype(np.int32)
