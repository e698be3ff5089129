"""Fields of a network that do nothing in the fabric they make: legal, and probably not what was meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from railwright.catalog.parts import Catalog
from railwright.errors import RailwrightError
from railwright.fabric.building import order, size
from railwright.fabric.networks import SERVICES, service_order
from railwright.fabric.plan import Order, Plan
from railwright.spec.study import Cluster, SwitchedNetwork
from railwright.units import number

OF_SPINES = ("oversubscription", "spines", "spare_spines", "spine_switch")
"""Fields that only a second tier has a use for."""

OF_CORES = ("groups_per_pod", "core_oversubscription", "cores", "core_switch")
"""Fields that only a third tier has a use for."""


def doubts(cluster: Cluster, catalog: Catalog) -> tuple[tuple[str, str], ...]:
    """(section, sentence) for each network of a cluster with fields that change nothing.

    A network that cannot work is left out: it is refused where it is built.
    """
    found: list[tuple[str, str]] = []
    for section, asked in _orders(cluster, catalog):
        with suppress(RailwrightError):
            found += ((section, text) for text in _of_network(asked, size(asked)))
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


def _of_network(asked: Order, plan: Plan) -> Iterator[str]:
    network = asked.network
    if plan.tiers == 1:
        idle = [*_set(network, OF_SPINES), *_set(network, OF_CORES)]
        if network.servers_per_group is not None and plan.groups == 1 < _groups_asked(asked):
            idle.append(f"servers_per_group {network.servers_per_group}")
        if idle:
            yield f"{_listed(idle)} do{'es' if len(idle) == 1 else ''} nothing: {_why_one_tier(asked, plan)}."
    elif plan.tiers == 2 and (idle := _set(network, OF_CORES)):
        yield (
            f"{_listed(idle)} do{'es' if len(idle) == 1 else ''} nothing: two tiers of switches reach all "
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


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
