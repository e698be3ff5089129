"""Owning, colocating, renting and mixtures of them, priced alike: every way serves the same demand.

All formulas take one value per price item, a number or an array of draws, so that a first guess, a tornado
and a Monte Carlo are one piece of arithmetic.

Owned machines: hardware, installation and (in a room of one's own) the share of the building they wear out
are paid at the start; what they are worth at the end comes back.  Money that is bound costs interest: the
monthly payment is the annuity that repays the purchase less the residual value over the years.
Energy is that of the machines at work and idle, times PUE.  Colocation is paid by the kW contracted, with the
energy metered beside it.
Rented machines: GPU-hours wanted, data kept and data leaving.  Owned ones have storage of their own for the
same data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import ceil, floor
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.cost.prices import CLOUD_NAMES, Book, Price, find_price
from railwright.cost.quantities import STORAGE, Levels, Line, Quantities, mean_use
from railwright.errors import RailwrightError
from railwright.spec.money import Money
from railwright.units import HOURS_OF_YEAR

Number = float | NDArray[np.float64]
Draw = Callable[[str], Number]
"""The value of a price item."""

MONTHS = 12.0


@dataclass(frozen=True)
class Cost:
    """One way of serving the demand.

    name        for people: 'colo', 'aws spot', 'own 60 % + aws'
    kind        own, colo, on-demand, reserved, spot or hybrid
    upfront     paid at the start [USD]
    parts       of the cost [USD a month]: purchase (annuity), power, space, people, support, rent, data
    owned       share of the GPUs that is owned
    wanted      GPU-hours wanted a month
    base        how the owned machines are housed: own or colo; '' where none is owned
    cloud       whose machines are rented; '' where none is
    """

    name: str
    kind: str
    upfront: Number
    parts: Mapping[str, Number]
    owned: float
    wanted: float
    base: str = ""
    cloud: str = ""

    @property
    def monthly(self) -> Number:
        return sum(self.parts.values())

    @property
    def per_gpu_hour(self) -> Number:
        """Of a GPU-hour that was wanted [USD]; inf where none is."""
        return self.monthly / self.wanted if self.wanted else float("inf")


@dataclass(frozen=True)
class Case:
    """Everything but the prices: the cluster, its use, and the study's own figures."""

    cluster: Quantities
    levels: Levels
    money: Money

    @property
    def wanted(self) -> float:
        """GPU-hours a month."""
        return mean_use(self.levels) * self.cluster.gpus * HOURS_OF_YEAR / MONTHS


def middle(book: Book) -> Draw:
    """The first guess."""
    return lambda item: find_price(book, item).middle


def end(book: Book, which: Literal["low", "high"]) -> Draw:
    """Every price at its end that costs less, or more."""
    return lambda item: float(getattr(find_price(book, item), which))


def purchase(lines: tuple[Line, ...], draw: Draw) -> Number:
    """What the lines cost [USD]."""
    return sum((line_price(line, draw) for line in lines), 0.0)


def line_price(line: Line, draw: Draw) -> Number:
    """What one line costs, all pieces [USD]."""
    value: Number = line.amount
    for item, power in line.prices:
        value = value * draw(item) ** power
    return value


def owned(case: Case, draw: Draw, kind: str, share: float = 1.0) -> Cost:
    """Machines of one's own in a colocation ('colo') or a room of one's own ('own').

    share  of the cluster that is bought; the demand beyond it is not served here.  Data is kept whole
    """
    q, money = case.cluster, case.money
    kept = purchase(tuple(line for line in q.lines if line.room == STORAGE), draw)
    hardware = share * (purchase(q.lines, draw) - kept) + (kept if share else 0.0)
    upfront = hardware * (1 + draw("installation"))
    space: Number = 0.0
    if kind == "own":
        building = share * q.power * draw("facility")
        upfront = upfront + building * money.years / draw("facility-life")
    else:
        space = share * q.power / 1e3 * draw("colocation")
    served = sum(time * min(gpus, share) for time, gpus in case.levels)  # of all GPUs, in the mean
    machines = q.server_power * (served * draw("power-at-work") + (share - served) * draw("power-idle"))
    power = (machines + share * q.network_power) * site_pue(case, draw)
    parts: dict[str, Number] = {
        "purchase": _annuity(upfront, hardware * draw("residual"), money.interest, money.years),
        "power": power / 1e3 * HOURS_OF_YEAR / MONTHS * draw(electricity(money.region)),
        "space": space,
        "people": people(case, draw, share) * draw("salary") / MONTHS,
        "support": hardware * draw("support") / MONTHS,
    }
    return Cost(kind, kind, upfront, parts, share, case.wanted, base=kind)


def people(case: Case, draw: Draw, share: float = 1.0) -> Number:
    """Who run a share of the cluster, full-time: `money.staff`, else by the systems they administer.

    One for so many systems, and not less than a small cluster takes.  Sources: the items `servers-per-person`
    and `least-staff` of the price book.
    """
    if not share:
        return 0.0
    if case.money.staff is not None:
        return case.money.staff
    by_systems = share * case.cluster.systems / draw("servers-per-person")
    return np.maximum(draw("least-staff"), by_systems)


