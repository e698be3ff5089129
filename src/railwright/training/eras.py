"""Software eras: what a framework of some time runs, and how much slower than isolated kernels it is.

A GPU in a training step is slower than the same kernels measured alone: its clock falls under sustained load,
caches are cold, and frameworks of different years fuse, launch and overlap differently.  An era names such a
state of the software; its factors are fitted on published steps, per GPU generation and width of the products
(tools/fit_training.py), and their error on families left out of the fit is kept beside them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from railwright.catalog.parts import Gpu
from railwright.errors import PlanError
from railwright.model.operators import CoreAttention
from railwright.spec.study import TrainingJob
from railwright.training.constants import width_of


@dataclass(frozen=True)
class Pace:
    """Time in a training step over the kernel model's time for isolated kernels, by kind of kernel.

    gemm, attention, memory  factors of kernel times
    gap     time between kernels beyond that of isolated ones [s]
    host    factor of launch times
    step    fixed time of every step: logging, loss scale, gradient norm [s]
    source  what it was fitted on, and its error there and on families left out
    """

    gemm: float = 1.0
    attention: float = 1.0
    memory: float = 1.0
    gap: float = 0.0
    host: float = 1.0
    step: float = 0.0
    source: str = "isolated kernels: no published step of this era, GPU and width was fitted"


@dataclass(frozen=True)
class Era:
    """One state of the software.

    attention  how the core attention runs
    scatter_gather  pipeline sends are cut over the tensor ranks and gathered again, also without sequence
               parallelism
    pace       'h100 16-bit', or 'hopper 16-bit' for the generation's other GPUs -> factors
    """

    name: str
    what: str
    attention: CoreAttention
    scatter_gather: bool
    pace: dict[str, Pace]


def era_of(job: TrainingJob) -> Era:
    """The era a job names. Raises PlanError for one that is not known, naming those that are."""
    known = eras()
    if job.software not in known:
        raise PlanError(
            f"{job.name}: software '{job.software}' is not a known era; choose one of {', '.join(known)}."
        )
    return known[job.software]


def pace_of(job: TrainingJob, gpu: Gpu) -> Pace:
    """The factors of a job's era on a GPU: its own, else its generation's, else those of isolated kernels."""
    known = era_of(job).pace
    own, kin = pace_keys(gpu, job.dtype)
    return known.get(own) or known.get(kin) or Pace()


def pace_keys(gpu: Gpu, dtype: str) -> tuple[str, str]:
    """'h100 fp8' and 'hopper fp8': whose products of that width share factors."""
    width = width_of(dtype)
    return f"{gpu.name.split('-')[0]} {width}", f"{gpu.generation.split('-')[0]} {width}"


@cache
def eras() -> dict[str, Era]:
    """All eras by name, oldest first."""
    from ruamel.yaml import YAML

    text = (files("railwright.training") / "data" / "eras.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = YAML(typ="safe").load(text)
    return {
        name: Era(
            name,
            row["what"],
            row["attention"],
            row["scatter_gather"],
            {key: Pace(**pace) for key, pace in row["pace"].items()},
        )
        for name, row in data.items()
    }
