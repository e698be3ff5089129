"""The warnings of a study that are known without predicting anything."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.spec import override
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop, architecture, recommender
from railwright.study.networks import network_doubts
from railwright.study.together import on_variants
from railwright.study.warned import said_once
from railwright.training.checks.plan_warnings import plan_warnings
from railwright.training.memory.cached import crowded
from railwright.training.memory.peak import peak_memory
from railwright.training.recommendation.dlrm import recommendation_warnings


def foretold_warnings(study: Study, workshop: Workshop) -> tuple[str, ...]:
    """What `run` would warn of, but for what hangs on how long a step takes: waiting for data or storage,
    and launches that decide a step.

    Raises PlanError where a variant is impossible.
    """
    changed = [(variant.name, override(study, variant.set)) for variant in study.variants]
    warned = [
        (name, job, texts)
        for name, one in ((study.as_written, study), *changed)
        for job, texts in _of(one, workshop)
    ]
    every = [(study.as_written, study), *changed]
    told = on_variants([one for _, one in every], [name for name, _ in every], workshop)
    return (*network_doubts(study), *said_once(warned), *told)


def _of(study: Study, workshop: Workshop) -> Iterator[tuple[str, list[str]]]:
    """The jobs of one variant, each with its warnings."""
    machine = workshop.machine(study)
    fabric = machine.network.fabric
    for job in study.jobs:
        arch = architecture(job.model)
        texts = list(plan_warnings(job, arch, machine))
        memory = peak_memory(job, arch, fabric, machine.gpu.hbm_bytes)
        held = workshop.reserved(job, machine, memory)
        if held is not None and (told := crowded(held, memory.capacity)):
            texts.append(told)
        yield job.name, texts
    for ranking in study.recommendations:
        yield ranking.name, list(recommendation_warnings(ranking, recommender(ranking.model), machine))
