"""Steps that are only compared with others are the same steps, without a timeline to draw."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from railwright.spec import load_study
from railwright.spec.training import Overlap
from railwright.study.evaluate import Workshop
from railwright.study.sensitivity import first_job
from railwright.training import simulate
from railwright.training.whatif.changes import what_ifs
from training_cases import DENSE, MOE, job, machine

PLANS = [
    (DENSE, job(tensor=2, pipeline=2, overlap=Overlap(dp=False))),
    (MOE, job(tensor=2, expert=8, sequence_parallel=True, imbalance=1.3)),
]


@pytest.mark.parametrize(("arch", "plan"), PLANS)
def test_what_is_only_compared_has_no_timeline_to_draw(arch, plan) -> None:  # type: ignore[no-untyped-def]
    """A tenth of a run went into events that nobody saw; nothing else of a step hangs on them."""
    drawn = simulate(plan, arch, machine())
    compared = simulate(plan, arch, machine(), most_events=0)
    assert replace(compared, timeline=drawn.timeline) == drawn
    steps = [one.step for one in what_ifs(plan, arch, machine())]
    assert steps
    for step in steps:
        assert step is not None
        assert len(step.timeline.events) < len(drawn.timeline.events) / 2


def test_a_job_that_was_compared_is_drawn_when_asked() -> None:
    study = load_study(Path(__file__).parents[2] / "examples" / "mixtral-240-h100.yaml")
    workshop = Workshop.of(study)
    compared = first_job(study, workshop).step
    drawn = workshop.run(study.jobs[0], study).step
    assert compared is not None
    assert drawn is not None
    assert compared.timeline.coarse is not None
    assert drawn.timeline.coarse is None
    assert compared.step_time == drawn.step_time
    assert first_job(study, workshop).step is drawn  # what is known in detail serves both
