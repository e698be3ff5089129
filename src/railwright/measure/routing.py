"""What forwarding tables are worth: whether they hold, how evenly they spread, and what collectives get.

Bus bandwidths are those of large messages: paths and max-min sharing, no latency, no protocol.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network import Network, Solution, Tables, own_tables, solve
from railwright.network.routing.tables_check import TableCheck, TableUse, check_tables, differing
from railwright.traffic import Communicator, Traffic, all_to_all, ring

SIZE = 2.0**30
"""Bytes each rank sends to all others together; bandwidth does not depend on it. [byte]"""

SHOWN = 3
"""Busiest links told per traffic."""

ROUTINGS = ("tables", "adaptive", "static")


@dataclass(frozen=True)
class TierUse:
    """Destinations per live up-port of the switches of one tier, on the ways from leaves.

    own_most  the same as `most` under our own static tables
    """

    tier: str
    up_ports: int
    least: int
    mean: float
    most: int
    own_most: int


@dataclass(frozen=True)
class BusyLink:
    """A link between switches.  utilisation: busy part of the time, 0..1; over_mean: load over that of its
    tier and direction."""

    name: str
    utilisation: float
    over_mean: float


@dataclass(frozen=True)
class Case:
    """One traffic over all GPUs.

    busbw    'tables' (these), 'adaptive', 'static' (our own tables) -> bus bandwidth as nccl-tests counts it
             [byte/s]; None where the traffic cannot be routed
    bound    the bandwidths are upper bounds: too many demands to share exactly
    busiest  under the tables
    why      the bottleneck under the tables in words, or why the traffic cannot be routed
    """

    traffic: str
    busbw: dict[str, float | None]
    bound: bool
    busiest: tuple[BusyLink, ...]
    why: str


@dataclass(frozen=True)
class RoutingReport:
    """All of it; `cases` is empty where the tables do not hold."""

    source: str
    check: TableCheck
    tiers: tuple[TierUse, ...]
    cases: tuple[Case, ...]
    words: tuple[str, ...]


def examine(fabric: Fabric, tables: Tables) -> RoutingReport:
    """Check tables on a fabric and price them against adaptive routing and our own static tables.

    Raises PlanError for tables of another fabric, or a fabric with fewer than two GPUs.
    """
    if fabric.num_gpus < 2:
        raise PlanError("routing is priced by traffic between GPUs, and the fabric has fewer than two")
    use, own = check_tables(fabric, tables), own_tables(fabric)
    own_use = check_tables(fabric, own)
    tiers = _tiers(fabric, use, own_use)
    cases = _cases(fabric, tables, own) if use.check.valid else ()
    return RoutingReport(
        tables.source, use.check, tiers, cases, _words(fabric, tables, own, use, own_use, tiers, cases)
    )


def _tiers(fabric: Fabric, use: TableUse, own: TableUse) -> tuple[TierUse, ...]:
    lower = np.where(use.up_links % 2 == 0, fabric.a[use.up_links // 2], fabric.b[use.up_links // 2])
    found = []
    for kind in (Kind.LEAF, Kind.SPINE):
        at = fabric.kind[lower] == kind
        if at.any():
            served = use.destinations[at]
            found.append(
                TierUse(
                    kind.name.lower(),
                    len(served),
                    int(served.min()),
                    float(served.mean()),
                    int(served.max()),
                    int(own.destinations[at].max()),
                )
            )
    return tuple(found)


def _cases(fabric: Fabric, tables: Tables, own: Tables) -> tuple[Case, ...]:
    everyone = Communicator(np.arange(fabric.num_gpus, dtype=np.int32))
    peers = fabric.num_gpus - 1
    patterns: dict[str, Callable[[], Traffic]] = {
        "all-to-all, PXN": lambda: all_to_all(fabric, everyone, SIZE / peers, pxn=True),
        "all-to-all, no PXN": lambda: all_to_all(fabric, everyone, SIZE / peers, pxn=False),
        "all-reduce, ring": lambda: ring(fabric, everyone, SIZE),
    }
    asked = Network(fabric, "tables", tables=tables)
    alike = np.array_equal(tables.out, own.out)
    networks = {
        "tables": asked,
        "adaptive": Network(fabric),
        "static": asked if alike else Network(fabric, "tables", tables=own),
    }
    return tuple(_case(name, fabric, networks, pattern()) for name, pattern in patterns.items())


def _case(name: str, fabric: Fabric, networks: dict[str, Network], traffic: Traffic) -> Case:
    """Every rank sends SIZE in all, so its bus bandwidth is SIZE over the time.

    Source: nccl-tests, doc/PERFORMANCE.md: all-to-all's (n-1)/n and all-reduce's 2(n-1)/n.
    """
    solved: dict[str, Solution] = {}
    why = ""
    for routing in ROUTINGS:
        same = next((r for r in solved if networks[r] is networks[routing]), None)
        try:
            solved[routing] = solved[same] if same else solve(networks[routing], traffic)
        except PlanError as no:
            why = why or str(no)
    busbw = {r: SIZE / solved[r].time if r in solved and solved[r].time > 0 else None for r in ROUTINGS}
    mine = solved.get("tables")
    if mine is not None:
        why = mine.bottleneck.why if mine.bottleneck else "nothing crosses a link"
    return Case(
        name,
        busbw,
        any(not s.exact for s in solved.values()),
        _busiest(fabric, mine) if mine is not None else (),
        why,
    )


def _busiest(fabric: Fabric, solution: Solution) -> tuple[BusyLink, ...]:
    """The links between switches with the largest load / capacity; the first among equals."""
    role = np.repeat(fabric.role, 2)
    links = np.flatnonzero((role > Role.NODE_LEAF) & (fabric.capacity > 0) & (solution.load > 0))
    if not len(links) or solution.time <= 0:
        return ()
    busy = solution.load[links] / fabric.capacity[links] / solution.time
    top = np.lexsort((links, -np.round(busy, 9)))[:SHOWN]
    found = []
    for i in top.tolist():
        link = int(links[i])
        peers = (role == role[link]) & (fabric.capacity > 0) & (np.arange(len(role)) % 2 == link % 2)
        mean = float(solution.load[peers].mean())
        found.append(
            BusyLink(fabric.link_name(link), min(float(busy[i]), 1.0), float(solution.load[link]) / mean)
        )
    return tuple(found)


def _words(
    fabric: Fabric,
    tables: Tables,
    own: Tables,
    use: TableUse,
    own_use: TableUse,
    tiers: tuple[TierUse, ...],
    cases: tuple[Case, ...],
) -> tuple[str, ...]:
    """How they differ from our own static tables."""
    changed, both = differing(fabric, tables, own)
    if not both:
        return ("No leaf has a choice, so there is nothing to compare with our own static tables.",)
    if not changed:
        told = ["Every leaf sends every destination the way of our own static tables."]
    else:
        told = [
            f"{changed:,} of {both:,} entries of leaves ({100 * changed / both:.0f} %) name another port "
            "than our own static tables do."
        ]
    for tier in tiers:
        if tier.most > tier.own_most:
            told.append(
                f"The fullest up-port of a {tier.tier} serves {tier.most} destinations, "
                f"{tier.own_most} in ours."
            )
        elif tier.most < tier.own_most:
            told.append(
                f"The fullest up-port of a {tier.tier} serves {tier.most} destinations, fewer than our "
                f"{tier.own_most}."
            )
    if use.check.longer > own_use.check.longer:
        told.append(f"{use.check.longer:,} ways are longer than the shortest; ours are all shortest.")
    for case in cases:
        ours, theirs = case.busbw["static"], case.busbw["tables"]
        if ours and theirs and abs(theirs / ours - 1) > 0.005:
            word = "faster" if theirs > ours else "slower"
            name = case.traffic[0].upper() + case.traffic[1:]
            told.append(f"{name} is {100 * abs(theirs / ours - 1):.0f} % {word} than under ours.")
    return tuple(told)
