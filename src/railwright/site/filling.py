"""What goes into one rack: as many servers, or switches, as height, the room's power and the PDUs allow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from railwright.catalog.parts import Server, Switch
from railwright.errors import PlanError
from railwright.site.circuits import Machine, RackPower, Supplying
from railwright.site.connecting import CORDS, connect
from railwright.site.loading import constant, find_part
from railwright.site.parts import Intake, RackKind, SiteParts
from railwright.spec.site import RoomCooling, Site
from railwright.units import show_power

GENERIC_SERVER, GENERIC_SWITCH, LARGE_SWITCH, HOST = "server", "switch", "large-switch", "storage-server"
MOST_SUPPLIES = 24
"""A machine with more cords than a rack has outlets for was no server."""


@dataclass(frozen=True)
class Fill:
    """Servers in each rack, how such a rack is powered, and what stops one more."""

    servers: int
    power: RackPower
    why: str


@dataclass
class Rooms:
    """The rules of one site, with the racks that were powered already (equal ones are powered once)."""

    site: Site
    parts: SiteParts
    rack: RackKind
    known: dict[tuple[Machine, ...], RackPower | str] = field(default_factory=dict)

    @classmethod
    def of(cls, site: Site, parts: SiteParts) -> Rooms:
        """The rules a study asks for; raises RailwrightError for a part nobody knows."""
        rack = find_part(parts.racks, site.rack, "rack")
        wanted = site.power.pdus_per_rack or 0
        if wanted > rack.pdu_slots:
            raise PlanError(
                f"site.power.pdus_per_rack: {wanted} PDUs do not fit a '{rack.name}', which holds "
                f"{rack.pdu_slots}"
            )
        _check_feeds(site)
        return cls(site, parts, rack)

    def power(self, machines: Sequence[Machine]) -> RackPower:
        """These machines on the fewest PDUs that carry them. Raises PlanError saying why not."""
        key = tuple(machines)
        if key not in self.known:
            self.known[key] = self._power(key)
        found = self.known[key]
        if isinstance(found, str):
            raise PlanError(found, "site.power")
        return found

    def accepts(self, machines: Sequence[Machine], spare: int = 0) -> str:
        """'' where a rack takes these machines, else the first reason why not. spare: units beside each."""
        units = sum(machine.units + spare for machine in machines)
        if units > self.rack.units:
            return f"height: {units} units in a rack of {self.rack.units}"
        watts = sum(machine.watts for machine in machines)
        limit = self.site.rack_power
        if limit is not None and watts > limit:
            return f"site.rack_power: {show_power(watts)} in a rack of {show_power(limit)}"
        air = sum(machine.watts * (1 - liquid_share(machine, self.site)) for machine in machines)
        if (air_limit := self.site.cooling.air_limit) is not None and air > air_limit:
            return f"site.cooling.air_limit: {show_power(air)} to air in a rack of {show_power(air_limit)}"
        try:
            self.power(machines)
        except PlanError as refusal:
            return str(refusal)
        return ""

    def _power(self, machines: tuple[Machine, ...]) -> RackPower | str:
        refusal = ""
        for pdus in self._pdus(machines):
            try:
                return connect(machines, self.supplying(pdus), pdus)
            except PlanError as error:
                refusal = str(error)
        return refusal

    def _pdus(self, machines: Sequence[Machine]) -> list[int]:
        """Numbers of PDUs to try."""
        if not any(machine.intake.inlet in CORDS for machine in machines):
            return [0]
        power = self.site.power
        if power.pdus_per_rack is not None:
            return [power.pdus_per_rack]
        least = {"n": 1, "n+1": 2, "2n": 2}[power.redundancy]
        step = 2 if power.redundancy == "2n" else 1
        least = max(least, power.feeds or 1)
        return list(range(least, max(self.rack.pdu_slots, least) + 1, step))

    def supplying(self, pdus: int) -> Supplying:
        """The rules for a rack of so many PDUs. Raises PlanError where they are fewer than the feeds."""
        power = self.site.power
        pdu = find_part(self.parts.pdus, power.pdu, "PDU")
        feeds = power.feeds or {"n": 1, "n+1": pdus or 3, "2n": 2}[power.redundancy]
        if pdus and feeds > pdus:
            raise PlanError(f"site.power: {pdus} PDUs cannot be spread over {feeds} feeds")
        return Supplying(
            pdu,
            self.parts.plugs[pdu.plug],
            dict(self.parts.plugs),
            dict(self.parts.outlets),
            feeds,
            power.redundancy,
            power.practice,
            constant(f"continuous_{power.practice}"),
            power.power_factor,
        )


def _check_feeds(site: Site) -> None:
    """Refuse what no rack could keep: numbers of feeds and PDUs that contradict the redundancy."""
    power = site.power
    feeds, pdus = power.feeds, power.pdus_per_rack
    if power.redundancy == "2n" and feeds not in (None, 2):
        raise PlanError(f"site.power.feeds: 2n means two feeds, not {feeds}; n+1 takes any number")
    if power.redundancy == "2n" and pdus is not None and pdus % 2:
        raise PlanError(f"site.power.pdus_per_rack: 2n takes PDUs in pairs, not {pdus}")
    if power.redundancy == "n+1" and (feeds == 1 or pdus == 1):
        raise PlanError("site.power.feeds: n+1 needs two feeds or more (and as many PDUs)")
    if feeds is not None and pdus is not None and feeds > pdus:
        raise PlanError(f"site.power: {pdus} PDUs cannot be spread over {feeds} feeds")


def server_machine(server: Server, parts: SiteParts) -> Machine:
    """A server of the catalogue as a machine in a rack.

    One without a record is taken to have as many 3 kW supplies as carry it and one more: no better than
    what is sold.  Raises PlanError where that is no server (rack-scale systems have shelves).
    """
    intake = parts.machines.get(server.name)
    if intake is None:
        each = parts.machines[GENERIC_SERVER]
        supplies = math.ceil(server.power_max / each.watts) + 1
        intake = replace(each, name=server.name, supplies=supplies)
    if intake.supplies > MOST_SUPPLIES and intake.inlet in CORDS:
        raise PlanError(
            f"nobody has written down the power supplies of '{server.name}'; add them to `site.parts`: "
            f"machines: {{{server.name}: {{like: dgx-h100}}}}, or supplies, watts, inlet and source",
            "site.parts",
        )
    return Machine(server.name, "server", server.rack_units, server.power_max, intake)


def switch_machine(switch: Switch, kind: str, parts: SiteParts) -> Machine:
    """A switch of the catalogue as a machine; one without a record has two supplies, either enough.

    Raises PlanError where no source gives its power.
    """
    intake = switch_intake(switch, parts)
    watts = switch.power_max or intake.power
    if not watts:
        raise PlanError(
            f"no source gives the power of switch '{switch.name}'; give it in your own `catalog` "
            f"(switches: {{{switch.name}: {{power_max: 3 kW}}}})",
            "catalog",
        )
    return Machine(switch.name, kind, switch.rack_units, watts, intake)


def switch_intake(switch: Switch, parts: SiteParts) -> Intake:
    """The record of a switch, else that of any other of its power."""
    large = switch.power_max > constant("c14_power")
    return parts.machines.get(switch.name) or parts.machines[LARGE_SWITCH if large else GENERIC_SWITCH]


def host_machine(parts: SiteParts) -> Machine:
    """A storage or management host of a service network."""
    intake: Intake = parts.machines[HOST]
    return Machine(HOST, "host", intake.units, intake.power, intake)


def liquid_share(machine: Machine, site: Site) -> float:
    """Share of a machine's heat that its coolant takes: the study's for servers, else the record's."""
    return server_liquid(machine.intake, site.cooling) if machine.kind == "server" else machine.intake.liquid


