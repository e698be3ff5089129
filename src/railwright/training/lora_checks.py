"""What a job's adapters must not ask for."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.architecture import Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training.eras import era_of
from railwright.training.lora import targets_of


def check_adapters(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where a model has none of the products that get an adapter, so that nothing would
    train, or where a job's software has no dropout as it is asked for."""
    if job.lora is None:
        return
    _check_dropout(job, job.lora)
    present = targets_of(arch)
    if not set(present) & set(job.lora.targets):
        routed = " (routed experts get no adapters)" if arch.is_moe else ""
        raise PlanError(
            f"{job.name}: lora.targets names {', '.join(job.lora.targets)}, and {arch.name} has none of "
            f"them{routed}, so nothing would be trained; name {' or '.join(present)}."
        )


def _check_dropout(job: TrainingJob, lora: Lora) -> None:
    """Sources: PEFT, tuners/lora/layer.py (Linear.forward), torchtune 031d89b, modules/peft/lora.py
    (LoRALinear.forward): dropout falls on the input alone.  What XLA keeps of a mask nothing here knows."""
    framework = era_of(job).framework
    if lora.dropout and framework == "jax":
        raise PlanError(
            f"{job.name}: lora.dropout is {lora.dropout:g}, and what XLA keeps of dropout's masks under "
            f"software {job.software} is not modelled; set it to 0, or choose software that is not JAX's."
        )
    if lora.drops_result and framework != "megatron":
        raise PlanError(
            f"{job.name}: lora.dropout_position is post, which NeMo and Megatron-Bridge have; under software "
            f"{job.software} (PEFT, torchtune) dropout falls on an adapter's input. Set it to pre."
        )
