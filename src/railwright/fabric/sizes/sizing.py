"""How many switches: the arithmetic of a folded Clos, as pure functions over port counts.

Source of the two- and three-tier bounds: C. Leiserson, "Fat-Trees" (IEEE Trans. Computers C-34, 1985) and
Al-Fares, Loukissas, Vahdat, "A Scalable, Commodity Data Center Network Architecture" (SIGCOMM 2008), sec. 3:
with switches of k ports, non-blocking, 2 tiers join k^2/2 endpoints and 3 tiers k^3/4.
Everything here is checked against NVIDIA's DGX SuperPOD tables in tests/validation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from fractions import Fraction
from math import ceil

from railwright.errors import PlanError
from railwright.fabric.plan import Order, Plan

PodChoice = Callable[[int], tuple[int, ...]]
"""Order of preference among pod sizes that take equally many switches and cables: smallest value first."""


def down_ports(order: Order) -> int:
    """Most NIC ports on a leaf, so that the ports they leave still carry them upwards.

    The largest D with D + uplinks(D) <= ports; broken out b ways, D NIC ports take D / b ports.
    Raises PlanError when no leaf can be divided in the oversubscription asked for.
    """
    ports, ratio = order.leaf.ports, order.network.oversubscription
    check_ratio(ratio, order.leaf_endpoints, "oversubscription", f"leaf '{order.leaf.name}'")
    down = _largest_half(
        ports, order.node_rate / (ratio * order.leaf_spine_rate), per_port=order.network.breakout
    )
    if down == 0:
        raise PlanError(
            f"a leaf '{order.leaf.name}' with {ports} ports has none left for servers "
            f"at oversubscription {ratio:g}; take a switch with more ports",
            "switch",
        )
    return down


def check_ratio(ratio: float, ports: int, what: str, where: str) -> None:
    """Raise PlanError unless some whole numbers of down- and up-ports of the switch are exactly `ratio`:1."""
    exact = Fraction(ratio).limit_denominator(ports)
    if abs(float(exact) - ratio) > 1e-9 * ratio or exact.numerator + exact.denominator > ports:
        around = sorted(
            {Fraction(d, u) for u in range(1, ports) for d in range(u, ports - u + 1)},
            key=lambda f: (abs(float(f) - ratio), f),
        )
        near = " or ".join(f"{float(f):.6g} ({f.numerator}:{f.denominator})" for f in sorted(around[:2]))
        raise PlanError(
            f"{what} {ratio:g} cannot be cabled on {where}: no whole numbers of its {ports} ports "
            f"divide {ratio:g}:1; the nearest that do are {near}",
            what,
        )


def uplinks_needed(order: Order, down: int) -> int:
    """Leaf uplinks that carry `down` server ports at the oversubscription asked for, by bandwidth."""
    return _ceil(down * order.node_rate / (order.network.oversubscription * order.leaf_spine_rate))


def fullest_leaf(plan: Plan) -> int:
    """Ports used on the fullest leaf once reserved ports are spread over the emptiest leaves."""
    if plan.rail_leaves:
        most = min(plan.servers, plan.servers_per_group) * plan.ports_per_rail
    else:
        in_group = min(plan.servers, plan.servers_per_group) * plan.endpoints_per_server
        most = min(plan.ports_per_leaf, in_group)
    return max(most, ceil(plan.node_leaf / plan.leaves))


def check_leaf(order: Order, plan: Plan, down: int) -> Plan:
    """The plan with `leaf_ports` set; raise PlanError when its leaves have too few ports for the servers."""
    most = fullest_leaf(replace(plan, reserved_ports=0))
    per_leaf = "servers" if plan.rail_leaves and plan.ports_per_rail == 1 else "NIC ports"
    if most > down:
        fits = down * plan.leaves_per_group // plan.endpoints_per_server
        raise PlanError(
            f"{plan.family}: a group of {min(plan.servers, plan.servers_per_group)} servers puts {most} "
            f"{per_leaf} on a leaf, {most - down} more than the {down} of its {order.leaf_endpoints} ports "
            f"that can face servers at oversubscription {order.network.oversubscription:g}; "
            + (f"set servers_per_group to at most {fits}" if fits else "take a switch with more ports"),
            "servers_per_group",
        )
    free = plan.leaves * down - plan.servers * plan.endpoints_per_server
    if plan.reserved_ports > free:
        short = plan.reserved_ports - free
        raise PlanError(
            f"{plan.family}: reserved_ports asks for {plan.reserved_ports} leaf ports but only {free} of "
            f"{plan.leaves * down} server-facing ports are free; "
            f"leave out {ceil(short / plan.endpoints_per_server)} server(s) (NVIDIA leaves out one for its "
            "UFM servers), or add a group",
            "reserved_ports",
        )
    return replace(plan, leaf_ports=fullest_leaf(plan))


def add_spines(order: Order, plan: Plan, spine_down: int) -> Plan | None:
    """The plan with the fewest spines per plane that mesh evenly with its leaves, or None.

    A regular mesh: every leaf has the same number of cables k to every spine, so with n spines
    n k >= uplinks needed, (n + spares) k <= free leaf ports, and leaves k <= `spine_down` ports of a spine.
    """
    network = order.network
    need = uplinks_needed(order, plan.leaf_ports)
    free = order.leaf.ports - order.whole_ports(plan.leaf_ports)
    leaves = min(plan.leaves_per_plane, plan.leaves // plan.planes)
    for spines in [network.spines] if network.spines else range(1, need + 1):
        links = ceil(need / spines)
        if (spines + network.spare_spines) * links <= free and leaves * links <= spine_down:
            return replace(plan, spines_per_plane=spines + network.spare_spines, leaf_spine_links=links)
    return None


def two_tiers(order: Order, plan: Plan) -> Plan | None:
    """Leaves and spines in one pod, or None when no spine reaches every leaf of its plane."""
    return add_spines(order, replace(plan, groups_per_pod=plan.groups), order.spine.ports)


def three_tiers(order: Order, plan: Plan, prefer: PodChoice) -> Plan | None:
    """Pods joined by cores: fewest switches, then fewest cables, then pods evenly filled, then `prefer`.

    Evenly filled pods keep every spine alike, which OpenSM's ftree asks for.  None when no pod size fits.

    Spine j of every pod and plane joins core set j with the same number of cables to each of its cores.
    Raises PlanError when no spine can be divided in the core oversubscription asked for.
    """
    ratio = order.network.core_oversubscription
    check_ratio(ratio, order.spine.ports, "core_oversubscription", f"spine '{order.spine.name}'")
    found = [three for size in _pod_sizes(order, plan) if (three := _with_cores(order, plan, size))]

    def rank(p: Plan) -> tuple[int, ...]:
        return p.switches, p.cables, p.groups % p.groups_per_pod > 0, *prefer(p.groups_per_pod)

    return min(found, key=rank, default=None)


def spare_spines_fit(order: Order, plan: Plan, tiers: int, prefer: PodChoice) -> bool:
    """Whether the plan would work without its spare spines: then the spares are what lacks ports."""
    if not order.network.spare_spines:
        return False
    bare = replace(order, network=order.network.model_copy(update={"spare_spines": 0}))
    return bool(two_tiers(bare, plan) if tiers == 2 else three_tiers(bare, plan, prefer))


def _pod_sizes(order: Order, plan: Plan) -> Iterable[int]:
    if order.network.groups_per_pod:
        return [min(order.network.groups_per_pod, plan.groups)]
    return range(1, min(plan.groups, order.spine.ports) + 1)


def _with_cores(order: Order, plan: Plan, groups_per_pod: int) -> Plan | None:
    network = order.network
    up_per_down = order.leaf_spine_rate / (network.core_oversubscription * order.spine_core_rate)
    with_spines = add_spines(
        order, replace(plan, groups_per_pod=groups_per_pod), _largest_half(order.spine.ports, up_per_down)
    )
    if with_spines is None:
        return None
    down = with_spines.leaves_per_plane * with_spines.leaf_spine_links
    need = _ceil(down * up_per_down)
    for cores in [network.cores] if network.cores else range(1, need + 1):
        links = ceil(need / cores)
        spines_below = with_spines.pods * with_spines.planes
        if down + cores * links <= order.spine.ports and spines_below * links <= order.core.ports:
            return replace(with_spines, cores_per_set=cores, spine_core_links=links)
    return None


def _largest_half(ports: int, up_per_down: float, per_port: int = 1) -> int:
    """The most down-cables that leave room for up_per_down up-ports each; `per_port` of them share a port."""
    down = int(ports / (1 / per_port + up_per_down)) + 1
    while down > 0 and ceil(down / per_port) + _ceil(down * up_per_down) > ports:
        down -= 1
    return down


def _ceil(value: float) -> int:
    """Round up, but not for the last bits of a float: 3.0000000001 cables are 3."""
    return ceil(value - 1e-9)
