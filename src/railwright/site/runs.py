"""Every cable's way through the trays, its length with slack, its medium, and the bundle it is tied into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.catalog import find
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind, Role
from railwright.fabric.graph import Floats
from railwright.fabric.wired.breakout import Pieces, is_leg, pieces
from railwright.site.loading import constant
from railwright.site.media import Whole, alike_in_cages, ladder, leg_end, rungs, stock_length
from railwright.site.parts import OPTICAL, CableKind, SiteParts
from railwright.spec.site import Site

TIERS = {Role.NODE_LEAF: "node_leaf", Role.LEAF_SPINE: "leaf_spine", Role.SPINE_CORE: "spine_core"}
_PARTS = {Kind.LEAF: "leaf", Kind.SPINE: "spine", Kind.CORE: "core"}


@dataclass(frozen=True, eq=False)
class Where:
    """Where everything of the site stands.  R racks; x, y (R,) middle of each rack on the floor [m].

    rack, height  per network: rack of every device (-1: none) and height of its ports [m]
    """

    x: Floats
    y: Floats
    rack: Mapping[str, Whole]
    height: Mapping[str, Floats]
    row_length: float
    rack_width: float


@dataclass(frozen=True)
class Modules:
    """Transceivers of one kind: how many, ports of each, and what one takes [W]."""

    medium: str
    ports: int
    count: int
    watts: float


@dataclass(frozen=True, eq=False)
class Runs:
    """The cables of one network.  C links; every array is (C,).

    cable   index in the graph; rack_a, rack_b  rack of each end
    pieces  the cables that links are bought as: legs of a breakout cable are one
    way     through the trays; length  with slack and loops; bought  what is ordered, alike in legs [m]
    medium  index into `media`
    bundle  number of the bundle from 0, -1 inside one rack; bundles  how many
    """

    network: str
    cable: Whole
    rack_a: Whole
    rack_b: Whole
    way: Floats
    length: Floats
    bought: Floats
    medium: Whole
    media: tuple[CableKind, ...]
    bundle: Whole
    bundles: int
    modules: tuple[Modules, ...]
    pieces: Pieces

    def count(self, medium: int) -> int:
        """Cables to buy of a medium."""
        return int(np.count_nonzero(self.medium[self.pieces.first] == medium))


def tier_lengths(run: Runs, fabric: Fabric) -> dict[str, tuple[float, float, float]]:
    """Shortest, mean and longest cable of every tier of a network, by the words of the study. [m]"""
    found = {}
    for role, word in TIERS.items():
        mine = run.length[fabric.role[run.cable] == role]
        if len(mine):
            found[word] = float(mine.min()), float(mine.mean()), float(mine.max())
    return found


def tray_way(x_a: Floats, y_a: Floats, x_b: Floats, y_b: Floats, cross: NDArray[np.float64]) -> Floats:
    """Way along the trays between points above two racks. [m]

    A tray follows every row; `cross` are the places along a row where trays lead to the others.
    """
    direct = np.abs(x_a - x_b)
    detour = np.full(len(direct), np.inf)
    for place in cross.tolist():
        detour = np.minimum(detour, np.abs(x_a - place) + np.abs(x_b - place))
    across = np.abs(y_a - y_b)
    return np.asarray(np.where(across > 0, detour + across, direct), dtype=np.float64)


def cross_places(site: Site, row_length: float) -> NDArray[np.float64]:
    """Where cross trays stand along a row: amid it, or evenly from end to end. [m]"""
    if site.cross_trays == 1:
        return np.array([row_length / 2])
    return np.linspace(0.0, row_length, site.cross_trays)


def run_cables(
    name: str, fabric: Fabric, where: Where, site: Site, parts: SiteParts, catalog: Catalog
) -> Runs:
    """Length, medium and bundle of every cable of a network.

    Raises PlanError for a cable that no medium reaches, or trays below the tops of racks.
    """
    cable = np.flatnonzero((fabric.role >= Role.NODE_LEAF) & ~fabric.backplane)
    a, b = fabric.a[cable], fabric.b[cable]
    rack, height = where.rack[name], where.height[name]
    rack_a, rack_b = rack[a], rack[b]
    inside = rack_a == rack_b
    trays = tray_way(
        where.x[rack_a], where.y[rack_a], where.x[rack_b], where.y[rack_b],
        cross_places(site, where.row_length),
    )  # fmt: skip
    up = (site.tray_height - height[a]) + (site.tray_height - height[b])
    way = np.where(inside, np.abs(height[a] - height[b]) + where.rack_width, up + trays)
    length = way * (1 + site.slack) + 2 * site.service_loop
    media, medium, modules = _media(name, fabric, cable, length, parts, catalog)
    bought, made = np.zeros(len(cable)), pieces(fabric, cable)
    longest = made.longest(length)[made.of]
    for index, kind in enumerate(media):
        mine = medium == index
        bought[mine] = stock_length(kind, longest[mine])
    bundle, bundles = _bundles(rack_a, rack_b, medium)
    return Runs(
        name, cable, rack_a, rack_b, way, length, bought, medium, media, bundle, bundles, modules, made
    )


def _media(
    name: str, fabric: Fabric, cable: Whole, length: Floats, parts: SiteParts, catalog: Catalog
) -> tuple[tuple[CableKind, ...], Whole, tuple[Modules, ...]]:
    technology = find(catalog.switches, fabric.parts["leaf"]).technology
    rate = fabric.rate[cable]
    legs: Whole = np.where(is_leg(fabric, cable), fabric.breakout, 1)
    media: list[CableKind] = []
    medium: Whole = np.zeros(len(cable), np.int64)
    plugged: list[tuple[CableKind, Whole, Whole]] = []
    span = int(max(fabric.port_a.max(), fabric.port_b.max(), len(fabric.devices(Kind.NIC)))) + 1
    each = _ports_per_cage(fabric, parts, catalog)
    split = np.where(fabric.kind == Kind.LEAF, fabric.breakout, 1)
    cage_a, ports_a = _cages(fabric, cable, fabric.a, fabric.port_a, each, split, span)
    cage_b, ports_b = _cages(fabric, cable, fabric.b, fabric.port_b, each, split, span)
    for speed in np.unique(rate * legs).tolist():
        mine = np.flatnonzero(rate * legs == speed)
        into = np.unique(legs[mine]).tolist()
        ladders = {number: ladder(parts.media, technology, speed, number) for number in into}
        kinds = sorted(dict.fromkeys(kind for one in ladders.values() for kind in one), key=lambda m: m.reach)
        first: Whole = np.zeros(len(mine), np.int64)
        for number, one in ladders.items():
            at = legs[mine] == number
            try:
                rung = rungs(one, length[mine[at]])
            except PlanError as refusal:
                raise PlanError(f"{name}: {refusal}", refusal.field) from None
            first[at] = np.array([kinds.index(kind) for kind in one])[rung]
        rung = alike_in_cages(first, cage_a[mine], cage_b[mine])
        medium[mine] = rung + len(media)
        for index, kind in enumerate(kinds):
            if kind.kind not in OPTICAL:
                continue
            for number in into:
                at = mine[(rung == index) & (legs[mine] == number)]
                far = kind
                if number > 1 and len(at):
                    far = leg_end(parts.media, kind, speed / number, float(length[at].max()))
                plugged += [(far, cage_a[at], ports_a[at]), (kind, cage_b[at], ports_b[at])]
        media += kinds
    return tuple(media), medium, _modules(plugged)


def _modules(plugged: list[tuple[CableKind, Whole, Whole]]) -> tuple[Modules, ...]:
    """One of a kind for every cage, from (kind, cages, ports of each cage) of the ends of cables."""
    found = []
    for kind in dict.fromkeys(kind for kind, _, _ in plugged):
        cages = np.concatenate([at for of, at, _ in plugged if of == kind])
        ports = np.concatenate([each for of, _, each in plugged if of == kind])
        for each in np.unique(ports).tolist():
            count = len(np.unique(cages[ports == each]))
            watts = kind.watts if each > 1 else (kind.watts_single or kind.watts)
            found.append(Modules(kind.name, int(each), count, watts))
    return tuple(found)


def _ports_per_cage(fabric: Fabric, parts: SiteParts, catalog: Catalog) -> Whole:
    """Ports behind one cage of every device, whole ones where leaves number them in parts."""
    each: Whole = np.ones(fabric.num_devices, np.int64)
    for kind, part in _PARTS.items():
        if part in fabric.parts:
            switch = find(catalog.switches, fabric.parts[part])
            each[fabric.kind == kind] = max(1, switch.ports // switch.cages)
    if fabric.num_gpus and (server := parts.machines.get(fabric.parts["server"])) is not None:
        each[fabric.devices(Kind.NIC)] = server.ports_per_cage
    return each


def _cages(
    fabric: Fabric,
    cable: Whole,
    end: NDArray[np.int32],
    port: NDArray[np.int32],
    each: Whole,
    split: Whole,
    span: int,
) -> tuple[Whole, Whole]:
    """Cage at one end of every cable, unlike any other cage of the network, and its ports.

    split  parts in which a port of every device is numbered
    """
    device = end[cable].astype(np.int64)
    at = (port[cable].astype(np.int64) - 1) // split[device]
    ports = each[device]
    nics = fabric.devices(Kind.NIC)
    # Ports of a server are numbered through its NICs; neighbours share a cage.
    per_server = len(nics) // fabric.num_servers
    shared = (fabric.kind[device] == Kind.NIC) & (ports > 1)
    ordinal = (device - int(nics[0])) % per_server
    at = np.where(shared, ordinal, at)
    device = np.where(shared, device - ordinal, device)
    return device * span + at // ports, ports


def _bundles(rack_a: Whole, rack_b: Whole, medium: Whole) -> tuple[Whole, int]:
    """Cables of one medium between the same two racks, tied in bundles of so many at most."""
    low, high = np.minimum(rack_a, rack_b), np.maximum(rack_a, rack_b)
    racks, kinds = int(high.max(initial=0)) + 1, int(medium.max(initial=0)) + 1
    key = (low.astype(np.int64) * racks + high) * kinds + medium
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    new = np.concatenate([[True], ranked[1:] != ranked[:-1]]) if len(ranked) else np.zeros(0, bool)
    first = np.maximum.accumulate(np.where(new, np.arange(len(ranked)), 0))
    new |= (np.arange(len(ranked)) - first) % int(constant("bundle")) == 0
    inside = low[order] == high[order]
    number = np.cumsum(new & ~inside) - 1
    bundle: Whole = np.full(len(key), -1, np.int64)
    bundle[order] = np.where(inside, -1, number)
    return bundle, int(number[-1]) + 1 if len(number) else 0
