"""One switch for all servers."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.fabric.plan import Order, Plan
from railwright.units import number


def plan(order: Order) -> Plan:
    """One leaf and no spine; every NIC port takes one of its ports.

    Raises PlanError when the switch has too few ports, or more than one tier was asked for.
    """
    network = order.network
    if network.tiers not in ("auto", 1):
        raise PlanError(
            f"single-switch: {network.tiers} tiers asked for, but one switch is one tier; "
            "take family fat-tree or rail-optimised for more",
            "tiers",
        )
    needed = order.endpoints + network.reserved_ports
    if needed > order.leaf_endpoints:
        fits = (order.leaf_endpoints - network.reserved_ports) // order.endpoints_per_server
        room = f"at most {number(fits, 'server')} fit" if fits > 0 else "not one server fits"
        raise PlanError(
            f"{network.family}: {number(order.servers, 'server')} x {order.endpoints_per_server} NIC ports "
            f"and {network.reserved_ports} reserved need {needed} ports of one switch, "
            f"{needed - order.leaf_endpoints} more than the {order.leaf_endpoints} of '{order.leaf.name}'; "
            f"{room}; a fabric of more tiers (fat-tree, rail-optimised) has room for all",
            "family",
        )
    return Plan(
        family="single-switch",
        servers=order.servers,
        endpoints_per_server=order.endpoints_per_server,
        servers_per_group=order.servers,
        leaves_per_group=1,
        leaf_ports=needed,
        rail_leaves=False,
        groups_per_pod=1,
        planes=1,
        reserved_ports=network.reserved_ports,
    )
