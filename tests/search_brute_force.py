"""Every layout of a space simulated alone, to compare what the search finds with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search import Space, search
from railwright.search.bounds.blocks import blocks
from railwright.search.space.axes import apply
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory, simulate
from railwright.training.memory.cached import cached
from railwright.training.memory.peak import SYSTEM
from training_cases import machine


@dataclass(frozen=True)
class Exact:
    """A layout as simulated alone."""

    time: float
    memory: float
    job: TrainingJob


def compare(
    base: TrainingJob, arch: Transformer, servers: int, space: Space, server: str = "dgx-h100"
) -> None:
    """The search's best is the fastest of all, and no listed layout beats its bound."""
    one = machine(servers, server=server)
    result = search(base, arch, one, space, top=3, steps=0)
    exact = every_layout(base, arch, one, space)
    best, first = result.best[0], best_of(exact)
    assert (best.time, best.memory) == pytest.approx((first.time, first.memory), rel=1e-9)
    assert result.effort.layouts >= len(exact)
    assert all(c.bound <= c.time for c in result.best)


def best_of(found: list[Exact]) -> Exact:
    """The fastest, of equal times the leanest."""
    fastest = min(one.time for one in found)
    return min((one for one in found if one.time <= fastest * (1 + 1e-9)), key=lambda one: one.memory)


def can_hold(one: TrainingJob, arch: Transformer, on: Machine) -> bool:
    """Whether every stage's replay ends within its GPU, with either kind of segments."""
    fabric, capacity = on.network.fabric, on.gpu.hbm_bytes
    room = capacity - peak_memory(one, arch, fabric, capacity).parts[SYSTEM]
    for limit, growing in ((room, False), (np.inf, True)):
        each = [cached(one, arch, fabric, s, limit, growing) for s in range(one.layout.pipeline)]
        if all(stage is not None and stage.reserved <= room for stage in each):
            return True
    return False


def every_layout(base: TrainingJob, arch: Transformer, one: Machine, space: Space) -> list[Exact]:
    """Every layout of the space that can run."""
    found, _ = blocks(space, base, arch, one.network.fabric)
    layouts = []
    for block in found:
        for index in np.ndindex(*block.shape):
            wanted = apply(base, block.at(index))
            try:
                step = simulate(wanted, arch, one, most_events=0)
            except PlanError:
                continue
            layouts.append(Exact(step.step_time, step.memory.total, wanted))
    return layouts
