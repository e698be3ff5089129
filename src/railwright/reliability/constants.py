"""Constants of the reliability room, read once from their data file, each with range and source."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

from railwright import shipped

NODE_GPUS = 8
"""GPUs of the node that rates 'per 1,000 node-days' are about, whatever a server of the study holds."""


@dataclass(frozen=True)
class Constant:
    """One constant: value in SI units with its range, what it counts, where it is from, how far checked."""

    name: str
    value: float
    low: float
    high: float
    unit: str
    source: str
    status: str


def constant(name: str) -> Constant:
    """One constant by its name in data/constants.yaml."""
    row = _rows()[name]
    low, high = row["range"]
    return Constant(name, row["value"], low, high, row["unit"], row["source"], row["status"])


def constants() -> tuple[Constant, ...]:
    """All constants that are one number, for a report that lists its assumptions."""
    return tuple(constant(name) for name, row in _rows().items() if "value" in row)


def restart_time(gpus: int) -> float:
    """From all processes started to the first step, of a job of so many GPUs. [s]

    Log-log interpolation of FT-HSDP's cold recoveries; the least one below its smallest job, the last slope
    above its largest.  Source: data/constants.yaml, restart.
    """
    row = _rows()["restart"]
    sizes, seconds = row["gpus"], row["seconds"]
    if gpus <= sizes[0]:
        return float(seconds[0])
    at = next((i for i in range(1, len(sizes)) if gpus <= sizes[i]), len(sizes) - 1)
    slope = math.log(seconds[at] / seconds[at - 1]) / math.log(sizes[at] / sizes[at - 1])
    return float(seconds[at - 1] * (gpus / sizes[at - 1]) ** slope)


def read_data(name: str) -> dict[str, Any]:
    """A YAML file beside this module."""
    data: dict[str, Any] = shipped.read_data("reliability", f"{name}.yaml")
    return data


@cache
def _rows() -> dict[str, Any]:
    return read_data("constants")
