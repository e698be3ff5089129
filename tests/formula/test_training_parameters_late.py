"""`overlap.aligned: false`: a chunk's parameters are gathered as its first forward pass gets to them, as
Megatron-LM does with `--no-align-param-gather`; that pass waits, and the stages one after the other."""

from __future__ import annotations

from itertools import pairwise

import pytest

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.checks.doubts import doubts
from railwright.training.lanes.result import StepResult
from railwright.training.lanes.timeline import Event
from training_cases import DENSE, changed, job, machine, priced, roofline

LATE = Overlap(aligned=False)
FOUR_CHUNKS = {"pipeline": 2, "virtual_pipeline": 2}


def step(one: TrainingJob) -> StepResult:
    graphed = changed(one, cuda_graphs=("step",))
    return simulate(graphed, DENSE, machine(4), predict=priced(2e9), kernel=roofline)


def laid(zero: int = 1, **more: object) -> TrainingJob:
    return job(zero=zero, batch=128, sequence=4096, **{**FOUR_CHUNKS, **more})  # type: ignore[arg-type]


def gathers(result: StepResult) -> list[Event]:
    """Parameter gathers of all stages, in their order."""
    found = [event for event in result.timeline.events if event.name == "dp parameters"]
    return sorted(found, key=lambda event: event.start)


@pytest.mark.parametrize("zero", [1, 2])
def test_stages_gather_one_after_the_other(zero: int) -> None:
    """A piece's begin with its first pass, which waits: none before those of the piece in front are there."""
    late, aligned = gathers(step(laid(zero, overlap=LATE))), gathers(step(laid(zero)))
    assert {event.rank for event in late} == {0, 1}
    for before, after in pairwise(late):
        assert after.start >= before.end - 1e-9
    assert len([event for event in aligned if event.start == 0.0]) == 2


@pytest.mark.parametrize("zero", [1, 2])
def test_the_step_is_longer_by_what_the_last_piece_waits(zero: int) -> None:
    """As much is exchanged, but the last of it arrives later, and the step ends as much later."""
    late, aligned = step(laid(zero, overlap=LATE)), step(laid(zero))
    (busy,) = [share.busy for share in late.shares if share.kind == "dp"]
    (same,) = [share.busy for share in aligned.shares if share.kind == "dp"]
    assert busy == pytest.approx(same, rel=1e-3)
    arrived = [max(event.end for event in gathers(result)) for result in (late, aligned)]
    assert late.step_time - aligned.step_time == pytest.approx(arrived[0] - arrived[1], rel=0.1)


@pytest.mark.parametrize(
    "one",
    [
        job(zero=1, batch=128, overlap=LATE),
        job(zero=0, batch=128, pipeline=2, overlap=LATE),
        job(zero=3, batch=128, pipeline=2, overlap=LATE),
        job(zero=1, batch=128, pipeline=2, overlap=changed(LATE, gather=False)),
    ],
)
def test_where_nothing_arrives_beside_a_pipeline_it_changes_nothing_and_says_so(one: TrainingJob) -> None:
    aligned = changed(one, overlap=changed(one.overlap, aligned=True))
    assert step(one).step_time == step(aligned).step_time
    assert any("overlap.aligned does nothing" in said for said in doubts(one, DENSE, 8))
