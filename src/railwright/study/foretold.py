"""The warnings of a study that are known without predicting anything."""

from __future__ import annotations

from collections.abc import Iterator

from railwright.spec import override
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop, architecture, recommender
from railwright.study.networks import network_doubts
from railwright.study.together import together
from railwright.training.cached import crowded, reserved
from railwright.training.dlrm import foretold_of
from railwright.training.foretold import foretold
from railwright.training.memory import peak_memory


def foretold_warnings(study: Study, workshop: Workshop) -> tuple[str, ...]:
    """What `run` would warn of, but for what hangs on how long a step takes: waiting for data or storage,
    and launches that decide a step.  What PyTorch's allocator holds is of the study as written.

    Raises PlanError where a variant is impossible.
    """
    found = dict.fromkeys(network_doubts(study))
    for one in (study, *(override(study, variant.set) for variant in study.variants)):
        found |= dict.fromkeys(_of(one, workshop, allocator=one is study))
    return (*found, *together(study, workshop.machine(study)))


def _of(study: Study, workshop: Workshop, allocator: bool) -> Iterator[str]:
    """Warnings of one variant's jobs, each behind the job's name."""
    machine = workshop.machine(study)
    fabric = machine.network.fabric
    for job in study.jobs:
        arch = architecture(job.model)
        yield from (f"{job.name}: {text}" for text in foretold(job, arch, machine))
        if allocator:
            memory = peak_memory(job, arch, fabric, machine.gpu.hbm_bytes)
            held = reserved(job, arch, fabric, memory)
            if held is not None and (told := crowded(held, memory.capacity)):
                yield f"{job.name}: {told}"
    for ranking in study.recommendations:
        yield from (
            f"{ranking.name}: {text}" for text in foretold_of(ranking, recommender(ranking.model), machine)
        )
