"""A folded Clos whose groups of servers (racks) have their own leaf, the top-of-rack switch."""

from __future__ import annotations

from dataclasses import replace
from math import ceil

from railwright.fabric.families import single_switch
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.sizing import check_leaf, down_ports
from railwright.fabric.sizes.tiers import largest_first, with_tiers


def plan(order: Order) -> Plan:
    """Leaves filled server by server, then two tiers or three.

    `servers_per_group` servers share one leaf, or as many leaves as their NIC ports need; by default as many
    servers as one leaf holds.  What fits one switch takes one, unless several groups or spines are asked for;
    a ratio of oversubscription alone bounds uplinks, and one switch has none.
    Among pods of equal cost the largest is taken (k/2 leaves, as in Al-Fares 2008), because it keeps most
    traffic below the core.
    Raises PlanError when the servers do not fit or the tiers do not reach.
    """
    network = order.network
    fits_one = order.endpoints + network.reserved_ports <= order.leaf_endpoints
    if network.tiers == 1 or (network.tiers == "auto" and fits_one and not _asks_for_leaves(order)):
        return replace(single_switch.plan(order), family=network.family)
    down = down_ports(order)
    endpoints = order.endpoints_per_server
    servers_per_group = network.servers_per_group or max(1, down // endpoints)
    servers_per_group = min(servers_per_group, order.servers)
    draft = Plan(
        family=network.family,
        servers=order.servers,
        endpoints_per_server=endpoints,
        servers_per_group=servers_per_group,
        leaves_per_group=ceil(servers_per_group * endpoints / down),
        leaf_ports=0,
        rail_leaves=False,
        groups_per_pod=ceil(order.servers / servers_per_group),
        planes=1,
        reserved_ports=network.reserved_ports,
    )
    return with_tiers(order, check_leaf(order, draft, down), largest_first)


def _asks_for_leaves(order: Order) -> bool:
    """Whether the study names spines, or groups of fewer than all servers, each with a leaf of its own."""
    network = order.network
    groups = network.servers_per_group is not None and network.servers_per_group < order.servers
    return groups or network.spines is not None
