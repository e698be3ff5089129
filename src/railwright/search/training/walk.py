"""From a job's own layout to the best one by single changes, each with the step that it leads to.

What one change brings depends on the others: a collective that another has made short is not worth hiding.
So the walk takes, of the changes that are left, always the one that makes the step shortest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations
from math import inf
from typing import Any, NamedTuple

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.pricing import Pricer
from railwright.search.space.axes import apply
from railwright.search.space.changes import NEEDS, changed
from railwright.search.space.exact import exact_memory
from railwright.spec.training import TrainingJob
from railwright.training.checks.plan import check
from railwright.training.step.quick import step_seconds

Setting = Mapping[str, Any]


class Stride(NamedTuple):
    """One change of a walk, or several that cannot work apart.

    before, after  settings around it
    seconds  of the step after it [s]
    fits     whether the layout after it fits its GPUs and hosts
    """

    before: Setting
    after: Setting
    seconds: float
    fits: bool


def walk(
    job: TrainingJob, own: Setting, best: Setting, arch: Transformer, machine: Machine, pricer: Pricer
) -> tuple[Stride, ...]:
    """The strides from one layout of a job to another; layouts on the way may need more memory than a GPU."""
    fabric, hbm = machine.network.fabric, machine.gpu.hbm_bytes

    def seconds(setting: Setting) -> float:
        one = apply(job, setting)
        try:
            check(one, arch, fabric)
            prices = pricer.prices(one)
            return step_seconds(one, arch, prices, pricer.kernel, pricer.pace, pricer.book(setting))
        except PlanError:
            return inf

    def fits(setting: Setting) -> bool:
        return exact_memory(apply(job, setting), arch, machine) <= hbm

    return tuple(Stride(a, b, took, fits(b)) for a, b, took in steepest(own, best, seconds))


def steepest(
    own: Setting, best: Setting, seconds: Callable[[Setting], float]
) -> Iterator[tuple[Setting, Setting, float]]:
    """Settings before and after every change, and what the later one takes [s].

    seconds  of a step; infinite where a layout cannot work: then two changes are made at once, or all
    """
    here = _settled(own, best)
    before = own
    while left := changed(here, best):
        singles = [axis for axis in left if not _early(axis, here, best)] or left
        for some in (combinations(singles, 1), combinations(left, min(2, len(left))), [left]):
            ways = [_settled({**here, **{axis: best[axis] for axis in axes}}, best) for axes in some]
            ways = [way for way in ways if changed(here, way)] or ways
            took, at = min((seconds(way), i) for i, way in enumerate(ways))
            if took < inf:
                break
        yield before, ways[at], took
        before = here = ways[at]


def _early(axis: str, here: Setting, best: Setting) -> bool:
    """Whether a change is of something that another one has still to bring: a schedule of stages, before
    there are any."""
    needed = {**NEEDS, "schedule": "pipeline", "virtual_pipeline": "pipeline"}.get(axis)
    return needed is not None and here[needed] == 1 < best[needed]


def _settled(here: Setting, best: Setting) -> dict[str, Any]:
    """A layout with what does not count between it and the best one as the best one has it, so that nothing
    of it comes to count, or stands in the way, when the rest changes."""
    return {**best, **{axis: here[axis] for axis in changed(here, best)}}
