"""Hashed ECMP, sampled: how long traffic takes over many seeds of the hash, and against adaptive routing.

Legend: F flows, Q queue pairs of each, S seeds, L links, K columns of links per flow.

Two measures of a sample's time.  'fluid': max-min fair finish times, all flows of a round starting together
(exact).  'busiest link': the largest load / capacity, summed over rounds (a lower bound of it).
Paths come from the same hash as `network.solve` under routing 'ecmp', so one seed means the same in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.network.ecmp.flows import (
    Block,
    Stream,
    Switched,
    adaptive_load,
    blocks,
    host_links,
    switched,
)
from railwright.network.ecmp.fluid import Columns, columns_of, fluid_time
from railwright.network.ecmp.rounds import Rounds, pipelined_time
from railwright.network.ecmp.walk import COMPILED_FROM, Hashed, carry, kernels, meet, mixed_seed
from railwright.network.maxmin import add_up
from railwright.network.routing.bottleneck import busiest_link
from railwright.network.routing.solution import Network
from railwright.traffic import Traffic

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]
Measure = Literal["auto", "fluid", "busiest link"]

FLUID_UP_TO = 9_000_000
"""Flow-link crossings of one round up to which 'auto' solves max-min: about 12 bytes each."""

SEVERAL_UP_TO = 5_000
"""Flows of several sizes up to which 'auto' solves max-min: every size is an event of its own."""

KEPT = 2_000_000
"""Flows kept ready between seeds, 40 bytes each; more are made ready again for each seed."""


@dataclass(frozen=True, eq=False)
class EcmpDistribution:
    """What the hash's seed makes of the same traffic.

    seeds       (S,) as given
    time        (S,) when all is sent [s]
    adaptive    the same measure under adaptive routing [s]
    slowdown    (S,) time / adaptive
    worst_link  (S,) directed link of the largest load / capacity over the whole exchange
    worst       (S,) its name
    colliding   (S,) share of the queue pairs crossing switches that, where they had a choice, got a link that
                others use too and that carries more than adaptive routing would put on it
    queue_pairs how many queue pairs cross switches
    engine      which measure, in words
    exact       whether `time` is the fluid finish time
    """

    seeds: tuple[int, ...]
    time: Floats
    adaptive: float
    slowdown: Floats
    worst_link: Longs
    worst: tuple[str, ...]
    colliding: Floats
    queue_pairs: int
    engine: str
    exact: bool

    def percentile(self, q: float) -> float:
        """The slowdown that q % of the seeds stay at or below, linear between samples."""
        return float(np.percentile(self.slowdown, q)) if len(self.slowdown) else 1.0

    @property
    def percentiles(self) -> dict[str, float]:
        """Slowdowns p10, p50, p90, p99."""
        return {f"p{q}": self.percentile(q) for q in (10, 50, 90, 99)}


def sample(
    network: Network,
    traffic: Traffic | Stream,
    seeds: Sequence[int] = tuple(range(20)),
    rounds: Rounds | None = None,
    measure: Measure = "auto",
) -> EcmpDistribution:
    """The time of the traffic for each seed of the hash, and against adaptive routing.

    network  its fabric, qps, salt and entropy; routing and seed are not looked at
    rounds   which demands are sent together and what each waits for (see `rounds`); None: all at once
    measure  'fluid', 'busiest link', or 'auto': fluid where one round is small enough (FLUID_UP_TO) and of
             one size (or up to SEVERAL_UP_TO flows), else busiest link

    Adaptive routing is measured on the same rounds by its own busiest links, which on traffic that loads a
    tier evenly is its fluid time.  Memory beside the traffic: about 40 bytes per flow up to KEPT flows, and
    12 bytes per link crossing of one round where fluid; a Stream costs no memory per flow.
    Raises PlanError where a demand has no live path, or where the measure does not fit the traffic.
    """
    if not len(seeds):
        raise PlanError("no seeds are given; sampling a hash takes at least one")
    if measure not in ("auto", "fluid", "busiest link"):
        raise PlanError(f"no measure '{measure}'; it can be 'auto', 'fluid' or 'busiest link'")
    ready = switched(network, traffic)
    if len(traffic) > KEPT and (rounds is not None or measure == "fluid"):
        raise PlanError(
            f"{len(traffic):,} demands are more than {KEPT:,}, the most for rounds and the measure "
            "'fluid'; leave both out, or take fewer ranks"
        )
    if rounds is not None and len(rounds) != len(traffic):
        raise PlanError(f"rounds are given for {len(rounds):,} demands; the traffic has {len(traffic):,}")
    work = _Work(ready, traffic, rounds)
    fluid = measure == "fluid" or (measure == "auto" and work.fits_fluid())
    if rounds is not None and rounds.pace == "pipelined" and not fluid:
        raise PlanError(
            f"a pipelined exchange of {len(traffic):,} demands is followed by fluid events alone, which this "
            "is too large for; use the pace 'synchronised', or fewer ranks"
        )
    time, worst, share = [], [], []
    for seed in seeds:
        load, crossing, bound = work.loads(seed)
        time.append(work.fluid(seed) if fluid else bound)
        busy = work.busy(load)
        worst.append(busiest_link(busy) if busy.any() else -1)
        share.append(work.colliding(seed, load, crossing))
    return work.answer(tuple(int(s) for s in seeds), time, worst, share, fluid)


def ecmp_distribution(network: Network, traffic: Traffic, seeds: Sequence[int]) -> Floats:
    """(len(seeds),) time of the traffic for each seed of the ECMP hash [s]."""
    return sample(network, traffic, seeds).time


def hashed_load(network: Network, traffic: Traffic | Stream, seed: int) -> tuple[Floats, Longs]:
    """(L,) bytes on each link, and (L,) queue pairs that a hash put on it, for one seed."""
    load, crossing, _ = _Work(switched(network, traffic), traffic, None).loads(seed)
    return load, crossing


class _Work:
    """What one call of `sample` keeps between seeds."""

    def __init__(self, ready: Switched, traffic: Traffic | Stream, rounds: Rounds | None) -> None:
        self.ready, self.traffic, self.rounds = ready, traffic, rounds
        self.fabric = ready.network.fabric
        self.compiled = len(traffic) * ready.qps >= COMPILED_FROM
        self.windows = [slice(0, len(traffic))]
        self.kept: Block | None = None
        if len(traffic) <= KEPT:
            self.kept = _joined(blocks(ready, traffic), len(traffic))
            if rounds is not None:
                order = np.argsort(rounds.window, kind="stable")
                ends = (np.flatnonzero(np.diff(rounds.window[order], append=-1)) + 1).tolist()
                self.kept = self.kept.part(order)
                self.rounds = rounds.part(order)
                self.windows = [slice(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True)]
        self.host_load = np.zeros((len(self.windows), self.fabric.num_links))
        even = np.zeros_like(self.host_load)
        begin = np.zeros(len(ready.paths.node))
        self.queue_pairs, window = 0, 0
        for w, part in self._all():
            if w > window:
                even[window] += adaptive_load(ready, begin)
                begin[:], window = 0.0, w
            self.host_load[w] += host_load(self.fabric, part)
            crosses = part.hashed.start >= 0
            self.queue_pairs += int(np.count_nonzero(crosses)) * ready.qps
            begin += add_up(part.hashed.start[crosses], part.hashed.size[crosses], len(begin))
        even[window] += adaptive_load(ready, begin)
        even += self.host_load
        self.even_load = even.sum(axis=0)
        self.adaptive = self._bound(even)

    def _all(self) -> Iterator[tuple[int, Block]]:
        """Window and flows, piece by piece."""
        if self.kept is None:
            for block in blocks(self.ready, self.traffic):
                yield 0, block
        else:
            for w, rows in enumerate(self.windows):
                yield w, self.kept.part(rows)

    def fits_fluid(self) -> bool:
        """Whether max-min is within 'auto''s limits."""
        if self.kept is None:
            return False
        largest = max((s.stop - s.start for s in self.windows), default=0)
        if self.rounds is not None and self.rounds.pace == "pipelined":
            return len(self.traffic) * (4 + self.ready.qps * self.ready.ways.hops) <= FLUID_UP_TO
        sizes = self.kept.hashed.size
        several = len(sizes) > 0 and bool(np.any(sizes[sizes > 0] != sizes.max()))
        entries = largest * (2 + self.ready.qps * self.ready.ways.hops)
        return largest <= SEVERAL_UP_TO if several else entries <= FLUID_UP_TO

    def busy(self, load: Floats) -> Floats:
        """(L,) load / capacity; links that failed carry nothing [s]."""
        capacity = self.fabric.capacity
        return np.divide(load, capacity, out=np.zeros(len(load)), where=capacity > 0)

    def loads(self, seed: int) -> tuple[Floats, Longs, float]:
        """Bytes and queue pairs on each link, and the windows' busiest links one after another."""
        num, ready = self.fabric.num_links, self.ready
        each = self.host_load.copy()
        crossing = np.zeros(num, np.int64)
        for w, part in self._all():
            flows, ways = part.hashed, ready.ways
            if self.compiled:
                kernels().carry(
                    flows.word, flows.number, flows.start, flows.size / ready.qps, ready.qps,
                    mixed_seed(seed), ways.ptr, ways.link, ways.to, ways.salt, each[w], crossing,
                )  # fmt: skip
            else:
                carry(flows, ways, ready.qps, seed, each[w], crossing)
        total: Floats = each.sum(axis=0)
        return total, crossing, self._bound(each)

    def _bound(self, load: Floats) -> float:
        """Busiest link of each window (W, L) one after another; of all together where they are pipelined."""
        if self.rounds is not None and self.rounds.pace == "pipelined":
            load = load.sum(axis=0, keepdims=True)
        return float(sum(self.busy(row).max(initial=0.0) for row in load))

    def colliding(self, seed: int, load: Floats, crossing: Longs) -> float:
        """Share of queue pairs that chose a link with company and more than its even load."""
        hot = (crossing > 1) & (load > self.even_load * (1 + 1e-9))
        if not self.queue_pairs or not hot.any():
            return 0.0
        ready, met = self.ready, 0
        for _, part in self._all():
            flows, ways = part.hashed, ready.ways
            if self.compiled:
                met += kernels().meet(
                    flows.word, flows.number, flows.start, ready.qps, mixed_seed(seed),
                    ways.ptr, ways.link, ways.to, ways.salt, hot,
                )  # fmt: skip
            else:
                met += meet(flows, ways, ready.qps, seed, hot)
        return met / self.queue_pairs

    def fluid(self, seed: int) -> float:
        """Finish time of the rounds, by max-min fair rates."""
        assert self.kept is not None
        if self.rounds is not None and self.rounds.pace == "pipelined":
            table = self._columns(self.kept, seed)
            return pipelined_time(table, self.kept.hashed.size, self.fabric.capacity, self.rounds)
        return sum(
            fluid_time(self._columns(part, seed), part.hashed.size, self.fabric.capacity)
            for _, part in self._all()
        )

    def _columns(self, part: Block, seed: int) -> Columns:
        return columns_of(
            self.fabric, part, self.ready.ways, self.ready.qps, seed,
            len(part) * self.ready.qps >= COMPILED_FROM,
        )  # fmt: skip

    def answer(
        self, seeds: tuple[int, ...], time: list[float], worst: list[int], share: list[float], fluid: bool
    ) -> EcmpDistribution:
        """The distribution, with what was done in words."""
        times = np.array(time)
        adaptive = self.adaptive
        slow = times / adaptive if adaptive > 0 else np.ones(len(times))
        how = f"max-min fluid ({len(self.traffic):,} flows x {self.ready.qps} queue pairs)"
        if not fluid:
            how = f"lower bound: busiest link ({len(self.traffic):,} flows x {self.ready.qps} queue pairs)"
        if self.rounds is not None:
            how += f", {self.rounds.describe(len(self.windows))}"
        names = tuple(self.fabric.link_name(y) if y >= 0 else "" for y in worst)
        exact = fluid and (self.rounds is None or self.rounds.pace == "synchronised")
        return EcmpDistribution(
            seeds, times, adaptive, slow, np.array(worst, np.int64), names, np.array(share),
            self.queue_pairs, how, exact,
        )  # fmt: skip


