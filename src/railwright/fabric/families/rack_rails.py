"""Rack rails: the NICs at one place of every compute tray are a rail, with a leaf per rack or few racks.

Source: NVIDIA DGX SuperPOD reference architecture with GB200/GB300 (docs.nvidia.com/dgx-superpod, network
fabrics: each compute rack is rail-aligned), and a third party's summary of the GB300 one: 4 rails, per
scalable unit of 8 racks two leaves a rail, 72 spines of 144 ports for 16 units.
"""

from __future__ import annotations

from railwright.catalog.parts import Server
from railwright.errors import PlanError
from railwright.fabric.families.rail_optimised import about_four, rail_leaves
from railwright.fabric.plan import Order, Plan
from railwright.fabric.sizes.tiers import with_tiers

NICS_PER_TRAY = 4
"""Compute NICs of an NVL72's tray.

Source: NVIDIA DGX GB200 user guide, hardware: 18 compute trays of 4 GPUs and 4 ConnectX-7.
"""

RACK_UNITS = 40
"""A server at least this tall is a rack of trays: full racks are 42 to 52 units, and no single chassis of the
catalogue is above 10 (EIA-310 rack unit; an NVL72 is catalogued at 48)."""


def plan(order: Order) -> Plan:
    """A leaf per rail for as many racks as it takes whole (or `servers_per_group`), then two tiers or three.

    Raises PlanError when one rack outgrows a leaf, or the tiers do not reach.
    """
    if order.network.tiers == 1:
        raise PlanError(
            "rack-rails: rails meet in spines, which needs at least 2 tiers; "
            "set tiers to 2, or take family rail-only with nics_per_tray",
            "tiers",
        )
    draft = rail_leaves(order, "rack-rails")
    return with_tiers(order, draft, about_four, planes_of_three=draft.leaves_per_group)


def rails_of(server: Server) -> int:
    """NICs of one tray of a rack-scale server; all NICs of any other."""
    trays_of_four = server.rack_units >= RACK_UNITS and server.nics % NICS_PER_TRAY == 0
    return NICS_PER_TRAY if trays_of_four else server.nics
