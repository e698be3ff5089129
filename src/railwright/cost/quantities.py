"""What there is to pay for: hardware by price item, power, and when the GPUs are wanted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server, Switch
from railwright.cost.prices import CLOUD_NAMES, Book, added
from railwright.errors import PlanError, RailwrightError, nearest
from railwright.fabric import Fabric
from railwright.fabric.graph import Kind, Role
from railwright.fabric.wired.breakout import pieces, reserved_pieces
from railwright.site.standing import Standing, standing
from railwright.spec.money import Use
from railwright.spec.site import Site
from railwright.units import GIGABIT

READ_BY = {
    "steady": ("share",),
    "spiky": ("base", "peak"),
    "deadline": ("days",),
    "levels": ("levels",),
}
"""What each profile of use reads of its section."""


STORAGE = "storage"
"""The room of lines that a part of a cluster needs whole."""


@dataclass(frozen=True)
class Line:
    """One line of the purchase: its room, what, how many, and how its price is made.

    prices   items of the price book multiplied together, each with a power: ('gpu/h100-sxm', 1),
             ('server-share', -1)
    amount   what the product of the prices is multiplied by
    """

    room: str
    what: str
    quantity: float
    prices: tuple[tuple[str, int], ...]
    amount: float


@dataclass(frozen=True)
class Quantities:
    """What one cluster is, in the units prices have.

    gpus, gpu        in all, and their catalogue name
    lines            to buy
    server_power     of all servers at their catalogued maximum [W]
    network_power    of what is always on: switches whose power is known, storage and management hosts [W]
    unrated          switches whose power no source gives
    hosts            storage and management machines of the networks, priced as storage alone
    systems          operating systems of the servers, which administrators count by (an NVL72 has 18)
    """

    gpus: int
    gpu: str
    lines: tuple[Line, ...]
    server_power: float
    network_power: float
    unrated: int = 0
    hosts: int = 0
    systems: int = 0

    @property
    def stores(self) -> bool:
        """Whether storage is bought."""
        return any(line.room == STORAGE for line in self.lines)

    @property
    def servers(self) -> int:
        """How many; they are the first line."""
        return round(self.lines[0].quantity)

    @property
    def power(self) -> float:
        """What must be contracted: every machine at its maximum [W]."""
        return self.server_power + self.network_power


def quantities(
    fabrics: Sequence[tuple[str, Fabric]],
    catalog: Catalog,
    book: Book,
    storage: float = 0.0,
    stands: Standing | None = None,
) -> Quantities:
    """Servers once, switches and cables of every network, storage.

    fabrics  (name, graph) of the compute network, then of those beside it
    storage  usable bytes bought with the cluster, storage servers included
    stands   these machines in the study's room; None: as the shipped records have them
    Raises RailwrightError for a server that has no price and no priced GPU.
    """
    compute = fabrics[0][1]
    if not compute.num_gpus:
        raise PlanError("the first network joins no GPUs; cost begins with the compute network")
    server = find(catalog.servers, compute.parts["server"])
    lines = [_server(server, compute.num_servers, book)]
    for name, fabric in fabrics:
        lines += [*_switches(name, fabric, catalog, book), *_cables(name, fabric)]
    draw = stands or standing([fabric for _, fabric in fabrics], server, catalog, Site())
    if storage:
        terabytes = storage / 1e12
        lines.append(Line(STORAGE, "usable TB", terabytes, (("storage-per-tb", 1),), terabytes))
    return Quantities(
        gpus=compute.num_gpus,
        gpu=server.gpu,
        lines=tuple(lines),
        server_power=draw.servers,
        network_power=draw.switches + draw.hosts,
        unrated=draw.unrated,
        hosts=draw.number_of_hosts,
        systems=compute.num_servers * server.hosts,
    )


def _server(server: Server, number: int, book: Book) -> Line:
    check_priced(server, book)
    for name in _priced_as(server):
        if f"server/{name}" in book:
            return Line("servers", server.name, number, ((f"server/{name}", 1),), number)
    prices = ((f"gpu/{server.gpu}", 1), ("server-share", -1))
    return Line("servers", f"{server.name}, by its GPUs", number, prices, number * server.gpus)


def _priced_as(server: Server) -> tuple[str, str]:
    """The names under which the book may have a server."""
    return server.name, server.name.replace("hgx-", "dgx-")


def check_priced(server: Server, book: Book) -> None:
    """Raises RailwrightError for a server that has no price and no priced GPU."""
    if f"gpu/{server.gpu}" in book or any(f"server/{name}" in book for name in _priced_as(server)):
        return
    raise RailwrightError(
        f"the price book knows neither the server '{server.name}' nor its GPU '{server.gpu}'; write one "
        f"into a file of your own (money.prices), like\nprices:\n  - {{item: server/{server.name}, "
        "low: 250000, middle: 300000, high: 350000, source: 'quote of …', date: '2026-11'}",
        "money.prices",
    )


def unused(book: Book, catalog: Catalog) -> tuple[str, ...]:
    """A user's prices of servers, GPUs and switches that the catalogue does not have, with the nearest name:
    they are prices of nothing."""
    rented = {*CLOUD_NAMES.values(), *catalog.gpus}
    known = {
        "server": catalog.servers, "gpu": catalog.gpus, "switch": catalog.switches, "cloud": rented,
        "spot": rented,
    }  # fmt: skip
    found = []
    for item in added(book):
        names = known.get(item.split("/")[0])
        if names is not None and (name := item.split("/")[-1]) not in names:
            found.append(f"{item}{nearest(name, names).replace(';', ',')}")
    return tuple(found)


def _switches(network: str, fabric: Fabric, catalog: Catalog, book: Book) -> list[Line]:
    wanted = [(Kind.LEAF, "leaf"), (Kind.SPINE, "spine"), (Kind.CORE, "core")]
    if fabric.directors:
        wanted = wanted[:1]
    counted = [
        (fabric.parts[part], len(fabric.devices(kind))) for kind, part in wanted if part in fabric.parts
    ]
    if fabric.directors:
        counted.append((fabric.parts["spine"], fabric.directors))
    total: dict[str, int] = {}
    for part, number in counted:
        if number:
            total[part] = total.get(part, 0) + number
    room = f"{network} network"
    return [_switch(room, find(catalog.switches, part), number, book) for part, number in total.items()]


def _switch(room: str, switch: Switch, number: int, book: Book) -> Line:
    if f"switch/{switch.name}" in book:
        return Line(room, switch.name, number, ((f"switch/{switch.name}", 1),), number)
    terabits = switch.ports * switch.rate * 8 / 1e12
    prices = (("switch-per-tbps", 1),)
    return Line(room, f"{switch.name}, by its Tb/s", number, prices, number * terabits)


def _cables(network: str, fabric: Fabric) -> list[Line]:
    """Cables with both ends, by rate; links inside a director are none, and a reserved port has one.

    A breakout cable is one, at the rate of all of its legs.
    """
    role, rate = np.asarray(fabric.role), np.asarray(fabric.rate)
    pulled = (role >= Role.NODE_LEAF) & ~np.asarray(fabric.backplane, bool)
    made = pieces(fabric, np.flatnonzero(pulled))
    bought = Counter(zip(made.split.tolist(), rate[pulled][made.first].tolist(), strict=True))
    if fabric.reserved_ports:
        bought[fabric.breakout, float(rate[role == Role.NODE_LEAF][0])] += reserved_pieces(fabric)
    return [
        Line(
            f"{network} network",
            f"breakout cables of {split} x {rate / GIGABIT:g} Gb/s"
            if split > 1
            else f"cables of {rate / GIGABIT:g} Gb/s",
            number,
            (("link-per-gbps", 1),),
            number * split * rate / GIGABIT,
        )
        for (split, rate), number in sorted(bought.items(), key=lambda row: row[0][1])
    ]


Levels = tuple[tuple[float, float], ...]
"""(share of the time, share of the GPUs wanted), shares of time adding up to 1, rising in GPUs."""


def check_use(use: Use) -> None:
    """Raises PlanError for a section that is no staircase, and for a field written that its profile ignores.

    use  as a file has it: of a variant, which holds every field, nobody knows what was written
    """
    levels(use)
    for name in sorted(use.model_fields_set - {"profile", *READ_BY[use.profile]}):
        whose = next(profile for profile, read in READ_BY.items() if name in read)
        raise PlanError(
            f"the profile is {use.profile}, which reads {' and '.join(READ_BY[use.profile])} alone; "
            f"write profile: {whose}, or leave it out",
            f"money.use.{name}",
        )


def levels(use: Use) -> Levels:
    """When the GPUs are wanted, as a staircase. Raises PlanError for shares of time that miss 1."""
    if use.profile == "steady":
        rows = [(1.0, use.share)]
    elif use.profile == "spiky":
        rows = [(1.0 - use.peak, use.base), (use.peak, 1.0)]
    elif use.profile == "deadline":
        share = use.days / 365.0
        rows = [(1.0 - share, 0.0), (share, 1.0)]
    else:
        if not use.levels:
            raise PlanError("the profile is levels, and none are listed", "money.use.levels")
        rows = [(level.time, level.gpus) for level in use.levels]
        if abs(sum(time for time, _ in rows) - 1.0) > 1e-6:
            total = sum(time for time, _ in rows)
            raise PlanError(f"the shares of time add up to {total:g}, not 1", "money.use.levels")
    merged: dict[float, float] = {}
    for time, gpus in rows:
        merged[gpus] = merged.get(gpus, 0.0) + time
    return tuple((time, gpus) for gpus, time in sorted(merged.items()) if time > 0)


def mean_use(steps: Levels) -> float:
    """Mean share of the GPUs wanted."""
    return sum(time * gpus for time, gpus in steps)
