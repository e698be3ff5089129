"""From the study's cluster to its fabric: look up the parts, plan, wire, break what is broken."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from railwright.catalog import find
from railwright.catalog.parts import Catalog
from railwright.errors import PlanError, nearest
from railwright.fabric import fat_tree, rail_only, rail_optimised, single_switch
from railwright.fabric.faults import apply_faults
from railwright.fabric.graph import Fabric
from railwright.fabric.plan import Order, Plan
from railwright.fabric.wiring import wire
from railwright.spec.study import Cluster

FAMILIES: Mapping[str, Callable[[Order], Plan]] = {
    "single-switch": single_switch.plan,
    "fat-tree": fat_tree.plan,
    "rail-optimised": rail_optimised.plan,
    "rail-only": rail_only.plan,
}
"""Family -> how it is sized.  A new family is one module and one row here."""


def build(cluster: Cluster, catalog: Catalog) -> Fabric:
    """The fabric of a cluster, its faults applied.

    Raises SpecError for a part the catalogue does not know, PlanError for a fabric that cannot work.
    """
    asked = order(cluster, catalog)
    return apply_faults(wire(asked, size(asked)), cluster.faults)


def order(cluster: Cluster, catalog: Catalog) -> Order:
    """The cluster's parts, looked up; a missing spine or core model is that of the tier below."""
    network = cluster.compute
    server = find(catalog.servers, cluster.server)
    spine = network.spine_switch or network.switch
    return Order(
        servers=cluster.servers,
        server=server,
        gpu=find(catalog.gpus, server.gpu),
        nic=find(catalog.nics, server.nic),
        leaf=find(catalog.switches, network.switch),
        spine=find(catalog.switches, spine),
        core=find(catalog.switches, network.core_switch or spine),
        network=network,
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
    few, many = sorted((server.gpus, server.nics))
    if few == 0 or many % few:
        raise PlanError(
            f"server '{server.name}' has {server.nics} NICs for {server.gpus} GPUs, which cannot be shared "
            "evenly; one of the two counts has to divide the other"
        )
