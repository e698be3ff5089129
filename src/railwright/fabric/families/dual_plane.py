"""Dual-plane: port p of every NIC goes to plane p, which has leaves and spines of its own.

Source: Alibaba HPN 7.0 (K. Qian et al., "Alibaba HPN: A Data Center Network for Large Language Model
Training", SIGCOMM 2024), as summarised by third parties: per segment and rail two ToRs, one for each port of
the NIC ("dual ToR"), and the ToRs of one port mesh only with aggregation switches of that port's plane.
"""

from __future__ import annotations

from dataclasses import replace

from railwright.errors import PlanError
from railwright.fabric.families.rail_optimised import rail_leaves
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.tiers import largest_first, with_tiers

PORTS = 2
"""Ports a single-port NIC is split into, when the study does not say: HPN 7.0 runs 400 Gb/s as 2 x 200."""


def plan(order: Order) -> Plan:
    """Rail leaves per NIC port, then per plane two tiers; in three, planes meet in the cores.

    Within a plane and pod every leaf, of every rail and segment, meshes with every spine; a flow stays in
    the plane that its NIC chose.  Spine j of all planes and pods joins core set j.
    Raises PlanError when a NIC has one port, or the servers do not fit or the tiers do not reach.
    """
    if order.nic.ports < 2:
        raise PlanError(
            f"dual-plane: NIC '{order.nic.name}' has {order.nic.ports} port, and each plane takes one of its "
            "own; set nic_ports to 2, or take family rail-optimised",
            "nic_ports",
        )
    if order.network.tiers == 1:
        raise PlanError(
            "dual-plane: rails meet in the spines of each plane, which needs at least 2 tiers; "
            "set tiers to 2, or take family rail-only",
            "tiers",
        )
    planes = order.nic.ports
    return with_tiers(
        order, replace(rail_leaves(order, "dual-plane"), planes=planes), largest_first, planes_of_three=planes
    )
