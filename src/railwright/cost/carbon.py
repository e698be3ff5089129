"""Energy and carbon of machines at work, where they stand and when they run."""

from __future__ import annotations

from dataclasses import dataclass

from railwright.cost.options import Case, Draw, site_pue
from railwright.cost.prices import embodied, regions
from railwright.cost.quantities import mean_use
from railwright.errors import PlanError
from railwright.units import HOUR, HOURS_OF_YEAR, JOULES_PER_KWH


@dataclass(frozen=True)
class Carbon:
    """Of one year of the whole cluster in one place.

    energy       [J]
    intensity    location-based [g CO2e per kWh]
    operation    location-based [kg CO2e]
    making       what making the GPUs caused, spread over the years they serve [kg CO2e]; None: not known
    per_gpu_hour of a GPU-hour wanted, operation and making as far as known [g CO2e]
    source       of the intensity
    best_hours   operation, were the work done in the cleanest hours of the day [kg CO2e]; None: no profile
    """

    region: str
    energy: float
    intensity: float
    operation: float
    making: float | None
    per_gpu_hour: float
    source: str
    best_hours: float | None


def carbon(case: Case, draw: Draw, region: str) -> Carbon:
    """One year in a region.  `money.hours` shapes its day; without it the intensity is the yearly mean."""
    q, money = case.cluster, case.money
    served = mean_use(case.levels)
    work = q.server_power * served * float(draw("power-at-work")) * float(site_pue(case, draw))
    rest = q.server_power * (1 - served) * float(draw("power-idle")) + q.network_power
    rest *= float(site_pue(case, draw))
    place = regions()[region]
    year = HOURS_OF_YEAR * HOUR
    emitted = place.intensity / 1e3 / JOULES_PER_KWH  # kg of a joule
    energy = (work + rest) * year
    operation = energy * emitted
    best = None
    if money.hours is not None:
        best = (work * _cleanest(shape(money.hours), served) + rest) * year * emitted
    known = embodied().get(q.gpu)
    making = known[0] * q.gpus / money.years if known else None
    wanted = case.wanted * 12
    per_hour = 1e3 * (operation + (making or 0.0)) / wanted if wanted else float("inf")
    source = f"{place.source} ({place.date}, {place.status})"
    return Carbon(region, energy, place.intensity, operation, making, per_hour, source, best)


def shape(hours: tuple[float, ...] | None) -> tuple[float, ...]:
    """24 factors with mean 1. Raises PlanError for another number of them, or if all are 0."""
    if hours is None:
        return (1.0,) * 24
    if len(hours) != 24:
        raise PlanError(f"money.hours: {len(hours)} factors, 24 expected, midnight first")
    total = sum(hours)
    if total <= 0:
        raise PlanError("money.hours: all factors are 0; one that is clean all day is its region's intensity")
    return tuple(24 * h / total for h in hours)


def _cleanest(day: tuple[float, ...], served: float) -> float:
    """Mean factor over the cleanest hours that hold the work."""
    if served <= 0:
        return 1.0
    left, total = 24 * served, 0.0
    for factor in sorted(day):
        take = min(left, 1.0)
        total += take * factor
        left -= take
        if left <= 0:
            break
    return total / (24 * served)
