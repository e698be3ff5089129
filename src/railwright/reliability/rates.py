"""How often parts fail: published fleets pooled per component, or one fleet by its name.

A component's pooled rate is the geometric mean of the fleets that count it: rates of the same part differ by
factors between operators, so their logarithms are what has a mean.  Nothing is fitted to one fleet;
`leave_one_out` says how well each fleet's total is met by the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from railwright.errors import RailwrightError, nearest
from railwright.reliability.constants import NODE_GPUS, read_data
from railwright.units import DAY, YEAR

Unit = Literal["gpu", "nic", "link", "leaf", "spine", "core", "trunk", "node", "feed"]
PER_GPU = {"gpu": 1.0, "nic": 1.0, "link": 1.0, "node": 1.0 / NODE_GPUS}
"""Units per GPU of the published fleets: nodes of eight GPUs with a NIC each."""


@dataclass(frozen=True)
class Evidence:
    """One fleet's rate of one component.

    rate    [1/(unit year)]
    faults  counted as out of service, not as interruptions of a job
    """

    fleet: str
    rate: float
    events: int
    faults: bool
    of: str


@dataclass(frozen=True)
class PartRate:
    """How often one unit of a component fails.

    rate, low, high  [1/(unit year)]
    stops    whether it interrupts the job it is in; otherwise the unit is drained or worked around
    source   in words
    """

    name: str
    what: str
    unit: Unit
    stops: bool
    rate: float
    low: float
    high: float
    evidence: tuple[Evidence, ...]
    source: str


@dataclass(frozen=True)
class LeftOut:
    """A fleet's interruptions as the other fleets predict them. [per 1,000 node-days]"""

    fleet: str
    observed: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over observed, less one."""
        return self.predicted / self.observed - 1


@cache
def fleets() -> Mapping[str, Mapping[str, Any]]:
    """The published fleets by name, as the data file has them."""
    found: dict[str, Any] = read_data("rates")["fleets"]
    return found


def books() -> tuple[str, ...]:
    """What `reliability.rates` may name: 'pooled', and each fleet that counted a whole cluster."""
    return ("pooled", *(name for name, row in fleets().items() if "gpus" in row))


def part_rates(book: str = "pooled", without: str | None = None) -> tuple[PartRate, ...]:
    """The rate of every component.

    book     'pooled' over all fleets, or one fleet's own rates; components that fleet says nothing about keep
             the pooled rate, those it counts within another component have 0
    without  a fleet to leave out of the pool
    Raises RailwrightError for an unknown book, with the known ones.
    """
    if book not in books():
        known = f"{', '.join(books())}{nearest(book, books())}"
        raise RailwrightError(f"reliability.rates: there is no published fleet '{book}'; known are {known}")
    return tuple(_part(name, row, book, without) for name, row in read_data_once()["components"].items())


def leave_one_out() -> tuple[LeftOut, ...]:
    """Every fleet of job interruptions predicted from the components' rates in the other fleets.

    Components that only this fleet counts keep its rate for neither side.
    """
    found = []
    for name, row in fleets().items():
        if "gpus" not in row or name.startswith("stepfun"):
            continue  # StepFun counts node faults, not interruptions of a job
        seen = dict.fromkeys(PER_GPU, 0.0)
        observed = predicted = 0.0
        for part, other in zip(part_rates(name), part_rates("pooled", name), strict=True):
            per_gpu = PER_GPU.get(part.unit)
            if per_gpu is None or not part.stops:
                continue
            has = any(e.fleet == name for e in part.evidence)
            observed += part.rate * per_gpu if has else 0.0
            predicted += other.rate * per_gpu
            seen[part.unit] += 1
        scale = NODE_GPUS * 1000 * DAY / YEAR
        found.append(LeftOut(name, observed * scale, predicted * scale))
    return tuple(found)


@cache
def read_data_once() -> dict[str, Any]:
    """The data file, parsed once."""
    return read_data("rates")


def _part(name: str, row: Mapping[str, Any], book: str, without: str | None) -> PartRate:
    evidence = tuple(
        _evidence(one, str(row["unit"])) for one in row["evidence"] if "within" not in one
    )  # fmt: skip
    pool = [e for e in evidence if e.fleet != without] or list(evidence)
    if pool:
        pooled = math.exp(sum(math.log(e.rate) for e in pool) / len(pool))
        low, high = min(e.rate for e in pool), max(e.rate for e in pool)
        source = "; ".join(f"{e.fleet} {100 * e.rate:.3g} %" for e in pool)
    else:
        pooled = low = high = float(row["per_unit_year"])
        source = str(row["range_source"])
    if "range" in row:
        low, high = (float(v) for v in row["range"])
    rate = pooled
    if book != "pooled":
        own = next((e for e in evidence if e.fleet == book), None)
        within = any(one["fleet"] == book and "within" in one for one in row["evidence"])
        if own is not None:
            rate, source = own.rate, f"{own.fleet}: {own.of}"
        elif within:
            rate, source = 0.0, f"{book} counts it under another component"
        low, high = (min(low, rate), max(high, rate)) if rate else (0.0, 0.0)
    return PartRate(
        name=name,
        what=str(row["what"]),
        unit=row["unit"],
        stops=bool(row["stops"]),
        rate=rate,
        low=low,
        high=high,
        evidence=evidence,
        source=source,
    )


def _evidence(one: Mapping[str, Any], unit: str) -> Evidence:
    fleet = str(one["fleet"])
    if "per_unit_year" in one:
        return Evidence(fleet, float(one["per_unit_year"]), 0, False, str(one["of"]))
    row = fleets()[fleet]
    unit_years = row["gpus"] * PER_GPU[unit] * row["days"] * DAY / YEAR
    events = int(one["events"])
    return Evidence(fleet, events / unit_years, events, bool(one.get("faults")), str(one["of"]))
