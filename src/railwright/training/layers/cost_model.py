"""What the work of a training step is priced with."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.training.layers.communication import Prices
from railwright.training.layers.costs import KernelTime
from railwright.training.software.eras import Pace


@dataclass(frozen=True)
class CostModel:
    """What the work of a step is priced with.

    prices  of its collectives
    kernel  of its operators, at the pace [s]
    pace    how much slower a step is than isolated kernels
    """

    prices: Prices
    kernel: KernelTime
    pace: Pace
