"""The rooms beside training: serving, failures, the site and money, each where the study has its section."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from railwright.catalog import find
from railwright.cost.priced import Priced, Served, TrainingRun
from railwright.errors import PlanError
from railwright.fabric import build_networks
from railwright.fabric.graph import Fabric
from railwright.model import count_parameters, load_model
from railwright.reliability import Goodput
from railwright.serving.result import ServingResult
from railwright.site import SitePlan
from railwright.spec.money import Money
from railwright.spec.study import Study
from railwright.study.evaluate import Workshop
from railwright.study.result import Rooms

if TYPE_CHECKING:
    from railwright.site.standing import Standing

REGIONS = ("texas", "iceland")
"""Beside the study's own, for comparison of carbon."""


def rooms(study: Study, workshop: Workshop, tell: Callable[[str], None] = lambda what: None) -> Rooms:
    """Every room the study asks for. Raises PlanError for one that cannot work, naming it or its job."""
    serving = served(study, workshop, tell) if study.serving else ()
    failing = None
    if study.reliability is not None:
        tell("failures and recovery")
        failing = _named("reliability", lambda: goodput(study, workshop))
    place = None
    if study.site is not None:
        tell("racks, power and cables")
        place = _named("site", lambda: site(study, workshop))
    priced = None
    if study.money is not None:
        tell("prices")
        priced = _named("money", lambda: money(study, workshop, failing, serving))
    return Rooms(serving, failing, place, priced)


def _named(room: str, work: Callable[[], Any]) -> Any:
    try:
        return work()
    except PlanError as error:
        text = str(error)
        raise PlanError(
            text if error.field or text.startswith(room) else f"{room}: {text}", error.field
        ) from None


def served(study: Study, workshop: Workshop, tell: Callable[[str], None]) -> tuple[ServingResult, ...]:
    """Every serving job on the study's machine."""
    from railwright.serving.predict import serve

    found = []
    for job in study.serving:
        tell(f"serving '{job.name}'")
        found.append(serve(job, load_model(job.model), workshop.machine(study)))
    return tuple(found)


def goodput(study: Study, workshop: Workshop) -> Goodput:
    """What failures cost the first training job."""
    from railwright.reliability import goodput as ask

    return ask(study, workshop.machine(study), workshop.catalog)


def site(study: Study, workshop: Workshop) -> SitePlan:
    """The room the cluster stands in."""
    from railwright.site import plan_site

    return plan_site(study, workshop.catalog, networks(study, workshop), checkpoint(study))


def networks(study: Study, workshop: Workshop) -> dict[str, Fabric]:
    """The compute network and those beside it."""
    return build_networks(study.cluster, workshop.catalog)


def checkpoint(study: Study) -> float | None:
    """Size of a checkpoint of the first job: parameters, optimizer; None where nobody asks. [byte]"""
    if study.site is None or study.site.storage is None or study.site.storage.checkpoint is not None:
        return None
    if not study.jobs:
        return None
    from railwright.site.loading import constant

    return count_parameters(load_model(study.jobs[0].model)).total * constant("optimizer_bytes")


def money(
    study: Study,
    workshop: Workshop,
    failing: Goodput | None = None,
    serving: tuple[ServingResult, ...] = (),
    regions: tuple[str, ...] = REGIONS,
) -> Priced:
    """Every way of having the GPUs, and what the study's runs and tokens cost in each.

    A study without a section `money` is reckoned with that section's defaults.
    failing  what failures take of the first job; None: nothing fails
    """
    from railwright.cost import Case, compare, levels, price_book
    from railwright.cost.quantities import quantities, unused
    from railwright.site.standing import standing
    from railwright.spec.site import Site
    from railwright.training import simulate
    from railwright.training.layout.sizes import job_gpus

    machine = workshop.machine(study)
    joined = networks(study, workshop)
    server = find(workshop.catalog.servers, study.cluster.server)
    stands = standing(joined.values(), server, workshop.catalog, study.site or Site())
    asked = _in_its_room(study, stands)
    book = price_book(asked.prices)
    bill = quantities(list(joined.items()), workshop.catalog, book, asked.data or 0.0, stands)
    found = compare(Case(bill, levels(asked.use), asked), book, regions)
    runs = []
    for job in study.jobs:
        if failing is not None and failing.job == job.name:
            runs.append(
                TrainingRun(job.name, failing.forecast.gpu_hours[-1], failing.goodput, failing.spares)
            )
            continue
        step = simulate(job, load_model(job.model), machine, most_events=0)
        gpus = job_gpus(job, machine.network.fabric)
        runs.append(TrainingRun(job.name, step.time_to_train * gpus / 3600, 1.0))
    tokens = [Served(s.name, 3600 * s.throughput.lasting / s.gpus) for s in serving]
    return Priced(found, tuple(runs), tuple(tokens), unused(book, workshop.catalog))


def _in_its_room(study: Study, stands: Standing) -> Money:
    """The study's money; what it leaves out of PUE and data is that of the site, where there is one."""
    asked, room = study.money or Money(), study.site
    if room is None:
        return asked
    from railwright.site.storage import capacity

    found: dict[str, float] = {}
    if asked.pue is None:
        found["pue"] = stands.pue(room.cooling)
    need = room.storage
    if asked.data is None and need is not None:
        size = need.checkpoint if need.checkpoint is not None else checkpoint(study)
        found["data"] = capacity(need, size or 0.0)
    return asked.model_copy(update=found)
