"""What a step takes from the wall and from the purse."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server
from railwright.errors import RailwrightError, nearest
from railwright.fabric import count
from railwright.growth.machines import networked
from railwright.growth.parts import Speed, constant, wall_outlets
from railwright.ranges import Range
from railwright.site.loading import constant as site_constant
from railwright.site.loading import load_site_parts
from railwright.units import GIGABIT, HOURS_OF_YEAR

RACK_UNITS = 42
"""Of a usual rack (site/data/racks.yaml)."""


class PriceRange(Protocol):
    """A price of the price book: `low` and `high` are the ends that cost less and more."""

    @property
    def low(self) -> float: ...
    @property
    def middle(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def unread(self) -> bool: ...


Prices = Mapping[str, PriceRange]


@dataclass(frozen=True)
class Bill:
    """price  of everything [USD]; switch_power [W]; unread: whether a price in it was read nowhere"""

    price: Range
    switch_power: float
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


def bill(server: Server, machines: int, jobs: Speed, data: Speed, catalog: Catalog, prices: Prices) -> Bill:
    """Machines, the jobs' network between them, and the Ethernet beside it; one machine needs no switch."""
    price, unread = server_price(server, prices)
    total = price.times(machines)
    if machines < 2:
        return Bill(total, 0.0, unread)
    power = 0.0
    for speed in (jobs, data) if jobs != data else (jobs,):
        counts = count(networked(server, machines, speed, catalog).network.fabric, catalog)
        switch, nic = find(catalog.switches, speed.switch), find(catalog.nics, speed.nic)
        each, one_unread = _switch_price(speed.switch, switch.ports * switch.rate, prices)
        link = price_of("link-per-gbps", prices)
        total = total.plus(each.times(counts.switches))
        total = total.plus(_range(link).times(counts.cables * nic.rate / GIGABIT))
        power += counts.switch_power
        unread = unread or one_unread or link.unread
    return Bill(total, power, unread)


def server_price(server: Server, prices: Prices) -> tuple[Range, bool]:
    """A server by name, else its GPUs over their share of a server's price. [USD]"""
    if f"server/{server.name}" in prices:
        found = prices[f"server/{server.name}"]
        return _range(found), found.unread
    gpu, share = price_of(f"gpu/{server.gpu}", prices), price_of("server-share", prices)
    shares = sorted((share.low, share.high))
    price = Range(gpu.low / shares[1], gpu.middle / share.middle, gpu.high / shares[0])
    return price.times(server.gpus), gpu.unread or share.unread


def hourly(price: Range, power: float, busy: float, prices: Prices) -> Range:
    """One GPU-hour at work, owned: what is lost in value, support, electricity. [USD]

    price  of everything;  power  of everything at its maximum [W]
    busy   GPUs at work on average
    Nobody's time is in it, nor the room.
    """
    residual, support = price_of("residual", prices), price_of("support", prices)
    draw, pue = price_of("power-at-work", prices), price_of("pue", prices)
    kwh = price_of("electricity/usa", prices)

    def at(end: str) -> float:
        def value(of: PriceRange) -> float:
            return float(getattr(of, end))

        capital = float(getattr(price, end))
        a_year = capital * ((1.0 - value(residual)) / constant("owned") + value(support))
        a_year += power / 1e3 * HOURS_OF_YEAR * value(draw) * value(pue) * value(kwh)
        return a_year / (busy * HOURS_OF_YEAR)

    return Range(at("low"), at("middle"), at("high"))


def price_of(item: str, prices: Prices) -> PriceRange:
    """A price by name. Raises RailwrightError that says how to add it."""
    if item not in prices:
        raise RailwrightError(
            f"the price book has no '{item}'{nearest(item, prices)}; add it in a file of --prices"
        )
    return prices[item]


def _switch_price(name: str, rate: float, prices: Prices) -> tuple[Range, bool]:
    if f"switch/{name}" in prices:
        found = prices[f"switch/{name}"]
        return _range(found), found.unread
    found = price_of("switch-per-tbps", prices)
    return _range(found).times(rate / GIGABIT / 1e3), found.unread


def _range(price: PriceRange) -> Range:
    return Range(*sorted((price.low, price.middle, price.high)))
