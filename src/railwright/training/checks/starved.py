"""Whether a pipeline has so few microbatches that its stages wait for longer than they compute."""

from __future__ import annotations

from functools import lru_cache

from railwright.spec.training import TrainingJob
from railwright.training.layout.pipeline import compose
from railwright.training.layout.route import Kind, Unit
from railwright.training.layout.schedule import order_name, route_under, schedule, schedule_name

LASTS: dict[Kind, int] = {"F": 1, "B": 2, "I": 1, "W": 1}
"""Length of a pass: two products behind each of a forward pass, one for either gradient."""

MOST_IDLE = 0.5
"""Idle share from which stages wait for as long as they compute, or longer.

1F1B and GPipe reach it where there are fewer microbatches than stages, (p-1)/(m+p-1) >= 1/2; schedules made
for a small bubble with fewer still, interleaved ones never: they take a multiple of the stages.
"""


def of_stages(job: TrainingJob, count: int) -> list[str]:
    """A sentence where stages stand idle for half of the time of a step's passes or more.

    count  microbatches of a replica
    """
    stages = job.layout.pipeline
    if count >= stages:
        return []
    again = job.layout.recompute == "full" and job.layout.recompute_layers is None
    name = schedule_name(job.layout)
    idle = idle_share(name, order_name(job), stages, job.layout.virtual_pipeline, count, again)
    if idle < MOST_IDLE:
        return []
    several = "microbatch" if count == 1 else "microbatches"
    smaller = "lower micro_batch, " if job.micro_batch > 1 else ""
    return [
        f"{count} {several} for {stages} pipeline stages leave{'s' if count == 1 else ''} the stages idle "
        f"{100 * idle:.0f} % of the time of a step's passes; raise global_batch ({stages} microbatches: "
        f"{job.global_batch * stages // count}), {smaller}or use fewer stages."
    ]


@lru_cache(maxsize=1024)
def idle_share(name: str, order: str, stages: int, virtual: int, count: int, again: bool = False) -> float:
    """Share of the time of a step's passes in which stages wait for each other, their mean.

    name, order  the schedule, and the one in whose order passes run (`schedule.order_name`)
    again        backward passes compute their forward pass again

    Stages are alike and sends take no time: 1F1B's is (p-1)/(m+p-1).  Source: Narayanan et al., SC'21 (arXiv
    2104.04473), section 2.2.1; every schedule's own is read off its passes.
    """
    route = route_under(name, stages, virtual)

    def lasts(stage: int, unit: Unit, start: float) -> float:
        return float(sum(LASTS[one.kind] + (again and one.kind in ("B", "I")) for one in unit.passes))

    orders = schedule(stages, route.chunks, count, order)
    placed = compose(orders, route.chunks, count, lasts, 0.0, blocking=False, route=route)
    whole = max(one.end for done in placed for one in done)
    busy = sum(one.end - one.start for done in placed for one in done)
    return 1 - busy / (stages * whole)
