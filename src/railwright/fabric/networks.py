"""The networks of a cluster: compute, and beside it storage, in-band and out-of-band management.

A network beside the compute network is a `Fabric` like any other, without GPUs: each server stands in it as a
host with one NIC device that has the server's ports on that network.  `count`, `cable_table`, `bisection` and
`hops_max` work on it unchanged.  Its machines beside the GPU servers (storage, management) are numbered after
them: with 30 servers, the first storage host is 'server-31'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Nic
from railwright.errors import PlanError
from railwright.fabric.building import build, wired
from railwright.fabric.counts import Counts
from railwright.fabric.graph import Fabric
from railwright.fabric.plan import Order
from railwright.fabric.wired.cables import CableRow, cable_table
from railwright.fabric.wired.counting import count
from railwright.spec.study import Cluster, ServiceNetwork

SERVICES = ("storage", "inband", "oob")
"""Networks that may stand beside 'compute', by their names in the study."""


def build_networks(cluster: Cluster, catalog: Catalog) -> dict[str, Fabric]:
    """Every network the cluster asks for, by name: 'compute', then 'storage', 'inband', 'oob' where present.

    The compute fabric is that of `build`, its faults applied; the other networks are healthy.
    Raises SpecError for a part the catalogue does not know, PlanError, naming the network, for one that
    cannot work.
    """
    networks = {"compute": build(cluster, catalog)}
    for name in SERVICES:
        network: ServiceNetwork | None = getattr(cluster, name)
        if network is not None:
            try:
                fabric = wired(service_order(cluster, network, catalog), catalog)
            except PlanError as refusal:
                field = refusal.within(f"cluster.{name}").field
                raise PlanError(f"{name}: {refusal}", field) from None
            networks[name] = replace(fabric, name=f"{name}: {fabric.name}")
    return networks


def count_networks(networks: Mapping[str, Fabric], catalog: Catalog) -> dict[str, Counts]:
    """The parts of every network.  `servers` counts a network's storage and management hosts too."""
    return {name: count(fabric, catalog) for name, fabric in networks.items()}


def network_cables(networks: Mapping[str, Fabric]) -> dict[str, list[CableRow]]:
    """The cables of every network, port to port."""
    return {name: cable_table(fabric) for name, fabric in networks.items()}


def service_order(cluster: Cluster, network: ServiceNetwork, catalog: Catalog) -> Order:
    """A storage or management network as an order: servers as hosts of one NIC, and no GPU."""
    server = find(catalog.servers, cluster.server)
    spine = network.spine_switch or network.switch
    leaf = find(catalog.switches, network.switch)
    nic = find(catalog.nics, server.nic)
    return Order(
        servers=cluster.servers + network.hosts,
        server=replace(server, gpus=0, nics=1),
        gpu=find(catalog.gpus, server.gpu),
        nic=_port(nic, network, network.rate or leaf.rate / network.breakout),
        leaf=leaf,
        spine=find(catalog.switches, spine),
        core=find(catalog.switches, network.core_switch or spine),
        network=network,
        rails=1,
    )


def _port(nic: Nic, network: ServiceNetwork, rate: float) -> Nic:
    """What a server plugs into the network, with the compute NIC's latency: no model is asked for."""
    return replace(nic, name="host port", rate=rate, ports=network.ports_per_server, technology="both")
