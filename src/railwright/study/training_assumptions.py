"""What a predicted training step rests on: its software, its pace, what it waits for, what slows it."""

from __future__ import annotations

from dataclasses import replace

from railwright.catalog.parts import Gpu
from railwright.collectives import Machine
from railwright.errors import PlanError
from railwright.spec.study import Study
from railwright.spec.training import TrainingJob
from railwright.study.evaluate import Workshop, architecture
from railwright.study.launches import launch_calls, launch_costs, launch_factor, tuned_calls
from railwright.study.result import Assumption
from railwright.study.words import percent
from railwright.training import simulate
from railwright.training.layout.sizes import job_gpus
from railwright.training.passes.offload import HOST_ADAM
from railwright.training.software.constants import known, width_of
from railwright.training.software.eras import Pace, era_of, eras, pace_alone, pace_keys
from railwright.training.software.host import cpu_factor
from railwright.training.software.hosted import updates_on_host
from railwright.training.software.stragglers import gpu_spread
from railwright.training.software.words import DEFAULT, factors
from railwright.units import number, show_share


def trained(study: Study, workshop: Workshop) -> list[Assumption]:
    """Rows of all training jobs; one that not all jobs share says whose it is."""
    machine = workshop.machine(study)
    whose: dict[Assumption, list[str]] = {}
    for job in study.jobs:
        seconds = _seconds(job, machine)
        for row in (
            _software(job, machine, seconds),
            _paced(job, machine.gpu),
            _host(job, machine.gpu),
            _wait(job, machine, seconds),
            *_update(job),
        ):
            whose.setdefault(row, []).append(job.name)
    told = [
        row if len(names) == len(study.jobs) else replace(row, name=f"{row.name}, {', '.join(names)}")
        for row, names in whose.items()
    ]
    slower = known("compute_slowdown_in_overlap")
    return [
        *told,
        Assumption("compute while communication runs", f"{slower.value:g} times as long", slower.source),
        _whole_run(),
    ]


def _whole_run() -> Assumption:
    """How much longer steps of published runs took than predicted: factors are fitted to benchmarks."""
    least, most = known("run_over_step_least"), known("run_over_step_most")
    return Assumption(
        "a run of weeks beside its predicted steps",
        f"not in the predicted times: published runs took {least.value:g} to {most.value:g} times as long",
        least.source,
    )


def _software(job: TrainingJob, machine: Machine, seconds: float) -> Assumption:
    """The era, whether it is the default, and what the step would take under others.

    seconds  of the job's step
    """
    chosen = "the default" if job.software == DEFAULT else "as the study says"
    others = ", ".join(_under_others(job, machine, seconds)) or "none"
    return Assumption(
        "software era",
        f"{job.software}, {chosen}",
        f"{era_of(job).what}. Another one changes the step's time (`railwright catalog list software`); "
        f"those with published steps on {_where(job, machine.gpu)}: {others}",
    )


def _where(job: TrainingJob, gpu: Gpu) -> str:
    return f"{gpu.name} in {width_of(job.dtype)}"


def _under_others(job: TrainingJob, machine: Machine, here: float) -> list[str]:
    """'fsdp-2025 +26 %' for every other era with published steps on the job's GPU and width.

    here  time of the job's step under its own [s]
    """
    key = pace_keys(machine.gpu, job.dtype)[0]
    found = []
    for era in eras().values():
        if era.name == job.software or not era.pace.get(key, Pace()).records:
            continue
        try:
            seconds = _seconds(job.model_copy(update={"software": era.name}), machine)
        except PlanError:
            found.append(f"{era.name} cannot run it")
        else:
            found.append(f"{era.name} {percent(seconds / here - 1)}")
    return found


def _paced(job: TrainingJob, gpu: Gpu) -> Assumption:
    """How much longer kernels take in a step than alone."""
    pace = pace_alone(job, gpu)
    return Assumption(f"pace of {_where(job, gpu)} under {job.software}", factors(pace), pace.source)


def _host(job: TrainingJob, gpu: Gpu) -> Assumption:
    """What launching takes: the sources' times, times what the GPU's CPU and the era take of them."""
    fitted, cpu, called = launch_factor(job, gpu), cpu_factor(gpu), launch_calls(job)
    calls = launch_costs(job, gpu)
    if "step" in job.cuda_graphs:
        calls = "none: the whole step is a CUDA graph"
    but = ", but for Triton's kernels" if tuned_calls(job) else ""
    times = [f"{fitted:g} (fitted with the pace{but})"] if fitted > 1 else []
    times += [f"{cpu:g} (Grace: {known('host_grace_ratio').source})"] if cpu > 1 else []
    product = f"; times {' and '.join(times)}" if times else ""
    return Assumption(
        f"host's time to launch under {job.software}",
        calls,
        "; ".join(one.source for one, _ in [*called, *tuned_calls(job)]) + product,
    )


def _wait(job: TrainingJob, machine: Machine, seconds: float) -> Assumption:
    """What waiting for the slowest GPU takes of a step of so many seconds."""
    alone = _seconds(job, machine, pace_alone(job, machine.gpu))
    return Assumption(
        f"wait for the slowest of {number(job_gpus(job, machine.network.fabric), 'GPU')}",
        f"{show_share(1 - alone / seconds)} of the step",
        f"kernel times spread by {show_share(gpu_spread())} between GPUs (standard deviation), which is not "
        f"fitted to step times: {known('compute_spread').source}",
    )


def _update(job: TrainingJob) -> list[Assumption]:
    """At what rate an optimizer on the host runs: what is known of others is far apart."""
    if not updates_on_host(job):
        return []
    return [
        Assumption(
            "Adam on the host",
            f"{1e9 * HOST_ADAM:.2g} ns a parameter, with all cores of a server, whatever its memory",
            "ZeRO-Offload, table 4 (DGX-2). Not in the range of the step: 405B over 64 H100 took a third "
            "of that (LambdaLabs, distributed-training-guide, 05-training-llama-405b: threads shared out, "
            "states in 16 bits), 7B over 8 A800 some ten times as long (DeepSpeed 0.14.2, gist "
            "chenyaofo/d4cd6a20). Give each rank its cores (torch.set_num_threads, "
            "DeepSpeed's --bind_cores_to_rank) and measure",
        )
    ]


def _seconds(job: TrainingJob, machine: Machine, pace: Pace | None = None) -> float:
    """Time of a job's step. [s] Raises PlanError where it cannot run."""
    return simulate(job, architecture(job.model), machine, pace=pace, most_events=0).step_time
