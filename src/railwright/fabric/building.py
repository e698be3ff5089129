"""From the study's cluster to its fabric: look up the parts, plan, wire, break what is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Server
from railwright.errors import PlanError, nearest
from railwright.fabric.families import (
    dual_plane,
    fat_tree,
    rack_rails,
    rail_only,
    rail_optimised,
    single_switch,
)
from railwright.fabric.families.director import expand_directors
from railwright.fabric.faults import with_study_faults
from railwright.fabric.graph import Fabric
from railwright.fabric.plan import Order, Plan
from railwright.fabric.speaking import need_same_protocol
from railwright.fabric.wired.wiring import wire
from railwright.spec.study import Cluster, ComputeNetwork, ServiceNetwork

FAMILIES: Mapping[str, Callable[[Order], Plan]] = {
    "single-switch": single_switch.plan,
    "fat-tree": fat_tree.plan,
    "clos": fat_tree.plan,
    "rail-optimised": rail_optimised.plan,
    "rail-only": rail_only.plan,
    "rack-rails": rack_rails.plan,
    "dual-plane": dual_plane.plan,
}
"""Family -> how it is sized.  A new family is one module and one row here.

`clos` is what operators of one ToR per rack and spare cluster switches call a fat tree.
"""


def build(cluster: Cluster, catalog: Catalog) -> Fabric:
    """The fabric of a cluster, its faults applied.

    Raises SpecError for a part the catalogue does not know, PlanError, with its field, for a fabric
    that cannot work.
    """
    try:
        sound = wired(order(cluster, catalog), catalog)
    except PlanError as refusal:
        raise refusal.within("cluster.compute") from None
    try:
        return with_study_faults(sound, cluster.faults)
    except PlanError as refusal:
        raise refusal.within("cluster") from None


def wired(asked: Order, catalog: Catalog) -> Fabric:
    """The healthy fabric of an order, its directors drawn as modules where that is asked for.

    Raises PlanError for a fabric that cannot work.
    """
    need_same_protocol(asked, catalog)
    fabric = wire(asked, size(asked))
    if not asked.network.expand_directors:
        return fabric
    try:
        return expand_directors(fabric, catalog)
    except PlanError as refusal:
        raise refusal.within("expand_directors") from None


def order(cluster: Cluster, catalog: Catalog) -> Order:
    """The cluster's parts, looked up; a missing spine or core model is that of the tier below."""
    network = cluster.compute
    server = find(catalog.servers, cluster.server)
    spine = network.spine_switch or network.switch
    ports = network.nic_ports or (dual_plane.PORTS if network.family == "dual-plane" else 0)
    nic = find(catalog.nics, server.nic)
    if network.nic_ports or (ports and nic.ports == 1):
        nic = replace(nic, ports=ports, rate=nic.rate * nic.ports / ports)
    return Order(
        servers=cluster.servers,
        server=server,
        gpu=find(catalog.gpus, server.gpu),
        nic=nic,
        leaf=find(catalog.switches, network.switch),
        spine=find(catalog.switches, spine),
        core=find(catalog.switches, network.core_switch or spine),
        network=network,
        rails=_rails(network, server),
    )


def size(asked: Order) -> Plan:
    """The sizes of the fabric asked for, before it is wired.  Raises PlanError when it cannot work."""
    family = asked.network.family
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        raise PlanError(f"no fabric family '{family}'; known: {known}{nearest(family, FAMILIES)}")
    _check_sharing(asked)
    return FAMILIES[family](asked)


def _check_sharing(asked: Order) -> None:
    """Raise PlanError unless every NIC serves as many GPUs, or every GPU has as many NICs."""
    server = asked.server
    if isinstance(asked.network, ServiceNetwork):
        return
    few, many = sorted((server.gpus, server.nics))
    if few == 0 or many % few:
        raise PlanError(
            f"server '{server.name}' has {server.nics} NICs for {server.gpus} GPUs, which cannot be shared "
            "evenly; one of the two counts has to divide the other",
            "cluster.server",
        )


def _rails(network: ComputeNetwork, server: Server) -> int:
    """NICs of one server, or of one of its trays, that are rails; raise PlanError for uneven trays."""
    default = rack_rails.rails_of(server) if network.family == "rack-rails" else server.nics
    rails = network.nics_per_tray or default
    if rails and server.nics % rails:
        raise PlanError(
            f"nics_per_tray {rails} does not divide the {server.nics} NICs of server '{server.name}': every "
            "compute tray has as many NICs, so it has to be a divisor of that count",
            "nics_per_tray",
        )
    return rails
