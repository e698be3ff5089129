"""The training job that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.spec import Study
    from railwright.spec.training import TrainingJob


def training_job(study: Study, name: str | None, purpose: str) -> TrainingJob:
    """The job of that name; without one the study's first.

    purpose  what the command makes, in words ('a trace')
    Raises RailwrightError where there is none, which says what a job of that name is instead.
    """
    others = {one.name: "a recommendation job" for one in study.recommendations}
    others |= {one.name: "a serving job" for one in study.serving}
    jobs = {one.name: one for one in study.jobs}
    if name in jobs:
        return jobs[name]
    if name in others:
        raise RailwrightError(f"'{name}' is {others[name]}; {purpose} is of a training job ('jobs:')")
    if not jobs:
        raise RailwrightError(f"'{study.name}' has no training job; {purpose} is of one ('jobs:')")
    if name is not None:
        hint = nearest(name, (*jobs, *others)) or f"; its jobs are {', '.join(jobs)}"
        raise RailwrightError(f"'{study.name}' has no job '{name}'{hint}")
    return study.jobs[0]
