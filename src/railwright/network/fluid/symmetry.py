"""Alike flows taken as one: the coarsest equitable partition of flows and links, and its quotient.

Legend: F flows, L links, B spreads, P entries; X flow classes, Y link classes.

Colour refinement splits flows, spreads and links until every link of a class carries the same weighted number
of flows of each class and every flow of a class crosses the same weighted number of links of each class.
Water-filling then treats all members of a class alike, so rates and finish times of the quotient are those of
the whole: exact, not an approximation.
Source: Grohe, Kersting, Mladenov, Selman, "Dimension reduction via colour refinement", ESA 2014
(arXiv:1307.5697).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from railwright.network.maxmin import FluidSystem, add_up
from railwright.network.routing.paths import Routes
from railwright.network.routing.switching import splitmix

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Labels = NDArray[Any]


def without_twins(routes: Routes, capacity: Floats) -> Routes:
    """The same routes, each set of twin links left with its first one: twins always carry the same.

    Twins: links of one capacity that only spreads cross, each spread with one weight, such as the uplinks
    of a leaf on a healthy fabric.  Good for rates only: loads need the full routes.
    """
    direct = np.zeros(len(capacity), bool)
    direct[routes.link] = True
    by_link = np.argsort(routes.spread_link, kind="stable")
    row = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
    with np.errstate(over="ignore"):
        entry = splitmix(splitmix(routes.spread_weight.view(np.uint64)) ^ row.astype(np.uint64))
    crossed = routes.spread_link[by_link]
    colour = splitmix(np.ascontiguousarray(capacity).view(np.uint64)) ^ _summed(
        entry[by_link], crossed, len(capacity)
    )
    crossed_only = np.flatnonzero(~direct)
    first = np.unique(colour[crossed_only], return_index=True)[1]
    keep = direct
    keep[crossed_only[first]] = True
    stays = keep[routes.spread_link]
    if not len(stays):
        return routes
    ptr = np.concatenate([[0], np.cumsum(stays)])[routes.spread_ptr]
    return replace(
        routes,
        spread_ptr=ptr,
        spread_link=routes.spread_link[stays],
        spread_weight=routes.spread_weight[stays],
    )


def flow_system(routes: Routes, size: Floats, capacity: Floats) -> FluidSystem:
    """Every flow by itself, its spread written out."""
    ptr, link, weight = routes.flat()
    return FluidSystem(ptr, link, weight, capacity, size, np.ones(len(size)))


def quotient(
    routes: Routes, size: Floats, capacity: Floats, worthwhile: float
) -> tuple[FluidSystem, Longs] | None:
    """One flow per class on one link per class, and the class of each flow (F,).

    A class of y links of capacity c becomes one link of capacity y c; a flow class of x members has count x.
    worthwhile  give up (None) when classes are more than this share of the flows
    """
    colours = refine(routes, size, capacity, worthwhile)
    if colours is None:
        return None
    flow_colour, link_colour = colours
    _, example, flow_class, members = np.unique(
        flow_colour, return_index=True, return_inverse=True, return_counts=True
    )
    _, link_class = np.unique(link_colour, return_inverse=True)
    classes = int(link_class.max()) + 1 if len(link_class) else 0
    sample = Routes(
        *_subset(routes.ptr, routes.link, example), routes.spread[example], routes.spread_ptr,
        routes.spread_link, routes.spread_weight, routes.hops[example], routes.latency[example],
    )  # fmt: skip
    ptr, link, weight = sample.flat()
    row = np.repeat(np.arange(len(example), dtype=np.int64), np.diff(ptr))
    slot, place = np.unique(row * classes + link_class[link], return_inverse=True)
    merged = add_up(place, weight, len(slot))
    new_ptr = np.searchsorted(slot // max(classes, 1), np.arange(len(example) + 1))
    system = FluidSystem(
        new_ptr.astype(np.int64),
        (slot % max(classes, 1)).astype(np.int32),
        merged,
        add_up(link_class, capacity, classes),
        size[example],
        members.astype(np.float64),
    )
    return system, flow_class.astype(np.int64)


def refine(
    routes: Routes, size: Floats, capacity: Floats, worthwhile: float = 1.0
) -> tuple[Words, Words] | None:
    """Colours (F,) of flows and (L,) of links of the coarsest equitable partition.

    Colours are 64-bit hashes of what a member sees; sums of hashes, so that order does not matter.
    Each round hashes in the old colour, so classes only split; a round that splits none is the last.
    worthwhile  give up (None) as soon as flow classes exceed this share of the flows
    """
    rows = np.repeat(np.arange(len(routes)), np.diff(routes.ptr))
    by_link = np.argsort(routes.link, kind="stable")
    crossing, crossed = rows[by_link], routes.link[by_link]
    spread_row = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
    weight = splitmix(routes.spread_weight.view(np.uint64))
    spread_by_link = np.argsort(routes.spread_link, kind="stable")
    on = np.flatnonzero(routes.spread >= 0)
    on = on[np.argsort(routes.spread[on], kind="stable")]

    flow = splitmix(np.ascontiguousarray(size).view(np.uint64))
    link = splitmix(np.ascontiguousarray(capacity).view(np.uint64))
    spread = np.zeros(routes.num_spreads, np.uint64)
    per_flow, per_link = _sums(rows, len(flow)), _sums(crossed, len(link))
    per_spread, on_spread = _sums(spread_row, len(spread)), _sums(routes.spread[on], len(spread))
    per_spread_link = _sums(routes.spread_link[spread_by_link], len(link))
    classes = 0
    with np.errstate(over="ignore"):
        while True:
            seen = per_flow(splitmix(link)[routes.link])
            parts = splitmix(link[routes.spread_link] ^ weight)
            spread = splitmix(spread) + per_spread(parts)
            spread = spread + on_spread(splitmix(flow ^ np.uint64(1))[on])
            flow_next = splitmix(splitmix(flow) + seen)
            if len(spread):
                flow_next[on] = splitmix(flow_next[on] ^ splitmix(spread[routes.spread[on]]))
            carried = per_link(splitmix(flow)[crossing])
            shares = splitmix(splitmix(spread)[spread_row] ^ weight)[spread_by_link]
            carried = carried + per_spread_link(shares)
            link_next = splitmix(splitmix(link ^ np.uint64(2)) + carried)
            flow, link = flow_next, link_next
            kinds = len(np.unique(flow))
            if kinds > worthwhile * len(flow):
                return None
            total = kinds + len(np.unique(link)) + len(np.unique(spread))
            if total == classes:
                return flow, link
            classes = total


def unequal(routes: Routes, size: Floats, capacity: Floats, flow_class: Labels, link_class: Labels) -> int:
    """How many flows and links break the partition's promise: 0 when it is equitable. Slow and independent.

    Checked straight from the definition on the written-out incidence, without hashes.
    """
    ptr, link, weight = routes.flat()
    row = np.repeat(np.arange(len(size)), np.diff(ptr))
    flow_class = np.unique(flow_class, return_inverse=True)[1]
    link_class = np.unique(link_class, return_inverse=True)[1]
    broken = 0
    for members, own, others, value in (
        (row, flow_class, link_class[link], size),
        (link, link_class, flow_class[row], capacity),
    ):
        table = np.zeros((len(own), int(others.max(initial=-1)) + 1))
        np.add.at(table, (members, others), weight)
        table = np.column_stack([table, value])
        first = np.unique(own, return_index=True)[1][own]
        broken += int(np.count_nonzero(~np.isclose(table, table[first], rtol=1e-9, atol=0).all(axis=1)))
    return broken


def _summed(word: Words, row: Ints | Longs, rows: int) -> Words:
    """(rows,) sum modulo 2^64 of the words of each row; `row` is ascending."""
    return _sums(row, rows)(word)


def _sums(row: Ints | Longs, rows: int) -> Callable[[Words], Words]:
    """The same, for several sets of words on the same rows."""
    starts = np.flatnonzero(np.diff(row, prepend=-1))
    slots = row[starts]

    def summed(word: Words) -> Words:
        total = np.zeros(rows, np.uint64)
        if len(slots):
            total[slots] = np.add.reduceat(word, starts)
        return total

    return summed


def _subset(ptr: Longs, link: Ints, rows: Longs) -> tuple[Longs, Ints]:
    counts = np.diff(ptr)[rows]
    ends = np.cumsum(counts)
    entry = np.arange(ends[-1] if len(ends) else 0) + np.repeat(ptr[rows] - (ends - counts), counts)
    return np.concatenate([[0], ends]), link[entry]
