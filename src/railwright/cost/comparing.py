"""All ways side by side: break-even, the best mixture, what the answer hangs on, and how sure it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from railwright.cost.carbon import Carbon, carbon
from railwright.cost.options import (
    Case,
    Cost,
    Draw,
    Number,
    best_split,
    check_region,
    even_use,
    hybrid,
    middle,
    owned,
    providers,
    rented,
    with_defaults,
)
from railwright.cost.prices import Book
from railwright.cost.prices import regions as intensities
from railwright.errors import PlanError

DRAWS = 10_000


@dataclass(frozen=True)
class BreakEven:
    """When owning has paid for itself against a cloud.

    months       until as much was spent on both, the purchase paid at once and the machines worth nothing
                 afterwards; inf: never
    utilisation  mean share of the GPUs wanted above which owning is cheaper over the years, interest and
                 residual value included; above 1: never
    """

    own: str
    cloud: str
    months: float
    utilisation: float


@dataclass(frozen=True)
class Swing:
    """What one price does to a GPU-hour of the best owned way [USD], from its low to its high end."""

    item: str
    low: float
    high: float
    source: str
    unread: bool


@dataclass(frozen=True)
class Comparison:
    """Every way of serving the demand.

    costs      first guess, cheapest first
    ranges     name -> (low, median, high) of a GPU-hour [USD]: 5 %, 50 % and 95 % of draws of all prices, low
               and high moved out to the first guess where that lies beyond (`spread`)
    cheapest   name -> share of the draws in which it is the cheapest
    lasting    the same among the ways that no provider can withdraw: all but spot
    breaks     owned ways against the clouds' list prices
    swings     largest first
    carbon     in the study's region and, for comparison, in others, where its intensity is known
    owned_in   region -> a GPU-hour of the best owned way there [USD]
    unread     price items used that nobody has read in a source
    assumed    price items used of which one figure was read: drawn with the spread of their kind (`spreads`)
    """

    case: Case
    costs: tuple[Cost, ...]
    ranges: Mapping[str, tuple[float, float, float]]
    cheapest: Mapping[str, float]
    lasting: Mapping[str, float]
    breaks: tuple[BreakEven, ...]
    swings: tuple[Swing, ...]
    carbon: tuple[Carbon, ...]
    owned_in: Mapping[str, float]
    unread: tuple[str, ...]
    assumed: tuple[str, ...]
    book: Book


def compare(case: Case, prices: Book, regions: tuple[str, ...] = (), seed: int = 0) -> Comparison:
    """Price every way the book has prices for. Raises RailwrightError for a region it does not know."""
    if not case.wanted:
        raise PlanError("money.use: no GPU is ever wanted; nothing to compare")
    book = with_defaults(prices)
    check_region(book, case.money.region)
    for region in regions:
        check_region(book, region, "regions")
    used: set[str] = set()

    def noting(item: str) -> Number:
        used.add(item)
        return first(item)

    first = middle(book)
    costs = ways(case, noting, book)
    draws = _draws(book, used, seed)
    drawn = {c.name: c for c in ways(case, lambda item: draws[item], book, splits=costs)}
    hours = {name: np.broadcast_to(np.asarray(c.per_gpu_hour, float), (DRAWS,)) for name, c in drawn.items()}
    own = min((c for c in costs if c.kind in ("own", "colo")), key=lambda c: float(c.monthly))
    places = tuple(dict.fromkeys((case.money.region, *regions)))
    return Comparison(
        case=case,
        costs=tuple(sorted(costs, key=lambda c: float(c.monthly))),
        ranges={c.name: spread(hours[c.name], float(c.per_gpu_hour)) for c in costs},
        cheapest=_shares([c.name for c in costs], hours),
        lasting=_shares([c.name for c in costs if c.kind != "spot"], hours),
        breaks=tuple(_breaks(case, first, costs)),
        swings=_swings(case, book, own),
        carbon=tuple(carbon(case, first, r) for r in places if r in intensities()),
        owned_in={r: float(owned(_moved(case, r), first, own.kind).per_gpu_hour) for r in places},
        unread=tuple(sorted(item for item in used if book[item].unread)),
        assumed=tuple(sorted(item for item in used if book[item].assumed)),
        book=book,
    )


def ways(case: Case, draw: Draw, book: Book, splits: list[Cost] | None = None) -> list[Cost]:
    """Own, colo, every cloud on demand, reserved and spot, and the best mixture with the cheapest cloud.

    splits  costs of the first guess: their mixture, if any, is priced again instead of being sought per draw
    """
    gpu = case.cluster.gpu
    clouds = providers(book, gpu)
    found = [owned(case, draw, "own"), owned(case, draw, "colo")]
    found += [rented(case, draw, cloud, "on-demand") for cloud in clouds]
    found += [rented(case, draw, cloud, "reserved") for cloud in clouds]
    found += [rented(case, draw, cloud, "spot") for cloud in providers(book, gpu, "spot")]
    if clouds:
        first = middle(book)
        cheap = min(clouds, key=lambda cloud: float(rented(case, first, cloud, "on-demand").monthly))
        if splits is None:
            both = [c for base in ("own", "colo") if (c := best_split(case, draw, base, cheap)) is not None]
            found += sorted(both, key=lambda c: float(c.monthly))[:1]
        else:
            known = [c for c in splits if c.kind == "hybrid"]
            found += [hybrid(case, draw, c.base, cheap, c.owned) for c in known]
    return found


def _moved(case: Case, region: str) -> Case:
    """The same machines elsewhere."""
    return replace(case, money=case.money.model_copy(update={"region": region}))


def _draws(book: Book, items: set[str], seed: int) -> dict[str, np.ndarray]:
    """Triangular draws of every item; the same seed and item give the same draws."""
    found = {}
    for item in sorted(items):
        price = book[item]
        rng = np.random.default_rng([seed, *item.encode()])
        low, high = sorted((price.low, price.high))
        flat = high - low <= 1e-12
        found[item] = np.full(DRAWS, price.middle) if flat else rng.triangular(low, price.middle, high, DRAWS)
    return found


def _shares(names: Sequence[str], hours: Mapping[str, Any]) -> dict[str, float]:
    """Of the ways of these names, the share of the draws in which each is the cheapest."""
    least = np.argmin(np.array([hours[name] for name in names]), axis=0)
    return {name: float(np.mean(least == i)) for i, name in enumerate(names)}


def spread(drawn: Any, guess: float) -> tuple[float, float, float]:
    """5 %, 50 % and 95 % of draws, the ends moved out to the first guess where it lies beyond.

    A price whose first guess is an end of its own range (a quote that can only rise) is below, or above,
    nearly all of its draws; it is still the price of its date, so the range holds it.
    """
    low, mid, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    return min(float(low), guess), float(mid), max(float(high), guess)


def _breaks(case: Case, draw: Draw, costs: list[Cost]) -> list[BreakEven]:
    found = []
    for own in (c for c in costs if c.kind in ("own", "colo")):
        for cloud in (c for c in costs if c.kind == "on-demand"):
            running = float(own.monthly) - float(own.parts["purchase"])
            saved = float(cloud.monthly) - running
            months = float(own.upfront) / saved if saved > 0 else float("inf")
            found.append(BreakEven(own.name, cloud.name, months, even_use(case, draw, own.kind, cloud.cloud)))
    return found


def _swings(case: Case, book: Book, own: Cost) -> tuple[Swing, ...]:
    found = []
    used: set[str] = set()

    def noting(item: str) -> Number:
        used.add(item)
        return book[item].middle

    owned(case, noting, own.kind)
    for item in sorted(used):
        price = book[item]

        def at(value: float, item: str = item) -> float:
            cost = owned(case, lambda name: value if name == item else book[name].middle, own.kind)
            return float(cost.per_gpu_hour)

        found.append(Swing(item, at(price.low), at(price.high), price.provenance, price.unread))
    return tuple(sorted(found, key=lambda s: -abs(s.high - s.low)))
