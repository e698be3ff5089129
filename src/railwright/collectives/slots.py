"""PCIe slots of GPUs without scale-up links: all that such a GPU sends goes through one, wherever it goes.

Legend: G GPUs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric, Role
from railwright.traffic.demand import Traffic
from railwright.traffic.groups import Groups

Floats = NDArray[np.float64]


def busiest_slot(fabric: Fabric, demands: Traffic | Groups) -> float:
    """How long the busiest slot carries demands at its nominal rate; 0 where GPUs have scale-up links. [s]

    The graph has a lane from a GPU to the host and others to its NICs; they are one slot, each direction of
    which a byte passes once, at its sender and at its receiver.  A relay stands for the NIC beside it, which
    the host reaches without that GPU's slot: GPUs that meet over PCIe forward nothing (`placement.relay`).
    """
    if fabric.scale_up != "pcie":
        return 0.0
    sent, received = _bytes(fabric.num_gpus, demands)
    lanes = np.flatnonzero((fabric.role == Role.SCALE_UP) & (fabric.a < fabric.num_gpus))
    # a lane that failed with the slot alive says nothing of its rate
    rate = np.where(fabric.capacity > 0, fabric.capacity, np.repeat(fabric.rate, 2))
    gpu = fabric.a[lanes]
    busy = np.maximum(sent[gpu] / rate[2 * lanes], received[gpu] / rate[2 * lanes + 1])
    return float(busy.max(initial=0.0))


def _bytes(gpus: int, demands: Traffic | Groups) -> tuple[Floats, Floats]:
    """(G,) what each GPU sends to others and receives from them. [byte]"""
    written = demands.explicit if isinstance(demands, Groups) else demands
    size = np.where(written.src != written.dst, written.size, 0.0)
    sent, received = (np.bincount(end, size, gpus) for end in (written.src, written.dst))
    each = np.zeros(gpus)
    if isinstance(demands, Groups):
        ranks = np.diff(demands.ptr)
        each += np.bincount(demands.gpus, np.repeat(demands.size * (ranks - 1), ranks), gpus)
    return each + sent, each + received
