"""A pipeline with fewer microbatches than keep its stages busy is told, before anything is predicted."""

from __future__ import annotations

from pathlib import Path

import pytest

from railwright.spec import load_study_text, override
from railwright.spec.starters import template, template_names
from railwright.training import simulate
from railwright.training.checks.plan_warnings import plan_warnings
from railwright.training.checks.starved import idle_share, of_stages
from railwright.training.layout.schedule import SCHEDULES
from training_cases import DENSE, changed, job, machine

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.yaml"))


@pytest.mark.parametrize(("stages", "count"), [(2, 1), (8, 4), (8, 7), (16, 16), (4, 32)])
@pytest.mark.parametrize("name", ["1f1b", "gpipe"])
@pytest.mark.parametrize("again", [False, True])
def test_the_closed_form_of_1f1b_and_gpipe(name: str, stages: int, count: int, again: bool) -> None:
    """p - 1 of m + p - 1 passes are bubble, whatever a backward pass computes again."""
    idle = idle_share(name, name, stages, 1, count, again)
    assert idle == pytest.approx((stages - 1) / (count + stages - 1))


@pytest.mark.parametrize(("stages", "virtual", "count"), [(4, 2, 4), (8, 5, 16)])
def test_chunks_divide_the_bubble(stages: int, virtual: int, count: int) -> None:
    """(p - 1) / (v m + p - 1)."""
    idle = idle_share("interleaved", "interleaved", stages, virtual, count)
    assert idle == pytest.approx((stages - 1) / (virtual * count + stages - 1))


def test_weight_gradients_fill_a_third_of_it() -> None:
    """ZB-H1: (p - 1)(F + B - 2 W) = p - 1 beside 3 m of work."""
    assert idle_share("zb-h1", "zb-h1", 4, 1, 16) == pytest.approx(3 / (3 * 16 + 3))


def test_as_long_idle_as_at_work_is_the_bar() -> None:
    """Of 1F1B that is fewer microbatches than stages: 4 for 8 leave 7 of 11 passes idle, 64 %."""
    (told,) = of_stages(job(gpus=8, batch=4, pipeline=8), 4)
    assert told == (
        "4 microbatches for 8 pipeline stages leave the stages idle 64 % of the time of a step's passes; "
        "raise global_batch (8 microbatches: 8), or use fewer stages."
    )
    (told,) = of_stages(changed(job(gpus=4, batch=2, pipeline=4), micro_batch=2), 1)
    assert told.startswith("1 microbatch for 4 pipeline stages leaves the stages idle 75 %")
    assert "(4 microbatches: 8), lower micro_batch, or use fewer stages." in told
    assert of_stages(job(gpus=8, batch=7, pipeline=8), 7)
    assert not of_stages(job(gpus=8, batch=8, pipeline=8), 8)
    assert not of_stages(job(gpus=8, batch=1), 1)


def test_schedules_with_small_bubbles_may_have_fewer() -> None:
    """ZB-H1 waits for as long as it computes where 3 m = p - 1."""
    assert not of_stages(job(gpus=8, batch=4, pipeline=8, schedule="zb-h1"), 4)
    assert of_stages(job(gpus=8, batch=2, pipeline=8, schedule="zb-h1"), 2)


@pytest.mark.parametrize("name", [name for name in SCHEDULES if name != "paired"])
def test_every_schedule_is_busy_with_as_many_microbatches_as_it_is_run_with(name: str) -> None:
    virtual = 2 if name == "interleaved" else 1
    assert idle_share(name, name, 4, virtual, 8) < 0.5


def test_the_step_waits_for_about_as_long() -> None:
    """What is told is the schedule's; the step's bubble is of unequal stages, beside sends and gradients."""
    asked = job(gpus=8, batch=2, pipeline=4)
    step = simulate(asked, DENSE, machine(1))
    told = [w for w in step.warnings if "microbatch for 4 pipeline stages leaves the stages idle 75 %" in w]
    assert len(told) == 1
    assert set(told) <= set(plan_warnings(asked, DENSE, machine(1)))
    bubble = next(s.exposed for s in step.shares if s.kind == "bubble")
    assert bubble / step.step_time == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize(
    "text",
    [pytest.param(template(name), id=name) for name in template_names()]
    + [pytest.param(path.read_text(encoding="utf-8"), id=path.stem) for path in EXAMPLES],
)
def test_nothing_that_is_shipped_starves(text: str) -> None:
    study = load_study_text(text, "shipped.yaml")
    for one in (study, *(override(study, variant.set) for variant in study.variants)):
        for asked in one.jobs:
            layout = asked.layout
            gpus = asked.gpus or one.cluster.servers * 8
            data = gpus // (layout.tensor * layout.pipeline * layout.context)
            assert not of_stages(asked, asked.global_batch // (data * asked.micro_batch))
