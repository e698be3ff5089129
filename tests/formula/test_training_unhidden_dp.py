"""Without `overlap.dp` nothing that data-parallel ranks exchange runs beside compute, whatever is sharded."""

from __future__ import annotations

import pytest

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from training_cases import DENSE, changed, job, machine, priced, roofline

ALONE = Overlap(dp=False, tp=False)


def exchanged(one: TrainingJob) -> tuple[float, float]:
    """Seconds that the step exchanges, and those that are exposed, with launches in graphs."""
    graphed = changed(one, cuda_graphs=("step",))
    step = simulate(graphed, DENSE, machine(4), predict=priced(50e9), kernel=roofline)
    (share,) = [s for s in step.shares if s.kind == "dp"]
    return share.busy, share.exposed


@pytest.mark.parametrize("layout", [{}, {"recompute": "full"}, {"reshard": False}, {"reduce_each": False}])
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_all_is_exposed(zero: int, layout: dict[str, object]) -> None:
    busy, exposed = exchanged(job(zero=zero, batch=128, overlap=ALONE, **layout))
    assert busy > 0
    assert exposed == pytest.approx(busy, rel=1e-9)


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_with_it_some_is_hidden(zero: int) -> None:
    busy, exposed = exchanged(job(zero=zero, batch=128, sequence=4096))
    assert exposed < 0.8 * busy


def test_sharded_gradients_that_are_sent_once_cost_what_sharded_states_cost() -> None:
    """ZeRO-1 and ZeRO-2 send the same bytes then."""
    steps = [
        simulate(
            job(zero=zero, batch=128, overlap=ALONE, reduce_each=False),
            DENSE,
            machine(4),
            predict=priced(50e9, latency=0.0),
            kernel=roofline,
        ).step_time
        for zero in (1, 2)
    ]
    assert steps[1] == pytest.approx(steps[0], rel=1e-3)
