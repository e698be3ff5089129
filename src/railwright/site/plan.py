"""The whole site of a study: racks on the floor, power, cooling, cables, storage; or why it cannot stand."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from railwright.catalog import find, load_catalog
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric import Fabric, build_networks
from railwright.site.arranging import arrange
from railwright.site.circuits import pdu_capacity
from railwright.site.cooling import RackHeat, rack_heat, typical_pue
from railwright.site.feeding import FeedLoad, feed_loads, row_runs
from railwright.site.filling import Fill, Rooms, liquid_share, server_machine
from railwright.site.floor import Floor, Rack, lay_out, whereabouts
from railwright.site.limits import worst_imbalance
from railwright.site.loading import constant, load_site_parts
from railwright.site.parts import SiteParts
from railwright.site.runs import Runs, run_cables, tier_lengths
from railwright.site.storage import StoragePlan, plan_storage
from railwright.spec.site import Site
from railwright.spec.study import Study
from railwright.units import show_length, show_power


@dataclass(frozen=True, eq=False)
class SitePlan:
    """A site that keeps every limit.

    fill      how a server rack is filled, and what stops one more server
    heat      per rack
    feeds     what each feed of the room carries, alive and after another has died
    busways   per row and feed the busway runs needed (empty without `site.power.busway`)
    pue       power of the site over that of its machines
    """

    study: str
    site: Site
    parts: SiteParts
    networks: Mapping[str, Fabric]
    fill: Fill
    racks: tuple[Rack, ...]
    floor: Floor
    heat: tuple[RackHeat, ...]
    feeds: tuple[FeedLoad, ...]
    busways: Mapping[tuple[int, int], int]
    runs: Mapping[str, Runs]
    pue: float
    storage: StoragePlan | None
    notes: tuple[str, ...]

    @cached_property
    def power(self) -> float:
        """Sustained power of all machines at their catalogued maximum. [W]"""
        return sum(rack.power.watts for rack in self.racks)

    @cached_property
    def peak(self) -> float:
        """All machines at their short peaks at once. [W]"""
        return sum(rack.power.peak for rack in self.racks)

    @property
    def site_power(self) -> float:
        """With cooling and losses. [W]"""
        return self.power * self.pue

    @cached_property
    def kinds(self) -> Counter[str]:
        """Racks by kind: 'servers', 'network', 'spines', 'core'."""
        return Counter(rack.kind for rack in self.racks)

    @property
    def kinds_told(self) -> str:
        """'6 of servers, 2 of network': racks by kind, in words."""
        return ", ".join(f"{count} of {kind}" for kind, count in self.kinds.items())

    def to_dict(self) -> dict[str, Any]:
        """Plain data in base units; racks, circuits and cables are in the rows (rows.py)."""
        from railwright.site.rows import plan_dict

        return plan_dict(self)


def plan_site(
    study: Study,
    catalog: Catalog | None = None,
    networks: Mapping[str, Fabric] | None = None,
    checkpoint: float | None = None,
) -> SitePlan:
    """The site of a study (its `site`, or the defaults where it has none).

    catalog, networks  where the caller has them already
    checkpoint  size of one checkpoint [byte], for `site.storage` without one of its own

    Raises PlanError naming the limit that cannot be kept, RailwrightError for a part nobody knows.
    """
    site = study.site or Site()
    catalog = catalog or load_catalog(study.catalog)
    parts = load_site_parts(site.parts)
    networks = networks or build_networks(study.cluster, catalog)
    rooms = Rooms.of(site, parts)
    server = server_machine(find(catalog.servers, study.cluster.server), parts)
    drafts, fill = arrange(networks, server, rooms, catalog)
    racks, floor = lay_out(drafts, rooms)
    loads = feed_loads(racks, site)
    runs_per_row = row_runs(racks, site, parts)
    _check_room(racks, site)
    where = whereabouts(racks, floor, networks, rooms)
    runs = {name: run_cables(name, fabric, where, site, parts, catalog) for name, fabric in networks.items()}
    heat = tuple(_heat(rack, site) for rack in racks)
    liquid, air = sum(h.liquid for h in heat), sum(h.air for h in heat)
    pue = site.cooling.pue or typical_pue(liquid / (liquid + air))
    storage = _storage(study, site, networks, parts, checkpoint)
    notes = (
        *_notes(racks, heat, site, fill, parts, networks),
        *_length_notes(study, runs, networks),
    )
    return SitePlan(
        study.name,
        site,
        parts,
        networks,
        fill,
        tuple(racks),
        floor,
        heat,
        loads,
        runs_per_row,
        runs,
        pue,
        storage,
        notes,
    )


def planned_lengths(plan: SitePlan) -> dict[str, str]:
    """Changes to the study that give every tier its longest planned cable: dotted field -> '9.8 m'.

    `spec.override(study, planned_lengths(plan))` is the study with them, for latencies and counts of optics.
    """
    return {
        f"cluster.{name}.lengths.{tier}": f"{math.ceil(longest * 10 - 1e-6) / 10:g} m"
        for name, run in plan.runs.items()
        for tier, (_, _, longest) in tier_lengths(run, plan.networks[name]).items()
    }


def _check_room(racks: list[Rack], site: Site) -> None:
    total = sum(rack.power.watts for rack in racks)
    if site.room_power is not None and total > site.room_power:
        raise PlanError(
            f"site.room_power: the machines take {show_power(total)} of the {show_power(site.room_power)} "
            "the room delivers; fewer servers, or a larger room"
        )


def _heat(rack: Rack, site: Site) -> RackHeat:
    liquid = sum(machine.watts * liquid_share(machine, site) for machine in rack.power.machines)
    return rack_heat(rack.power.watts - liquid, liquid, site.cooling.air_rise, site.cooling.liquid_rise)


def _storage(
    study: Study, site: Site, networks: Mapping[str, Fabric], parts: SiteParts, checkpoint: float | None
) -> StoragePlan | None:
    if site.storage is None:
        return None
    size = site.storage.checkpoint if site.storage.checkpoint is not None else checkpoint
    if size is None:
        raise PlanError(
            "site.storage.checkpoint: how large is a checkpoint? Give it, or a job whose model says so"
        )
    compute = networks["compute"]
    return plan_storage(
        site.storage, compute.num_servers, compute.num_gpus, size, networks.get("storage"), parts
    )


def _notes(
    racks: list[Rack],
    heat: tuple[RackHeat, ...],
    site: Site,
    fill: Fill,
    parts: SiteParts,
    networks: Mapping[str, Fabric],
) -> list[str]:
    count = f"{fill.servers} server{'s' if fill.servers > 1 else ''} a rack"
    notes = [f"{count}: one more would break {fill.why}"]
    if site.servers_per_rack is not None:
        notes = [f"{count}, as site.servers_per_rack says"]
    limit = constant("air_limit")
    hot = [rack for rack, h in zip(racks, heat, strict=True) if h.air > limit]
    if hot and site.cooling.air_limit is None:
        notes.append(
            f"{len(hot)} rack{'s give' if len(hot) > 1 else ' gives'} more than {show_power(limit)} to air "
            f"(up to {show_power(max(h.air for h in heat))}), the most that rooms commonly carry away; "
            "site.cooling.air_limit sets what this room does"
        )
    notes += _power_notes(racks, site, parts)
    reserved = sum(fabric.reserved_ports for fabric in networks.values())
    if reserved:
        notes.append(f"{reserved} reserved ports lead to machines the study does not place: no cable is cut")
    assumed = sorted(
        {
            machine.intake.name
            for rack in racks
            for machine in rack.power.machines
            if machine.intake.status in ("memory", "estimated")
        }
    )
    if assumed:
        notes.append(f"power supplies from memory or estimated: {', '.join(assumed)}; check the data sheets")
    return notes


def _length_notes(study: Study, runs: Mapping[str, Runs], networks: Mapping[str, Fabric]) -> list[str]:
    """Where the study's own cable lengths, which latencies and counts of optics use, are too short."""
    notes = []
    for name, run in runs.items():
        assumed = getattr(study.cluster, name).lengths
        for tier, (_, _, longest) in tier_lengths(run, networks[name]).items():
            if longest > (wrote := getattr(assumed, tier)) * (1 + 1e-9):
                notes.append(
                    f"{name}.lengths.{tier}: the study says {show_length(wrote)}, the longest is "
                    f"{show_length(longest)} here"
                )
    return notes


