"""What a job can do with layers whose mixer is no attention (`model.mixers`)."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.shape.architecture import LinearMixer, Transformer
from railwright.model.shape.mixers import WHOLE, check_mixer
from railwright.spec.training import TrainingJob
from railwright.training.layout.divisors import divisors, working
from railwright.training.software.eras import era_of

FRAMEWORKS = ("megatron", "torchtitan", "pytorch", "deepspeed")
"""Frameworks (`eras.Era.framework`) with kernels of mamba_ssm or flash-linear-attention."""


def check_mixers(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError, with what would work, where a model's linear layers cannot run as the job says."""
    mixer = arch.linear
    if mixer is None:
        return
    check_mixer(arch, job.layout.tensor, f"{job.name}: layout.tensor")
    _check_context(job, arch, mixer)
    era = era_of(job)
    if era.framework not in FRAMEWORKS or era.attention != "flash":
        raise PlanError(
            f"{job.name}: software {job.software} has no kernels for the linear layers of {arch.name}; "
            "choose one of Megatron's or PyTorch FSDP's from 2024 on."
        )


def of_mixers(arch: Transformer) -> list[str]:
    """What is not known of steps with linear layers: of Mamba-2's alone some are published."""
    if arch.linear is None or arch.linear.kind == "mamba2":
        return []
    return [
        f"the range is that of published steps of models with Mamba-2; none of one with the linear layers of "
        f"{arch.name} ({arch.linear.kind}) was compared with ours."
    ]


def _check_context(job: TrainingJob, arch: Transformer, mixer: LinearMixer) -> None:
    """Context-parallel ranks swap tokens for whole heads (`Exchange.mix`).

    Source: Megatron-LM, core/ssm/mamba_context_parallel.py: groups may be copied, those of a gated delta net
    are not (gated_delta_net/common.py).
    """
    context, tensor = job.layout.context, job.layout.tensor
    if context == 1:
        return
    if mixer.kind in WHOLE:
        raise PlanError(
            f"{job.name}: layout.context is {context}, and no framework that is known here splits the linear "
            f"layers of {arch.name} ({mixer.kind}) over context-parallel ranks; use context 1."
        )
    heads, groups = mixer.heads // tensor, mixer.key_heads // tensor
    if heads % context:
        raise PlanError(
            f"{job.name}: layout.context {context} swaps tokens for the {heads} heads per GPU of the linear "
            f"layers of {arch.name}, and does not divide them; {working(divisors(heads))}."
        )
    if groups % context and (mixer.kind != "mamba2" or context % groups):
        fitting = [
            d for d in divisors(heads) if groups % d == 0 or (mixer.kind == "mamba2" and d % groups == 0)
        ]
        raise PlanError(
            f"{job.name}: layout.context {context} cannot share the {groups} heads of keys (groups) per GPU "
            f"of the linear layers of {arch.name}; {working(fitting)}."
        )
