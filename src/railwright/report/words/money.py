"""Money in words."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.cost.options import middle, people, purchase
from railwright.cost.priced import Priced
from railwright.cost.prices import spreads
from railwright.units import show_amount


def dollars(value: float) -> str:
    """'$1.2 M', '$310,000', '$2.95'; '–' for what does not exist."""
    if value == float("inf"):
        return "–"
    if abs(value) >= 1e6:
        return f"${value / 1e6:,.3g} M" if abs(value) < 1e9 else f"${value / 1e9:,.3g} bn"
    return f"${value:,.0f}" if abs(value) >= 100 else f"${value:,.2f}"


RANGE = (
    "A month: all that a way costs over the years, what is paid upfront with its interest too. Range: 5 % to "
    "95 % of 10,000 draws of all prices between their low and high ends, and always the price beside it."
)
"""What the columns of the ways hold (`cost.options.Cost`, `cost.comparing.spread`)."""


def tonnes(kilograms: float) -> str:
    """'0.35 t', '3.5 t', '1,250 t'."""
    return f"{show_amount(kilograms / 1e3)} t"


def money_words(priced: Priced) -> list[str]:
    """The cheapest way and how sure that is, the best owned way, what runs and tokens cost."""
    found, best, own = priced.comparison, priced.best, priced.best_owned
    low, _, high = found.ranges[best.name]
    words = [
        f"Cheapest: {best.name}, {dollars(float(best.per_gpu_hour))} per GPU-hour wanted (range "
        f"{dollars(low)} to {dollars(high)}); it is the cheapest in {100 * found.cheapest[best.name]:.0f} % "
        "of the draws of all prices."
    ]
    if best.kind == "spot":
        firm = next(c for c in found.costs if c.kind != "spot")
        low, _, high = found.ranges[firm.name]
        words.append(
            f"Without spot, which a provider takes back when it likes: {firm.name}, "
            f"{dollars(float(firm.per_gpu_hour))} ({dollars(low)} to {dollars(high)}), the cheapest of these "
            f"ways in {100 * found.lasting[firm.name]:.0f} % of the draws."
        )
    if own is not best:
        words.append(
            f"Owned at best ({own.name}): {dollars(float(own.per_gpu_hour))}, {dollars(float(own.upfront))} "
            "at the start."
        )
    words.append(_people(priced))
    if told := _joins_nothing(priced):
        words.append(told)
    if assumed := assumed_words(found.assumed):
        words.append(assumed)
    if silent := sorted(set(found.owned_in) - {c.region for c in found.carbon}):
        words.append(f"No carbon intensity is known of {', '.join(silent)}: what it emits is not said.")
    if not any(c.cloud for c in found.costs):
        gpu = found.case.cluster.gpu
        words.append(
            f"Nothing is compared with renting: the price book has no cloud with {gpu}; add cloud/NAME/{gpu} "
            "[USD a GPU-hour] to your own prices (money.prices)."
        )
    if unrated := found.case.cluster.unrated:
        words.append(
            f"Energy, space and carbon are without {unrated:,} switch{'es' if unrated > 1 else ''} whose "
            "power no source gives; `power_max` in your own `catalog` counts it."
        )
    cluster = found.case.cluster
    if cluster.hosts and not cluster.stores:
        words.append(
            f"The {cluster.hosts:,} storage and management hosts are in energy and space, and not in the "
            "purchase: `money.data` (or `site.storage`) says how much storage to buy."
        )
    if priced.unused:
        words.append(
            "Not used, because nothing in the catalogue is called so, are these of your own prices: "
            + "; ".join(priced.unused)
        )
    for run in priced.runs:
        failing = "nothing failing" if run.goodput == 1 else f"training {100 * run.goodput:.1f} % of the time"
        if run.spares:
            failing += f", with {run.spares:,} spare server{'s' if run.spares > 1 else ''} paid for it"
        words.append(
            f"A run of {run.job} takes {show_amount(run.gpu_hours)} GPU-hours, {failing}: "
            f"{dollars(run.cost(best))} ({best.name})."
        )
    words += [
        f"A million output tokens of {one.job}: {dollars(one.cost(best))} ({best.name})."
        for one in priced.served
    ]
    return words


def _people(priced: Priced) -> str:
    """How many are paid for running the best owned way, and why so many."""
    found = priced.comparison
    case, book = found.case, found.book
    number = float(people(case, middle(book)))
    said = f"Run by {number:.3g} {'people' if number != 1 else 'person'}"
    if case.money.staff is not None:
        return f"{said}, as money.staff says."
    return (
        f"{said}: one for {book['servers-per-person'].middle:g} servers (of {case.cluster.systems:,}), "
        f"{book['least-staff'].middle:g} at least; money.staff is yours."
    )


def _joins_nothing(priced: Priced) -> str:
    """What a single server's compute network costs, which the study draws and nobody needs; '' elsewhere."""
    found = priced.comparison
    cluster = found.case.cluster
    lines = tuple(line for line in cluster.lines if line.room == "compute network")
    if cluster.servers != 1 or not lines:
        return ""
    spent = dollars(float(purchase(lines, middle(found.book))))
    return (
        f"One server: the switch and cables of its compute network join it to nothing; {spent} of the "
        "purchase and their power can be left out."
    )


_KINDS = {"cloud": "on demand", "spot": "spot", "electricity": "electricity"}
"""Kind of item -> what its price is of, in words."""


def assumed_words(items: Sequence[str]) -> str:
    """Which prices are drawn with the spread of their kind, and how wide that is; '' for none."""
    named: dict[str, list[str]] = {}
    for item in items:
        kind, whose = item.split("/")[:2]
        named.setdefault(kind, []).append(whose)
    if not named:
        return ""
    said = "; ".join(
        f"{_KINDS[kind]} ({', '.join(whose)}) {spreads()[kind].low:.2f} to {spreads()[kind].high:.2f} times"
        for kind, whose in named.items()
    )
    return (
        f"Drawn with an assumed range, because one figure each was read: {said}; these are the ends of "
        "published differences of such prices (railwright cost --prices lists them)."
    )
