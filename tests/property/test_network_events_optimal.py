"""Rates of a schedule are max-min fair at every moment: its starts and finishes explain every byte.

Between two events the set of flows that send is known from the answer.  Their max-min rates are found here by
the textbook, and every flow must have sent its size, no more and no less, when it finishes.
"""

from __future__ import annotations

import os
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import network_fabrics as hand
from railwright.fabric.graph import Role
from railwright.network import Network, side_by_side, simulate, together
from railwright.network import sequence as in_turn
from railwright.network.fluid.events import Schedule
from railwright.network.fluid.symmetry import flow_system
from railwright.network.routing.paths import find_routes
from railwright.traffic import Traffic

Floats = NDArray[np.float64]


def filled(use: Floats, capacity: Floats, weight: Floats) -> Floats:
    """Rates of flows that rise together, each in proportion to its weight, until a link of theirs is full.

    use  (L, F) fraction of each flow on each link
    Source: Bertsekas and Gallager, "Data Networks", 2nd ed., section 6.5.2.
    """
    rate, rising = np.zeros(use.shape[1]), np.ones(use.shape[1], bool)
    while rising.any():
        pull = use[:, rising] @ weight[rising]
        crossed = pull > 0
        level = (capacity - use @ np.where(rising, 0.0, rate))[crossed] / pull[crossed]
        lowest = level.min()
        full = np.flatnonzero(crossed)[level <= lowest * (1 + 1e-12)]
        stopped = rising & (use[full] > 0).any(axis=0)
        rate[stopped] = lowest * weight[stopped]
        rising &= ~stopped
    return rate


def held_by_a_full_link(use: Floats, capacity: Floats, weight: Floats, rate: Floats) -> bool:
    """The condition itself: each flow crosses a full link on which no other has more per weight."""
    full = use @ rate >= capacity * (1 - 1e-9)
    share = rate / weight
    most = np.where(use > 0, share, 0.0).max(axis=1, initial=0.0)
    fair = (use > 0) & full[:, None] & (share[None, :] >= most[:, None] * (1 - 1e-9))
    return bool(fair.any(axis=0).all() and np.all(use @ rate <= capacity * (1 + 1e-9)))


@st.composite
def problems(draw: st.DrawFn) -> tuple[Network, Schedule]:
    fabric = hand.make(
        servers=draw(st.integers(2, 4)),
        gpus=draw(st.integers(1, 3)),
        family=draw(st.sampled_from(["rail-optimised", "fat-tree", "single-switch"])),
        spines=draw(st.integers(1, 3)),
        servers_per_group=2,
    )
    uplinks = hand.links_of(fabric, Role.LEAF_SPINE) or hand.links_of(fabric, Role.NODE_LEAF)
    fabric = hand.with_capacity(fabric, {draw(st.sampled_from(uplinks)): draw(st.sampled_from([0.3, 1.0]))})
    gpu = st.integers(0, fabric.num_gpus - 1)
    number = st.floats(0.5, 20.0)

    def phase() -> Schedule:
        pairs = draw(st.lists(st.tuples(gpu, gpu), min_size=1, max_size=7))
        src, dst = (np.array(x, np.int32) for x in zip(*pairs, strict=True))
        sizes = np.array([draw(st.sampled_from([0.0, 10.0, 10.0, 33.3, 1e3])) for _ in pairs])
        flows = together(
            Traffic(src, dst, np.full(len(src), -1, np.int32), sizes), draw(st.sampled_from([0.0, 1.5]))
        )
        start = np.array([draw(st.sampled_from([0.0, 0.0, 0.25, 2.0])) for _ in pairs])
        return replace(flows, start=start, weight=np.array([draw(number) for _ in pairs]))

    jobs = [
        in_turn([phase() for _ in range(draw(st.integers(1, 2)))]) for _ in range(draw(st.integers(1, 2)))
    ]
    routing = draw(st.sampled_from(["adaptive", "ecmp", "static"]))
    return Network(fabric, routing, draw(st.integers(0, 9))), side_by_side(jobs)


@settings(max_examples=2_000 if os.environ.get("RAILWRIGHT_THOROUGH") else 60)
@given(problems())
def test_what_was_sent_at_max_min_rates_is_the_size_of_every_flow(problem: tuple[Network, Schedule]) -> None:
    network, schedule = problem
    size, weight = schedule.traffic.size, schedule.weight
    capacity = network.fabric.capacity
    system = flow_system(find_routes(network, schedule.traffic), size, capacity)
    use = np.zeros((len(capacity), len(size)))
    np.add.at(use, (system.link, np.repeat(np.arange(len(size)), np.diff(system.ptr))), system.weight)
    for engine in ("numpy", "numba"):
        run = simulate(network, schedule, engine)  # type: ignore[arg-type]
        moments = np.unique(np.concatenate([run.start, run.finish]))
        sent = np.zeros(len(size))
        for begin, end in pairwise(moments.tolist()):
            if end - begin <= 1e-11 * end:
                continue  # one event, rounded
            middle = (begin + end) / 2
            busy = np.flatnonzero((run.start < middle) & (run.finish > middle))
            if len(busy):
                rate = filled(use[:, busy], capacity, weight[busy])
                assert held_by_a_full_link(use[:, busy], capacity, weight[busy], rate)
                sent[busy] += rate * (end - begin)
        moves = np.diff(system.ptr) > 0
        assert sent[moves] == pytest.approx(size[moves], rel=1e-8, abs=1e-8)
        assert np.all(run.finish[~moves] == run.start[~moves])
