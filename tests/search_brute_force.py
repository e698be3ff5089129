"""Every layout of a space timed, to compare what the search finds with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.fabric.graph import Fabric
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.bounds.blocks import blocks
from railwright.search.bounds.pricing import Pricer
from railwright.search.space.axes import apply
from railwright.search.space.exact import exact_memory
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.memory.allocator import Requests
from railwright.training.memory.cached import held_of, requests_of
from railwright.training.memory.peak import SYSTEM
from railwright.training.software.eras import era_of
from railwright.training.step.quick import step_seconds
from training_cases import machine

ALONE = 7
"""Every so many layouts one is simulated alone too; no axis has as many values, so all of these take part."""


@dataclass(frozen=True)
class Exact:
    """A layout's own time and memory."""

    time: float
    memory: float
    job: TrainingJob


def compare(
    base: TrainingJob, arch: Transformer, servers: int, space: Space, server: str = "dgx-h100"
) -> list[Exact]:
    """The search's best is the fastest of all, which are returned, and no listed layout beats its bound."""
    one = machine(servers, server=server)
    result = search(base, arch, one, space, top=3, steps=0)
    exact = every_layout(base, arch, one, space)
    best, first = result.best[0], best_of(exact)
    assert (best.time, best.memory) == pytest.approx((first.time, first.memory), rel=1e-9)
    assert result.effort.layouts >= len(exact)
    assert all(c.bound <= c.time for c in result.best)
    return exact


def best_of(found: list[Exact]) -> Exact:
    """The fastest, of equal times the leanest."""
    fastest = min(one.time for one in found)
    return min((one for one in found if one.time <= fastest * (1 + 1e-9)), key=lambda one: one.memory)


def can_hold(one: TrainingJob, arch: Transformer, on: Machine) -> bool:
    """Whether every stage's replay ends within its GPU, with either kind of segments.

    Of software whose segments grow, unused pages go back: what is in tensors has to fit.
    """
    fabric, capacity = on.network.fabric, on.gpu.hbm_bytes
    room = capacity - peak_memory(one, arch, fabric, capacity).parts[SYSTEM]
    stages = [_requests(one, arch, fabric, s) for s in range(one.layout.pipeline)]
    if era_of(one).allocator == "growing":
        return all(held_of(stage, expandable=True).allocated <= room for stage in stages)
    for limit, growing in ((np.inf, True), (room, False)):
        if all(held_of(stage, limit, growing).reserved <= room for stage in stages):
            return True
    return False


@lru_cache(maxsize=1024)
def _requests(one: TrainingJob, arch: Transformer, fabric: Fabric, stage: int) -> Requests:
    """What comes and goes on a GPU, however much it holds."""
    return requests_of(one, arch, fabric, stage)


def every_layout(base: TrainingJob, arch: Transformer, one: Machine, space: Space) -> list[Exact]:
    """Every layout of the space that can run: none is bounded, none left out.

    Layouts that differ in data parallelism alone share the tasks of their passes, placed by compiled code
    (`step_seconds`); one in ALONE is simulated by itself, which must say the same.
    """
    found, _ = blocks(space, base, arch, one.network.fabric)
    pricer, layouts, count = Pricer(base, arch, one), list[Exact](), 0
    for block in found:
        for index in np.ndindex(*block.shape):
            setting = block.at(index)
            wanted = apply(base, setting)
            exact = _timed(wanted, setting, arch, one, pricer)
            if count % ALONE == 0:
                alone = _simulated(wanted, arch, one)
                assert (exact is None) == (alone is None), setting
                if exact and alone:
                    assert (exact.time, exact.memory) == pytest.approx((alone.time, alone.memory), rel=1e-9)
            count += 1
            if exact:
                layouts.append(exact)
    return layouts


def _timed(
    wanted: TrainingJob, setting: dict[str, Any], arch: Transformer, one: Machine, pricer: Pricer
) -> Exact | None:
    memory = exact_memory(wanted, arch, one)
    if memory > one.gpu.hbm_bytes:
        return None
    try:
        prices, book = pricer.prices(wanted), pricer.book(setting)
        seconds = step_seconds(wanted, arch, prices, pricer.kernel, pricer.pace, book)
    except PlanError:
        return None
    return Exact(seconds, memory, wanted)


def _simulated(wanted: TrainingJob, arch: Transformer, one: Machine) -> Exact | None:
    try:
        step = simulate(wanted, arch, one, most_events=0)
    except PlanError:
        return None
    return Exact(step.step_time, step.memory.total, wanted)
