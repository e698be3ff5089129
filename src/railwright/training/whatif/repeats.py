"""Whether what selective recomputation runs again is worth the memory that it saves."""

from __future__ import annotations

from railwright.collectives.machine import Machine
from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.lanes.result import StepResult
from railwright.training.memory.cached import is_held, reserved
from railwright.training.memory.peak import peak_memory
from railwright.training.software.eras import era_of
from railwright.training.step.simulating import simulate
from railwright.units import GIB

LITTLE = 0.01
"""Share of a GPU's tensors below which what is saved is little, and of a step above which it is dear."""


def idle_recompute(job: TrainingJob, arch: Transformer, machine: Machine, step: StepResult) -> str:
    """A sentence where selective recomputation saves less than 1 % of memory and costs more than 1 % of the
    step, and the job fits without; '' where it is worth something.

    step  the job's own, on that machine

    Attention that is fused keeps no scores (`eras.Era.attention`), so 'core_attn' alone, Megatron-LM's
    default, saves next to nothing there.  What is saved is the memory model's answer, what it costs the
    step's.
    """
    if job.layout.recompute != "selective" or not job.layout.recompute_modules:
        return ""
    plain = job.model_copy(update={"layout": job.layout.model_copy(update={"recompute": "none"})})
    fabric, capacity, total = machine.network.fabric, machine.gpu.hbm_bytes, step.memory.total
    try:
        memory = peak_memory(plain, arch, fabric, capacity)
        saved = memory.total - total
        if saved >= LITTLE * total or memory.total > capacity:
            return ""
        if not is_held(reserved(plain, arch, fabric, memory, (memory.stage,)), capacity):
            return ""
        without = simulate(plain, arch, machine, stage=step.stage, most_events=1)
    except PlanError:
        return ""
    cost = step.step_time / without.step_time - 1
    if cost <= LITTLE:
        return ""
    names = job.layout.recompute_modules
    fused = "core_attn" in names and era_of(job).attention == "flash"
    why = f": {job.software}'s attention is fused and keeps no scores" if fused else ""
    return (
        f"recompute selective ({', '.join(names)}) saves {max(saved, 0.0) / GIB:.2f} of "
        f"{memory.total / GIB:.1f} GiB and makes a step {100 * cost:.1f}% longer{why}; recompute: none fits "
        "too."
    )
