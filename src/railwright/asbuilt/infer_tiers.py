"""Which switch stands in which tier: leaves carry hosts, spines carry leaves, cores carry spines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from railwright.asbuilt.compare_plan import stem
from railwright.asbuilt.wiring import Wiring

FEW_HOSTS = 0.25
"""A switch with at most this share of its neighbours' hosts is no leaf but a spine that a service host
(a subnet manager) or a wrong cable sits on."""

UP_SHARE = 0.25
"""A switch belongs above a tier when more than this share of its switch cables goes down to that tier; half
in a non-blocking Clos, so a few wrong cables change nothing."""


def tiers(wiring: Wiring) -> tuple[int, ...]:
    """Tier of every node: 0 hosts, 1 leaves, 2 spines, 3 cores, …; -1 for routers, SHARP nodes and switches
    that no way leads to from a host.

    Modules of a director count as the switches they are: a leaf module is one tier, a spine module the next.
    """
    nodes = wiring.nodes
    tier = [0 if node.kind == "host" else -1 for node in nodes]
    around = neighbours(wiring)
    hosts = [sum(n for other, n in row.items() if nodes[other].kind == "host") for row in around]
    switches = [i for i, node in enumerate(nodes) if node.kind == "switch"]
    leaves = [s for s in switches if hosts[s] and not _is_spine_with_host(s, hosts, around)]
    for s in leaves:
        tier[s] = 1
    left = [s for s in switches if tier[s] < 0]
    level = 1
    while True:
        found = [s for s in left if _share_to(s, level, tier, around, switches) > UP_SHARE]
        found += _above_the_lonely(level, found, tier, around, left)
        if not found:
            break
        level += 1
        for s in found:
            tier[s] = level
        left = [s for s in left if tier[s] < 0]
    _bring_down_empty_leaves(wiring, tier, around)
    return tuple(tier)


def neighbours(wiring: Wiring) -> list[Counter[int]]:
    """Cables to each neighbour, for every node."""
    around: list[Counter[int]] = [Counter() for _ in wiring.nodes]
    for link in wiring.links:
        around[link.a][link.b] += 1
        around[link.b][link.a] += 1
    return around


def directors(wiring: Wiring) -> dict[str, tuple[int, ...]]:
    """Modules of every chassis of more than one switch, by the chassis' key."""
    systems: dict[str, list[int]] = {}
    for i, node in enumerate(wiring.nodes):
        if node.kind == "switch" and node.system:
            systems.setdefault(node.system, []).append(i)
    return {system: tuple(modules) for system, modules in systems.items() if len(modules) > 1}


def _is_spine_with_host(switch: int, hosts: Sequence[int], around: Sequence[Counter[int]]) -> bool:
    """Whether most of a switch's switch cables go to switches with many times its hosts."""
    between = {other: n for other, n in around[switch].items() if other != switch}
    cables = sum(n for other, n in between.items() if not _host_like(other, hosts, around))
    busier = sum(n for other, n in between.items() if hosts[switch] <= FEW_HOSTS * hosts[other])
    return busier * 2 > cables and cables > 0


def _host_like(node: int, hosts: Sequence[int], around: Sequence[Counter[int]]) -> bool:
    return not hosts[node] and len(around[node]) <= 1


def _share_to(
    switch: int, level: int, tier: Sequence[int], around: Sequence[Counter[int]], switches: Sequence[int]
) -> float:
    known = set(switches)
    cables = sum(n for other, n in around[switch].items() if other in known)
    below = sum(n for other, n in around[switch].items() if tier[other] == level and other in known)
    return below / cables if cables else 0.0


def _above_the_lonely(
    level: int, found: Sequence[int], tier: Sequence[int], around: Sequence[Counter[int]], left: Sequence[int]
) -> list[int]:
    """Switches that few cables lead down from because their pod is nearly empty: what is above a switch none
    of whose own uppers is in place yet."""
    placed = set(found)
    more: list[int] = []
    for switch in (i for i, t in enumerate(tier) if t == level):
        here = [s for s in left if around[switch][s]]
        if sum(s not in placed for s in here) * 2 > len(here):
            more += [s for s in here if s not in placed and s not in more]
    return more


def _bring_down_empty_leaves(wiring: Wiring, tier: list[int], around: Sequence[Counter[int]]) -> None:
    """A leaf that lost its hosts looks like a core; its name, or the company it keeps, tells."""
    leaves = [i for i, t in enumerate(tier) if t == 1]
    third = [i for i, t in enumerate(tier) if t == 3]
    if not third or not leaves:
        return
    called = Counter(stem(wiring.nodes[i].name) for i in leaves).most_common(1)[0][0]
    others = {stem(wiring.nodes[i].name) for i, t in enumerate(tier) if t == 2}
    uplinks = Counter(_up(i, tier, around) for i in leaves).most_common(1)[0][0]
    named = "#" in called and called not in others
    for i in third:
        alike = _up(i, tier, around) == uplinks and len(third) * 4 <= len(leaves)
        if (stem(wiring.nodes[i].name) == called) if named else alike:
            tier[i] = 1


def _up(switch: int, tier: Sequence[int], around: Sequence[Counter[int]]) -> int:
    return sum(n for other, n in around[switch].items() if tier[other] == 2)
