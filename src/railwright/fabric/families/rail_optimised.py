"""Rail-optimised: per scalable unit one leaf per rail; all leaves meet in the spines."""

from __future__ import annotations

from dataclasses import replace

from railwright.errors import PlanError
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.sizing import check_leaf, down_ports
from railwright.fabric.sizes.tiers import with_tiers

SUS_PER_POD = 4
"""Scalable units per pod that NVIDIA's three-tier DGX SuperPOD of 16 units is described with.

Source: "Explanation of 512 H100 clustering" (apetops-us.com): 4 pods of 32 leaves, 32 spines and 16 cores,
the 320 switches of the 16-unit row in the DGX SuperPOD B200 reference architecture (architecture chapter).
Any pod size that meshes evenly takes the same counts; this one only breaks ties.
"""


def plan(order: Order) -> Plan:
    """Rail leaves, then two tiers (every leaf to every spine) or three (pods of scalable units).

    In three tiers a pod of g scalable units has per rail g leaves meshed with their own spines, and spine j
    of every rail and pod joins core set j, so rails meet in the core.
    Among pods of equal cost the smallest of at least `SUS_PER_POD` units is taken.
    Raises PlanError when the servers do not fit or the tiers do not reach.
    """
    if order.network.tiers == 1:
        raise PlanError(
            "rail-optimised: rails meet in spines, which needs at least 2 tiers; "
            "set tiers to 2, or take family rail-only to join rails over the scale-up domain alone",
            "tiers",
        )
    draft = rail_leaves(order, "rail-optimised")
    return with_tiers(order, draft, about_four, planes_of_three=draft.leaves_per_group)


def rail_leaves(order: Order, family: str) -> Plan:
    """Groups of servers with one leaf per rail and NIC port: port p of NIC r of all goes to the same leaf.

    A NIC with two ports goes to two leaves of its rail.  Of a rack-scale server the NICs r of all its trays
    are one rail, so it puts as many ports on the leaf as it has trays.
    """
    network = order.network
    down = down_ports(order)
    leaves = order.rails * order.nic.ports
    per_server = order.endpoints_per_server // leaves
    servers_per_group = min(network.servers_per_group or max(1, down // per_server), order.servers)
    draft = Plan(
        family=family,
        servers=order.servers,
        endpoints_per_server=order.endpoints_per_server,
        servers_per_group=servers_per_group,
        leaves_per_group=leaves,
        leaf_ports=0,
        rail_leaves=True,
        groups_per_pod=1,
        planes=1,
        reserved_ports=network.reserved_ports,
        ports_per_rail=per_server,
    )
    return check_leaf(order, replace(draft, groups_per_pod=draft.groups), down)


def about_four(groups_per_pod: int) -> tuple[int, ...]:
    """Pods of at least four units before smaller ones, and the nearest to four first."""
    return (int(groups_per_pod < SUS_PER_POD), abs(groups_per_pod - SUS_PER_POD))
