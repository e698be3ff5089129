"""Laws of the critical path: its tasks fill the step, and only they set its length."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from railwright.model import load_model
from railwright.spec.training import Overlap
from railwright.study import evaluate
from railwright.study.evaluate import with_timeline
from railwright.study.result import JobResult
from railwright.training import simulate
from railwright.training.lanes.critical import CriticalPath, critical_path
from railwright.training.lanes.tasks import Task, run
from railwright.training.lanes.timeline import Event, Timeline
from training_cases import DENSE, MOE, job, machine, priced

LANES = ("compute", "tp", "ep", "pp", "host")


@st.composite
def tasks(draw: st.DrawFn) -> list[Task]:
    """Tasks in order on lanes, each after some earlier ones; no two chains end at the same instant."""
    count = draw(st.integers(2, 14))
    found = []
    for i in range(count):
        lane = draw(st.sampled_from(LANES))
        after = tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else ()
        # A part of its own in each length keeps two chains from ending together.
        length = draw(st.integers(1, 50)) + 2.0 ** -(i + 2)
        found.append(Task(lane, f"task {i}", "work", length, after))  # type: ignore[arg-type]
    return found


def path_of(given: list[Task]) -> tuple[float, CriticalPath]:
    done = run(given)
    events = tuple(Event(0, s.task.lane, s.task.name, s.task.kind, s.start, s.end) for s in done.spans)
    path = critical_path(Timeline(events, done.duration))
    assert path is not None
    return done.duration, path


@given(tasks())
@settings(max_examples=120)
def test_the_path_fills_the_step_without_a_gap(given: list[Task]) -> None:
    span, path = path_of(given)
    assert not path.waits
    assert path.events[0].start == pytest.approx(0.0, abs=1e-9)
    assert path.events[-1].end == pytest.approx(span)
    for one, following in pairwise(path.events):
        assert one.end == pytest.approx(following.start)
    assert sum(p.share for p in path.parts) == pytest.approx(1.0)


@given(tasks(), st.data())
@settings(max_examples=120)
def test_only_tasks_on_the_path_set_the_length(given: list[Task], data: st.DataObject) -> None:
    """Without interference: halving a task off the path changes nothing, one on it shortens the whole."""
    span, path = path_of(given)
    which = data.draw(st.integers(0, len(given) - 1))
    task = given[which]
    half = Task(task.lane, task.name, task.kind, task.duration / 2, task.after)
    shorter = run([*given[:which], half, *given[which + 1 :]]).duration
    if any(e.name == task.name for e in path.events):
        assert shorter < span
    else:
        assert shorter == pytest.approx(span, rel=1e-12)


CASES = [
    (DENSE, job(tensor=2)),
    (DENSE, job(tensor=2, pipeline=4)),
    (DENSE, job(pipeline=4, virtual_pipeline=2, overlap=Overlap(pp=False, dp=False))),
    (DENSE, job(tensor=4, pipeline=8, sequence_parallel=True, overlap=Overlap(dp=False))),
    (MOE, job(tensor=2, expert=4, sequence_parallel=True, overlap=Overlap(ep=True, tp=True))),
    (MOE, job(pipeline=2, expert=8, zero=0)),
    (MOE, job(pipeline=2, virtual_pipeline=2, expert=4, overlap=Overlap(ep=True))),
    (MOE, job(pipeline=4, virtual_pipeline=2, expert=2, tensor=2, overlap=Overlap(ep=True, pp=False))),
    (MOE, job(pipeline=2, expert=4, schedule="dualpipe")),
    (MOE, job(pipeline=2, expert=4, schedule="dualpipe-v")),
    (DENSE, job(pipeline=4, tensor=2, schedule="zb-v")),
]


@pytest.mark.parametrize(("arch", "plan"), CASES)
def test_tasks_and_waits_of_a_step_add_up_to_it(arch, plan) -> None:  # type: ignore[no-untyped-def]
    step = simulate(plan, arch, machine())
    path = critical_path(step.timeline)
    assert path is not None
    told = sum(e.end - e.start for e in path.events) + sum(w.end - w.start for w in path.waits)
    assert told == pytest.approx(step.step_time)
    # Every start has its reason on the timeline: nothing is waited for that is not drawn.
    assert not path.waits
    assert 2 <= len(path.sentences()) <= 3
    longest = max(path.parts, key=lambda p: p.seconds)
    assert path.parts[0] == longest


def test_hidden_communication_is_off_the_path_and_exposed_is_on_it() -> None:
    """The gradient exchange of a job without overlap is on the path for as long as it is exposed."""
    step = simulate(job(tensor=2, overlap=Overlap(dp=False)), DENSE, machine())
    path = critical_path(step.timeline)
    assert path is not None
    exposed = next(s.exposed for s in step.shares if s.kind == "dp")
    told = sum(p.seconds for p in path.parts if p.lane == "dp")
    assert told == pytest.approx(exposed)


def test_a_timeline_that_is_cut_off_has_no_path() -> None:
    assert critical_path(Timeline((Event(0, "compute", "a", "mlp", 0.0, 1.0),), 2.0)) is None
    assert critical_path(Timeline((), 1.0)) is None
    step = simulate(job(tensor=2, pipeline=4), DENSE, machine(), most_events=60)
    assert critical_path(step.timeline) is None


def test_whole_passes_make_a_coarser_path() -> None:
    step = simulate(job(tensor=2, pipeline=4), DENSE, machine(), most_events=600)
    path = critical_path(step.timeline)
    assert path is not None
    assert {"forward", "backward"} <= {e.kind for e in path.events}
    assert not path.waits


def test_the_bubble_of_a_pipeline_is_told() -> None:
    """Stage 0 waits at the end of the fill; the path goes through other stages then."""
    step = simulate(job(pipeline=4), DENSE, machine())
    path = critical_path(step.timeline)
    assert path is not None
    assert len({e.rank for e in path.events}) > 1
    assert any("waits for others" in sentence for sentence in path.sentences())


def test_a_wait_for_split_passes_names_the_half_that_ends_it() -> None:
    """ZB-H1's stages wait for the gradients of their results, which are no forward pass."""
    step = simulate(job(pipeline=4, schedule="zb-h1"), DENSE, machine())
    bubbles = [e for e in step.timeline.events if e.kind == "bubble" and e.rank == 0]
    longest = max(bubbles, key=lambda e: e.end - e.start)
    path = critical_path(step.timeline)
    assert path is not None
    alone = replace(path, events=tuple(e for e in path.events if e.rank == 0), bubbles=(longest,))
    assert "before the input gradients of microbatch" in " ".join(alone.sentences())


