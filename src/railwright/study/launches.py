"""Where the host's launches decide a step: then the answer rests on what a launch takes, and says so."""

from __future__ import annotations

from dataclasses import replace

from railwright.catalog.parts import Gpu
from railwright.collectives import Machine
from railwright.spec.training import Graph, TrainingJob
from railwright.study.bottleneck import SHOWN
from railwright.study.evaluate import architecture
from railwright.study.result import JobResult
from railwright.study.words import share
from railwright.training.lanes.result import StepResult
from railwright.training.layers.graphs import graphed, ungraphed
from railwright.training.software.constants import Constant, known
from railwright.training.software.eras import era_of, pace_alone
from railwright.training.software.host import Launcher, cpu_factor
from railwright.training.whatif.changes import FREE_LAUNCHES, QUESTIONS, Case, what_ifs
from railwright.units import show_time

LAYER_PARTS: tuple[Graph, ...] = ("attention", "mixer", "mlp", "router")
"""All that `cuda_graphs` may name of a layer; `step` is not of one."""

CALLS: dict[Launcher, tuple[tuple[str, str], ...]] = {
    "python": (
        ("host_module_seconds", "a product or attention"),
        ("host_operation_seconds", "any other kernel"),
    ),
    "inductor": (
        ("host_inductor_seconds", "a kernel"),
        ("host_compiled_seconds", "a forward pass of a layer"),
    ),
    "native": (("host_native_seconds", "a kernel"),),
}
"""Launcher -> constants that price what it calls, and for what (`training.software.host.launch_times`)."""


def with_launches(
    job: JobResult, asked: TrainingJob | None, machine: Machine, free: float | None = None
) -> JobResult:
    """The job with a warning where launches are worth more of its step than its error range allows for.

    asked   None for a job whose launches are not predicted
    free    its step without launches, simulated here where it is not known [s]
    """
    step = job.step
    if step is None or asked is None or not any(s.kind == "host" and s.exposed > 0 for s in step.shares):
        return job
    if free is None:
        questions = [one for one in QUESTIONS if one[0] == FREE_LAUNCHES]
        rows = what_ifs(asked, architecture(asked.model), machine, step.stage, questions)
        free = next((row.step.step_time for row in rows if row.step is not None), None)
    if free is None or not beyond_range(step, free):
        return job
    saved = 1 - free / step.step_time
    told = _told(saved, step, asked, machine.gpu) + graphs_worth(step, asked, machine)
    return replace(job, step=replace(step, warnings=(*step.warnings, told)))


def graphs_worth(step: StepResult, job: TrainingJob, machine: Machine) -> str:
    """What CUDA graphs of parts of its layers would take off a job's step, by the field that says so, or why
    its framework refuses them; '' where its software has none, or they are there already."""
    arch = architecture(job.model)
    if not era_of(job).graphs or "step" in job.cuda_graphs:
        return ""
    for parts in (LAYER_PARTS, tuple(part for part in LAYER_PARTS if part != "mlp")):
        asked = job.model_copy(update={"cuda_graphs": parts})
        if not (refused := ungraphed(asked, arch)):
            break
    if refused:
        return (
            " What `cuda_graphs` names costs the host nothing, but Megatron-LM and NeMo refuse graphs of "
            f"parts of a layer {refused}."
        )
    named = graphed(asked, arch)
    graphs = asked.model_copy(update={"cuda_graphs": named})
    rows = what_ifs(graphs, arch, machine, step.stage, [("", "", Case)])
    if rows[0].step is None or (saved := 1 - rows[0].step.step_time / step.step_time) < SHOWN:
        return ""
    return (
        f" With `cuda_graphs: [{', '.join(named)}]`, which Megatron-LM and NeMo can, the step would be "
        f"{share(saved)} shorter."
    )


def beyond_range(step: StepResult, free: float) -> bool:
    """Whether a step without launches, `free` seconds, is shorter than 80 % of measurements allow for.

    The range is of published steps as a whole; where launches move a step by more than it is wide below, an
    error of theirs alone can take a measurement out of it.
    """
    return free < step.error_low * step.step_time


def launch_costs(job: TrainingJob, gpu: Gpu) -> str:
    """What a launch takes of the host under a job's software, by kind of call."""
    factor = launch_factor(job, gpu) * cpu_factor(gpu)
    told = [f"{show_time(factor * one.value)} {what}" for one, what in launch_calls(job)]
    tuned = [f"{show_time(cpu_factor(gpu) * one.value)} {what}" for one, what in tuned_calls(job)]
    return ", ".join([*tuned, " and ".join(told)])


def launch_calls(job: TrainingJob) -> list[tuple[Constant, str]]:
    """The constants that price what launches a job's kernels, and for what."""
    return [(known(name), what) for name, what in CALLS[era_of(job).launcher]]


def tuned_calls(job: TrainingJob) -> list[tuple[Constant, str]]:
    """The same of what no era has a factor for: kernels that Triton's autotuner launches."""
    if architecture(job.model).linear is None:
        return []
    return [(known("host_tuned_seconds"), "a Triton kernel of a linear layer")]


def launch_factor(job: TrainingJob, gpu: Gpu) -> float:
    """What the era takes of these, as fitted; 1 where no Python runs around them."""
    return pace_alone(job, gpu).host if era_of(job).launcher == "python" else 1.0


def _told(saved: float, step: StepResult, job: TrainingJob, gpu: Gpu) -> str:
    cpu, fitted = cpu_factor(gpu), launch_factor(job, gpu)
    named = " and ".join(f"{show_time(c.value)} ({c.name}, {_status(c)})" for c, _ in launch_calls(job))
    seen = pace_alone(job, gpu).records
    own = f"fitted under {job.software}" if seen else "no step on this GPU was fitted"
    factors = [f"{fitted:g} ({own})"] if fitted != 1 else []
    factors += [f"{cpu:g} (host_grace_ratio)"] if cpu != 1 else []
    times = f" times {' and '.join(factors)}" if factors else ""
    for c, _ in tuned_calls(job):
        times += f", and {c.name} ({_status(c)})" + (f" times {cpu:g}" if cpu != 1 else "")
    return (
        f"without launches by the host the step would be {share(saved)} shorter, more than the "
        f"{share(1 - step.error_low)} by which 80 % of measurements may lie below the prediction, so this "
        f"answer rests on what a launch takes: {launch_costs(job, gpu)}. That is {named} of "
        f"training/data/constants.yaml{times}; see docs/training/calibration.md."
    )


def _status(one: Constant) -> str:
    return "an estimate" if one.status == "estimate" else "measured"
