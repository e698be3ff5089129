"""From a requirement to designs: every family and switch tried, the feasible ones measured side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from railwright.catalog import find
from railwright.catalog.parts import Catalog, Nic, Server, Switch
from railwright.errors import PlanError, nearest
from railwright.fabric.building import FAMILIES, build, order, size
from railwright.fabric.counts import Counts
from railwright.fabric.designs.blast import FaultDomain, largest_fault_domain
from railwright.fabric.designs.grouping import best_groups
from railwright.fabric.designs.growing import Growth, growth
from railwright.fabric.families import dual_plane
from railwright.fabric.families.rack_rails import rails_of
from railwright.fabric.plan import Plan
from railwright.fabric.wired.counting import count
from railwright.spec.study import Cluster, ComputeNetwork


@dataclass(frozen=True)
class Requirement:
    """What a fabric is wanted for.

    gpus, server      how many GPUs, in which server of the catalogue (rounded up to whole servers)
    oversubscription  most leaf down-link over up-link bandwidth
    grow_to           GPUs the cluster shall be able to grow to; 0: it does not grow
    spines_lost       spines of a plane that may be dead while the leaves keep their bandwidth
    leaf_lost         whether any one leaf may be dead without a server off the network
    reserved_ports    leaf ports kept for the subnet manager and the like
    families          families to try; empty: all that suit the server
    switches          catalogue names to try; empty: every fixed switch with ports of the NIC's rate that
                      speaks what the NIC does
    """

    gpus: int
    server: str
    oversubscription: float = 1.0
    grow_to: int = 0
    spines_lost: int = 0
    leaf_lost: bool = False
    reserved_ports: int = 0
    families: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()


@dataclass(frozen=True)
class Option:
    """One family on one switch, for one requirement.

    network    the `cluster.compute` section that asks for it
    reason     why it cannot be built, or does not meet the requirement; '' when it does
    prepared   whether tiers, spines and cores are those of the cluster it is to grow to
    plan, counts, fault  its sizes, parts and largest fault domain; None where it cannot be built
    growth     what growing takes; None when it does not grow
    """

    family: str
    switch: str
    servers: int
    network: ComputeNetwork
    reason: str = ""
    prepared: bool = False
    plan: Plan | None = None
    counts: Counts | None = None
    fault: FaultDomain | None = None
    growth: Growth | None = None

    @property
    def feasible(self) -> bool:
        return not self.reason


def design(requirement: Requirement, catalog: Catalog) -> list[Option]:
    """Every family on every switch: the feasible ones first, by switches, cables and hops, then the others.

    A family that meets the requirement now but would have to be re-cabled to grow is offered a second time,
    prepared: with the tiers, spines and cores of the grown cluster from the start.
    Raises SpecError for a part the catalogue does not know, PlanError for a requirement that says nothing.
    """
    server = find(catalog.servers, requirement.server)
    nic = find(catalog.nics, server.nic)
    _check(requirement, server)
    found: list[Option] = []
    for switch in _switches(requirement, catalog, nic):
        for family in _families(requirement, server):
            found += _options(
                requirement, catalog, server, _network(requirement, family, server, nic, switch)
            )
    return sorted((o for o in found if not _said_already(o, found)), key=_preference)


def _options(
    requirement: Requirement, catalog: Catalog, server: Server, network: ComputeNetwork
) -> Iterator[Option]:
    """The option as small as it can be today, and prepared for growth where that differs."""
    servers = -(-requirement.gpus // server.gpus)
    now = Cluster(servers=servers, server=server.name, compute=network)
    try:
        now, plan = best_groups(now, catalog, -(-requirement.grow_to // server.gpus))
        option = _measured(now, plan, catalog, requirement)
    except PlanError as refusal:
        yield Option(network.family, network.switch, servers, network, reason=str(refusal))
        return
    if not requirement.grow_to:
        yield option
        return
    later = now.model_copy(update={"servers": -(-requirement.grow_to // server.gpus)})
    small = growth(now, later, catalog)
    yield _grown(option, small)
    if small.reason or not small.moved:
        return
    prepared = _prepared(now, size(order(later, catalog)))
    again = prepared.model_copy(update={"servers": later.servers})
    try:
        ready = _measured(prepared, size(order(prepared, catalog)), catalog, requirement)
        grown = growth(prepared, again, catalog)
    except PlanError:  # Fewer servers do not mesh with that many spines: there is only the small design.
        return
    if grown.moved < small.moved:
        yield _grown(replace(ready, prepared=True), grown)


def _said_already(option: Option, found: list[Option]) -> bool:
    """Whether it is one switch under the name of a tree, and stands there as a single switch too."""
    if option.plan is None or option.plan.switches > 1 or option.family == "single-switch":
        return False
    singles = (o for o in found if o.family == "single-switch" and o.switch == option.switch)
    return any(o.plan is not None and o.feasible >= option.feasible for o in singles)


def _measured(cluster: Cluster, plan: Plan, catalog: Catalog, requirement: Requirement) -> Option:
    fabric = build(cluster, catalog)
    fault = largest_fault_domain(fabric)
    reason = ""
    if requirement.leaf_lost and fault.cut_off_by_leaf:
        reason = (
            f"{cluster.compute.family}: one dead leaf takes {fault.cut_off_by_leaf} GPUs off the network, "
            "because all NICs of their server are on it; take a family that spreads a server over leaves "
            "(rail-optimised, dual-plane)"
        )
    network = cluster.compute
    return Option(
        network.family, network.switch, cluster.servers, network, reason,
        plan=plan, counts=count(fabric, catalog), fault=fault,
    )  # fmt: skip


def _grown(option: Option, grown: Growth) -> Option:
    cannot = f"cannot grow to {grown.gpus} GPUs: {grown.reason}" if grown.reason else ""
    return replace(option, growth=grown, reason=option.reason or cannot)


def _prepared(now: Cluster, later: Plan) -> Cluster:
    """The cluster of today with the tiers, groups, spines and cores of the one it is to become."""
    spines = later.spines_per_plane - now.compute.spare_spines
    pins: dict[str, Any] = {
        "tiers": later.tiers,
        "servers_per_group": later.servers_per_group if later.tiers > 1 else None,
        "spines": spines if later.tiers > 1 else None,
        "groups_per_pod": later.groups_per_pod if later.tiers == 3 else None,
        "cores": later.cores_per_set if later.tiers == 3 else None,
    }
    return now.model_copy(update={"compute": now.compute.model_copy(update=pins)})


def _network(
    requirement: Requirement, family: str, server: Server, nic: Nic, switch: Switch
) -> ComputeNetwork:
    rails = rails_of(server)
    ports = dual_plane.PORTS if family == "dual-plane" and nic.ports == 1 else 1
    share = switch.rate / nic.rate * ports
    return ComputeNetwork.model_validate(
        {
            "family": family,
            "switch": switch.name,
            "oversubscription": requirement.oversubscription,
            "spare_spines": requirement.spines_lost,
            "reserved_ports": requirement.reserved_ports,
            "nics_per_tray": rails if rails < server.nics else None,
            "breakout": int(share) if share >= 1 and share.is_integer() else 1,
        }
    )


def _families(requirement: Requirement, server: Server) -> tuple[str, ...]:
    """Those asked for, or all but aliases; every NIC of a rack being a rail of its own is no option."""
    for family in requirement.families:
        if family not in FAMILIES:
            known = ", ".join(FAMILIES)
            raise PlanError(f"no fabric family '{family}'; known: {known}{nearest(family, FAMILIES)}")
    other = "rail-optimised" if rails_of(server) < server.nics else "rack-rails"
    return requirement.families or tuple(f for f in FAMILIES if f not in ("clos", other))


def _switches(requirement: Requirement, catalog: Catalog, nic: Nic) -> list[Switch]:
    """Those asked for, or of what the NIC speaks, at its rate, the first of each number of ports."""
    if requirement.switches:
        return [find(catalog.switches, name) for name in requirement.switches]
    kinds: dict[tuple[str, int], Switch] = {}
    for switch in catalog.switches.values():
        if switch.rate == nic.rate and nic.speaks(switch.technology) and not switch.director_spines:
            kinds.setdefault((switch.technology, switch.ports), switch)
    if not kinds:
        raise PlanError(
            f"no fixed switch of the catalogue has ports of the rate of NIC '{nic.name}'; name the switches "
            "to try"
        )
    return list(kinds.values())


def _check(requirement: Requirement, server: Server) -> None:
    if requirement.gpus < 1:
        raise PlanError(f"a design for {requirement.gpus} GPUs: ask for at least one")
    if not server.gpus:
        raise PlanError(f"server '{server.name}' has no GPUs")
    if not (isfinite(requirement.oversubscription) and requirement.oversubscription >= 1):
        raise PlanError(
            f"oversubscription {requirement.oversubscription:g}: give 1 (as much bandwidth up as down) or "
            "more"
        )
    if requirement.spines_lost < 0:
        raise PlanError(f"{requirement.spines_lost} spines that may be lost: give 0 or more")
    if requirement.grow_to and requirement.grow_to < requirement.gpus:
        raise PlanError(
            f"growth to {requirement.grow_to} GPUs is less than the {requirement.gpus} asked for now; "
            "say how many GPUs there shall be in the end"
        )


def _preference(option: Option) -> tuple[Any, ...]:
    if option.counts is None:
        return (True, 0, 0, 0)
    return (not option.feasible, option.counts.switches, option.counts.cables, option.counts.hops_max)
