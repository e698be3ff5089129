"""What each chunk crosses: messages cut into chunks, chunks dealt over the paths of a spread.

Legend: F messages, C chunks, P paths, E path entries, L directed links, B spreads; CSR pairs are ptr, link.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric, Kind
from railwright.network.fifo_events import Load
from railwright.network.paths import Routes
from railwright.network.shortest import ragged
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

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
    chunk       [byte]; a message's last one is what remains
    payload, header  bytes of a packet that are data, and what is sent besides [byte]
    by_message  a relay forwards whole messages, not chunks

    Chunks of a spread are dealt over its paths in proportion to their weights, in the order of posting;
    spreads begin at different paths, so that neighbours do not meet.
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
    nth = np.arange(len(message)) - first_chunk[message]
    size = np.minimum(chunk, traffic.size[message] - nth * chunk)
    if payload > 0:
        size = size + np.ceil(size / payload * (1 - 1e-12)) * header

    ptr, link, chunk_path = _paths(fabric, routes, chunks, message, np.lexsort((np.arange(num), place)))
    tail, head = np.empty(fabric.num_links, np.int32), np.empty(fabric.num_links, np.int32)
    tail[0::2], tail[1::2], head[0::2], head[1::2] = fabric.a, fabric.b, fabric.b, fabric.a
    begins = np.zeros(len(link), bool)
    begins[ptr[:-1][np.diff(ptr) > 0]] = True
    whole = (fabric.kind[tail[link]] == Kind.GPU) & ~begins
    row = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    gate = whole & by_message
    gate &= tail[link] == _relay_of_path(traffic, message, chunk_path, len(ptr) - 1)[row]

    order = np.lexsort((np.arange(num), place, traffic.src))
    order = order[chunks[order] > 0]
    sender_ptr = np.searchsorted(traffic.src[order], np.arange(fabric.num_gpus + 1))
    return Load(
        ptr,
        link,
        whole,
        gate,
        _clock(fabric, ptr, tail[link]),
        first_chunk,
        chunk_path,
        size,
        sender_ptr.astype(np.int64),
        order.astype(np.int64),
    )


def _relay_of_path(traffic: Traffic, message: Longs, chunk_path: Longs, num_paths: int) -> Longs:
    relay = np.full(num_paths, -1, np.int64)
    relay[chunk_path] = traffic.relay[message]
    return relay


def _clock(fabric: Fabric, ptr: Longs, tail: Ints) -> Longs:
    """Entry of each path on which a message's chunks follow one another: the NIC's cable where the sender's
    own NIC is the way out, otherwise its first link."""
    second = np.full(len(ptr) - 1, -1, np.int64)
    used = np.diff(ptr) > 1
    second[used] = tail[ptr[:-1][used] + 1]
    clock: Longs = ptr[:-1] + (used & (fabric.kind[second] == Kind.NIC))
    return clock


def _paths(
    fabric: Fabric, routes: Routes, chunks: Longs, message: Longs, posting: Longs
) -> tuple[Longs, Ints, Longs]:
    """CSR of paths, and the path of each chunk: a row per message, one per chunk where it spreads."""
    num = len(routes)
    wide = (routes.spread >= 0) & (chunks > 0)
    own = np.diff(routes.ptr)
    if not wide.any():
        return routes.ptr.astype(np.int64), routes.link.astype(np.int32), message
    alternatives = _Alternatives(fabric, routes, np.unique(routes.spread[wide]))
    chosen = np.full(len(message), -1, np.int64)
    turn = np.empty(num, np.int64)
    turn[posting] = np.arange(num)
    spread_of = routes.spread[message]
    dealt = np.lexsort((np.arange(len(message)), turn[message], spread_of))
    dealt = dealt[spread_of[dealt] >= 0]
    bounds = np.flatnonzero(np.diff(spread_of[dealt], prepend=-1))
    for begin, end in zip(bounds.tolist(), [*bounds[1:].tolist(), len(dealt)], strict=True):
        chosen[dealt[begin:end]] = alternatives.deal(int(spread_of[dealt[begin]]), end - begin)

    # Rows: messages without a spread, then every chunk with one: links before the gap, path, links after.
    narrow = np.flatnonzero(~wide)
    spreading = np.flatnonzero(chosen >= 0)
    middle = alternatives.length[chosen[spreading]]
    lengths = np.concatenate([own[narrow], own[message[spreading]] + middle])
    ptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    link = np.empty(ptr[-1], np.int32)
    link[ragged(ptr[: len(narrow)], own[narrow])] = routes.link[ragged(routes.ptr[:-1][narrow], own[narrow])]
    before = _before_gap(fabric, routes)[message[spreading]]
    after = own[message[spreading]] - before
    start, begin_of = ptr[len(narrow) : -1], routes.ptr[message[spreading]]
    link[ragged(start, before)] = routes.link[ragged(begin_of, before)]
    link[ragged(start + before, middle)] = alternatives.link[
        ragged(alternatives.ptr[chosen[spreading]], middle)
    ]
    link[ragged(start + before + middle, after)] = routes.link[ragged(begin_of + before, after)]
    chunk_path = np.empty(len(message), np.int64)
    place = np.zeros(num, np.int64)
    place[narrow] = np.arange(len(narrow))
    chunk_path[:] = place[message]
    chunk_path[spreading] = len(narrow) + np.arange(len(spreading))
    return ptr, link, chunk_path


def _before_gap(fabric: Fabric, routes: Routes) -> Longs:
    """(F,) links of each demand before its spread: up to where a link does not begin where one ended."""
    ends = np.stack([fabric.a, fabric.b], axis=1).reshape(-1)
    tail, head = ends[routes.link], ends[routes.link ^ 1]
    broken = np.zeros(len(routes.link), bool)
    broken[1:] = tail[1:] != head[:-1]
    broken[routes.ptr[:-1][np.diff(routes.ptr) > 0]] = False
    row = np.repeat(np.arange(len(routes)), np.diff(routes.ptr))
    before = np.zeros(len(routes), np.int64)
    gaps = np.flatnonzero(broken)
    before[row[gaps]] = gaps - routes.ptr[row[gaps]]
    return before


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

    def deal(self, spread: int, number: int) -> Longs:
        """(number,) paths of consecutive chunks: a path's m-th turn at (m + 1/2) / share; ties go round."""
        first, end, shift = self._first[spread]
        paths, share = end - first, self._share[first:end]
        turns = np.ceil(number * share).astype(np.int64) + 1
        path = np.repeat(np.arange(paths), turns)
        nth = np.arange(len(path)) - np.repeat(np.cumsum(turns) - turns, turns)
        due = np.round((nth + 0.5) / (share[path] * paths), 9)
        order = np.lexsort(((path - shift) % paths, due))[:number]
        dealt: Longs = path[order] + first
        return dealt
