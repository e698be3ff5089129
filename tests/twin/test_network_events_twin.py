"""The event kernel, which solves what changed, gives what its definition gives, which solves everything."""

from __future__ import annotations

import numpy as np
import pytest

import network_fabrics as hand
from railwright.fabric.graph import Role
from railwright.network import Network, solve
from railwright.network.fluid.events import Schedule, together
from railwright.network.fluid.events_plain import play
from railwright.network.fluid.events_run import load_over_time, play_compiled, simulate
from railwright.network.maxmin import FluidSystem, compiled_rates, finish_times
from railwright.traffic import Communicator, Traffic, all_to_all


def random_system(rng: np.random.Generator) -> FluidSystem:
    """Few kinds of sizes and capacities, so that ties and simultaneous events are common."""
    flows, links = int(rng.integers(1, 50)), int(rng.integers(1, 25))
    counts = rng.integers(1, min(links, 6) + 1, flows)
    counts[rng.random(flows) < 0.05] = 0
    rows = [rng.choice(links, c, replace=False) for c in counts]
    link = np.concatenate([np.zeros(0), *rows]).astype(np.int32)
    return FluidSystem(
        np.concatenate([[0], np.cumsum(counts)]),
        link,
        rng.choice([0.25, 1 / 3, 1.0], len(link)),
        rng.choice([1.0, 3.0, 50.0, rng.random() + 0.5], links),
        rng.choice([0.0, 1.0, 2.0, 7.0, rng.random() + 0.1], flows),
        rng.choice([1.0, 4.0], flows),
    )


def random_schedule(rng: np.random.Generator, flows: int) -> Schedule:
    phases = int(rng.integers(1, 8))
    pairs = np.array([(a, b) for a in range(phases) for b in range(a + 1, phases)], np.int64).reshape(-1, 2)
    pairs = pairs[rng.random(len(pairs)) < 0.4]
    none = np.zeros(flows, np.int32)
    return Schedule(
        Traffic(none, none, none - 1, np.zeros(flows)),
        rng.integers(0, phases, flows),
        rng.choice([0.0, 0.0, 1.0, 2.5], flows),
        rng.choice([0.0, 0.0, 0.7, 3.0], phases),
        pairs[:, 0],
        pairs[:, 1],
        np.ones(flows),
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_systems_and_schedules(seed: int) -> None:
    rng = np.random.default_rng(seed)
    system = random_system(rng)
    schedule = random_schedule(rng, len(system))
    everything = np.arange(len(system.capacity))
    slow, fast = (f(system, schedule, 0.0, everything) for f in (play, play_compiled))
    for name in ("start", "finish", "opened", "ended"):
        assert getattr(fast, name) == pytest.approx(getattr(slow, name), rel=1e-9, abs=1e-12)
    assert np.all(fast.loads <= system.capacity * (1 + 1e-9))
    if len(fast.times) == len(slow.times):
        assert fast.loads == pytest.approx(slow.loads, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", range(20))
def test_batches_agree_too(seed: int) -> None:
    rng = np.random.default_rng(1000 + seed)
    system = random_system(rng)
    schedule = random_schedule(rng, len(system))
    none = np.zeros(0, np.int64)
    slow, fast = (f(system, schedule, 0.3, none) for f in (play, play_compiled))
    assert fast.finish == pytest.approx(slow.finish, rel=1e-9, abs=1e-12)
    assert fast.ended == pytest.approx(slow.ended, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_a_larger_system_whose_flows_come_and_go_one_by_one(seed: int) -> None:
    """300 flows of random sizes and starts on 60 links: every event is an incremental update."""
    rng = np.random.default_rng(seed)
    flows, links = 300, 60
    counts = rng.integers(1, 7, flows)
    link = np.concatenate([rng.choice(links, c, replace=False) for c in counts]).astype(np.int32)
    system = FluidSystem(
        np.concatenate([[0], np.cumsum(counts)]), link, rng.uniform(0.1, 1.0, len(link)),
        rng.uniform(1.0, 5.0, links), rng.uniform(1.0, 9.0, flows), np.ones(flows),
    )  # fmt: skip
    none = np.zeros(flows, np.int32)
    empty = np.zeros(0, np.int64)
    schedule = together(Traffic(none, none, none - 1, system.size))
    spaced = Schedule(
        schedule.traffic, schedule.phase, rng.uniform(0, 100, flows), schedule.delay, empty, empty,
        schedule.weight,
    )  # fmt: skip
    for case in (schedule, spaced):
        slow, fast = (f(system, case, 0.0, empty) for f in (play, play_compiled))
        assert fast.finish == pytest.approx(slow.finish, rel=1e-9)
        if case is schedule:
            assert fast.finish == pytest.approx(finish_times(system, rates=compiled_rates), rel=1e-8)


@pytest.mark.parametrize("routing", ["adaptive", "ecmp", "static"])
def test_all_at_once_is_what_solve_gives(routing: str) -> None:
    fabric = hand.make(servers=6, gpus=4, spines=3, servers_per_group=3)
    fabric = hand.with_capacity(fabric, {hand.links_of(fabric, Role.LEAF_SPINE)[5]: 0.0})
    sizes = np.random.default_rng(1).integers(1, 5, (24, 24)) * 10.0
    traffic = all_to_all(fabric, Communicator(np.arange(24, dtype=np.int32)), sizes, pxn=False)
    network = Network(fabric, routing, seed=4)  # type: ignore[arg-type]
    answer = solve(network, traffic, "numpy")
    for engine in ("numpy", "numba"):
        run = simulate(network, together(traffic), engine)  # type: ignore[arg-type]
        assert run.finish == pytest.approx(answer.finish, rel=1e-9)
        assert run.load == pytest.approx(answer.load, rel=1e-12)
        assert run.bottleneck == answer.bottleneck or run.time != answer.time
    times, loads = load_over_time(network, together(traffic), np.arange(fabric.num_links), "numba")
    carried = (loads * np.diff(times, append=answer.time)[:, None]).sum(axis=0)
    assert carried == pytest.approx(answer.load, rel=1e-9, abs=1e-9)
