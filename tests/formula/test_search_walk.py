"""The walk from a job's own layout to the best one: single changes, each with the step that it leads to."""

from __future__ import annotations

from math import inf

import pytest

from railwright.errors import PlanError
from railwright.search import Space, search
from railwright.search.bounds.pricing import Pricer
from railwright.search.space.axes import apply, setting_of
from railwright.search.space.changes import changed, told
from railwright.search.training.explain import explain
from railwright.search.training.result import Candidate
from railwright.search.training.walk import Stride, steepest, walk
from railwright.training import simulate
from railwright.units import show_time
from training_cases import DENSE, MOE, job, machine

OWN = setting_of(job(tensor=2, micro_batch=1, recompute="full"))


def timed(*found):
    """Seconds of a layout by which of three changes it has; infinite where it cannot work."""
    table = dict(found)

    def seconds(setting):
        return table.get(
            tuple(axis for axis in ("tensor", "micro_batch", "recompute") if setting[axis] != OWN[axis]), inf
        )

    return seconds


BEST = {**OWN, "tensor": 4, "micro_batch": 2, "recompute": "none"}


def test_the_change_that_helps_most_comes_first_and_later_ones_are_told_behind_it() -> None:
    """Alone, the microbatch brings 3; behind recomputation it costs 1."""
    seconds = timed(
        (("tensor",), 9.0), (("micro_batch",), 7.0), (("recompute",), 5.0),
        (("tensor", "recompute"), 4.0), (("micro_batch", "recompute"), 6.0),
        (("tensor", "micro_batch", "recompute"), 4.5),
    )  # fmt: skip
    walked = list(steepest(OWN, BEST, seconds))
    assert [changed(before, after) for before, after, _ in walked] == [
        ("recompute",),
        ("tensor",),
        ("micro_batch",),
    ]
    assert [took for _, _, took in walked] == [5.0, 4.0, 4.5]
    assert walked[-1][1] == BEST


def test_changes_that_cannot_work_apart_are_made_together() -> None:
    two = timed((("tensor", "micro_batch"), 3.0), (("tensor", "micro_batch", "recompute"), 2.0))
    assert [took for _, _, took in steepest(OWN, BEST, two)] == [3.0, 2.0]
    three = timed((("tensor", "micro_batch", "recompute"), 2.0))
    assert [took for _, _, took in steepest(OWN, BEST, three)] == [2.0]


def test_a_choice_that_nothing_depends_on_is_no_change() -> None:
    same = {**OWN, "overlap_ep": True, "context_kind": "all-gather"}
    assert list(steepest(OWN, same, lambda setting: 1.0)) == []


@pytest.mark.parametrize(
    ("arch", "own", "best"),
    [
        (DENSE, job(tensor=2, recompute="full"), job(tensor=1, micro_batch=2, zero=2)),
        (DENSE, job(pipeline=4, tensor=2), job(pipeline=2, virtual_pipeline=2, tensor=4)),
        (MOE, job(expert=4, tensor=2, sequence_parallel=True), job(expert=8, expert_tensor=1, zero=0)),
    ],
)  # fmt: skip
def test_every_stride_is_a_step_that_the_training_room_predicts(arch, own, best) -> None:
    where = machine(2)
    strides = walk(own, setting_of(own), setting_of(best), arch, where, Pricer(own, arch, where))
    here = setting_of(own)
    for stride in strides:
        assert stride.before == here
        left, taken = changed(here, setting_of(best)), changed(here, stride.after)
        assert set(taken) <= set(left)
        assert stride.seconds == pytest.approx(of(own, stride.after, arch), rel=1e-9)
        if len(taken) == 1:
            singles = [of(own, {**here, axis: setting_of(best)[axis]}, arch) for axis in left]
            assert stride.seconds == pytest.approx(min(singles), rel=1e-9)
        here = stride.after
    assert strides[-1].seconds == pytest.approx(simulate(best, arch, where).step_time, rel=1e-9)


