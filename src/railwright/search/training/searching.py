"""The search of a training job's layouts: what was found, beside the job's own, and why it is better."""

from __future__ import annotations

import time
from typing import Literal

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.reach import together
from railwright.search.space.axes import Space
from railwright.search.training.branch import Progress, Run
from railwright.search.training.claims import spreading
from railwright.search.training.explain import explain, loading
from railwright.search.training.frameworks import Framework, framework_named, runs_nothing
from railwright.search.training.front import left_out, unbeaten
from railwright.search.training.hints import untold
from railwright.search.training.leaner import untried
from railwright.search.training.result import Candidate, Effort, SearchResult
from railwright.search.training.software import best_lacks, own_lacks, priced, spread_lacks
from railwright.search.training.stopped import none_is_carried, none_is_held
from railwright.search.training.walk import walk
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import data_parallel
from railwright.training.software.formats import job_peak

Objective = Literal["time", "memory"]

LEANER = 0.85
"""Memory of a point of the front over that of the one before, at most."""


def search(
    job: TrainingJob,
    arch: Transformer,
    machine: Machine,
    space: Space | None = None,
    *,
    top: int = 10,
    objective: Objective = "time",
    steps: int = 3,
    framework: str | None = None,
    progress: Progress | None = None,
) -> SearchResult:
    """The best layouts of a job's model on a machine.

    space      which layouts; default: `Space()`, every divisor and every choice
    top        how many layouts to list
    objective  'time': fastest; 'memory': fastest of those that need least
    steps      how many leaner points the front is followed by: each the fastest layout that needs at most
               85 % of the memory of the one before
    framework  of `frameworks.FRAMEWORKS`: only layouts that it runs, priced with its software
    progress   called with what is being done and the fraction done, 0..1

    Raises PlanError where no layout can work, saying which constraints stop them, or the framework runs none,
    and RailwrightError for a framework that is not known.
    """
    started = time.perf_counter()
    only = framework_named(framework) if framework else None
    asked, space = job, space or Space()
    if only:
        if nothing := runs_nothing(only, job, arch):
            raise PlanError(nothing)
        job, space = only.job(job), only.space(space)
    job_peak(machine.gpu, job.dtype)  # raises
    run = Run(job, arch, machine, space, progress or (lambda what, done: None), only)
    run.screen()
    screening = time.perf_counter() - started
    first, proof, capacity = run.fastest(top) if objective == "time" else run.leanest(top)
    if not first:
        raise PlanError(_none(run, job, arch, space))
    overfull = left_out(run.overfull.values(), first, top)
    _time_leaner(run, min(first[0].memory, capacity), steps)
    best = tuple(run.simulated(one) for one in first)
    front = tuple(run.simulated(one) for one in unbeaten(run.exact.values(), run.sent, run.holds))
    own, refused = run.own()
    strides = walk(job, own.setting, best[0].setting, arch, machine, run.pricer) if own else ()
    effort = _effort(run, len(overfull), screening, time.perf_counter() - started)
    told = priced(best[0], asked, only, arch, machine, run.pricer.predict) if only else ""
    words = (
        *filter(None, (told,)),
        *(spread_lacks(run.blocks, run.memory, only, job, arch) if only else ()),
        *explain(own, refused, best[0], machine.gpu.hbm_bytes, strides, objective == "memory"),
        *spreading(own, best[0], arch),
        *loading(best[0], arch, machine),
        *untold(best[0], arch, space, machine.network.fabric, lean=objective == "memory"),
        *_lacks(own, best[0], only, arch, machine),
    )
    return SearchResult(
        objective=objective,
        best=best,
        front=front,
        proof=proof,
        overfull=tuple(run.simulated(one) for one in overfull[:top]),
        own=own,
        own_refused=refused,
        words=words,
        refused=(*run.refused, *together(run.apart)),
        effort=effort,
        priced=told,
    )


def _effort(run: Run, overfull: int, screening: float, seconds: float) -> Effort:
    """What the search took."""
    return Effort(
        layouts=run.layouts,
        fitting=run.fitting,
        classes=run.pricer.passes,
        collectives=run.pricer.asked,
        refined=run.refined,
        evaluated=len(run.exact),
        overfull=overfull,
        screening=screening,
        seconds=seconds,
    )


def _none(run: Run, job: TrainingJob, arch: Transformer, space: Space) -> str:
    """Why no layout can run: the network connects none, or no GPU holds one."""
    if run.apart and run.allocations.least_missing() is None:
        return none_is_carried(job, together(run.apart)[0])
    return none_is_held(job, run.allocations, untried(space, job, arch, run.fabric))


def _time_leaner(run: Run, most: float, steps: int) -> None:
    """Time the fastest layouts of ever less memory, for the front.

    most  memory of the best one, or all that there is [byte]
    """
    for step in range(steps):
        run.tell(f"the front, {step + 1} of {steps}", 0.9)
        leaner, _, _ = run.fastest(1, LEANER * most)
        if not leaner:
            break
        most = leaner[0].memory


def _lacks(
    own: Candidate | None, best: Candidate, only: Framework | None, arch: Transformer, machine: Machine
) -> tuple[str, ...]:
    """What the framework lacks of the layout as written; without one, what frameworks lack of the best."""
    if only:
        return own_lacks(own, only, arch, machine)
    return best_lacks(best, arch, data_parallel(best.job, machine.network.fabric))
