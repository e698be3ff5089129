"""Links of demands in rows, and sums along them.

Legend: F demands, L directed links, P path entries, B spreads; CSR pairs are ptr, link.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from railwright.network.maxmin import add_up
from railwright.network.routing.shortest import ragged

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Routes:
    """Where each demand goes.

    ptr, link      (F+1,), (P,) links crossed whole
    spread         (F,) row of the CSR below, or -1; demands between the same two leaves share one
    spread_ptr, spread_link, spread_weight  fraction of the demand that each link of a spread carries
    hops           (F,) switches crossed
    latency        (F,) devices crossed and cable metres; the mean over paths where spread [s]
    """

    ptr: Longs
    link: Ints
    spread: Ints
    spread_ptr: Longs
    spread_link: Ints
    spread_weight: Floats
    hops: Ints
    latency: Floats

    def __len__(self) -> int:
        return len(self.ptr) - 1

    @property
    def num_spreads(self) -> int:
        return len(self.spread_ptr) - 1

    def renumbered(self, num_links: int) -> tuple[Routes, Longs]:
        """The same routes over the links they cross alone, numbered in the same order, and those links."""
        used = np.zeros(num_links, bool)
        used[self.link] = True
        used[self.spread_link] = True
        crossed = np.flatnonzero(used)
        number = np.zeros(num_links, np.int32)
        number[crossed] = np.arange(len(crossed), dtype=np.int32)
        return replace(self, link=number[self.link], spread_link=number[self.spread_link]), crossed

    def carried(self, size: Floats, num_links: int) -> Floats:
        """(L,) sum over demands of size times the fraction that crosses each link; `size` is (F,).

        Demands of one size are counted and then weighed: a count does not round.
        """
        if len(size) and size[0] != 1.0 and size.min() == size.max():
            counted: Floats = size[0] * self.carried(np.ones(len(size)), num_links)
            return counted
        whole = add_up(self.link, np.repeat(size, np.diff(self.ptr)), num_links)
        on = self.spread >= 0
        per_spread = add_up(self.spread[on], size[on], self.num_spreads)
        parts = np.repeat(per_spread, np.diff(self.spread_ptr)) * self.spread_weight
        return whole + add_up(self.spread_link, parts, num_links)

    def worst(self, amount: Floats) -> Floats:
        """(F,) the largest of a per-link amount (L,), at least 0, over all links that each demand uses."""
        largest = _largest(amount[self.link], self.ptr)
        on = self.spread >= 0
        each = _largest(amount[self.spread_link], self.spread_ptr)
        largest[on] = np.maximum(largest[on], each[self.spread[on]])
        return largest

    def flat(self) -> tuple[Longs, Ints, Floats]:
        """ptr, link, weight with every spread written out beside its demand's own links."""
        if not self.num_spreads:
            return self.ptr, self.link, np.ones(len(self.link))
        own = np.diff(self.ptr)
        row_length = np.diff(self.spread_ptr)
        extra = np.where(self.spread >= 0, row_length[self.spread], 0)
        ptr = np.concatenate([[0], np.cumsum(own + extra)])
        link = np.empty(ptr[-1], np.int32)
        weight = np.ones(ptr[-1])
        place = ragged(ptr[:-1], own)
        link[place] = self.link
        place = ragged(ptr[:-1] + own, extra)
        if len(place):
            source = ragged(self.spread_ptr[self.spread], extra)
            link[place] = self.spread_link[source]
            weight[place] = self.spread_weight[source]
        return ptr, link, weight


def _largest(amount: Floats, ptr: Longs) -> Floats:
    """(rows,) the largest of each row, at least 0."""
    largest = np.zeros(len(ptr) - 1)
    filled = ptr[1:] > ptr[:-1]
    if filled.any():
        largest[filled] = np.maximum(np.maximum.reduceat(amount, ptr[:-1][filled]), 0.0)
    return largest


def along(routes: Routes, amount: Floats) -> Floats:
    """(F,) sum of a per-link amount along each demand's path, weighted by fraction."""
    rows = np.repeat(np.arange(len(routes)), np.diff(routes.ptr))
    total = np.bincount(rows, weights=amount[routes.link], minlength=len(routes)).astype(np.float64)
    return _with_spreads(total, routes, amount)


def along_columns(columns: list[Ints], routes: Routes, amount: Floats) -> Floats:
    """`along`, from the columns that the rows were made of: the same sums in the same order."""
    total = np.zeros(len(routes))
    padded = np.append(amount, 0.0)  # -1, no link, meets the 0 at the end
    for column in columns:
        total += padded[column]
    return _with_spreads(total, routes, amount)


def rows_of(columns: list[Ints], rows: int) -> tuple[Longs, Ints]:
    """CSR (F+1,), (P,) of the links in some columns, -1 left out."""
    used = [column >= 0 for column in columns]
    count = np.zeros(rows, np.int8)
    for mask in used:
        count += mask
    ptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(count, dtype=np.int64)])
    link = np.empty(ptr[-1], np.int32)
    at = ptr[:-1].copy()
    for column, mask in zip(columns, used, strict=True):
        if mask.all():
            link[at] = column
            at += 1
        else:
            link[at[mask]] = column[mask]
            at += mask
    return ptr, link


def _with_spreads(total: Floats, routes: Routes, amount: Floats) -> Floats:
    if routes.num_spreads:
        spreads = np.repeat(np.arange(routes.num_spreads), np.diff(routes.spread_ptr))
        each = np.bincount(
            spreads, weights=amount[routes.spread_link] * routes.spread_weight, minlength=routes.num_spreads
        )
        on = routes.spread >= 0
        total[on] += each[routes.spread[on]]
    return total
