"""What is legal of a network and probably not what was meant: fields that do nothing in the fabric they make,
switches many times slower than the NICs on them, and NICs that no GPU sends through."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from railwright.catalog.parts import Catalog
from railwright.errors import RailwrightError
from railwright.fabric.building import order, size
from railwright.fabric.networks import SERVICES, service_order
from railwright.fabric.plan import Order, Plan
from railwright.spec.study import Cluster, SwitchedNetwork
from railwright.units import listed, number, show_bit_rate, show_rate

Doubt = tuple[str, str]
"""The section of the study that a network stands in, and a sentence about it."""

MISMATCH = 4.0
"""A NIC at least this many times as fast as its switch port is told of: two generations of either.  One
generation (400 Gb/s NICs on ports of 200) is a choice that people make for its price."""

OF_SPINES = ("oversubscription", "spines", "spare_spines", "spine_switch")
"""Fields that only a second tier has a use for."""

OF_CORES = ("groups_per_pod", "core_oversubscription", "cores", "core_switch")
"""Fields that only a third tier has a use for."""


def doubts(cluster: Cluster, catalog: Catalog) -> tuple[Doubt, ...]:
    """All doubts about the networks of a cluster: `slow_ports`, `unused`, then `idle`."""
    return (
        *slow_ports(cluster, catalog),
        *unused(cluster, catalog),
        *idle(cluster, catalog),
    )


def slow_ports(cluster: Cluster, catalog: Catalog) -> tuple[Doubt, ...]:
    """A doubt about each network whose switch is many times slower than what is plugged into it.

    Nothing crosses the network of one machine, whatever its switch.
    """
    found: list[Doubt] = []
    for section, asked in _orders(cluster, catalog):
        port = asked.leaf.rate / asked.network.breakout
        if asked.servers > 1 and asked.nic.rate >= MISMATCH * port:
            found.append((section, _too_slow(asked, port)))
    return tuple(found)


def unused(cluster: Cluster, catalog: Catalog) -> tuple[Doubt, ...]:
    """A doubt where a server has more compute NICs than GPUs: a GPU sends through one (`Fabric.nic_of_gpu`).

    Nothing crosses the network of one machine.
    """
    with suppress(RailwrightError):
        asked = order(cluster, catalog)
        if asked.servers > 1 and asked.server.nics > asked.server.gpus:
            return (("cluster.compute", _unused(asked)),)
    return ()


def idle(cluster: Cluster, catalog: Catalog) -> tuple[Doubt, ...]:
    """A doubt about each network with fields that change nothing.

    A network that cannot work is left out: it is refused where it is built.
    """
    found: list[Doubt] = []
    for section, asked in _orders(cluster, catalog):
        with suppress(RailwrightError):
            found += ((section, text) for text in _idle(asked, size(asked)))
    return tuple(found)


def _orders(cluster: Cluster, catalog: Catalog) -> Iterator[tuple[str, Order]]:
    """Every network by its section of the study; those whose parts nobody knows left out."""
    with suppress(RailwrightError):
        yield "cluster.compute", order(cluster, catalog)
    for name in SERVICES:
        network = getattr(cluster, name)
        if network is not None:
            with suppress(RailwrightError):
                yield f"cluster.{name}", service_order(cluster, network, catalog)


def _too_slow(asked: Order, port: float) -> str:
    """The NIC, the port [byte/s] and by how much they differ."""
    nic, parts = asked.nic, asked.network.breakout
    where = f"port of switch '{asked.leaf.name}'" if parts == 1 else f"part of a port of '{asked.leaf.name}'"
    return (
        f"NIC '{nic.name}' sends {show_bit_rate(nic.rate)} a port, {nic.rate / port:.3g} times as much as a "
        f"{where} ({show_bit_rate(port)}), at which its cables run; is another "
        f"{'switch' if parts == 1 else 'breakout'} meant?"
    )


def _unused(asked: Order) -> str:
    """How many NICs carry nothing, and how to say that a GPU has several."""
    server, nic = asked.server, asked.nic
    each = server.nics // server.gpus
    return (
        f"server '{server.name}' has {number(server.nics, 'NIC')} for {number(server.gpus, 'GPU')}, and "
        "every prediction sends what a GPU sends through one NIC: "
        f"{server.nics - server.gpus} of them carry nothing. "
        f"{each} NICs that a GPU uses together are one with {each} times the ports: in the file under "
        "catalog, "
        f"nics: {{own: {{like: {nic.name}, ports: {each * nic.ports}, pcie_bandwidth: "
        f"{show_rate(each * nic.pcie_bandwidth)}}}}}, and servers: {{ours: {{like: {server.name}, nic: own, "
        f"nics: {server.gpus}}}}}."
    )


def _idle(asked: Order, plan: Plan) -> Iterator[str]:
    network = asked.network
    if plan.tiers == 1:
        names = [*_set(network, OF_SPINES), *_set(network, OF_CORES)]
        if network.servers_per_group is not None and plan.groups == 1 < _groups_asked(asked):
            names.append(f"servers_per_group {network.servers_per_group}")
        if names:
            yield f"{listed(names)} {_does(names)} nothing: {_why_one_tier(asked, plan)}."
    elif plan.tiers == 2 and (names := _set(network, OF_CORES)):
        yield (
            f"{listed(names)} {_does(names)} nothing: two tiers of switches reach all "
            "servers, and cores are a third (tiers: 3)."
        )


def _groups_asked(asked: Order) -> int:
    """Groups of servers that the study names."""
    return -(-asked.servers // (asked.network.servers_per_group or asked.servers))


def _set(network: SwitchedNetwork, fields: tuple[str, ...]) -> list[str]:
    """The fields that differ from their defaults, with their values: 'spines 2'."""
    known = type(network).model_fields
    values = {field: getattr(network, field) for field in fields}
    return [
        f"{field} {value:g}" if isinstance(value, float) else f"{field} {value}"
        for field, value in values.items()
        if value != known[field].default
    ]


def _why_one_tier(asked: Order, plan: Plan) -> str:
    """Why a network has no spines, and what would give it some."""
    network = asked.network
    if plan.leaves == 1:
        told = f"{number(plan.node_leaf, 'port')} fit one '{asked.leaf.name}', and one switch has no uplinks"
    else:
        told = f"each rail has one '{asked.leaf.name}' and no uplinks"
    if network.family == "single-switch":
        return f"{told}; families of leaves and spines (fat-tree, rail-optimised) have"
    return f"{told}; tiers: 2 makes leaves and spines of it"


def _does(names: list[str]) -> str:
    return "does" if len(names) == 1 else "do"
