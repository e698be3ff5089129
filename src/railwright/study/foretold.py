"""The warnings of a study that are known without predicting anything."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.spec import override
from railwright.spec.study import Study
from railwright.spec.training import TrainingJob
from railwright.study.evaluate import Workshop, architecture, recommender
from railwright.study.networks import network_doubts
from railwright.study.together import together
from railwright.study.warned import said_once
from railwright.training.cached import crowded, reserved
from railwright.training.dlrm import foretold_of
from railwright.training.foretold import foretold
from railwright.training.memory import peak_memory
from railwright.training.result import Memory


def foretold_warnings(study: Study, workshop: Workshop) -> tuple[str, ...]:
    """What `run` would warn of, but for what hangs on how long a step takes: waiting for data or storage,
    and launches that decide a step.

    Raises PlanError where a variant is impossible.
    """
    changed = [(variant.name, override(study, variant.set)) for variant in study.variants]
    replayed: list[tuple[TrainingJob, Memory, str]] = []
    warned = [
        (name, job, texts)
        for name, one in ((study.as_written, study), *changed)
        for job, texts in _of(one, workshop, replayed)
    ]
    told = together(study, workshop.machine(study))
    return (*network_doubts(study), *said_once(warned), *told)


def _of(
    study: Study, workshop: Workshop, replayed: list[tuple[TrainingJob, Memory, str]]
) -> Iterator[tuple[str, list[str]]]:
    """The jobs of one variant, each with its warnings.

    replayed  jobs whose allocators are known, with their tensors and the warning or '': a variant of the same
              job with the same tensors is not replayed again
    """
    machine = workshop.machine(study)
    fabric = machine.network.fabric
    for job in study.jobs:
        arch = architecture(job.model)
        texts = list(foretold(job, arch, machine))
        memory = peak_memory(job, arch, fabric, machine.gpu.hbm_bytes)
        told = next((t for one, tensors, t in replayed if one == job and tensors == memory), None)
        if told is None:
            held = reserved(job, arch, fabric, memory)
            told = crowded(held, memory.capacity) if held else ""
            replayed.append((job, memory, told))
        if told:
            texts.append(told)
        yield job.name, texts
    for ranking in study.recommendations:
        yield ranking.name, list(foretold_of(ranking, recommender(ranking.model), machine))