def of(own, setting, arch) -> float:
    try:
        return simulate(apply(own, setting), arch, machine(2), must_fit=False).step_time
    except PlanError:
        return inf


def test_the_sentence_says_what_every_change_saves_or_costs_and_where_memory_runs_out() -> None:
    own, best = job(tensor=2, recompute="full"), job(tensor=1, micro_batch=2, zero=2)
    one, other = (Candidate(setting_of(j), j, simulate(j, DENSE, machine(2)), 0.0, 0.0) for j in (own, best))
    a = setting_of(own)
    b, c = {**a, "recompute": "none"}, {**a, "recompute": "none", "zero": 2}
    strides = [Stride(a, b, one.time - 0.2, False), Stride(b, c, one.time - 0.1, True)]
    (sentence,) = [w for w in explain(one, "", other, 80e9, strides) if w.startswith("One change at a time")]
    first, last = (show_time(one.time - less) for less in (0.2, 0.1))
    assert f"recompute full -> none saves 200 ms ({first}), which does not fit;" in sentence
    assert sentence.endswith(f"zero 1 -> 2 costs 100 ms ({last}), which fits again.")
    many = [Stride(a, b, one.time - 0.01 * n, True) for n in range(1, 10)]
    (sentence,) = [w for w in explain(one, "", other, 80e9, many) if w.startswith("One change at a time")]
    assert sentence.endswith(f"what is left (3 changes) saves 30 ms ({show_time(one.time - 0.09)}).")


def test_a_search_walks_from_the_job_to_what_it_found() -> None:
    axes: dict[str, tuple[object, ...]] = {
        "tensor": (1, 2),
        "pipeline": (1,),
        "context": (1,),
        "micro_batch": (1, 2),
        "zero": (1,),
        "recompute": ("none", "full"),
        "placement": ("packed",),
        "schedule": ("auto",),
        "overlap_dp": (True,),
    }
    found = search(job(tensor=2, recompute="full"), DENSE, machine(2), Space(axes))
    (sentence,) = [w for w in found.words if w.startswith("One change at a time")]
    assert found.own is not None
    changes = told(found.own.setting, found.best[0].setting).split(", ")
    assert len(changes) > 1
    assert all(change in sentence for change in changes)
    assert sentence.endswith(f"({show_time(found.best[0].time)}).")


def test_what_does_not_count_comes_from_the_best_one() -> None:
    """Layers that nobody computes again would count, and be refused, under full recomputation alone."""
    own, best = {**OWN, "recompute": "none", "recompute_layers": 99}, {**OWN, "recompute": "full"}

    def seconds(setting):
        return 2.0 if setting["recompute_layers"] is None else inf

    ((before, after, took),) = steepest(own, best, seconds)
    assert before == own
    assert after == best
    assert took == 2.0


def test_a_schedule_of_stages_that_are_gone_goes_with_them() -> None:
    """zero 3 is refused beside ZB-H1, which one stage has no use for."""
    own = job(pipeline=4, schedule="zb-h1")
    best, where = job(pipeline=1, zero=3), machine(2)
    strides = walk(own, setting_of(own), setting_of(best), DENSE, where, Pricer(own, DENSE, where))
    assert all(stride.seconds < inf for stride in strides)
    assert strides[-1].after == setting_of(best)
    assert strides[-1].seconds == pytest.approx(simulate(best, DENSE, where).step_time, rel=1e-9)


def test_a_schedule_of_stages_comes_behind_the_stages() -> None:
    """Whatever it would bring before there are any."""
    own, best = OWN, {**OWN, "pipeline": 4, "schedule": "zb-h1", "tensor": 4}

    def seconds(setting):
        return 5.0 - (setting["schedule"] == "zb-h1") - 0.5 * (setting["tensor"] == 4)

    walked = [changed(before, after) for before, after, _ in steepest(own, best, seconds)]
    assert walked.index(("pipeline",)) < walked.index(("schedule",))