def rented(case: Case, draw: Draw, provider: str, kind: str, above: float = 0.0) -> Cost:
    """GPUs of a cloud for the demand above a share that is served elsewhere.

    kind  'on-demand', 'reserved' (the most GPUs that are wanted at one time, all of the time) or 'spot'
    """
    q, money = case.cluster, case.money
    gpu = CLOUD_NAMES.get(q.gpu, q.gpu)
    hours = q.gpus * HOURS_OF_YEAR / MONTHS
    beyond = sum(time * max(gpus - above, 0.0) for time, gpus in case.levels)
    if kind == "spot":
        price, used = draw(f"spot/{provider}/{gpu}") / (1 - draw("spot-loss")), beyond
    elif kind == "reserved":
        price, used = draw(f"cloud/{provider}/{gpu}") * draw("reserved"), max(g for _, g in case.levels)
    else:
        price, used = draw(f"cloud/{provider}/{gpu}"), beyond
    parts: dict[str, Number] = {"rent": used * hours * price}
    if used:
        parts["data"] = (money.data or 0.0) / 1e12 * draw("cloud-storage") + money.egress / 1e9 * draw(
            f"egress/{provider}"
        )
    return Cost(f"{provider} {kind}", kind, 0.0, parts, 0.0, case.wanted, cloud=provider)


def hybrid(case: Case, draw: Draw, base: str, provider: str, share: float) -> Cost:
    """A share of the cluster owned, the demand above it rented on demand."""
    own, rent = owned(case, draw, base, share), rented(case, draw, provider, "on-demand", share)
    parts = {**own.parts, **rent.parts}
    name = f"{base} {100 * share:.0f} % + {provider}"
    return Cost(name, "hybrid", own.upfront, parts, share, case.wanted, base, provider)


def best_split(case: Case, draw: Draw, base: str, provider: str) -> Cost | None:
    """The cheapest mixture of whole servers; None where owning or renting all of it costs no more.

    Cost is piecewise linear and convex in the share owned, so a step of the demand would be best, or the
    share from which more people are needed, and of whole servers one beside it.
    """
    servers = case.cluster.servers
    bends = [gpus for _, gpus in case.levels]
    if case.money.staff is None and case.cluster.systems:
        alone = float(draw("least-staff") * draw("servers-per-person")) / case.cluster.systems
        bends.append(min(alone, 1.0))
    whole = {round_(servers * share) for share in bends for round_ in (floor, ceil)}
    shares = [number / servers for number in sorted({0, servers, *whole})]
    costs = [hybrid(case, draw, base, provider, share) for share in shares]
    best = min(costs, key=lambda c: float(c.monthly))
    return best if 0 < best.owned < 1 else None


def even_use(case: Case, draw: Draw, kind: str, provider: str) -> float:
    """Steady use above which owning is cheaper over the years than a cloud on demand: both are linear in it.

    Above 1: at no use there is; inf: never.
    """

    def gap(use: float) -> float:
        at = replace(case, levels=((1.0, use),))
        rent = rented(at, draw, provider, "on-demand")
        return float(owned(at, draw, kind).monthly) - float(rent.monthly)

    low, high = gap(1e-9), gap(1.0)
    return low / (low - high) if low > high else float("inf")


def providers(book: Book, gpu: str, kind: str = "cloud") -> list[str]:
    """Clouds that the book has a price of this GPU for."""
    name = CLOUD_NAMES.get(gpu, gpu)
    return [item.split("/")[1] for item in book if item.startswith(f"{kind}/") and item.endswith(f"/{name}")]


def electricity(region: str) -> str:
    """The price item of a region's electricity."""
    return f"electricity/{region}"


def check_region(book: Book, region: str, asked: str = "money.region") -> None:
    """Raises RailwrightError for a region without a price of electricity.

    asked  where the region was written: a field of the study, or an option
    """
    from railwright.errors import among

    priced = sorted(item.split("/")[1] for item in book if item.startswith("electricity/"))
    if region not in priced:
        raise RailwrightError(
            f"{asked}: no price of electricity in '{region}'{among(region, priced)}; "
            f"or add electricity/{region} to your prices (money.prices)"
        )


def with_defaults(book: Book) -> dict[str, Price]:
    """The book, where every provider has a price of egress."""
    found = dict(book)
    names = {item.split("/")[1] for item in book if item.startswith(("cloud/", "spot/"))}
    for name in names:
        found.setdefault(f"egress/{name}", book["egress"])
    return found


def site_pue(case: Case, draw: Draw) -> Number:
    return case.money.pue if case.money.pue is not None else draw("pue")


def _annuity(upfront: Number, back: Number, interest: float, years: float) -> Number:
    """Monthly payment that repays `upfront` over the years, `back` being worth something at their end."""
    months, rate = years * MONTHS, interest / MONTHS
    if rate == 0:
        return (upfront - back) / months
    growth = (1 + rate) ** months
    bound: Number = upfront - back / growth
    monthly: Number = bound * (rate * growth / (growth - 1))
    return monthly
