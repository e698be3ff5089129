"""Runs that trained a model, beside what demand says of them: their makers' GPU-hours over its middle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from railwright.catalog.parts import Gpu
from railwright.model import load_model
from railwright.model.shape.flops import flops_per_token
from railwright.shipped import read_data
from railwright.training.demand.throughput import published_pace
from railwright.training.software.constants import constant, family_of
from railwright.units import HOUR


@dataclass(frozen=True)
class WholeRun:
    """One run in 16 bits, with all GPU-hours that its makers count [h].

    status  how far the source was read: 'read', 'read_third_party', or 'memory'
    """

    run: str
    model: str
    gpu: str
    tokens: float
    sequence: int
    gpu_hours: float
    source: str
    status: str


@cache
def whole_runs() -> tuple[WholeRun, ...]:
    """All of them (training/data/whole_runs.yaml)."""
    return tuple(WholeRun(**row) for row in read_data("training", "whole_runs.yaml"))


def over_middle(gpu: Gpu) -> tuple[tuple[WholeRun, float], ...]:
    """(run, its GPU-hours over the middle of what demand says) for the runs on a GPU.

    Runs on a GPU of the same model (A100 of 40 and 80 GB) count: their range is one.
    """
    own = family_of("dense", gpu.name, "bf16")
    return tuple(
        (run, run.gpu_hours / middle_hours(run, gpu))
        for run in whole_runs()
        if family_of("dense", run.gpu, "bf16") == own
    )


def over_benchmarks() -> str:
    """How much longer steps of published runs took than predicted ones, in words."""
    least, most = constant("run_over_step_least"), constant("run_over_step_most")
    return (
        f"Steps are those of a benchmark: those of published runs took {least:g} to {most:g} times as long "
        "as predicted"
    )


def middle_hours(run: WholeRun, gpu: Gpu) -> float:
    """The middle of the GPU-hours that demand says of a run."""
    arch = load_model(run.model)
    pace = published_pace(arch, gpu, "bf16").flops.middle
    return flops_per_token(arch, run.sequence).total * run.tokens / pace / HOUR
