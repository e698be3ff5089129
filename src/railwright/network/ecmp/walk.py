"""The way of every queue pair through the switches: tables of next hops, and the walk, defined in NumPy.

Legend: F flows, Q queue pairs of each, S states (target, switch), W ways out of states, L links, G GPUs.
`kernel_ecmp` holds the compiled twins of `carry`, `follow` and `meet`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from railwright.network.routing.shortest import ShortestPaths, SwitchGraph, ragged
from railwright.network.routing.switching import splitmix, switch_salt

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]

COMPILED_FROM = 100_000
"""Queue pairs from which loading the kernels (0.5 s; 2 s once, to compile) pays."""


@dataclass(frozen=True, eq=False)
class Ways:
    """Next hops on shortest live paths, one row of cables per state.

    ptr, link, to  (S+1,), (W,), (W,) cables that a queue pair may take from a state, and where each leads
    salt           (S,) what the state's switch mixes into the hash
    hops           most cables on any path
    several        (L,) whether a cable is ever one of several to choose from
    """

    ptr: Longs
    link: Ints
    to: Ints
    salt: Words
    hops: int
    several: Flags


@dataclass(frozen=True, eq=False)
class Hashed:
    """Flows as the hash sees them.

    word    (F,) what the connection is known by
    number  (F,) which of several alike it is
    start   (F,) state in which it meets the switches, -1 where it crosses none
    size    (F,) [byte]
    """

    word: Words
    number: Ints
    start: Ints
    size: Floats

    def __len__(self) -> int:
        return len(self.start)


def ways_of(graph: SwitchGraph, paths: ShortestPaths, salted: bool, num_links: int) -> Ways:
    """The rows of cables of all states, by head and then by link, as `switching.ecmp` counts them."""
    cables = np.diff(graph.first)[paths.arc]
    stops = np.concatenate([[0], np.cumsum(cables)])
    ptr = stops[paths.ptr]
    link = graph.link[ragged(graph.first[paths.arc], cables)]
    several = np.zeros(num_links, bool)
    several[link[np.repeat(np.diff(ptr) > 1, np.diff(ptr))]] = True
    return Ways(
        ptr.astype(np.int64),
        link.astype(np.int32),
        np.repeat(paths.to, cables).astype(np.int32),
        switch_salt(graph, salted)[paths.node],
        int(paths.level.max(initial=0)),
        several,
    )


def carry(flows: Hashed, ways: Ways, qps: int, seed: int, load: Floats, crossing: Longs) -> None:
    """Add to load (L,) [byte] and crossing (L,) what all queue pairs bring to the links of their paths."""
    part = flows.size / qps
    for walker, link, _ in _steps(flows, ways, qps, seed):
        load += np.bincount(link, part[walker], len(load))
        crossing += np.bincount(link, minlength=len(crossing))


def follow(flows: Hashed, ways: Ways, qps: int, seed: int) -> Ints:
    """(F, Q * hops) links of every queue pair's path, queue pair by queue pair, padded with -1."""
    into = np.full((len(flows), qps * ways.hops), -1, np.int32)
    for step, (walker, link, _) in enumerate(_steps(flows, ways, qps, seed)):
        into[walker, step] = link
    return into


def meet(flows: Hashed, ways: Ways, qps: int, seed: int, hot: Flags) -> int:
    """How many queue pairs chose, among several ways, a link that is hot (L,)."""
    met = np.zeros((len(flows), qps), bool)
    for step, (walker, link, several) in enumerate(_steps(flows, ways, qps, seed)):
        met[walker[several & hot[link]], step // max(ways.hops, 1)] = True
    return int(np.count_nonzero(met))


def mixed_seed(seed: int) -> np.uint64:
    """The seed as every hash takes it in."""
    return np.uint64(splitmix(np.array([seed], np.uint64))[0])


def kernels() -> ModuleType:
    """The compiled twins, imported when first needed."""
    from railwright.network.compiled import kernel_ecmp

    return kernel_ecmp


def _steps(flows: Hashed, ways: Ways, qps: int, seed: int) -> Iterator[tuple[Longs, Ints, Flags]]:
    """Flow, link taken and whether there was a choice, of all walkers at once: hop by hop, per queue pair."""
    here = np.where(flows.start >= 0, flows.start, 0).astype(np.int64)
    first = np.flatnonzero(flows.start >= 0)
    for qp in range(qps):
        key = splitmix(
            splitmix(flows.word ^ (flows.number.astype(np.int64) * qps + qp).astype(np.uint64))
            ^ mixed_seed(seed)
        )
        state, walker = here.copy(), first
        for _ in range(ways.hops):
            count = (ways.ptr[state + 1] - ways.ptr[state])[walker]
            walker, count = walker[count > 0], count[count > 0]
            at = state[walker]
            choice = splitmix(key[walker] ^ ways.salt[at]) % count.astype(np.uint64)
            way = ways.ptr[at] + choice.astype(np.int64)
            yield walker, ways.link[way], count > 1
            state[walker] = ways.to[way]
