"""Max-min fair finish times of hashed flows, on a table of the links each crosses.

Legend: F flows, Q queue pairs of each, K columns, L links.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from railwright.fabric.graph import Fabric
from railwright.network.ecmp.flows import Block, binding_host_links
from railwright.network.ecmp.walk import Ways, follow, kernels, mixed_seed
from railwright.network.maxmin import FluidSystem, compiled_rates, finish_times, max_min_rates

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Columns:
    """Links of each flow.

    link      (F, K) -1 for none
    whole     the first so many columns carry the whole flow, each later one `share` of it
    compiled  whether rates come from the compiled kernel
    """

    link: Ints
    whole: int
    share: float
    compiled: bool

    def rates(self, rows: Longs | Ints, slack: Floats) -> Floats:
        """Max-min fair rates of some flows on what is left of the links [byte/s]."""
        if self.compiled:
            rate: Floats = kernels().fill(
                self.link, rows.astype(np.int32, copy=False), self.whole, self.share, slack.copy()
            )
            return rate
        return max_min_rates(self.system(slack, np.zeros(len(self.link))), rows.astype(np.int64), slack)

    def system(self, capacity: Floats, size: Floats) -> FluidSystem:
        """The same flows as rows of links and weights."""
        used = self.link >= 0
        ptr = np.concatenate([[0], np.cumsum(used.sum(axis=1))])
        weight = np.where(np.arange(self.link.shape[1]) < self.whole, 1.0, self.share)
        weights = np.broadcast_to(weight, self.link.shape)[used]
        return FluidSystem(ptr, self.link[used], weights, capacity, size, np.ones(len(size)))


def columns_of(fabric: Fabric, part: Block, ways: Ways, qps: int, seed: int, compiled: bool) -> Columns:
    """The links that can hold each flow up: scale-up lanes, the tightest of its hosts, its hashed paths."""
    hosts = binding_host_links(fabric)
    lanes = [lane for lane in (part.lane_up, part.lane_down) if np.any(lane >= 0)]
    ends = [
        (gpu, column)
        for gpu, chain in ((part.out, hosts.out), (part.into, hosts.into))
        for column in chain.T
        if np.any(column >= 0)
    ]
    whole = len(lanes) + len(ends)
    link = np.full((len(part), whole + qps * ways.hops), -1, np.int32)
    for k, lane in enumerate(lanes):
        link[:, k] = lane
    for k, (gpu, column) in enumerate(ends, len(lanes)):
        # A flow inside its domain has GPU -1, which the last entry answers with no link.
        link[:, k] = np.append(column, np.int32(-1))[gpu]
    flows = part.hashed
    if compiled:
        kernels().follow(
            flows.word, flows.number, flows.start, qps, mixed_seed(seed),
            ways.ptr, ways.link, ways.to, ways.salt, ways.hops, whole, link,
        )  # fmt: skip
    else:
        link[:, whole:] = follow(flows, ways, qps, seed)
    return Columns(link, whole, 1.0 / qps, compiled)


def fluid_time(columns: Columns, size: Floats, capacity: Floats) -> float:
    """When the last flow has finished, all starting together at max-min fair rates [s].

    Flows of one size need one solution (see `maxmin.finish_times`); of several sizes, one per finish.
    """
    held = columns.link.max(axis=1, initial=-1) >= 0
    sending = np.flatnonzero(held & (size > 0)).astype(np.int32)
    if not len(sending):
        return 0.0
    if size[sending].min() == size[sending].max():
        return float(size[sending[0]] / columns.rates(sending, capacity).min())
    rates = compiled_rates if columns.compiled else max_min_rates
    return float(finish_times(columns.system(capacity, size), rates=rates).max())
