"""Laws of a step that hold for every layout, overlap and network."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.spec.training import Overlap, TrainingJob
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.lanes.tasks import Task, run
from training_cases import DENSE, MOE, job, machine, priced, roofline
from training_laws import adds_up, one_thing_at_a_time

overlaps = st.builds(Overlap, dp=st.booleans(), tp=st.booleans(), ep=st.booleans(), pp=st.booleans())


@st.composite
def jobs(draw: st.DrawFn) -> TrainingJob:
    """Any layout of a small model on 32 GPUs that can work."""
    tensor = draw(st.sampled_from([1, 2, 4, 8]))
    pipeline = draw(st.sampled_from([1, 2, 4]))
    data = 32 // tensor // pipeline
    expert = draw(st.sampled_from([e for e in (1, 2, 4, 8) if data % e == 0]))
    return job(
        overlap=draw(overlaps),
        batch=data * pipeline * draw(st.sampled_from([1, 2, 3])),
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=draw(st.sampled_from([1, 2])) if pipeline > 1 else 1,
        expert=expert,
        sequence_parallel=draw(st.booleans()),
        zero=draw(st.sampled_from([0, 1])),
        recompute=draw(st.sampled_from(["none", "selective", "full"])),
    )


def stepped(wanted: TrainingJob, bandwidth: float, latency: float = 20e-6) -> StepResult:
    arch = MOE if wanted.layout.expert > 1 else DENSE
    return simulate(wanted, arch, machine(4), predict=priced(bandwidth, latency), kernel=roofline)


@settings(max_examples=40)
@given(jobs(), st.sampled_from([5e9, 50e9, 400e9]))
def test_every_instant_belongs_to_one_share(wanted: TrainingJob, bandwidth: float) -> None:
    result = stepped(wanted, bandwidth)
    adds_up(result)
    for share in result.shares:
        if share.kind != "bubble":
            assert share.exposed <= share.busy + 1e-9 * result.step_time


@settings(max_examples=25)
@given(jobs(), st.sampled_from([5e9, 50e9]))
def test_one_lane_of_one_rank_does_one_thing_at_a_time(wanted: TrainingJob, bandwidth: float) -> None:
    result = stepped(wanted, bandwidth)
    one_thing_at_a_time(result)
    assert max(e.end for e in result.timeline.events) <= result.step_time * (1 + 1e-9)
    order = [(e.rank, e.start) for e in result.timeline.events]
    assert order == sorted(order)


@settings(max_examples=25)
@given(jobs())
def test_a_free_network_costs_nothing(wanted: TrainingJob) -> None:
    assert stepped(wanted, 0.0).exposed_share == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=40)
@given(jobs(), st.sampled_from([5e9, 50e9]))
def test_twice_the_bandwidth_is_never_slower(wanted: TrainingJob, bandwidth: float) -> None:
    # But for this: what ends earlier may have run beside compute, which it slows, instead of beside a wait.
    slow, fast = stepped(wanted, bandwidth), stepped(wanted, 2 * bandwidth)
    assert fast.step_time <= slow.step_time * (1 + 1e-3)


@settings(max_examples=15)
@given(jobs())
def test_same_input_same_result(wanted: TrainingJob) -> None:
    assert stepped(wanted, 50e9) == stepped(wanted, 50e9)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["compute", "tp", "ep", "dp"]),
            st.floats(0.001, 2.0),
            st.floats(0.0, 1.0),
            st.lists(st.integers(0, 30), max_size=3),
        ),
        min_size=1,
        max_size=25,
    ),
    st.floats(1.0, 2.0),
)
def test_tasks_wait_for_what_they_name_and_keep_their_length(
    drawn: list[tuple[str, float, float, list[int]]], slowdown: float
) -> None:
    tasks = [
        Task(
            lane,  # type: ignore[arg-type]
            str(i),
            "x",
            seconds,
            tuple(sorted({d for d in after if d < i})),
            wire=0.0 if lane == "compute" else share * seconds,
        )
        for i, (lane, seconds, share, after) in enumerate(drawn)
    ]
    done = run(tasks, slowdown)
    spans = {int(s.task.name): s for s in done.spans}
    assert len(spans) + len(done.left) == len(tasks)
    for span in spans.values():
        task, length = span.task, span.end - span.start
        most = slowdown * task.duration if task.lane == "compute" else task.duration + 2 * task.wire
        assert task.duration * (1 - 1e-9) <= length <= most * (1 + 1e-9)
        assert all(spans[d].end <= span.start + 1e-9 for d in task.after)
    assert sum(done.exposed.values()) == pytest.approx(done.duration)


def test_pxn_changes_the_exchange_of_experts_only() -> None:
    wanted = job(tensor=2, expert=8, sequence_parallel=True, batch=32)
    on, off = (simulate(wanted, MOE, machine(4, pxn=pxn)) for pxn in (True, False))
    for a, b in zip(on.collectives, off.collectives, strict=True):
        assert (a.purpose, a.count, a.prediction.size) == (b.purpose, b.count, b.prediction.size)
        if a.kind != "ep":
            assert a.prediction.time == pytest.approx(b.prediction.time), a.purpose
    assert on.memory == off.memory


def test_a_large_step_keeps_its_timeline_small() -> None:
    from railwright.training.step.events import MAX_EVENTS

    wanted = job(pipeline=4, virtual_pipeline=2, batch=8 * 1200)
    result = stepped(wanted, 50e9)
    assert len(result.timeline.events) <= MAX_EVENTS * 1.1
    assert result.timeline.coarse is not None
    assert sum(s.exposed for s in result.shares) == pytest.approx(result.step_time, rel=1e-9)
