"""What a layout needs exactly, where the training room takes it."""

from __future__ import annotations

from math import inf

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training import peak_memory
from railwright.training.checks.plan import check
from railwright.training.memory.host_memory import fits_host


def exact_memory(job: TrainingJob, arch: Transformer, machine: Machine) -> float:
    """Peak memory of a layout; infinite where the training room refuses it, or what it offloads does not fit
    its hosts. [byte]"""
    fabric = machine.network.fabric
    try:
        check(job, arch, fabric)
        if not fits_host(job, arch, fabric, machine.server):
            return inf
        return peak_memory(job, arch, fabric, machine.gpu.hbm_bytes).total
    except PlanError:
        return inf