def test_a_study_tells_the_path_operator_by_operator() -> None:
    """Also where the timeline of the step has room for whole passes only."""
    plan = job(pipeline=4, batch=128, sequence=4096).model_copy(update={"model": "llama-3.1-8b"})
    step = simulate(plan, load_model(plan.model), machine(), most_events=600)
    assert "forward" in {e.kind for e in step.timeline.events}
    told = with_timeline(JobResult("case", step), plan, machine()).critical
    assert told is not None
    assert {"mlp", "attention"} <= {p.what for p in told.parts}
    assert sum(p.seconds for p in told.parts) == pytest.approx(step.step_time)


def test_a_study_draws_every_lane_of_a_long_step() -> None:
    """Whole passes alone would show no tensor-parallel communication."""
    plan = job(tensor=2, pipeline=4, batch=128).model_copy(update={"model": "gpt2"})
    step = simulate(plan, load_model("gpt2"), machine(), most_events=600)
    assert "tp" not in {e.lane for e in step.timeline.events}
    drawn = with_timeline(JobResult("case", step), plan, machine()).step
    assert drawn is not None
    assert drawn.timeline.coarse is None
    assert "tp" in {e.lane for e in drawn.timeline.events}
    assert replace(drawn, timeline=step.timeline) == step


def test_a_step_too_long_to_draw_has_its_path_operator_by_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """And its two ends: every lane is drawn."""
    plan = job(tensor=2, pipeline=4, batch=128).model_copy(update={"model": "gpt2"})
    monkeypatch.setattr(evaluate, "EVENTS_DRAWN", 2_000)
    monkeypatch.setattr(evaluate, "EVENTS_OF_ENDS", 1_000)
    step = simulate(plan, load_model("gpt2"), machine(), most_events=600)
    told = with_timeline(JobResult("case", step), plan, machine())
    assert told.step is not None
    assert told.critical is not None
    timeline = told.step.timeline
    assert timeline.coarse is not None
    assert {"compute", "tp", "pp", "dp"} <= {e.lane for e in timeline.events}
    assert not {"forward", "backward"} & {e.kind for e in told.critical.events}


def test_a_faster_collective_helps_a_step_only_on_the_path() -> None:
    """Two stages without overlap: gradients of one are on the path, those of the other are ready before."""
    plan = job(pipeline=2, overlap=Overlap(dp=False))
    base = simulate(plan, DENSE, machine(), predict=priced(1e10))
    path = critical_path(base.timeline)
    assert path is not None
    on = {e.size for e in path.events if e.lane == "dp" and e.kind == "reduce_scatter"}
    sizes = {e.size for e in base.timeline.events if e.lane == "dp" and e.kind == "reduce_scatter"}
    off = sizes - on
    assert on
    assert off, "each stage has a bucket of its own size: embedding or head"

    def faster(chosen: set[float]) -> float:
        """The step where gradients of these sizes take half as long."""
        usual = priced(1e10)

        def predict(cluster, op, size, groups):  # type: ignore[no-untyped-def]
            found = usual(cluster, op, size, groups)
            halved = op == "reduce_scatter" and size in chosen
            return replace(found, time=found.time / 2, terms=()) if halved else found

        return simulate(plan, DENSE, machine(), predict=predict).step_time

    assert faster(off) == pytest.approx(base.step_time, rel=1e-12)
    assert faster(on) < base.step_time * (1 - 1e-4)