def host_load(fabric: Fabric, part: Block) -> Floats:
    """(L,) bytes on the links between GPUs and leaves, and on scale-up lanes; no hash decides them [byte]."""
    size, links = part.hashed.size, host_links(fabric)
    load = np.zeros(fabric.num_links)
    for gpu, chain in ((part.out, links.out), (part.into, links.into)):
        per_gpu = add_up(gpu[gpu >= 0], size[gpu >= 0], fabric.num_gpus)
        for column in chain.T:
            load += add_up(column[column >= 0], per_gpu[column >= 0], fabric.num_links)
    for lane in (part.lane_up, part.lane_down):
        load += add_up(lane[lane >= 0], size[lane >= 0], fabric.num_links)
    return load


def _joined(parts: Iterator[Block], num: int) -> Block:
    """All blocks in one, filled as they come, so that they never stand side by side."""
    few = [np.empty(num, np.int32) for _ in range(6)]
    whole = Block(Hashed(np.empty(num, np.uint64), few[0], few[1], np.empty(num)), *few[2:])
    done = 0
    for block in parts:
        rows = slice(done, done := done + len(block))
        here, there = whole.hashed, block.hashed
        here.word[rows], here.number[rows] = there.word, there.number
        here.start[rows], here.size[rows] = there.start, there.size
        whole.out[rows], whole.into[rows] = block.out, block.into
        whole.lane_up[rows], whole.lane_down[rows] = block.lane_up, block.lane_down
    return whole
