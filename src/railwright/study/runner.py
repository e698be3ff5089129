"""A study from question to result: the study as written, its variants, its sensitivity, the answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import railwright
from railwright.errors import PlanError
from railwright.spec import override, spec_hash
from railwright.spec.recommendation import RecommendationJob
from railwright.spec.study import Study
from railwright.spec.training import TrainingJob
from railwright.study.answer import answer
from railwright.study.assumptions import assumptions
from railwright.study.evaluate import (
    Workshop,
    evaluate,
    with_reserved,
    with_storage,
    with_timeline,
)
from railwright.study.published import published_effects
from railwright.study.result import JobResult, Result, SensitivityRow, VariantResult
from railwright.study.rooms import rooms
from railwright.study.sensitivity import sensitivity_row, what_if_rows
from railwright.study.together import together

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
    total = len(study.variants) + 1 + len(study.sensitivity) + what_if
    done = 0

    def tell(what: str) -> None:
        if progress is not None:
            progress(what, done / total)

    base = evaluate(study, study.as_written, "the study as written", workshop, tell)
    failed = next((job for job in base.jobs if job.step is None), None)
    if failed is not None:
        raise PlanError(f"{failed.name}: {failed.infeasible}")
    tell("what sets the length of a step")
    base = replace(base, jobs=_looked_into(study, base, workshop))
    done = 1
    studies = [study]
    variants: list[VariantResult] = [base]
    for variant in study.variants:
        studies.append(override(study, variant.set))
        variants.append(evaluate(studies[-1], variant.name, variant.why, workshop, tell))
        done += 1
    rows = []
    for variant in study.sensitivity:
        tell(f"what if: {variant.name}")
        rows.append(sensitivity_row(study, variant, base, workshop))
        done += 1
    rows.sort(key=lambda row: -abs(row.effect or 0.0))
    asked: tuple[SensitivityRow, ...] = ()
    if what_if:
        tell("what if: network, overlap, memory, compute")
        asked = what_if_rows(study, base, workshop)
        done += 1
    beside = rooms(study, workshop, tell)
    tell("writing the answer")
    return Result(
        study=study,
        version=railwright.__version__,
        spec_hash=spec_hash(study),
        models_used=MODELS_USED,
        answer=answer(studies, variants, rows),
        variants=tuple(variants),
        sensitivity=tuple(rows),
        published=published_effects(study, workshop),
        assumptions=assumptions(study, workshop),
        warnings=(*_warnings(variants), *together(study, workshop.machine(study))),
        seconds=time.perf_counter() - started,
        what_ifs=asked,
        rooms=beside,
    )


def _looked_into(study: Study, base: VariantResult, workshop: Workshop) -> tuple[JobResult, ...]:
    """The jobs of the study as written with their timelines, critical paths, what their allocators hold and
    whether storage keeps up; recommendation jobs come last."""
    machine = workshop.machine(study)
    wanted: list[TrainingJob | RecommendationJob] = [*study.jobs, *study.recommendations]
    found = []
    for job, asked in zip(base.jobs, wanted, strict=True):
        trained = asked if isinstance(asked, TrainingJob) else None
        told = with_reserved(with_timeline(job, trained, machine), trained, machine)
        found.append(with_storage(told, asked, study, workshop.catalog, machine.network.fabric))
    return tuple(found)


def _warnings(variants: list[VariantResult]) -> tuple[str, ...]:
    """Every distinct warning of every job, in order of appearance, behind the job's name."""
    found: dict[str, None] = {}
    for variant in variants:
        for job in variant.jobs:
            if job.step is not None:
                found |= dict.fromkeys(f"{job.name}: {text}" for text in job.step.warnings)
    return tuple(found)
