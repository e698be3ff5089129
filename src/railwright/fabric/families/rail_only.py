"""Rail-only: one network per rail; rails join only inside the servers, over the scale-up domain.

Source: W. Wang et al., "Rail-only: A Low-Cost High-Performance Network for Training LLMs with Trillion
Parameters" (arXiv:2307.12169), section 4: the rail-optimised fabric without the spines that join rails.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.errors import PlanError
from railwright.fabric.families.rail_optimised import rail_leaves
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.sizing import spare_spines_fit, two_tiers
from railwright.fabric.sizes.tiers import largest_first, no_room_for_spares


def plan(order: Order) -> Plan:
    """One leaf per rail; when a rail outgrows its switch, several leaves under that rail's own spines.

    Raises PlanError when a rail outgrows two tiers.
    """
    network = order.network
    leaves = order.rails * order.nic.ports
    per_rail = -(-(order.endpoints + network.reserved_ports) // leaves)
    if network.tiers == 1 or (network.tiers == "auto" and per_rail <= order.leaf_endpoints):
        return _flat(order)
    if network.tiers == 3:
        raise PlanError(
            "rail-only: a rail has at most 2 tiers of its own; set tiers to 'auto', 1 or 2", "tiers"
        )
    draft = rail_leaves(order, "rail-only")
    draft = replace(draft, planes=draft.leaves_per_group)
    if found := two_tiers(order, draft):
        return found
    if spare_spines_fit(order, draft, 2, largest_first):
        raise no_room_for_spares(order, draft)
    raise PlanError(
        f"rail-only: {order.servers} servers outgrow two tiers of a rail: a spine '{order.spine.name}' with "
        f"{order.spine.ports} ports joins at most {order.spine.ports} leaves of {draft.servers_per_group} "
        f"servers, {order.spine.ports * draft.servers_per_group} servers; "
        "take switches with more ports or family rail-optimised with 3 tiers",
        "family",
    )


def _flat(order: Order) -> Plan:
    """One switch per rail, all of its ports facing servers."""
    network = order.network
    ports = order.leaf_endpoints
    leaves = order.rails * order.nic.ports
    per_leaf = order.endpoints // leaves
    free = leaves * (ports - per_leaf)
    if per_leaf > ports or network.reserved_ports > free:
        raise PlanError(
            f"rail-only with 1 tier: {order.servers} servers put {per_leaf} ports on each rail's switch "
            f"(and {network.reserved_ports} are reserved), but '{order.leaf.name}' has {ports}; "
            "set tiers to 2 or 'auto'",
            "tiers",
        )
    return Plan(
        family="rail-only",
        servers=order.servers,
        endpoints_per_server=order.endpoints_per_server,
        servers_per_group=order.servers,
        leaves_per_group=leaves,
        leaf_ports=-(-(order.endpoints + network.reserved_ports) // leaves),
        rail_leaves=True,
        groups_per_pod=1,
        planes=leaves,
        reserved_ports=network.reserved_ports,
        ports_per_rail=per_leaf // order.servers,
    )
