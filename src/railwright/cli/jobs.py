"""The training job that a command is about."""

from __future__ import annotations

from typing import TYPE_CHECKING

from railwright.errors import RailwrightError, nearest

if TYPE_CHECKING:
    from railwright.spec import Study
    from railwright.spec.training import TrainingJob


INSTEAD = {
    "a recommendation job": "`railwright run` predicts its step: what its samples take in time and GPU hours "
    "is in result.json, and where the study has no other job its timeline in trace.json (Perfetto)",
    "a serving job": "`railwright serve` predicts it",
}
"""Kind of a job that is none of a transformer's training -> what can be had of it."""


def training_job(study: Study, name: str | None, purpose: str) -> TrainingJob:
    """The job of that name; without one the study's first.

    purpose  what the command makes, in words ('a trace')
    Raises RailwrightError where there is none, which says what a job of that name, or the study's first, is
    instead, and what can be had of it; it begins with that job's name, which is where it is placed.
    """
    others = {one.name: "a recommendation job" for one in study.recommendations}
    others |= {one.name: "a serving job" for one in study.serving if one.name not in others}
    jobs = {one.name: one for one in study.jobs}
    if name in jobs:
        return jobs[name]
    asked = name if name is not None or jobs else next(iter(others), None)
    if asked in others:
        kind = others[asked]
        raise RailwrightError(
            f"{asked}: this is {kind}, and {purpose} is of one that trains a transformer ('jobs:'); "
            f"{INSTEAD[kind]}."
        )
    if not jobs:
        raise RailwrightError(f"'{study.name}' has no training job; {purpose} is of one ('jobs:')")
    if name is not None:
        hint = nearest(name, (*jobs, *others)) or f"; its jobs are {', '.join(jobs)}"
        raise RailwrightError(f"'{study.name}' has no job '{name}'{hint}")
    return study.jobs[0]
