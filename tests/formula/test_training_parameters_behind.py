"""`overlap.gather: false`: parameters of ZeRO 1 and 2 are gathered behind the optimizer, as Megatron-LM does
without `--overlap-param-gather`; gradients are hidden as before."""

from __future__ import annotations

import pytest

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.lanes.result import StepResult
from training_cases import DENSE, changed, job, machine, priced, roofline

BEHIND = Overlap(gather=False)


def step(one: TrainingJob) -> StepResult:
    graphed = changed(one, cuda_graphs=("step",))
    return simulate(graphed, DENSE, machine(4), predict=priced(50e9), kernel=roofline)


def exchanged(one: TrainingJob) -> tuple[float, float]:
    """Seconds that the step exchanges between data-parallel ranks, and those that are exposed."""
    (share,) = [s for s in step(one).shares if s.kind == "dp"]
    return share.busy, share.exposed


@pytest.mark.parametrize("stages", [{}, {"pipeline": 2}, {"pipeline": 2, "virtual_pipeline": 2}])
@pytest.mark.parametrize("zero", [1, 2])
def test_the_step_is_longer_by_what_was_hidden_of_it(zero: int, stages: dict[str, int]) -> None:
    """As many seconds are exchanged; between what is exposed with and without lie at most the parameters."""
    beside = job(zero=zero, batch=128, sequence=4096, **stages)
    behind = job(zero=zero, batch=128, sequence=4096, overlap=BEHIND, **stages)
    assert exchanged(behind)[0] == pytest.approx(exchanged(beside)[0], rel=1e-9)
    more = exchanged(behind)[1] - exchanged(beside)[1]
    gathered = exchanged(behind)[0] / 3  # 2 bytes a parameter beside 4 of its gradient
    assert 0 < more <= gathered * 1.01  # and its latencies
    assert step(behind).step_time > step(beside).step_time


@pytest.mark.parametrize("zero", [0, 3])
def test_what_gathers_nothing_once_a_step_stays_as_it_is(zero: int) -> None:
    behind, beside = job(zero=zero, batch=128, overlap=BEHIND), job(zero=zero, batch=128)
    assert step(behind).step_time == step(beside).step_time
    assert any("overlap.gather does nothing" in said for said in doubts(behind, DENSE, 8))


@pytest.mark.parametrize("zero", [1, 2])
def test_beside_exposed_gradients_it_changes_nothing(zero: int) -> None:
    alone = Overlap(dp=False)
    behind = job(zero=zero, batch=128, overlap=changed(alone, gather=False))
    assert step(behind).step_time == step(job(zero=zero, batch=128, overlap=alone)).step_time
