"""The port-exact graphs of a cluster's networks: families, sizes, wiring, counts, faults and designs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

_HOMES = {
    "FAMILIES": "building",
    "build": "building",
    "order": "building",
    "size": "building",
    "build_networks": "networks",
    "count_networks": "networks",
    "network_cables": "networks",
    "apply_faults": "faults",
    "lost_servers": "faults",
    "bisection": "wired.counting",
    "count": "wired.counting",
    "hops_max": "wired.counting",
    "cable_table": "wired.cables",
    "director_spines": "families.director",
    "expand_directors": "families.director",
    "FaultDomain": "designs.blast",
    "largest_fault_domain": "designs.blast",
    "Growth": "designs.growing",
    "growth": "designs.growing",
    "Option": "designs.designing",
    "Requirement": "designs.designing",
    "design": "designs.designing",
    "doubts": "designs.doubting",
    "lines": "designs.offering",
    "Published": "designs.explaining",
    "Wanted": "designs.explaining",
    "explain": "designs.explaining",
    "Counts": "counts",
    "Fabric": "graph",
    "Kind": "graph",
    "Role": "graph",
    "Order": "plan",
    "Plan": "plan",
}

__all__ = sorted(_HOMES)

if TYPE_CHECKING:
    from railwright.fabric.building import FAMILIES as FAMILIES
    from railwright.fabric.building import build as build
    from railwright.fabric.building import order as order
    from railwright.fabric.building import size as size
    from railwright.fabric.counts import Counts as Counts
    from railwright.fabric.designs.blast import FaultDomain as FaultDomain
    from railwright.fabric.designs.blast import largest_fault_domain as largest_fault_domain
    from railwright.fabric.designs.designing import Option as Option
    from railwright.fabric.designs.designing import Requirement as Requirement
    from railwright.fabric.designs.designing import design as design
    from railwright.fabric.designs.doubting import doubts as doubts
    from railwright.fabric.designs.explaining import Published as Published
    from railwright.fabric.designs.explaining import Wanted as Wanted
    from railwright.fabric.designs.explaining import explain as explain
    from railwright.fabric.designs.growing import Growth as Growth
    from railwright.fabric.designs.growing import growth as growth
    from railwright.fabric.designs.offering import lines as lines
    from railwright.fabric.families.director import director_spines as director_spines
    from railwright.fabric.families.director import expand_directors as expand_directors
    from railwright.fabric.faults import apply_faults as apply_faults
    from railwright.fabric.faults import lost_servers as lost_servers
    from railwright.fabric.graph import Fabric as Fabric
    from railwright.fabric.graph import Kind as Kind
    from railwright.fabric.graph import Role as Role
    from railwright.fabric.networks import build_networks as build_networks
    from railwright.fabric.networks import count_networks as count_networks
    from railwright.fabric.networks import network_cables as network_cables
    from railwright.fabric.plan import Order as Order
    from railwright.fabric.plan import Plan as Plan
    from railwright.fabric.wired.cables import cable_table as cable_table
    from railwright.fabric.wired.counting import bisection as bisection
    from railwright.fabric.wired.counting import count as count
    from railwright.fabric.wired.counting import hops_max as hops_max


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the graph needs numpy, the command line's help does not."""
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"railwright.fabric.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'railwright.fabric' has no attribute '{name}'")
