"""What each chunk crosses: messages cut into chunks, chunks dealt over the paths of a spread.

Legend: F messages, C chunks, P paths, E path entries, L directed links, B spreads; CSR pairs are ptr, link.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind
from railwright.network.fifo.fifo_events import Load
from railwright.network.maxmin import add_up
from railwright.network.routing.paths import Routes
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_NONE = np.zeros(0, np.int64)

MOST_HOPS = 20_000_000
"""Chunks times links followed: about a minute and 3 GB (benchmarks/fifo.py)."""


def cut(
    fabric: Fabric,
    traffic: Traffic,
    routes: Routes,
    place: Longs,
    chunk: float,
    payload: float,
    header: float,
    by_message: bool,
) -> Load:
    """The traffic as chunks on paths, and each sender's list.

    place       (F,) a sender posts its messages by ascending place, then by number
    chunk       most of one [byte]; a message is cut into equal ones
    payload, header  bytes of a packet that are data, and what is sent besides [byte]
    by_message  a relay forwards whole messages, not chunks

    Chunks of a spread are dealt over its paths in proportion to their weights; spreads begin at different
    paths, so that neighbours do not meet.
    Raises PlanError where there are more than MOST_HOPS to follow.
    """
    num = len(traffic)
    sent = (traffic.size > 0) & (np.diff(routes.ptr) > 0)
    counts = np.where(sent, np.ceil(traffic.size / chunk * (1 - 1e-12)), 0.0)
    hops = float(np.sum(counts * (np.diff(routes.ptr) + 2 * (routes.spread >= 0))))
    if hops > MOST_HOPS:
        raise PlanError(
            f"Chunks of {chunk:,.0f} bytes would make {hops:,.0f} steps to follow, and the FIFO engine "
            f"follows at most {MOST_HOPS:,}: give chunks of at least {chunk * hops / MOST_HOPS:,.0f} bytes, "
            "fewer demands, or use the fluid engine."
        )
    chunks = counts.astype(np.int64)
    first_chunk = np.concatenate([[0], np.cumsum(chunks)])
    message = np.repeat(np.arange(num), chunks)
    size = traffic.size[message] / counts[message]
    if payload > 0:
        size = size + np.ceil(size / payload * (1 - 1e-12)) * header

    wide = sent & (routes.spread >= 0)
    alternatives = _Alternatives(fabric, routes, np.unique(routes.spread[wide]))
    ptr = np.concatenate([routes.ptr, routes.ptr[-1] + alternatives.ptr[1:]]).astype(np.int64)
    link = np.concatenate([routes.link, alternatives.link]).astype(np.int32)
    tail = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)[link]
    whole = fabric.kind[tail] == Kind.GPU
    whole[ptr[:-1][np.diff(ptr) > 0]] = False
    own = np.repeat(np.arange(num), np.diff(routes.ptr))
    gate = np.zeros(len(link), bool)
    gate[: len(own)] = whole[: len(own)] & by_message & (tail[: len(own)] == traffic.relay[own])
    deal_ptr, deal = alternatives.deals(add_up(routes.spread[wide], counts[wide], routes.num_spreads))

    gap = _gaps(fabric, routes)
    order = np.lexsort((np.arange(num), place, traffic.src))
    order = order[chunks[order] > 0]
    sender_ptr = np.searchsorted(traffic.src[order], np.arange(fabric.num_gpus + 1))
    return Load(
        ptr,
        link,
        gap,
        routes.spread.astype(np.int64),
        deal_ptr,
        deal + num,
        whole,
        gate,
        _clock(fabric, routes.ptr, tail, gap),
        first_chunk,
        size,
        sender_ptr.astype(np.int64),
        order.astype(np.int64),
    )


def _clock(fabric: Fabric, ptr: Longs, tail: Ints, gap: Longs) -> Longs:
    """(F,) entry on which a message's chunks follow one another: the NIC's one cable where the sender's own
    NIC is the way out, otherwise its first link."""
    second = np.full(len(ptr) - 1, -1, np.int64)
    used = np.diff(ptr) > 1
    second[used] = tail[ptr[:-1][used] + 1]
    one_cable = used & (fabric.kind[second] == Kind.NIC) & (gap != ptr[:-1] + 1)
    clock: Longs = ptr[:-1] + one_cable
    return clock


def _gaps(fabric: Fabric, routes: Routes) -> Longs:
    """(F,) entry before which each demand's spread comes: its link does not begin where the last ended."""
    ends = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    tail, head = ends[routes.link], ends[routes.link ^ 1]
    broken = np.zeros(len(routes.link), bool)
    broken[1:] = tail[1:] != head[:-1]
    broken[routes.ptr[:-1][np.diff(routes.ptr) > 0]] = False
    gap = np.full(len(routes), -1, np.int64)
    at = np.flatnonzero(broken)
    gap[np.repeat(np.arange(len(routes)), np.diff(routes.ptr))[at]] = at
    return gap


class _Alternatives:
    """The paths of some spreads, each with its share: at every node in proportion to the links' fractions."""

    def __init__(self, fabric: Fabric, routes: Routes, spreads: Longs) -> None:
        ends = np.stack([fabric.a, fabric.b], axis=1).reshape(-1).tolist()
        self._first: dict[int, tuple[int, int, int]] = {}
        share: list[float] = []
        rows: list[list[int]] = []
        for spread in spreads.tolist():
            slots = slice(int(routes.spread_ptr[spread]), int(routes.spread_ptr[spread + 1]))
            out: dict[int, list[tuple[int, float]]] = {}
            pairs = zip(routes.spread_link[slots].tolist(), routes.spread_weight[slots].tolist(), strict=True)
            for link, weight in sorted(pairs):
                if weight > 0:
                    out.setdefault(ends[link], []).append((link, weight))
            entered = {ends[link ^ 1] for links in out.values() for link, _ in links}
            begin = min(set(out) - entered)
            first = len(rows)
            walk: list[tuple[int, float, list[int]]] = [(begin, 1.0, [])]
            while walk:
                node, part, way = walk.pop()
                if node not in out:
                    rows.append(way)
                    share.append(part)
                    continue
                total = sum(weight for _, weight in out[node])
                for link, weight in reversed(out[node]):
                    walk.append((ends[link ^ 1], part * weight / total, [*way, link]))
            self._first[spread] = first, len(rows), begin + ends[rows[-1][-1] ^ 1]
        self._share = np.array(share)
        self.length = np.array([len(r) for r in rows], np.int64)
        self.ptr = np.concatenate([[0], np.cumsum(self.length)]).astype(np.int64)
        self.link = np.array([link for r in rows for link in r], np.int32)

    def deals(self, number: Floats) -> tuple[Longs, Longs]:
        """CSR by spread: rows of the alternatives that its chunks take, `number` (B,) of them."""
        rows = [self._deal(b, int(number[b])) if b in self._first else _NONE for b in range(len(number))]
        ptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
        return ptr, np.concatenate([_NONE, *rows])

    def _deal(self, spread: int, number: int) -> Longs:
        """(number,) rows for successive chunks: a path's m-th turn is at (m + 1/2) / share; ties go round."""
        first, end, shift = self._first[spread]
        paths, share = end - first, self._share[first:end]
        turns = np.ceil(number * share).astype(np.int64) + 1
        path = np.repeat(np.arange(paths), turns)
        nth = np.arange(len(path)) - np.repeat(np.cumsum(turns) - turns, turns)
        due = np.round((nth + 0.5) / (share[path] * paths), 9)
        order = np.lexsort(((path - shift) % paths, due))[:number]
        dealt: Longs = path[order] + first
        return dealt