def _power_notes(racks: list[Rack], site: Site, parts: SiteParts) -> list[str]:
    notes = []
    distinct = {id(rack.power): rack.power for rack in racks}.values()
    supplying = next(iter(distinct)).supplying
    capacity = pdu_capacity(supplying.pdu, supplying.plug, supplying.derate)
    if capacity.binding == "banks" and capacity.banks < capacity.line * (1 - 1e-9):
        notes.append(
            f"'{supplying.pdu.name}' is limited by its banks to {show_power(capacity.power)}; its plug alone "
            f"would carry {show_power(capacity.line)}"
        )
    skew = max(worst_imbalance(power) for power in distinct)
    if skew > 0.1:
        notes.append(f"phases differ by up to {100 * skew:.0f} % of their mean on one circuit")
    if site.power.redundancy == "n":
        dying = {
            machine.part
            for power in distinct
            for machine, of in zip(power.machines, power.survival, strict=True)
            for left in of
            if not left.enough
        }
        if dying:
            feeds = "its feed" if supplying.feeds == 1 else "a feed"
            notes.append(f"redundancy n: the loss of {feeds} stops {', '.join(sorted(dying))}")
    together = max(_switched_on(power) for power in distinct)
    if together > 1:
        notes.append(
            f"inrush: switch the outlets of a bank on in {together} steps, lest its breaker trips at once"
        )
    return notes


def _switched_on(power: Any) -> int:
    """Steps in which a bank's supplies must be switched on, so that inrush stays below a magnetic trip.

    A breaker of curve C may trip at once from five times its rating (IEC 60898-1), a peak of sqrt(2) times
    that.
    """
    steps = 1
    for circuit in power.circuits:
        for load in circuit.banks:
            trip = constant("magnetic_trip") * load.bank.breaker * 2**0.5
            steps = max(steps, -(-(load.c13 + load.c19) // max(1, int(trip // constant("inrush")))))
    return steps
