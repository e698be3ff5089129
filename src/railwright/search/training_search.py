"""The search of a training job's layouts: what was found, beside the job's own, and why it is better."""

from __future__ import annotations

import time
from typing import Literal

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.search.branch import Progress, Run
from railwright.search.explain import explain, loading
from railwright.search.frameworks import framework_named
from railwright.search.front import left_out, unbeaten
from railwright.search.hints import untold
from railwright.search.leaner import untried
from railwright.search.reach import together
from railwright.search.result import Effort, SearchResult
from railwright.search.software import best_lacks, own_lacks, priced, spread_lacks
from railwright.search.space import Space
from railwright.search.stopped import none_is_carried, none_is_held
from railwright.search.walk import walk
from railwright.spec.training import TrainingJob
from railwright.training.formats import job_peak
from railwright.training.sizes import data_parallel

Objective = Literal["time", "memory"]


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

    Raises PlanError where no layout can work, saying which constraint stops most of them, and RailwrightError
    for a framework that is not known.
    """
    started = time.perf_counter()
    only = framework_named(framework) if framework else None
    asked, space = job, space or Space()
    if only:
        job, space = only.job(job), only.space(space)
    job_peak(machine.gpu, job.dtype)  # raises
    run = Run(job, arch, machine, space, progress or (lambda what, done: None), only)
    run.screen()
    screening = time.perf_counter() - started
    first, proof, capacity = run.fastest(top) if objective == "time" else run.leanest(top)
    if not first and run.apart and run.allocations.least_missing() is None:
        raise PlanError(none_is_carried(job, together(run.apart)[0]))
    if not first:
        raise PlanError(none_is_held(job, run.allocations, untried(space, job, arch, run.fabric)))
    overfull = left_out(run.overfull.values(), first, top)
    most = first[0].memory
    for step in range(steps):
        run.tell(f"the front, {step + 1} of {steps}", 0.9)
        leaner, _, _ = run.fastest(1, min(most, capacity) * 0.85)
        if not leaner:
            break
        most = leaner[0].memory
    best = [run.simulated(one) for one in first]
    front = [run.simulated(one) for one in unbeaten(run.exact.values(), run.sent, run.holds)]
    own, refused = run.own()
    strides = walk(job, own.setting, best[0].setting, arch, machine, run.pricer) if own else ()
    effort = Effort(
        run.layouts,
        run.fitting,
        run.pricer.passes,
        run.pricer.asked,
        run.refined,
        len(run.exact),
        len(overfull),
        screening,
        time.perf_counter() - started,
    )
    words = explain(own, refused, best[0], machine.gpu.hbm_bytes, strides, objective == "memory") + loading(
        best[0], arch, machine
    )
    data = data_parallel(best[0].job, machine.network.fabric)
    words += untold(best[0], arch, space, machine.network.fabric, lean=objective == "memory")
    told = priced(best[0], asked, only, arch, machine, run.pricer.predict) if only else ""
    apart = spread_lacks(run.blocks, run.memory, only, job, arch) if only else ()
    said = own_lacks(own, only, arch, machine) if only else best_lacks(best[0], arch, data)
    words = (*filter(None, (told,)), *apart, *words, *said)
    return SearchResult(
        objective,
        tuple(best),
        tuple(front),
        proof,
        tuple(run.simulated(one) for one in overfull[:top]),
        own,
        refused,
        words,
        (*run.refused, *together(run.apart)),
        effort,
        told,
    )
