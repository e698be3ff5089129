"""What stands in a room before anybody knows where: the power of all machines, and what of it coolant takes.

The figures are those of a plan (plan.py), for whoever needs no racks: what the machines draw, and their PUE.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server
from railwright.fabric import Fabric, count
from railwright.site.cooling import typical_pue
from railwright.site.filling import GENERIC_SERVER, HOST, server_liquid, switch_intake
from railwright.site.loading import load_site_parts
from railwright.spec.site import RoomCooling, Site


@dataclass(frozen=True)
class Standing:
    """All machines of a cluster at their catalogued maximum [W].

    servers   with GPUs; switches  of every network; hosts  storage and management machines of the networks
    liquid    what coolant takes of it
    unrated   switches whose power neither the catalogue nor the room's own records have
    number_of_hosts  of these machines
    """

    servers: float
    switches: float
    hosts: float
    liquid: float
    unrated: int
    number_of_hosts: int

    @property
    def power(self) -> float:
        """Of everything. [W]"""
        return self.servers + self.switches + self.hosts

    def pue(self, cooling: RoomCooling) -> float:
        """Power of the site over that of its machines: as the study says, else typical of the cooling."""
        return cooling.pue or typical_pue(self.liquid / self.power)


def standing(fabrics: Iterable[Fabric], server: Server, catalog: Catalog, room: Site) -> Standing:
    """What the machines of a cluster draw by the records of a room.

    fabrics  the compute network first, then those beside it; host i of every one is the same machine
    """
    compute, *beside = fabrics
    parts, cooling = load_site_parts(room.parts), room.cooling
    switches = liquid = 0.0
    unrated = 0
    for fabric in (compute, *beside):
        counts = count(fabric, catalog)
        for part, number in (("leaf", counts.leaves), ("spine", counts.spines), ("core", counts.cores)):
            if not number:
                continue
            switch = find(catalog.switches, fabric.parts[part])
            intake = switch_intake(switch, parts)
            each = switch.power_max or intake.power
            switches += number * each
            liquid += number * each * intake.liquid
            unrated += 0 if each else number
    hosts = max((fabric.num_servers - compute.num_servers for fabric in beside), default=0)
    servers = server.power_max * compute.num_servers
    record = parts.machines.get(server.name) or parts.machines[GENERIC_SERVER]
    host = parts.machines[HOST]
    liquid += server_liquid(record, cooling) * servers + hosts * host.power * host.liquid
    return Standing(servers, switches, hosts * host.power, liquid, unrated, hosts)