def server_liquid(intake: Intake, cooling: RoomCooling) -> float:
    """The same of a server's."""
    return intake.liquid if cooling.liquid_share is None else cooling.liquid_share


def servers_per_rack(server: Machine, rooms: Rooms) -> Fill:
    """How many servers a rack holds, or what the study asks for, and why not one more.

    Raises PlanError where not even one fits, or the study's number does not.
    """
    asked = rooms.site.servers_per_rack
    if asked is not None:
        refusal = rooms.accepts([server] * asked)
        if refusal:
            raise PlanError(f"site.servers_per_rack: {asked} {server.part} do not fit a rack; {refusal}")
        return Fill(asked, rooms.power([server] * asked), "site.servers_per_rack")
    most = rooms.rack.units // server.units
    why = f"height: {(most + 1) * server.units} units in a rack of {rooms.rack.units}"
    while most:
        refusal = rooms.accepts([server] * most)
        if not refusal:
            return Fill(most, rooms.power([server] * most), why)
        why = refusal
        most -= 1
    raise PlanError(f"not even one {server.part} fits a rack; {why}", "site.rack")


def fullest(machines: Sequence[Machine], rooms: Rooms) -> int:
    """How many of these machines, from the first, one rack takes. Raises PlanError where it takes none."""
    spare = int(constant("spare_unit"))
    count, refusal = 0, ""
    while count < len(machines):
        refusal = rooms.accepts(machines[: count + 1], spare)
        if refusal:
            break
        count += 1
    if not count:
        raise PlanError(f"a {machines[0].part} does not fit a rack; {refusal}", "site.rack")
    return count
