"""What spare spines are worth: the same cluster with fewer and more of them, and some of them dead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from railwright.catalog.parts import Catalog
from railwright.errors import PlanError, RailwrightError
from railwright.fabric import build
from railwright.fabric.graph import Fabric, Kind, Role
from railwright.network.routing.solution import Network
from railwright.network.whatif.elements import Element
from railwright.network.whatif.pattern import Pattern
from railwright.network.whatif.price import SAME, healthy, price
from railwright.spec.study import Cluster

MORE = 2
"""Spares beyond those of the cluster that are tried, and spines that fail beyond them."""


@dataclass(frozen=True)
class SpareRow:
    """The cluster with so many spare spines.

    spares    per pod and plane
    spines    that one leaf reaches: those of one pod and plane, spares included; 0 where it cannot be built
    total     spines in all
    slowdown  with 0, 1, 2, … spines of one pod and plane dead, against the cluster as written with none
              dead; None where nothing is left to run or fewer spines exist
    refused   why it cannot be built, or empty
    """

    spares: int
    spines: int
    total: int
    slowdown: tuple[float | None, ...]
    refused: str = ""


@dataclass(frozen=True)
class SpareSpines:
    """One row per number of spares, from none upwards; `as_written` is the row of the cluster itself.

    words  what the spares are worth, in sentences
    """

    as_written: int
    time: float
    rows: tuple[SpareRow, ...]
    words: tuple[str, ...]


def spare_spines(
    cluster: Cluster,
    catalog: Catalog,
    pattern: Callable[[Fabric], Pattern],
    seed: int = 0,
    qps: int = 1,
    more: int = MORE,
) -> SpareSpines:
    """The cluster with 0 to `more` spares beyond its own, each with up to as many spines dead.

    seed, qps  of the hash, see `Network`
    pattern  makes the pattern for each of the fabrics, whose GPUs have the same ids
    Raises PlanError where the cluster has no spines.
    """
    written = build(cluster, catalog)
    if not len(written.devices(Kind.SPINE)):
        raise PlanError("this fabric has no spines, so there are no spare ones to count")
    routing = cluster.compute.routing
    own = cluster.compute.spare_spines
    base = healthy(Network(written, routing, seed, qps=qps), pattern(written)).time
    assert base is not None
    rows = []
    for spares in range(own + more + 1):
        try:
            network = cluster.compute.model_copy(update={"spare_spines": spares})
            fabric = (
                written if spares == own else build(cluster.model_copy(update={"compute": network}), catalog)
            )
        except RailwrightError as error:
            rows.append(SpareRow(spares, 0, 0, (), str(error)))
            continue
        together = _of_one_leaf(fabric)
        asked = pattern(fabric)
        slowdown: list[float | None] = []
        for dead in range(own + more + 1):
            if dead > len(together):
                slowdown.append(None)
                continue
            failed = [Element("spine", device=d) for d in together[:dead]]
            time = price(Network(fabric, routing, seed, qps=qps), asked, failed).time
            slowdown.append(None if time is None else time / base)
        total = len(fabric.devices(Kind.SPINE))
        rows.append(SpareRow(spares, len(together), total, tuple(slowdown)))
    return SpareSpines(own, base, tuple(rows), tuple(_words(rows, own)))


def _of_one_leaf(fabric: Fabric) -> list[int]:
    """The live spines above the first leaf: those of its pod and plane."""
    alive = np.minimum(fabric.capacity[0::2], fabric.capacity[1::2]) > 0
    above = alive & (fabric.role == Role.LEAF_SPINE)
    leaf = int(fabric.a[above].min())
    return [int(spine) for spine in np.unique(fabric.b[above & (fabric.a == leaf)])]


def _words(rows: Sequence[SpareRow], own: int) -> list[str]:
    words = []
    written = rows[own]
    words.append(f"As written ({_spines(written)}): {_bears(written)}.")
    bare = rows[0]
    if own and not bare.refused:
        words.append(f"Without the {own} spare{'s' if own > 1 else ''} ({_spines(bare)}): {_bears(bare)}.")
    for row in rows[own + 1 :]:
        if row.refused:
            words.append(f"With {row.spares - own} more it cannot be built: {row.refused.rstrip('.')}.")
            break
        words.append(f"With {row.spares - own} more ({_spines(row)}): {_bears(row)}.")
    return words


def _spines(row: SpareRow) -> str:
    return f"{row.spines} spines above a leaf, {row.total} in all"


def _bears(row: SpareRow) -> str:
    """How many dead spines cost nothing against the row's own best, and what the next one costs."""
    start = row.slowdown[0]
    if start is None:
        return "nothing is left to run"
    free = 0
    for slowed in row.slowdown[1:]:
        if slowed is None or slowed > start * (1 + SAME):
            break
        free += 1
    begins = "no faster than as written" if abs(start - 1) <= SAME else f"takes {start:.3f} x as long"
    if start == row.slowdown[-1] or free + 1 >= len(row.slowdown):
        return f"{begins}, and {free} dead cost nothing"
    nth = row.slowdown[free + 1]
    cost = (
        "the next leaves nothing to run" if nth is None else f"the next costs {100 * (nth / start - 1):.1f} %"
    )
    return f"{begins}; {free or 'no'} dead spine{'' if free == 1 else 's'} at no cost, {cost}"
