"""What if, for a recommendation job: one thing changed, and its step simulated again (`changes` says how)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from railwright.collectives.machine import Machine
from railwright.compute import kernel_time
from railwright.model.recommendation.dlrm import Recommender
from railwright.spec.recommendation import RecommendationJob
from railwright.traffic.placement import can_relay
from railwright.training.lanes.result import StepResult
from railwright.training.layers.communication import Predict
from railwright.training.layers.costs import KernelTime
from railwright.training.recommendation.dlrm import gpus_of, simulate_recommendation
from railwright.training.step.simulating import slowed
from railwright.training.whatif.changes import (
    FREE_BETWEEN,
    FREE_COMMUNICATION,
    INFINITE_COMPUTE,
    SLOWER,
    WhatIf,
    answered,
)
from railwright.training.whatif.changes import QUESTIONS as OF_TRANSFORMERS
from railwright.training.whatif.machine import at_rate, free_between_servers, in_no_time, kernel_in_no_time


@dataclass(frozen=True)
class Case:
    """A job on a machine, and what prices its collectives and times its kernels."""

    job: RecommendationJob
    machine: Machine
    predict: Predict | None = None
    kernel: KernelTime | None = None


Change = Callable[[RecommendationJob, Machine], Case | None]
"""What is to be simulated under a change; None where the job has nothing for it to change."""


Question = tuple[str, str, Change]
"""(name, why, change)."""


def recommendation_what_ifs(
    job: RecommendationJob, model: Recommender, machine: Machine, questions: Sequence[Question] | None = None
) -> tuple[WhatIf, ...]:
    """Every change of some questions (default: QUESTIONS) that means something to this job, in order."""

    def step(case: Case) -> StepResult:
        return simulate_recommendation(
            case.job, model, case.machine, predict=case.predict, kernel=case.kernel
        )

    return answered(QUESTIONS if questions is None else questions, job, machine, step)


def _alone(job: RecommendationJob, machine: Machine) -> bool:
    """Whether all GPUs of a job lie in one server, so that it sends nothing over the network."""
    gpus, per_server = gpus_of(job, machine.network.fabric)
    return gpus <= per_server


def _rate(factor: float) -> Change:
    def change(job: RecommendationJob, machine: Machine) -> Case | None:
        return None if _alone(job, machine) else Case(job, at_rate(machine, factor))

    return change


def _pxn(wanted: bool) -> Change:
    def change(job: RecommendationJob, machine: Machine) -> Case | None:
        if machine.nccl.pxn is wanted or _alone(job, machine) or not can_relay(machine.network.fabric):
            return None
        return Case(job, replace(machine, nccl=replace(machine.nccl, pxn=wanted)))

    return change


def _free_between(job: RecommendationJob, machine: Machine) -> Case | None:
    if _alone(job, machine):
        return None
    return Case(job, machine, predict=free_between_servers(machine))


def _free(job: RecommendationJob, machine: Machine) -> Case | None:
    return Case(job, machine, predict=in_no_time) if gpus_of(job, machine.network.fabric)[0] > 1 else None


def _overlapped(job: RecommendationJob, machine: Machine) -> Case | None:
    return None if job.overlap else Case(job.model_copy(update={"overlap": True}), machine)


def _hbm(job: RecommendationJob, machine: Machine) -> Case:
    gpu = replace(machine.gpu, hbm_bandwidth=2 * machine.gpu.hbm_bandwidth)
    return Case(job, replace(machine, gpu=gpu))


def _one_slower(job: RecommendationJob, machine: Machine) -> Case | None:
    """One GPU with a lower clock: its step is that of a machine of such GPUs, since every exchange waits for
    it; None where it is the only one."""
    if gpus_of(job, machine.network.fabric)[0] == 1:
        return None
    return Case(job, machine, kernel=slowed(lambda op: kernel_time(op, machine.gpu), SLOWER))


def _no_kernels(job: RecommendationJob, machine: Machine) -> Case | None:
    """None for one GPU, of whose step nothing would be left."""
    if gpus_of(job, machine.network.fabric)[0] == 1:
        return None
    return Case(job, machine, kernel=kernel_in_no_time)


_WHY = {name: why for name, why, _ in OF_TRANSFORMERS}


def _also(name: str, change: Change) -> Question:
    """A question that `changes` asks too, in its words."""
    return name, _WHY[name], change


QUESTIONS: tuple[Question, ...] = (
    _also("Network ×2", _rate(2.0)),
    _also("Network ÷2", _rate(0.5)),
    _also("No PXN", _pxn(False)),
    _also("PXN", _pxn(True)),
    _also(FREE_BETWEEN, _free_between),
    _also(FREE_COMMUNICATION, _free),
    ("Exchanges overlapped", "embeddings and gradients beside the MLPs", _overlapped),
    ("HBM bandwidth ×2", "lookups, updates and other memory-bound kernels", _hbm),
    ("One GPU 10 % slower", "its products, as at a lower clock; all others wait", _one_slower),
    (INFINITE_COMPUTE, "no kernel takes any time; communication is left", _no_kernels),
)
"""(name, why, change), in the order of a report.  That GPUs differ is not modelled here, so 'GPUs all alike'
would change nothing."""
