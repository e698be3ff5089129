"""Warnings about a step that are known before it is predicted."""

from __future__ import annotations

from collections.abc import Sequence

from railwright.collectives.machine import Machine
from railwright.compute.limited import of_power
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.checks.experts import beyond_kernels, beyond_reach
from railwright.training.checks.feed import starving
from railwright.training.checks.plan import check
from railwright.training.lanes.result import HostMemory
from railwright.training.layout.placement import Groups, place
from railwright.training.memory.host_memory import check_host, host_warnings
from railwright.training.software.constants import unmeasured
from railwright.training.software.eras import era_of, pace_alone
from railwright.training.software.formats import job_peak
from railwright.training.software.narrow import of_kernels


def plan_warnings(job: TrainingJob, arch: Transformer, machine: Machine) -> tuple[str, ...]:
    """The warnings of a job's step that do not hang on its length, as `simulate` gives them; and that it will
    wait for its data, where no predicted length is needed to know it.

    Raises PlanError where the layout is impossible, or loading takes for ever.
    """
    fabric = machine.network.fabric
    doubtful = check(job, arch, fabric)
    host = check_host(job, arch, fabric, machine.server, machine.gpu.hbm_bytes)
    groups = place(job, fabric)
    return (
        *warnings_of(job, arch, machine, doubtful, host, groups),
        *starving(job, arch, groups, job_peak(machine.gpu, job.dtype)),
    )


def warnings_of(
    job: TrainingJob,
    arch: Transformer,
    machine: Machine,
    doubtful: Sequence[str],
    host: HostMemory | None,
    groups: Groups,
) -> tuple[str, ...]:
    """Warnings from what is known of a placed job.

    doubtful  what `plan.check` warns of
    """
    fitted = pace_alone(job, machine.gpu).records > 0
    anywhere = any(pace.records for pace in era_of(job).pace.values())
    return (
        *doubtful,
        *host_warnings(host, machine.server),
        *beyond_reach(job, arch, groups.servers("ep")),
        *beyond_kernels(job, arch, machine.gpu, groups.parts("ep")),
        *groups.notes,
        *of_power(machine.gpu, machine.server),
        *unmeasured(machine.gpu.name, job.software, job.dtype, fitted, anywhere),
        *of_kernels(job, machine.gpu),
    )
