"""The floor plan: racks side by side in rows, rows joined by aisles, and how high every port is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from railwright.errors import PlanError
from railwright.fabric import Fabric, Kind
from railwright.fabric.graph import Floats
from railwright.site.arranging import Draft, elevation
from railwright.site.circuits import RackPower
from railwright.site.filling import Rooms
from railwright.site.loading import constant
from railwright.site.media import Whole
from railwright.site.runs import Where
from railwright.units import show_length


@dataclass(frozen=True)
class Placed:
    """A machine in its rack.  unit: lowest it takes; network, number: where it stands there."""

    name: str
    part: str
    kind: str
    unit: int
    units: int
    watts: float
    network: str
    number: int


@dataclass(frozen=True)
class Rack:
    """One rack: its machines in the order of `power.machines`, its place, and the middle of it [m]."""

    name: str
    kind: str
    content: tuple[Placed, ...]
    power: RackPower
    row: int
    place: int
    x: float
    y: float


@dataclass(frozen=True)
class Floor:
    """The room: rows, racks in a row at most, and its inside with an aisle all around [m]."""

    rows: int
    racks_per_row: int
    length: float
    depth: float


def lay_out(drafts: list[Draft], rooms: Rooms) -> tuple[list[Rack], Floor]:
    """Racks on the floor in their order, every second row backwards, so that neighbours stay neighbours."""
    site, kind = rooms.site, rooms.rack
    if site.tray_height < kind.height:
        raise PlanError(
            f"site.tray_height: trays at {show_length(site.tray_height)} do not clear a '{kind.name}', which "
            f"is {show_length(kind.height)} high"
        )
    in_row = min(site.racks_per_row, len(drafts))
    racks = []
    for index, draft in enumerate(drafts):
        row, place = divmod(index, in_row)
        if row % 2:
            place = in_row - 1 - place
        content = tuple(
            Placed(
                item.name,
                item.machine.part,
                item.machine.kind,
                unit,
                item.machine.units,
                item.machine.watts,
                item.network,
                item.number,
            )
            for item, unit in elevation(draft, kind.units)
        )
        power = rooms.power([item.machine for item in draft.items])
        x, y = (place + 0.5) * kind.width, row * (kind.depth + site.aisle)
        racks.append(Rack(f"R{row + 1:02d}-{place + 1:02d}", draft.kind, content, power, row, place, x, y))
    rows = -(-len(drafts) // in_row)
    length = in_row * kind.width + 2 * site.aisle
    return racks, Floor(rows, in_row, length, rows * (kind.depth + site.aisle) + site.aisle)


def alike_racks(racks: Sequence[Rack]) -> list[tuple[Rack, int]]:
    """The first rack of each content, in the order met, and how many hold the same."""
    found: dict[tuple[str, ...], list[Rack]] = {}
    for rack in racks:
        found.setdefault((rack.kind, *(placed.part for placed in rack.content)), []).append(rack)
    return [(alike[0], len(alike)) for alike in found.values()]


def whereabouts(racks: list[Rack], floor: Floor, networks: Mapping[str, Fabric], rooms: Rooms) -> Where:
    """Rack and port height of every device of every network."""
    kind, unit = rooms.rack, constant("rack_unit")
    servers = max(fabric.num_servers for fabric in networks.values())
    rack_of_server = np.full(servers, -1, np.int64)
    height_of_server = np.zeros(servers)
    switches: dict[str, list[tuple[int, int, float]]] = {name: [] for name in networks}
    for index, rack in enumerate(racks):
        for placed in rack.content:
            height = kind.base + (placed.unit - 1 + placed.units / 2) * unit
            if placed.kind in ("server", "host"):
                rack_of_server[placed.number], height_of_server[placed.number] = index, height
            else:
                switches[placed.network].append((placed.number, index, height))
    rack_of: dict[str, Whole] = {}
    height_of: dict[str, Floats] = {}
    for name, fabric in networks.items():
        at, high = np.full(fabric.num_devices, -1, np.int64), np.zeros(fabric.num_devices)
        inside = fabric.kind <= Kind.SCALE_UP
        at[inside] = rack_of_server[fabric.server[inside]]
        high[inside] = height_of_server[fabric.server[inside]]
        for device, index, height in switches[name]:
            at[device], high[device] = index, height
        rack_of[name], height_of[name] = at, high
    return Where(
        np.array([rack.x for rack in racks]),
        np.array([rack.y for rack in racks]),
        rack_of,
        height_of,
        floor.racks_per_row * kind.width,
        kind.width,
    )
