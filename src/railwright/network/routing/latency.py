"""The fixed latency of links: what it takes a first byte to cross a cable and the device behind it.

Legend: N devices, L directed links.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Role

Floats = NDArray[np.float64]

METRE = 5e-9
"""Delay of a cable [s/m]: light in fibre at refractive index about 1.5; copper is within 10 % of it.
Source: PHYSICS notes section 7 (fibre 5 ns/m)."""


def link_delay(fabric: Fabric) -> Floats:
    """(L,) cable of each directed link, and the device that it leads into. [s]

    A path's latency is the sum over its links: both NICs and every switch count once, GPUs are 0.  A NIC's
    latency is one side, host memory to wire, so PCIe is in it; NVLink's part is in NCCL's cost of a step.
    """
    head = np.stack([fabric.b, fabric.a], axis=1).reshape(-1)
    delay: Floats = METRE * np.repeat(fabric.length, 2) + fabric.latency[head]
    return delay


def stretched(fabric: Fabric, lengths: Mapping[Role, float]) -> Fabric:
    """The same fabric with all cables of some roles at other lengths [m]: another room, building or city.

    Raises PlanError for a negative length and for a role without cables here.
    """
    length = fabric.length.copy()
    for role, metres in lengths.items():
        cables = fabric.role == role
        if not metres >= 0:
            raise PlanError(f"A cable cannot be {metres:g} m long; give 0 m or more.")
        if not cables.any():
            raise PlanError(
                f"A {fabric.family} fabric like this has no {role.name.lower().replace('_', '-')} cables to "
                "stretch; name a tier that it has."
            )
        length[cables] = metres
    return replace(fabric, length=length)
