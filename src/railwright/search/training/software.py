"""Whose software a search predicted, and what frameworks do not run of its layouts, in words."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.search.bounds.laws import Floats32
from railwright.search.space.axes import Block, apply
from railwright.search.training.frameworks import FRAMEWORKS, Framework
from railwright.search.training.result import Candidate
from railwright.spec.dataset import Data
from railwright.spec.training import TrainingJob
from railwright.training import simulate
from railwright.training.layers.communication import Predict
from railwright.training.layout.sizes import data_parallel
from railwright.units import show_time


def priced(
    best: Candidate,
    asked: TrainingJob,
    only: Framework,
    arch: Transformer,
    machine: Machine,
    predict: Predict,
) -> str:
    """That a framework's software was predicted instead of the job's own, with the times of both; '' where it
    is the job's own.

    asked  the job as written
    """
    if best.job.software == asked.software:
        return ""
    words = f"Priced with software {best.job.software}, as {only.title} runs, instead of the job's"
    other = best.job.model_copy(update={"software": asked.software, "data": Data()})
    try:
        step = simulate(other, arch, machine, predict=predict, most_events=1)
    except PlanError:
        return f"{words} {asked.software}."
    return (
        f"{words} {asked.software}: the best layout takes {show_time(best.time)} a step, with the job's own "
        f"{show_time(step.step_time)}."
    )


def own_lacks(own: Candidate | None, only: Framework, arch: Transformer, machine: Machine) -> tuple[str, ...]:
    """What the framework that was searched for does not run of the job as written."""
    lacks = only.lacks(own.job, arch, data_parallel(own.job, machine.network.fabric)) if own else []
    return (f"{only.title} does not run the one as written: {'; '.join(lacks)}.",) if lacks else ()


def spread_lacks(
    blocks: Sequence[Block], memory: Sequence[Floats32], only: Framework, job: TrainingJob, arch: Transformer
) -> tuple[str, ...]:
    """What keeps a framework from all layouts whose experts lie apart, where it runs none of a space's.

    memory  of each block, infinite where the framework does not run a layout [byte]
    """
    spread = [(b, m) for b, m in zip(blocks, memory, strict=True) if b.structure["expert"] > 1]
    if not spread or any(np.isfinite(m).any() for _, m in spread):
        return ()
    firsts = [(apply(job, block.at((0,) * len(block.shape))), block.data) for block, _ in spread]
    lacks = set.intersection(*(set(only.lacks(first, arch, data)) for first, data in firsts))
    if not lacks:
        return ()
    return (
        f"{only.title} runs no layout of this job with expert above 1, for what it lacks: "
        f"{'; '.join(sorted(lacks))}. Of a job that does without, the search tries them too.",
    )


def best_lacks(best: Candidate, arch: Transformer, data: int) -> tuple[str, ...]:
    """What the framework of the job's software does not have of the best layout, and whether it runs any; of
    two with the same software (NeMo has adapters, Megatron-LM not) the one that lacks less."""
    able = {
        name: one.lacks(best.job, arch, data) for name, one in FRAMEWORKS.items() if one.runs_era_of(best.job)
    }
    name = min(able, key=lambda one: len(able[one]), default="")
    if not (lacks := able.get(name)):
        return ()
    framework = FRAMEWORKS[name]
    if always := framework.lacks_always(best.job, arch):
        return (f"{framework.title} runs no layout of this job, for what it lacks: {'; '.join(always)}.",)
    words = f"{framework.title} does not run the best one ({'; '.join(lacks)}); of what it runs"
    return (f"{words} `--framework {name}` finds the best.",)
