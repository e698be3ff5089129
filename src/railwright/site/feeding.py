"""Above the racks: what each feed of the room and each busway carries, whichever feed dies."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from railwright.errors import PlanError
from railwright.site.circuits import Circuit, feed_name
from railwright.site.electrical import three_phase
from railwright.site.floor import Rack
from railwright.site.loading import constant, find_part
from railwright.site.parts import SiteParts
from railwright.spec.site import Site
from railwright.units import show_power


@dataclass(frozen=True)
class FeedLoad:
    """One feed: what it carries while all are alive, and at most after another one has died [W].

    phases  currents of the room's phases L1, L2, L3 while all are alive, each circuit's added by size [A]
    """

    feed: int
    normal: float
    worst: float
    phases: tuple[float, float, float]


def feed_loads(racks: Sequence[Rack], site: Site) -> tuple[FeedLoad, ...]:
    """Load of every feed. Raises PlanError where one is above `site.power.feed_power` in any scenario."""
    loads, phases = _loads(racks), _phases(racks)
    limit = site.power.feed_power
    result = []
    for feed in sorted(loads):
        of = loads[feed]
        load = FeedLoad(feed, of[0], max(of), phases[feed])
        if limit is not None and load.worst > limit * (1 + 1e-9):
            lost = of.index(load.worst)
            when = f" without feed {feed_name(lost - 1)}" if lost else ""
            raise PlanError(
                f"site.power.feed_power: feed {feed_name(feed)} would carry {show_power(load.worst)}{when} "
                f"of the {show_power(limit)} it delivers"
            )
        result.append(load)
    return tuple(result)


def row_runs(racks: Sequence[Rack], site: Site, parts: SiteParts) -> dict[tuple[int, int], int]:
    """Busway runs that every row needs per feed, (row, feed) -> runs; {} without a busway.

    Raises PlanError where the busway's voltage is not that of the plugs that tap it.
    """
    if site.power.busway is None:
        return {}
    busway = find_part(parts.busways, site.power.busway, "busway")
    derate = constant(f"continuous_{site.power.practice}")
    capacity = three_phase(busway.volts, busway.amps, derate)
    by_row: dict[int, list[Rack]] = defaultdict(list)
    for rack in racks:
        by_row[rack.row].append(rack)
        for circuit in rack.power.circuits:
            _check_voltage(circuit, busway.name, busway.volts)
    runs = {}
    for row, here in sorted(by_row.items()):
        for feed, loads in sorted(_loads(here).items()):
            need = max(loads) / site.power.power_factor
            runs[row, feed] = max(1, -int(-(need / capacity - 1e-9) // 1))
    return runs


def landing(index: int) -> tuple[int, int, int]:
    """Room phases (0, 1, 2) that lines A, B and C of the circuits of rack `index` are landed on.

    Every PDU fills its first bank first, so neighbours start on different phases: over a row they even out.
    """
    turn = index % 3
    return turn, (turn + 1) % 3, (turn + 2) % 3


def _phases(racks: Sequence[Rack]) -> dict[int, tuple[float, float, float]]:
    """Feed -> currents of the room's phases. [A]"""
    sums: dict[int, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
    for index, rack in enumerate(racks):
        on = landing(index)
        for circuit in rack.power.circuits:
            # A single-phase circuit stands between two of the three.
            lines = circuit.lines[0] if len(circuit.lines[0]) == 3 else (*circuit.lines[0] * 2, 0.0)
            for line, amps in enumerate(lines):
                sums[circuit.feed][on[line]] += amps
    return {feed: (of[0], of[1], of[2]) for feed, of in sums.items()}


def _check_voltage(circuit: Circuit, name: str, volts: float) -> None:
    if abs(circuit.plug.volts - volts) > 0.06 * volts:
        raise PlanError(
            f"site.power.busway: '{name}' gives {volts:g} V, and {circuit.plug.title} needs "
            f"{circuit.plug.volts:g} V"
        )


def _loads(racks: Sequence[Rack]) -> dict[int, list[float]]:
    """Feed -> its load in every scenario. [W]

    Racks may have different numbers of feeds (a feed per PDU): one that a rack lacks is not missed.
    """
    scenarios = max((r.power.supplying.scenarios for r in racks if r.power.circuits), default=1)
    loads: dict[int, list[float]] = defaultdict(lambda: [0.0] * scenarios)
    for rack in racks:
        for circuit in rack.power.circuits:
            for scenario in range(scenarios):
                here = scenario if scenario < len(circuit.watts) else 0
                loads[circuit.feed][scenario] += circuit.watts[here]
    return dict(loads)
