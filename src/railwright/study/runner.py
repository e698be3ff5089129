"""A study from question to result: the study as written, its variants, its sensitivity, the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import railwright
from railwright.errors import PlanError
from railwright.spec import override, spec_hash
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.study import Study
from railwright.spec.training import TrainingJob
from railwright.study.answer import answer
from railwright.study.assumptions import assumptions
from railwright.study.bottleneck import savings, what_holds
from railwright.study.choosing import recommended
from railwright.study.evaluate import (
    Workshop,
    evaluate,
    with_repeats,
    with_reserved,
    with_storage,
    with_timeline,
)
from railwright.study.launches import with_launches
from railwright.study.networks import network_doubts
from railwright.study.published import published_effects
from railwright.study.result import JobResult, Result, Rooms, SensitivityRow, VariantResult
from railwright.study.rooms import rooms
from railwright.study.sensitivity import sensitivity_row, what_if_rows
from railwright.study.together import on_variants
from railwright.study.warned import said_once
from railwright.training.whatif.changes import FREE_LAUNCHES

Progress = Callable[[str, float], None]

MODELS_USED = (
    "fabric: port-exact generators (docs/fabric.md)",
    "network: max-min fluid (docs/network.md)",
    "collectives: NCCL tuner choice, fabric bandwidth, pipeline ramp (docs/collectives.md)",
    "compute: per-GPU kernel fits (docs/compute.md)",
    "training: event-driven step timeline (docs/training.md)",
)


def run(study: Study, progress: Progress | None = None, *, what_if: bool = True) -> Result:
    """Answer a study.

    progress  called with what is being worked on and the fraction done, 0..1
    what_if   simulate the first job again under the changes of `training.whatif`

    Raises PlanError when the study as written is impossible; an impossible variant is part of the result.
    """
    started = time.perf_counter()
    workshop = Workshop.of(study)
    workshop.machine(study)  # raises; a variant that cannot be built is told in the result
    tell = _Teller(progress, 1 + len(study.variants) + len(study.sensitivity) + what_if)
    studies, variants = _evaluated(study, workshop, tell)
    tell("what sets the length of a step")
    chosen = recommended(studies, variants)
    rows = _sensitivity(study, variants[0], workshop, tell)
    tell("what if: network, overlap, memory, compute")
    asked = what_if_rows(studies[chosen], variants[chosen], workshop, every=what_if)
    variants = _with_words(studies, variants, chosen, asked, workshop)
    variants[chosen], held_back = _held_back(variants[chosen], asked)
    tell.done += what_if
    design = studies[chosen]
    beside = _rooms(design, variants[chosen].name if chosen else "", workshop, tell)
    warned = [(v.name, job.name, job.step.warnings) for v in variants for job in v.jobs if job.step]
    shared = on_variants(studies, [v.name for v in variants], workshop)
    tell("writing the answer")
    return Result(
        study=study,
        version=railwright.__version__,
        spec_hash=spec_hash(study),
        models_used=MODELS_USED,
        answer=answer(studies, variants, rows, asked, beside.serving),
        variants=tuple(variants),
        sensitivity=tuple(rows),
        published=published_effects(study, workshop),
        assumptions=assumptions(design, workshop),
        warnings=(*network_doubts(study), *said_once(warned), *shared),
        seconds=time.perf_counter() - started,
        what_ifs=asked if what_if else (),
        recommended=chosen,
        bottleneck=held_back,
        rooms=beside,
    )


class _Teller:
    """Says what is being worked on, and which fraction of the parts is done."""

    def __init__(self, progress: Progress | None, parts: int) -> None:
        self.progress, self.parts, self.done = progress, parts, 0

    def __call__(self, what: str) -> None:
        if self.progress is not None:
            self.progress(what, self.done / self.parts)


def _evaluated(study: Study, workshop: Workshop, tell: _Teller) -> tuple[list[Study], list[VariantResult]]:
    """The study as written and its variants, each with its result.

    Raises PlanError where a job cannot run in the study as written.
    """
    base = evaluate(study, study.as_written, "the study as written", workshop, tell)
    failed = next((job for job in base.jobs if job.step is None), None)
    if failed is not None:
        raise PlanError(f"{failed.name}: {failed.infeasible}")
    studies, variants = [study], [replace(base, jobs=_looked_into(study, base, workshop))]
    tell.done = 1
    for variant in study.variants:
        studies.append(override(study, variant.set))
        found = evaluate(studies[-1], variant.name, variant.why, workshop, tell)
        variants.append(replace(found, jobs=_looked_into(studies[-1], found, workshop)))
        tell.done += 1
    return studies, variants


def _sensitivity(
    study: Study, base: VariantResult, workshop: Workshop, tell: _Teller
) -> list[SensitivityRow]:
    """The study with one thing changed at a time, the largest effect first."""
    rows = []
    for variant in study.sensitivity:
        tell(f"what if: {variant.name}")
        rows.append(sensitivity_row(study, variant, base, workshop))
        tell.done += 1
    return sorted(rows, key=lambda row: -abs(row.effect or 0.0))


def _with_words(
    studies: Sequence[Study], variants: Sequence[VariantResult], chosen: int,
    asked: Sequence[SensitivityRow], workshop: Workshop,
) -> list[VariantResult]:  # fmt: skip
    """All variants with what is to be said of their jobs; of the chosen one the report says more."""

    def jobs(i: int) -> tuple[JobResult, ...]:
        if i == chosen:
            return _told_of(studies[i], variants[i], asked, workshop)
        return _launched(studies[i], variants[i], workshop)

    return [replace(variant, jobs=jobs(i)) for i, variant in enumerate(variants)]


def _rooms(design: Study, variant: str, workshop: Workshop, tell: Callable[[str], None]) -> Rooms:
    """The rooms of the recommended design. Raises PlanError for one that cannot work, naming its variant."""
    try:
        return rooms(design, workshop, tell)
    except PlanError as error:
        if not variant:
            raise
        raise PlanError(f"variant '{variant}', which trains fastest: {error}", error.field) from None


def _looked_into(study: Study, variant: VariantResult, workshop: Workshop) -> tuple[JobResult, ...]:
    """The jobs of a variant with what their allocators hold and whether storage keeps up."""
    if all(job.step is None for job in variant.jobs):
        return variant.jobs
    machine = workshop.machine(study)
    found = []
    for job, asked in zip(variant.jobs, _wanted(study), strict=True):
        trained = asked if isinstance(asked, TrainingJob) else None
        told = with_reserved(job, trained, machine, workshop)
        found.append(with_storage(told, asked, study, workshop.catalog, machine.network.fabric))
    return tuple(found)


def _told_of(
    study: Study, variant: VariantResult, rows: Sequence[SensitivityRow], workshop: Workshop
) -> tuple[JobResult, ...]:
    """The jobs of the variant that the report is about, with their timelines and critical paths, and warnings
    where the host's launches decide and where recomputation saves nothing.

    rows  what-ifs of the first job there, which tell its step without launches
    """
    machine = workshop.machine(study)
    free = next((row.step_time for row in rows if row.name == FREE_LAUNCHES), None)
    found = []
    for nth, (job, asked) in enumerate(zip(variant.jobs, _wanted(study), strict=True)):
        trained = asked if isinstance(asked, TrainingJob) else None
        warned = with_repeats(with_launches(job, trained, machine, None if nth else free), trained, machine)
        found.append(with_timeline(warned, trained, machine))
    return tuple(found)


def _launched(study: Study, variant: VariantResult, workshop: Workshop) -> tuple[JobResult, ...]:
    """The jobs of a variant that another beats, with warnings where the host's launches decide: so they then
    do whether it is beaten."""
    if all(job.step is None for job in variant.jobs):
        return variant.jobs
    machine = workshop.machine(study)
    return tuple(
        with_launches(job, asked if isinstance(asked, TrainingJob) else None, machine)
        for job, asked in zip(variant.jobs, _wanted(study), strict=True)
    )


def _wanted(study: Study) -> list[TrainingJob | RecommendationJob]:
    """What was asked for each job's result; recommendation jobs come last."""
    return [*study.jobs, *study.recommendations]


def _held_back(variant: VariantResult, asked: Sequence[SensitivityRow]) -> tuple[VariantResult, str]:
    """A variant whose first job knows what is worth how much of its step; and what holds that job back."""
    if not variant.jobs or variant.jobs[0].step is None:
        return variant, ""
    first, *others = variant.jobs
    assert first.step is not None
    saved = savings(first.step, asked, variant.fabric)
    told = {"compute": saved.compute, "launches": saved.launches, "communication": saved.communication}
    return replace(variant, jobs=(replace(first, worth=tuple(told.items())), *others)), what_holds(saved)
