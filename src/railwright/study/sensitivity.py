"""What one changed assumption does to the first job, and to what PXN is worth."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.spec import override
from railwright.spec.study import Study, Variant
from railwright.study.evaluate import Workshop, run_job
from railwright.study.result import JobResult, SensitivityRow, VariantResult


def sensitivity_row(
    study: Study, variant: Variant, base: VariantResult, workshop: Workshop
) -> SensitivityRow:
    """The first job with the variant's changes: step time, throughput against `base`, PXN's worth."""
    if not study.jobs:
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
    return SensitivityRow(variant.name, variant.why, job.step.step_time, effect, pxn_gain(changed, workshop))


def pxn_gain(study: Study, workshop: Workshop) -> float | None:
    """Throughput of the first job with PXN over without, minus 1; None where it is not defined."""
    if study.cluster.compute.family not in ("rail-optimised", "rail-only"):
        return None
    off = first_job(override(study, {"nccl.pxn": False}), workshop).step
    on = first_job(override(study, {"nccl.pxn": True}), workshop).step
    if on is None or off is None:
        return None
    return on.tokens_per_second / off.tokens_per_second - 1


def first_job(study: Study, workshop: Workshop) -> JobResult:
    """The first job of a study on its own machine."""
    try:
        machine = workshop.machine(study)
    except PlanError as no:
        return JobResult(study.jobs[0].name, None, str(no))
    return run_job(study.jobs[0], machine)
