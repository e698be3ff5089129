"""Runs that trained a model, beside what demand says of them: their makers' GPU-hours over its middle."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from railwright.catalog.parts import Gpu
from railwright.model import load_model
from railwright.model.shape.flops import flops_per_token
from railwright.model.shape.pattern import ModelKind, kind_of
from railwright.shipped import read_data
from railwright.training.demand.throughput import published_pace
from railwright.training.software.constants import constant, model_of
from railwright.units import HOUR


@dataclass(frozen=True)
class WholeRun:
    """One run, with all GPU-hours that its makers count [h].

    status  how far the source was read: 'read', 'read_third_party', or 'memory'
    dtype   of its products
    """

    run: str
    model: str
    gpu: str
    tokens: float
    sequence: int
    gpu_hours: float
    source: str
    status: str
    dtype: str = "bf16"

    @property
    def kind(self) -> ModelKind:
        """Of its model."""
        return kind_of(load_model(self.model))


@cache
def whole_runs() -> tuple[WholeRun, ...]:
    """All of them (training/data/whole_runs.yaml)."""
    return tuple(WholeRun(**row) for row in read_data("training", "whole_runs.yaml"))


def over_middle(gpu: Gpu, kind: ModelKind) -> tuple[tuple[WholeRun, float], ...]:
    """(run, its GPU-hours over the middle of what demand says) for the runs on a GPU: those of a kind of
    model, or all where it has none of that kind.

    Runs on a GPU of the same model (A100 of 40 and 80 GB) count: their range is one.
    """
    on = [run for run in whole_runs() if model_of(run.gpu) == model_of(gpu.name)]
    alike = [run for run in on if run.kind == kind]
    return tuple((run, run.gpu_hours / middle_hours(run, gpu)) for run in alike or on)


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
    pace = published_pace(arch, gpu, run.dtype, run.sequence).flops.middle
    return flops_per_token(arch, run.sequence).total * run.tokens / pace / HOUR
