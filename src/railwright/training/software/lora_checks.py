"""What a job's adapters must not ask for, and whose inputs stay."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.lora import Lora
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of
from railwright.training.software.lora import targets_of
from railwright.training.software.nf4 import is_nf4


def check_adapters(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where a model has none of the products that get an adapter, so that nothing would
    train, or where a job's software has no dropout as it is asked for, or no weights in 4 bits."""
    if job.lora is None:
        return
    _check_dropout(job, job.lora)
    if is_nf4(job):
        _check_nf4(job)
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


def _check_nf4(job: TrainingJob) -> None:
    """Weights in 4 bits have neither tensor, pipeline nor expert parallelism, and are multiplied in 16 bits.

    Sources: NeMo 004e2b2, collections/nlp/modules/common/megatron/adapters/qlora.py (of 2024, on one GPU's
    layers through ModelOpt's quantizer: "Tensor Parallel is not supported"), which NeMo 2 and Megatron-Bridge
    067f987 have no more; bitsandbytes and torchao 0598012 cut such tensors by FSDP alone.
    """
    layout, framework = job.layout, era_of(job).framework
    if framework in ("megatron", "jax"):
        raise PlanError(
            f"{job.name}: lora.frozen_dtype nf4 is bitsandbytes' and torchao's, beside FSDP or one GPU, and "
            f"software {job.software} keeps no weights in 4 bits. Set software to fsdp-2026-eager (Hugging "
            "Face's Trainer, Axolotl) or fsdp-2026 (torchtune, compiled), or leave frozen_dtype out."
        )
    cut = [name for name in ("tensor", "pipeline", "expert") if getattr(layout, name) > 1]
    if cut:
        asked = " and ".join(f"layout.{name} {getattr(layout, name)}" for name in cut)
        raise PlanError(
            f"{job.name}: no software trains weights in 4 bits (lora.frozen_dtype nf4) beside {asked}; set "
            f"{' and '.join(cut)} to 1, and zero to 3 where a copy on each GPU is too large."
        )
    if job.dtype not in ("bf16", "fp16"):
        raise PlanError(
            f"{job.name}: weights in 4 bits (lora.frozen_dtype nf4) are made 16 bits and multiplied so, and "
            f"dtype is {job.dtype}; set it to bf16 or fp16."
        )


def inputs_stay(job: TrainingJob) -> bool:
    """Whether inputs of layers computed again, and gradients of these, are there until a backward pass ends.

    PyTorch's FSDP of version 1 hooks the inputs of units that are frozen, to drop their weights once
    gradients have been made.  It holds the hook until then, which holds them, and reentrant checkpoints made
    leaves of them, whose gradients stay with them.
    Source: PyTorch 2.13, distributed/fsdp/_runtime_utils.py (_register_post_backward_reshard_only_hook,
    _finalize_params), autograd/graph.py (register_multi_grad_hook), utils/checkpoint.py (CheckpointFunction);
    tests/oracle/test_training_lora_pytorch.py.
    """
    asked = job.lora is not None and job.lora.inputs_stay
    return asked and job.layout.zero == 3 and job.layout.recompute == "full" and era_of(job).fp32_shards
