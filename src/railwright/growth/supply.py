"""What a step takes from the wall and from the purse."""

from __future__ import annotations

from dataclasses import dataclass, replace

from railwright.catalog.parts import Catalog, Server
from railwright.cost.options import (
    Case,
    Draw,
    end,
    even_use,
    middle,
    owned,
    providers,
    purchase,
    rented,
    with_defaults,
)
from railwright.cost.prices import Book
from railwright.cost.quantities import Quantities, quantities
from railwright.growth.machines import networked
from railwright.growth.parts import Speed, constant, wall_outlets
from railwright.growth.result import Rent
from railwright.ranges import Range
from railwright.site.loading import constant as site_constant
from railwright.site.loading import load_site_parts
from railwright.spec.money import Money

RACK_UNITS = 42
"""Of a usual rack (site/data/racks.yaml)."""


@dataclass(frozen=True)
class Bill:
    """bought  what there is to pay for;  price  of it [USD];  unread: whether one in it was read nowhere"""

    bought: Quantities
    price: Range
    unread: bool


def rack_machines(server: Server) -> int:
    """Servers that the air of one rack cools and its units hold; at least two, else it is no rack."""
    by_air = int(site_constant("air_limit") // server.power_max)
    return max(2, min(by_air, RACK_UNITS // server.rack_units))


def outlet_of(watts: float) -> tuple[str, bool]:
    """The smallest outlet of an office that carries one machine, else the smallest rack PDU; True for an
    office's."""
    for outlet in wall_outlets():
        if watts <= outlet.power:
            return f"{outlet.title} ({outlet.power:,.0f} W all day)", True
    parts = load_site_parts()
    pdus = sorted((p for p in parts.pdus.values() if p.rated >= watts), key=lambda p: p.rated)
    if not pdus:
        return "a feed of its own, beyond any PDU of the catalogue", False
    plug = parts.plugs[pdus[0].plug]
    return f"{plug.receptacle}, {pdus[0].title.split(' (')[0]}", False


def bill(server: Server, machines: int, jobs: Speed, data: Speed, catalog: Catalog, book: Book) -> Bill:
    """Machines, the jobs' network between them, and the Ethernet beside it; one machine needs no switch."""
    networks = [
        (name, networked(server, machines, speed, catalog).network.fabric)
        for name, speed in (("compute", jobs), ("data", data))
        if name == "compute" or speed != jobs
    ]
    bought = quantities(networks, catalog, book)
    if machines < 2:
        alone = tuple(line for line in bought.lines if line.room == "servers")
        bought = replace(bought, lines=alone, network_power=0.0, unrated=0)
    items = {item for line in bought.lines for item, _ in line.prices}
    price = Range(*(float(purchase(bought.lines, draw)) for draw in _ends(book)))
    return Bill(bought, price, any(book[item].unread for item in items))


def hourly(bought: Quantities, busy: float, office: bool, book: Book) -> Range:
    """One GPU-hour at work in machines of one's own, as `railwright cost` reckons it. [USD]

    busy    GPUs at work on average
    office  whether they stand in an office, which takes no share of a data centre's building
    Nobody's time is in it.
    """
    case = _case(bought, busy)
    costs = [owned(case, _housed(draw, office), "own") for draw in _ends(book)]
    return Range(*(float(cost.per_gpu_hour) for cost in costs))


def monthly(bought: Quantities, busy: float, office: bool, book: Book) -> float:
    """What a step of one's own costs a month with so many GPUs at work on average. [USD]"""
    return float(owned(_case(bought, busy), _housed(middle(book), office), "own").monthly)


def rent(bought: Quantities, office: bool, book: Book) -> Rent | None:
    """The step's GPU at the clouds' list prices on demand; None where no cloud of the book has it."""
    clouds = providers(book, bought.gpu)
    if not clouds:
        return None
    full, draw = _case(bought, float(bought.gpus)), _housed(middle(with_defaults(book)), office)
    prices = {cloud: float(rented(full, draw, cloud, "on-demand").per_gpu_hour) for cloud in clouds}
    cheapest = min(prices, key=lambda cloud: (prices[cloud], cloud))
    pays = even_use(full, draw, "own", cheapest)
    return Rent(
        cheapest, prices[cheapest], max(prices.values()), pays * bought.gpus if pays <= 1 else float("inf")
    )


def _case(bought: Quantities, busy: float) -> Case:
    """So many GPUs at work on average, over the years a step is kept, without anybody's time."""
    return Case(bought, ((1.0, busy / bought.gpus),), Money(years=constant("owned"), staff=0.0))


def _housed(draw: Draw, office: bool) -> Draw:
    return (lambda item: 0.0 if item == "facility" else draw(item)) if office else draw


def _ends(book: Book) -> tuple[Draw, Draw, Draw]:
    return end(book, "low"), middle(book), end(book, "high")
