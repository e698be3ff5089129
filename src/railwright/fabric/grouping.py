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

FEWEST_GROUP = 32
"""Group sizes tried below the largest: half of a 64-port leaf's down-ports."""


def best_groups(cluster: Cluster, catalog: Catalog, later: int = 0) -> tuple[Cluster, Plan]:
    """The cluster with the groups that take fewest switches, then fewest cables; the largest of equal ones.

    later  servers it grows to, whose switches and cables count first; 0: it does not grow
    Raises PlanError, that of the largest groups, where no size works.
    """
    largest, refusal = _largest(cluster, catalog)
    servers = max(cluster.servers, later)
    found: list[tuple[tuple[int, ...], Cluster, Plan]] = []
    for each in (None, *_even_sizes(servers, largest)):
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


def _largest(cluster: Cluster, catalog: Catalog) -> tuple[int, PlanError | None]:
    """Servers of the largest groups, and why these do not work; spare spines may be what they lack ports for.

    1 where groups are no choice: given, or all servers under one tier.
    """
    refusal = None
    try:
        plan = size(order(cluster, catalog))
    except PlanError as said:
        if not cluster.compute.spare_spines:
            raise
        refusal = said
        compute = cluster.compute.model_copy(update={"spare_spines": 0})
        plan = size(order(cluster.model_copy(update={"compute": compute}), catalog))
    free = cluster.compute.servers_per_group is None and plan.tiers > 1
    return plan.servers_per_group if free else 1, refusal


def _even_sizes(servers: int, largest: int) -> tuple[int, ...]:
    """Sizes below the largest that fill so many groups evenly, the largest first.

    Of sizes that make the same number of groups the smallest, which fills them evenly, needs fewest uplinks
    and leaves most ports for them: whatever spines serve the others serve it.
    """
    sizes = {
        -(-servers // -(-servers // each)) for each in range(max(1, largest - FEWEST_GROUP), largest + 1)
    }
    return tuple(sorted(sizes - {largest}, reverse=True))
