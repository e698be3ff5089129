"""What a job can do with layers whose mixer is no attention (`model.mixers`)."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.model.mixers import WHOLE
from railwright.spec.training import TrainingJob
from railwright.training.divisors import divisors, working
from railwright.training.eras import era_of

FRAMEWORKS = ("megatron", "torchtitan")
"""Frameworks (`eras.Era.framework`) with kernels of mamba_ssm or flash-linear-attention."""


def check_mixers(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError, with what would work, where a model's linear layers cannot run as the job says.

    Tensor parallelism cuts whole heads and whole heads of keys (Megatron-LM, core/ssm/mamba_mixer.py).
    """
    mixer = arch.linear
    if mixer is None:
        return
    tensor = job.layout.tensor
    if tensor > 1 and mixer.kind in WHOLE:
        raise PlanError(
            f"{job.name}: layout.tensor is {tensor}, and no framework that is known here cuts the linear "
            f"layers of {arch.name} ({mixer.kind}) over tensor-parallel ranks; use tensor 1 with pipeline, "
            "expert or zero 3."
        )
    for what, count in (("heads", mixer.heads), ("heads of keys (groups)", mixer.key_heads)):
        if count % tensor:
            raise PlanError(
                f"{job.name}: the {count} {what} of the linear layers of {arch.name} cannot be cut into "
                f"layout.tensor = {tensor} equal parts; {working(divisors(count))}."
            )
    if job.layout.context > 1:
        raise PlanError(
            f"{job.name}: layout.context is {job.layout.context}, and how context-parallel ranks share the "
            f"states of the linear layers of {arch.name} is not modelled; use context 1, and more tensor or "
            "pipeline parallelism, or recompute, where memory is short."
        )
    era = era_of(job)
    if era.framework not in FRAMEWORKS or era.attention != "flash":
        raise PlanError(
            f"{job.name}: software {job.software} has no kernels for the linear layers of {arch.name}; "
            "choose one of Megatron's or PyTorch FSDP's from 2024 on."
        )
