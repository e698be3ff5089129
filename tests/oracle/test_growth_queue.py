"""The formula of the growth path against the simulated queue: jobs of equal size are servers of Erlang's."""

from __future__ import annotations

import numpy as np
import pytest

from railwright.growth.waiting import places, wait_share
from railwright.queueing.jobs import drawn
from railwright.queueing.place import Site
from railwright.queueing.simulate import simulate


@pytest.mark.parametrize(
    ("machines", "gpus", "job", "load"),
    [(1, 2, 1, 0.6), (1, 8, 2, 0.7), (1, 8, 3, 0.45), (4, 8, 8, 0.6), (4, 8, 16, 0.5)],
)
def test_the_simulated_queue_waits_as_the_formula_says(machines, gpus, job, load):
    """Mean wait over mean length, of 20,000 jobs; waits hang together, so their mean is that of far fewer."""
    site = Site(tuple(f"h{i}" for i in range(machines)), gpus, (0,) * machines, (0,))
    jobs = drawn({job: 1.0}, load, 3600.0, site.capacity, 20_000, seed=1)
    run = simulate(site, jobs, "pack")
    length = float(np.mean([one.duration for one in jobs]))
    expected = wait_share(places(machines, gpus, job), load * site.capacity / job)
    assert float(run.waits.mean()) / length == pytest.approx(expected, rel=0.12, abs=0.01)
