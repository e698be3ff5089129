"""Traffic: who sends how many bytes to whom, and through which relay; and groups of ranks placed on GPUs.

Legend: F demands; n ranks of a communicator.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Communicator:
    """A group of ranks in rank order, placed on GPUs.

    gpus   (n,) GPU id of each rank
    name   what the group is for: 'DP group 3', 'world'
    """

    gpus: Ints
    name: str = "world"

    def __len__(self) -> int:
        return len(self.gpus)

    def servers(self, fabric: Fabric) -> Ints:
        """(n,) server of each rank."""
        return fabric.server[self.gpus]

    def num_servers(self, fabric: Fabric) -> int:
        return len(np.unique(self.servers(fabric)))


@dataclass(frozen=True, eq=False)
class Traffic:
    """Demands that start together.

    src, dst  (F,) GPU ids
    relay     (F,) GPU id in the source's scale-up domain that forwards (PXN), or -1: direct
    size      (F,) [byte]

    A demand between GPUs of one scale-up domain rides the scale-up links; any other one leaves through
    the NIC of its relay (or of its source) and enters through the NIC of its destination.
    """

    src: Ints
    dst: Ints
    relay: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.src)

    def scaled(self, factor: float) -> Traffic:
        """The same demands, each `factor` times as large."""
        return Traffic(self.src, self.dst, self.relay, self.size * factor)


def join(parts: list[Traffic]) -> Traffic:
    """All demands of several patterns that run at the same time."""
    if not parts:
        empty = np.zeros(0, np.int32)
        return Traffic(empty, empty, empty, np.zeros(0))
    return Traffic(
        np.concatenate([t.src for t in parts]),
        np.concatenate([t.dst for t in parts]),
        np.concatenate([t.relay for t in parts]),
        np.concatenate([t.size for t in parts]),
    )
