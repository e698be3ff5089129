"""What one changed assumption does to the first job: those of the study, and those anyone would ask about."""

from __future__ import annotations

from railwright.collectives import Machine
from railwright.errors import PlanError
from railwright.spec import override
from railwright.spec.study import Study, Variant
from railwright.spec.training import TrainingJob
from railwright.study.evaluate import Workshop, architecture, recommender, run_recommendation
from railwright.study.result import JobResult, SensitivityRow, VariantResult
from railwright.traffic.placement import can_relay
from railwright.training import simulate
from railwright.training.lanes.result import StepResult
from railwright.training.layout.schedule import schedule_name
from railwright.training.whatif.changes import FREE, QUESTIONS, WhatIf, share_changes, what_ifs
from railwright.training.whatif.recommendation import QUESTIONS as OF_RECOMMENDERS
from railwright.training.whatif.recommendation import recommendation_what_ifs


def sensitivity_row(
    study: Study, variant: Variant, base: VariantResult, workshop: Workshop
) -> SensitivityRow:
    """The first job with the variant's changes: step time, throughput against `base`, PXN's worth."""
    if not (study.jobs or study.recommendations):
        return SensitivityRow(
            variant.name, variant.why, None, None, None, "the study has no job to measure it on"
        )
    changed = override(study, variant.set)
    job = first_job(changed, workshop)
    if job.step is None:
        return SensitivityRow(variant.name, variant.why, None, None, None, job.infeasible)
    reference = base.jobs[0].step
    assert reference is not None
    effect = job.step.tokens_per_second / reference.tokens_per_second - 1
    return SensitivityRow(
        variant.name,
        variant.why,
        job.step.step_time,
        effect,
        pxn_gain(changed, workshop),
        changes=share_changes(reference, _told_alike(job.step, reference, study, changed, workshop)),
    )


def what_if_rows(
    study: Study, variant: VariantResult, workshop: Workshop, every: bool = True
) -> tuple[SensitivityRow, ...]:
    """The first job on a variant under the changes of `training.whatif`, simulated again.

    study  the variant's
    every  False: under those alone that say what holds the job back (FREE)
    """
    reference = variant.jobs[0].step if variant.jobs else None
    if reference is None:
        return ()
    rows = []
    for asked in _what_ifs(study, workshop.machine(study), reference, every):
        if asked.step is None:
            rows.append(SensitivityRow(asked.name, asked.why, None, None, None, asked.note))
            continue
        effect = asked.step.tokens_per_second / reference.tokens_per_second - 1
        changes = share_changes(reference, asked.step)
        rows.append(
            SensitivityRow(asked.name, asked.why, asked.step.step_time, effect, None, changes=changes)
        )
    return tuple(rows)


def _what_ifs(study: Study, machine: Machine, reference: StepResult, every: bool) -> tuple[WhatIf, ...]:
    """Those of a study's first training job, a recommendation model's where it has no other."""
    if study.jobs:
        job = study.jobs[0]
        of_jobs = [one for one in QUESTIONS if every or one[0] in FREE]
        return what_ifs(job, architecture(job.model), machine, reference.stage, of_jobs)
    first = study.recommendations[0]
    asked = [one for one in OF_RECOMMENDERS if every or one[0] in FREE]
    return recommendation_what_ifs(first, recommender(first.model), machine, asked)


def _told_alike(
    step: StepResult, reference: StepResult, study: Study, changed: Study, workshop: Workshop
) -> StepResult:
    """The step of a changed study's first job, told of the stage that `reference` is told of; as it is where
    the job's stages are others."""
    if not study.jobs:
        return step
    before, job = study.jobs[0], changed.jobs[0]
    if step.stage == reference.stage or job.model != before.model or _stages(job) != _stages(before):
        return step
    return simulate(
        job, architecture(job.model), workshop.machine(changed), stage=reference.stage, most_events=0
    )


def _stages(job: TrainingJob) -> tuple[object, ...]:
    """What says which layers each pipeline stage has."""
    cut = job.layout
    return cut.pipeline, cut.virtual_pipeline, schedule_name(cut), cut.layers_per_stage, cut.ends_as_layers


def pxn_gain(study: Study, workshop: Workshop) -> float | None:
    """Throughput of the first job with PXN over without, minus 1; None where there is none."""
    if study.cluster.compute.family not in ("rail-optimised", "rail-only"):
        return None
    off = first_job(override(study, {"nccl.pxn": False}), workshop).step
    on = first_job(override(study, {"nccl.pxn": True}), workshop).step
    if on is None or off is None or not can_relay(workshop.machine(study).network.fabric):
        return None
    return on.tokens_per_second / off.tokens_per_second - 1


def first_job(study: Study, workshop: Workshop) -> JobResult:
    """The first training job of a study on its own machine, to be compared: its timeline may lack events."""
    name = study.jobs[0].name if study.jobs else study.recommendations[0].name
    try:
        if study.jobs:
            return workshop.run(study.jobs[0], study, drawn=False)
        return run_recommendation(study.recommendations[0], workshop.machine(study))
    except PlanError as no:
        return JobResult(name, None, str(no))
