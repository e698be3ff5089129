"""What holds of every schedule: waits are kept, no link over capacity, bytes arrive."""

from __future__ import annotations

import numpy as np
import pytest

import network_fabrics as hand
from railwright.errors import PlanError
from railwright.network import Network, load_over_time, sequence, side_by_side, simulate, together
from railwright.network.fluid.events import Schedule
from railwright.network.fluid.symmetry import flow_system
from railwright.network.routing.paths import find_routes
from railwright.traffic import Communicator, Traffic, all_to_all, ring


def job(seed: int) -> tuple[Network, Schedule]:
    """Two jobs on the same links: a ring after a computation after an all-to-all, beside random flows."""
    rng = np.random.default_rng(seed)
    fabric = hand.make(4, 2, spines=int(rng.integers(1, 4)), servers_per_group=2)
    world = Communicator(np.arange(8, dtype=np.int32))
    first = sequence(
        [
            together(all_to_all(fabric, world, float(rng.integers(1, 99)), False)),
            together(Traffic(*[np.zeros(0, np.int32)] * 3, np.zeros(0)), 3.0),
            together(ring(fabric, world, 40.0), 0.5),
        ]
    )
    pairs = rng.integers(0, 8, (20, 2)).astype(np.int32)
    other = together(Traffic(pairs[:, 0], pairs[:, 1], np.full(20, -1, np.int32), rng.uniform(0, 50, 20)))
    return Network(fabric, rng.choice(["adaptive", "ecmp"]), seed), side_by_side([first, other])


@pytest.mark.parametrize("seed", range(12))
def test_waits_capacities_and_bytes(seed: int) -> None:
    network, schedule = job(seed)
    run, again = (simulate(network, schedule, "numba") for _ in range(2))
    assert run.finish.tobytes() == again.finish.tobytes()
    for before, after in zip(schedule.before, schedule.after, strict=True):
        assert run.opened[after] >= run.ended[before] + schedule.delay[after] - 1e-9
    assert np.all(run.start >= run.opened[schedule.phase])
    assert run.ended[run.critical[-1]] == run.time == run.ended.max()
    capacity = network.fabric.capacity
    times, loads = load_over_time(network, schedule, np.arange(len(capacity)), "numba")
    assert np.all(loads <= capacity * (1 + 1e-9))
    carried = (loads * np.diff(times, append=run.time)[:, None]).sum(axis=0)
    assert carried == pytest.approx(run.load, rel=1e-8, abs=1e-8)
    size = schedule.traffic.size
    system = flow_system(find_routes(network, schedule.traffic), size, capacity)
    for f in np.flatnonzero(size > 0):
        span = slice(system.ptr[f], system.ptr[f + 1])
        alone = (size[f] * system.weight[span] / capacity[system.link[span]]).max(initial=0.0)
        assert run.finish[f] - run.start[f] >= alone * (1 - 1e-9)


def test_a_weight_of_three_takes_three_quarters() -> None:
    """Two flows of 30 bytes into one 50 byte/s NIC, weights 3 and 1: 0.8 s, then 20 bytes at 50 byte/s."""
    fabric = hand.make(3, 1, "single-switch")
    none = np.full(2, -1, np.int32)
    traffic = Traffic(np.array([0, 1], np.int32), np.array([2, 2], np.int32), none, np.array([30.0, 30.0]))
    plain = together(traffic)
    schedule = Schedule(
        traffic, plain.phase, plain.start, plain.delay, plain.before, plain.after, np.array([3.0, 1.0])
    )
    for engine in ("numpy", "numba"):
        run = simulate(Network(fabric), schedule, engine)  # type: ignore[arg-type]
        assert run.finish == pytest.approx([0.8, 1.2])


def test_a_circle_of_waits_is_refused() -> None:
    network, schedule = job(0)
    circle = Schedule(
        schedule.traffic, schedule.phase, schedule.start, schedule.delay,
        np.append(schedule.before, 2), np.append(schedule.after, 0), schedule.weight,
    )  # fmt: skip
    with pytest.raises(PlanError, match="wait for one another in a circle"):
        simulate(network, circle)
    with pytest.raises(PlanError, match="No engine 'cuda' runs a schedule"):
        simulate(network, schedule, "cuda")  # type: ignore[arg-type]
