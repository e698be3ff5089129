"""What spreading costs on this fabric: the rings of all running jobs, solved together.

At moments of a run every job on several hosts sends the same bytes to its ring's successor, all jobs at once,
through the network engine.  Its bandwidth beside that of the same job alone and packed under one switch is
what its place and its neighbours leave of the fabric.  Jobs do not all communicate at once in truth, and not
always: it is the worst moment, not the mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from railwright.network import Network, solve
from railwright.queueing.place import Allocation, Site, place
from railwright.queueing.simulate import Run, Stay
from railwright.traffic import Communicator, Traffic, join, ring

Floats = NDArray[np.float64]

SIZE = 1e9
"""Bytes each rank sends to its successor: large, so that only bandwidth counts."""

MOMENTS = 16


@dataclass(frozen=True)
class Spread:
    """What became of jobs on several hosts, weighted by their GPUs and time.

    jobs        of them that ran
    one_unit    share of their GPU-time under one switch (or in one rack-scale domain)
    one_pod     share of it under one pod, one switch included
    fewest      mean of units they touched over the fewest that could hold them
    bandwidth   of their rings, all at once, over alone and packed: mean over GPUs and moments
    worst       the same, 5 % quantile over jobs and moments
    alone       the same with every job alone where it was put: what its place alone costs
    moments     moments looked at
    """

    jobs: int
    one_unit: float
    one_pod: float
    fewest: float
    bandwidth: float
    worst: float
    alone: float
    moments: int


def spread(run: Run, site: Site, network: Network, pxn: bool, moments: int = MOMENTS) -> Spread | None:
    """How far apart the jobs of a run sat, and what that cost; None where no job needed two hosts."""
    stays = [s for s in run.stays if len(s.where) > 1 and s.end > s.start]
    if not stays:
        return None
    weight = np.array([_gpus(s.where) * (s.end - s.start) for s in stays])
    units = np.array([len({site.unit[h] for h, _ in s.where}) for s in stays])
    pods = np.array([len({site.pod[site.unit[h]] for h, _ in s.where}) for s in stays])
    size = site.largest_unit * site.gpus
    fewest = np.array([-(-_gpus(s.where) // size) for s in stays])
    cost = _Cost(site, network, pxn)
    together: list[tuple[float, float]] = []
    alone: list[tuple[float, float]] = []
    looked_at = moments_of(stays, moments)
    for moment in looked_at:
        now = [s.where for s in stays if s.start <= moment < s.end]
        for where, time in zip(now, cost.times(now), strict=True):
            packed = cost.packed(_gpus(where))
            together.append((packed / time, _gpus(where)))
            alone.append((packed / cost.times([where])[0], _gpus(where)))
    ratio, gpus = np.array(together).T
    own = np.array(alone).T[0]
    return Spread(
        jobs=len({s.job for s in stays}),
        one_unit=float(weight[units == 1].sum() / weight.sum()),
        one_pod=float(weight[pods == 1].sum() / weight.sum()),
        fewest=float((weight * units / fewest).sum() / weight.sum()),
        bandwidth=float((ratio * gpus).sum() / gpus.sum()),
        worst=float(np.quantile(ratio, 0.05)),
        alone=float((own * gpus).sum() / gpus.sum()),
        moments=len(looked_at),
    )


def moments_of(stays: Sequence[Stay], count: int) -> Floats:
    """Moments at equal distances of the time in which any of the stays lasts, so that each meets one. [s]"""
    start, end = np.array(sorted((s.start, s.end) for s in stays)).T
    latest = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate([[True], start[1:] > latest[:-1]]))
    begin, length = start[first], latest[np.append(first[1:] - 1, len(start) - 1)] - start[first]
    before = np.cumsum(length) - length  # what lies between two spells is left out
    at = np.linspace(0.0, length.sum(), count + 2)[1:-1]
    spell = np.searchsorted(before, at, side="right") - 1
    found: Floats = begin[spell] + (at - before[spell])
    return found


def _gpus(where: Allocation) -> int:
    return sum(bits.bit_count() for _, bits in where)


class _Cost:
    """Rings on one fabric, those of single jobs remembered."""

    def __init__(self, site: Site, network: Network, pxn: bool) -> None:
        self.site, self.network, self.pxn = site, network, pxn
        self._packed: dict[int, float] = {}
        self._alone: dict[Allocation, float] = {}

    def packed(self, gpus: int) -> float:
        """Time of a job alone, on an empty cluster, under as few switches as can be. [s]"""
        if gpus not in self._packed:
            where = place(self.site, [self.site.whole] * len(self.site.hosts), gpus, "tree")
            assert where is not None
            self._packed[gpus] = self.times([where])[0]
        return self._packed[gpus]

    def times(self, places: list[Allocation]) -> list[float]:
        """When each job's ring has passed its bytes on, all at once. [s]"""
        if len(places) == 1 and places[0] in self._alone:
            return [self._alone[places[0]]]
        parts = [self._ring(where) for where in places]
        solution = solve(self.network, join(parts))
        edges = np.cumsum([0, *map(len, parts)])
        found = [float(solution.finish[a:b].max()) for a, b in pairwise(edges.tolist())]
        if len(places) == 1:
            self._alone[places[0]] = found[0]
        return found

    def _ring(self, where: Allocation) -> Traffic:
        each = self.site.gpus
        gpus = [host * each + g for host, bits in where for g in range(each) if bits >> g & 1]
        comm = Communicator(np.array(gpus, np.int32), "job")
        return ring(self.network.fabric, comm, SIZE, self.pxn)
