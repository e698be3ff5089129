"""How large groups are to be where that is free: filling leaves to the most is not always the least to buy.

A leaf with as many servers as its ratio allows may have a number of uplinks that few spines can share evenly:
38 ports down at 1.5:1 leave 26 up, of which five such leaves take two spines 13 ports each, one more than a
spine of 64 has, and the next even share is 13 spines of 2.  With 33 servers a leaf there are two spines.
"""

from __future__ import annotations

from railwright.catalog.parts import Catalog
from railwright.errors import PlanError
from railwright.fabric.building import order, size
from railwright.fabric.plan import Plan
from railwright.spec.study import Cluster

TRIED = 32
"""Group sizes tried below the largest, or above: half of a 64-port leaf's ports."""


def best_groups(cluster: Cluster, catalog: Catalog, later: int = 0) -> tuple[Cluster, Plan]:
    """The cluster with the groups that take fewest switches, then fewest cables; the largest of equal ones.

    later  servers it grows to, whose switches and cables count first; 0: it does not grow
    Raises PlanError, that of the largest groups, where no size works.
    """
    usual, refusal = _without_spares(cluster, catalog)
    servers = max(cluster.servers, later)
    found: list[tuple[tuple[int, ...], Cluster, Plan]] = []
    for each in (None, *_sizes(servers, usual)):
        compute = cluster.compute.model_copy(update={"servers_per_group": each} if each else {})
        asked = cluster.model_copy(update={"compute": compute})
        try:
            plan = size(order(asked, catalog))
            grown = size(order(asked.model_copy(update={"servers": servers}), catalog)) if later else plan
        except PlanError:
            continue
        rank = (grown.switches, grown.cables, plan.switches, plan.cables)
        found.append((rank, asked, plan))
    if later and not found:  # It cannot grow: as good as it can be today.
        return best_groups(cluster, catalog)
    if refusal and not found:
        raise refusal
    _, asked, plan = min(found, key=lambda one: one[0])
    return asked, plan


def _without_spares(cluster: Cluster, catalog: Catalog) -> tuple[Plan, PlanError | None]:
    """Sizes with the largest groups, and why these do not work: for want of ports for spare spines."""
    try:
        return size(order(cluster, catalog)), None
    except PlanError as refusal:
        if not cluster.compute.spare_spines:
            raise
        compute = cluster.compute.model_copy(update={"spare_spines": 0})
        return size(order(cluster.model_copy(update={"compute": compute}), catalog)), refusal


def _sizes(servers: int, plan: Plan) -> tuple[int, ...]:
    """Sizes to try beside the usual one; none where groups are no choice, all servers being under one tier.

    Smaller ones fill so many groups evenly: of sizes that make the same number of groups, that one needs
    fewest uplinks and leaves most ports for them, so whatever spines serve the others serve it.
    Larger ones only where a server's NICs are on several leaves anyway (an NVL72): else they would spread it.
    """
    if plan.tiers == 1:
        return ()
    usual = plan.servers_per_group
    tried = range(max(1, usual - TRIED), usual + 1)
    sizes = {-(-servers // -(-servers // each)) for each in tried}
    if not plan.rail_leaves and plan.leaves_per_group > 1:
        sizes |= set(range(usual, min(servers, usual + TRIED) + 1))
    return tuple(sorted(sizes - {usual}, reverse=True))
