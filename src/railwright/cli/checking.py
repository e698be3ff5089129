"""What a study asks for that nobody knows or no machine can do: said before anything is predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from railwright.cli.places import SECTIONS, mistake_at, steps, study_document
from railwright.errors import PlanError, RailwrightError, SpecError

if TYPE_CHECKING:
    from railwright.catalog import Catalog
    from railwright.collectives import Machine
    from railwright.model.shape.architecture import Transformer
    from railwright.spec import Study
    from railwright.spec.recommendation import RecommendationJob
    from railwright.spec.serving import ServingJob
    from railwright.spec.training import TrainingJob
    from railwright.study.evaluate import Workshop

LookUp = tuple[str, Callable[[], object]]
"""A field, and what raises RailwrightError where nobody knows its value."""


def refuse_unknown_names(study: Study, file: str) -> None:
    """Raise SpecError naming every part, model, engine, region or book of rates, of the study or a
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
            if field == "money.use" and inside:
                continue  # a variant holds every field, written or not
            if field == "money.prices" and "sensitivity" in inside:
                continue  # a variant may be the recommended one, which is priced; such a row never is
            try:
                look_up()
            except RailwrightError as error:
                said = str(error).removeprefix(f"{field}: ")
                field = error.field if error.field.startswith(f"{field}.") else field
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
    into their memory, each at its line of the file; and with every variant and row of the sensitivity table
    whose changes make a job or the fabric impossible, at the change; or with the study's own fabric.

    Raises RailwrightError, which the command tells at its line, for what goodput refuses of the section
    `reliability`, where all of these are right.
    """
    from railwright.study.evaluate import Workshop

    workshop = Workshop.of(study)
    document = study_document(file)
    try:
        written = _refused(study, workshop.machine(study))
    except PlanError as error:
        if error.field:
            raise  # told at its own line (cli.places)
        place = ("cluster", "compute", "family")
        raise SpecError([mistake_at(document, file, place, "cluster.compute", str(error))]) from None
    found = [mistake_at(document, file, *refused) for refused in written]
    for kind in ("variants", "sensitivity"):
        for index, changed in enumerate(getattr(study, kind)):
            for refused in _refused_changed(study, changed.set, workshop, kind):
                if refused in written:
                    continue  # the study's own mistake, told once
                path = (kind, index, "set", *_culprit(study, changed.set, workshop, kind, refused))
                field = f"{refused.field} ({kind.removesuffix('s')} '{changed.name}')"
                found.append(mistake_at(document, file, path, field, refused.said))
    if found:
        raise SpecError(found)
    if study.reliability is not None:
        from railwright.reliability import basis_of

        basis_of(study, workshop.machine(study), workshop.catalog)


def sweeps_that_cannot_run(study: Study, workshop: Workshop) -> list[str]:
    """What `run` says of sweeps that a variant's network or NCCL's settings leave no way."""
    from railwright.collectives.machine import may_refuse
    from railwright.spec import override
    from railwright.study.evaluate import curve

    found = []
    variants = [(study.as_written, study), *((v.name, override(study, v.set)) for v in study.variants)]
    for name, one in variants:
        machine = workshop.machine(one)
        for wanted in one.sweeps if may_refuse(machine) else ():
            found += [
                f"{name}: {wanted.op}: {said}"
                for said in _refusal(curve, machine, wanted.op, (wanted.begin,), name)
            ]
    return list(dict.fromkeys(found))


class _Refused(NamedTuple):
    """What cannot work: its place in the study, what a message calls it, and why."""

    path: tuple[str | int, ...]
    field: str
    said: str


def _refused(study: Study, machine: Machine, sections: tuple[str, ...] = SECTIONS) -> list[_Refused]:
    """Jobs of these sections that a machine cannot run."""
    found = []
    for section in sections:
        for index, job in enumerate(getattr(study, section)):
            for error in _CHECKS[section](job, machine):
                said = error.removeprefix(f"{job.name}: ")
                found.append(_Refused((section, index), f"{section}.{job.name}", said))
    return found


def _refused_changed(
    study: Study, changes: Mapping[str, Any], workshop: Workshop, kind: str
) -> list[_Refused]:
    """What cannot work with some fields changed, of what `run` predicts again for variants or sensitivity."""
    from railwright.spec import override

    changed = override(study, changes)
    try:
        machine = workshop.machine(changed)
    except PlanError as error:
        return [_Refused(("cluster", "compute"), "cluster.compute", str(error))]
    if kind == "variants":
        return _refused(changed, machine, ("jobs", "recommendations"))
    first = {"jobs": changed.jobs[:1], "recommendations": () if changed.jobs else changed.recommendations[:1]}
    return _refused(changed.model_copy(update=first), machine, ("jobs", "recommendations"))


def _culprit(
    study: Study, changes: Mapping[str, Any], workshop: Workshop, kind: str, refused: _Refused
) -> tuple[str, ...]:
    """The change that is refused with the same words alone; () where it takes several."""
    for key, value in changes.items():
        try:
            if refused in _refused_changed(study, {key: value}, workshop, kind):
                return (key,)
        except SpecError:
            continue  # takes its value together with another change only
    return ()


def _names(study: Study) -> Iterator[LookUp]:
    """Everything that a study calls by a name."""
    from railwright.catalog import find, load_catalog
    from railwright.model import load_model
    from railwright.model.recommendation.dlrm import load_recommender

    yield "catalog", partial(load_catalog, study.catalog)
    with suppress(RailwrightError):
        yield from _parts(study, load_catalog(study.catalog))
    if study.calibration is not None:
        from railwright.measure.fitting.profile import profile_of

        yield "calibration", partial(profile_of, study)
    for job in study.jobs:
        yield f"jobs.{job.name}.model", partial(load_model, job.model)
    for recommendation in study.recommendations:
        yield f"recommendations.{recommendation.name}.model", partial(load_recommender, recommendation.model)
    for serving in study.serving:
        yield from _served(serving)
    if study.reliability is not None:
        from railwright.reliability import part_rates

        yield "reliability.rates", partial(part_rates, study.reliability.rates)
    if study.money is not None:
        from railwright.cost.carbon import shape
        from railwright.cost.options import check_region
        from railwright.cost.prices import price_book
        from railwright.cost.quantities import check_priced, check_use

        book = price_book(study.money.prices)
        yield "money.region", partial(check_region, book, study.money.region)
        yield "money.use", partial(check_use, study.money.use)
        yield "money.hours", partial(shape, study.money.hours)
        with suppress(RailwrightError):  # told under their own fields
            server = find(load_catalog(study.catalog).servers, study.cluster.server)
            yield "money.prices", partial(check_priced, server, book)
    if study.site is not None:
        from railwright.site.loading import find_part, load_site_parts

        parts, power = load_site_parts(study.site.parts), study.site.power
        yield "site.rack", partial(find_part, parts.racks, study.site.rack, "rack")
        yield "site.power.pdu", partial(find_part, parts.pdus, power.pdu, "PDU")
        if power.busway is not None:
            yield "site.power.busway", partial(find_part, parts.busways, power.busway, "busway")


def _parts(study: Study, catalog: Catalog) -> Iterator[LookUp]:
    from railwright.catalog import find

    compute = study.cluster.compute
    yield "cluster.server", partial(find, catalog.servers, study.cluster.server)
    for field in ("switch", "spine_switch", "core_switch"):
        if (name := getattr(compute, field)) is not None:
            yield f"cluster.compute.{field}", partial(find, catalog.switches, name)


def _served(job: ServingJob) -> Iterator[LookUp]:
    from railwright.model import load_model
    from railwright.serving.engine.profiles import engine_of

    yield f"serving.{job.name}.model", partial(load_model, job.model)
    if job.speculative is not None and job.speculative.draft is not None:
        yield f"serving.{job.name}.speculative.draft", partial(load_model, job.speculative.draft)
    field = f"serving.{job.name}.engine"
    # A refusal of the engine room begins with the job's name.
    yield field, partial(engine_of, job.model_copy(update={"name": field}))


def _refusal(check: Callable[..., object], *arguments: object) -> list[str]:
    """What one check says, where it refuses."""
    try:
        check(*arguments)
    except RailwrightError as error:
        return [str(error)]
    return []


def _check_training(job: TrainingJob, machine: Machine) -> list[str]:
    """Everything wrong with a layout and a number format at once; then, one at a time, what needs all of
    these to be right."""
    from railwright.model import load_model
    from railwright.training.checks.plan import refusals
    from railwright.training.layout.placement import place
    from railwright.training.software.formats import job_peak

    arch, fabric = load_model(job.model), machine.network.fabric
    flawed = list(refusals(job, arch, fabric)) or _refusal(place, job, fabric)
    flawed += _refusal(job_peak, machine.gpu, job.dtype)
    return flawed or _refusal(_check_placed, job, arch, machine)


def _check_placed(job: TrainingJob, arch: Transformer, machine: Machine) -> None:
    from railwright.collectives.machine import may_refuse
    from railwright.training.checks.feed import feed_of
    from railwright.training.checks.fitting import check_memory
    from railwright.training.layout.placement import place
    from railwright.training.memory.host_memory import check_host

    if may_refuse(machine):
        from railwright.training import simulate

        simulate(job, arch, machine, most_events=0)
        return
    fabric = machine.network.fabric
    check_memory(job, arch, fabric, machine.gpu.hbm_bytes, machine.server)
    check_host(job, arch, fabric, machine.server, machine.gpu.hbm_bytes)
    feed_of(job, arch, place(job, fabric))


def _check_serving(job: ServingJob, machine: Machine) -> list[str]:
    from railwright.model import load_model
    from railwright.serving.predict import check_replicas

    return _refusal(check_replicas, job, load_model(job.model), machine)


def _check_recommendation(job: RecommendationJob, machine: Machine) -> list[str]:
    from railwright.model.recommendation.dlrm import load_recommender
    from railwright.training.checks.feed import feed_of_samples
    from railwright.training.recommendation.dlrm import gpus_of, tables_of

    model = load_recommender(job.model)
    refused = _refusal(tables_of, job, model, machine)
    return refused or _refusal(feed_of_samples, job, model, *gpus_of(job, machine.network.fabric))


_CHECKS: dict[str, Callable[[Any, Machine], list[str]]] = {
    "jobs": _check_training,
    "recommendations": _check_recommendation,
    "serving": _check_serving,
}
