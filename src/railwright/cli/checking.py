"""What a study asks for that nobody knows or no machine can do: said before anything is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from railwright.cli.places import job_mistake, mistake_at, steps, study_document
from railwright.errors import Mistake, RailwrightError, SpecError

if TYPE_CHECKING:
    from railwright.collectives import Machine
    from railwright.spec import Study
    from railwright.spec.serving import ServingJob
    from railwright.spec.training import TrainingJob

Job = TypeVar("Job")

LookUp = tuple[str, Callable[[], object]]
"""A field, and what raises RailwrightError where nobody knows its value."""


def refuse_unknown_names(study: Study, file: str) -> None:
    """Raise SpecError naming every part, model, engine, era, region or book of rates, of the study or a
    variant, that nobody knows, each at its line of the file."""
    from railwright.spec import override

    unknown: dict[tuple[str, str], tuple[tuple[str | int, ...], str]] = {}
    changed = [
        ((kind, index, "set"), f" (variant '{v.name}')", override(study, v.set))
        for kind in ("variants", "sensitivity")
        for index, v in enumerate(getattr(study, kind))
    ]
    for inside, where, one in [((), "", study), *changed]:
        for field, look_up in _names(one):
            try:
                look_up()
            except RailwrightError as error:
                said = str(error).removeprefix(f"{field}: ")
                # A variant repeats what is wrong with the study itself; once is enough.
                unknown.setdefault((field, said), (inside or steps(study, field), where))
    if unknown:
        document = study_document(file)
        raise SpecError(
            mistake_at(document, file, path, f"{field}{where}", said)
            for (field, said), (path, where) in unknown.items()
        )


def refuse_impossible_layouts(study: Study, file: str) -> None:
    """Raise SpecError with every job that cannot be cut over the study's GPUs as it says, or does not fit
    into their memory, each at its line of the file."""
    from railwright.catalog import load_catalog
    from railwright.collectives import Machine, NcclSettings

    nccl = NcclSettings(**study.nccl.model_dump())
    machine = Machine.of(study.cluster, load_catalog(study.catalog), nccl)
    found = [
        *(_refusal(file, "jobs", _check_training, job, machine) for job in study.jobs),
        *(_refusal(file, "serving", _check_serving, job, machine) for job in study.serving),
    ]
    if any(found):
        raise SpecError(filter(None, found))


def _names(study: Study) -> Iterator[LookUp]:
    """Everything that a study calls by a name."""
    from railwright.catalog import find, load_catalog
    from railwright.model import load_model
    from railwright.model.dlrm import load_recommender
    from railwright.training.eras import known_era

    catalog = load_catalog(study.catalog)
    compute = study.cluster.compute
    yield "cluster.server", partial(find, catalog.servers, study.cluster.server)
    for field in ("switch", "spine_switch", "core_switch"):
        if (name := getattr(compute, field)) is not None:
            yield f"cluster.compute.{field}", partial(find, catalog.switches, name)
    for job in study.jobs:
        yield f"jobs.{job.name}.model", partial(load_model, job.model)
        yield f"jobs.{job.name}.software", partial(known_era, job.software)
    for recommendation in study.recommendations:
        yield f"recommendations.{recommendation.name}.model", partial(load_recommender, recommendation.model)
    for serving in study.serving:
        yield from _served(serving)
    if study.reliability is not None:
        from railwright.reliability import part_rates

        yield "reliability.rates", partial(part_rates, study.reliability.rates)
    if study.money is not None:
        from railwright.cost.options import check_region
        from railwright.cost.prices import price_book

        book = price_book(study.money.prices)
        yield "money.region", partial(check_region, book, study.money.region)
    if study.site is not None:
        from railwright.site.loading import find_part, load_site_parts

        parts, power = load_site_parts(study.site.parts), study.site.power
        yield "site.rack", partial(find_part, parts.racks, study.site.rack, "rack")
        yield "site.power.pdu", partial(find_part, parts.pdus, power.pdu, "PDU")
        if power.busway is not None:
            yield "site.power.busway", partial(find_part, parts.busways, power.busway, "busway")


def _served(job: ServingJob) -> Iterator[LookUp]:
    from railwright.model import load_model
    from railwright.serving.profiles import engine_of

    yield f"serving.{job.name}.model", partial(load_model, job.model)
    if job.speculative is not None and job.speculative.draft is not None:
        yield f"serving.{job.name}.speculative.draft", partial(load_model, job.speculative.draft)
    field = f"serving.{job.name}.engine"
    # A refusal of the engine room begins with the job's name.
    yield field, partial(engine_of, job.model_copy(update={"name": field}))


def _refusal(
    file: str, section: str, check: Callable[[Job, Machine], None], job: Job, machine: Machine
) -> Mistake | None:
    """What is wrong with a job, at its line where that can be found; None where nothing is."""
    try:
        check(job, machine)
    except RailwrightError as error:
        return job_mistake(file, str(error), (section,)) or Mistake(file, 0, 0, "", f"{section}.{error}")
    return None


def _check_training(job: TrainingJob, machine: Machine) -> None:
    from railwright.model import load_model
    from railwright.training.memory import check_memory
    from railwright.training.plan import check

    arch, fabric = load_model(job.model), machine.network.fabric
    check(job, arch, fabric)
    check_memory(job, arch, fabric, machine.gpu.hbm_bytes)


def _check_serving(job: ServingJob, machine: Machine) -> None:
    from railwright.model import load_model
    from railwright.serving.predict import check_replicas

    check_replicas(job, load_model(job.model), machine)
