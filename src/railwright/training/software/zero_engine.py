"""DeepSpeed's ZeRO engine around PyTorch modules: what it holds and sends otherwise (`Era.zero_engine`).

Gradients are reduced, summed up and kept in the type of the weights.  ZeRO-1 and 2 all-reduce whole buckets,
of which each rank keeps its share (before 0.13, January 2024, they reduced to each rank its share, half as
much), and gather updated weights behind the optimizer's step, beside nothing.
ZeRO-3 shards every weight by itself and drops it behind its module, but for those that come again soon.
Sizes are DeepSpeed's defaults, and what Hugging Face's Trainer makes of "auto".
Source: DeepSpeed 0.19.6 (edaa7221, August 2026), runtime/zero/stage_1_and_2.py, stage3.py,
partitioned_param_coordinator.py, config.py; Hugging Face transformers, integrations/deepspeed.py
(trainer_config_finalize).  Of ZeRO-3 0.11.1 (October 2023) does the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from railwright.errors import PlanError
from railwright.model.operators.kernels import ELEMENT, GRADIENT
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Operator
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of

BUCKET = 500_000_000
"""Gradients reduced, and weights gathered, at once under ZeRO-1 and 2 (config.py, reduce_bucket_size,
allgather_bucket_size)."""

REUSED_WITHIN = 1e9
"""Parameters of modules that run before a weight's next use, up to which ZeRO-3 keeps it (config.py,
max_reuse_distance)."""

SUB_GROUP = 1e9
"""Parameters of a rank's own whose states ZeRO-3 updates at once (config.py, sub_group_size; stage3.py,
_create_fp16_sub_groups: partition_numel)."""

DIVIDED, JOINED = 2.0 * ELEMENT, 2.0 * ELEMENT
"""Bytes that a gradient moves before it is sent: divided in place by the number of ranks
(coalesced_collectives.py, reduce_scatter_coalesced; stage_1_and_2.py, gradient_reduction_w_predivide), and
copied into a bucket where it is no larger than that."""

SUMMED = 3.0 * ELEMENT
"""The same of one that autograd adds to what earlier microbatches left: ZeRO-1 sends only their sum."""


FORMATS = ("bf16", "fp16")
"""Number formats of its weights and gradients."""


def check_engine(job: TrainingJob, replicas: int) -> None:
    """Refuse what is not known of the engine, or what it has not (PlanError).

    replicas  ranks with the same parameters
    Source: runtime/engine.py, no_sync (asserts that gradients are not partitioned), get_data_types.
    """
    if not era_of(job).zero_engine:
        return
    layout = job.layout
    whose = f"{job.name}: software {job.software} is DeepSpeed's ZeRO engine"
    cut = [name for name in ("tensor", "pipeline", "expert") if getattr(layout, name) > 1]
    if cut:
        raise PlanError(
            f"{whose}, which is known here over data- and context-parallel ranks alone; set layout."
            f"{' and layout.'.join(cut)} to 1, or choose software that cuts models (megatron-2025, "
            "fsdp-2026)."
        )
    if layout.context > 1 and layout.context_kind != "all-to-all":
        raise PlanError(
            f"{whose}, whose context parallelism (Ulysses) swaps tokens for heads; set "
            "layout.context_kind to all-to-all."
        )
    if job.dtype not in FORMATS:
        raise PlanError(f"{whose}, whose weights are in {' or '.join(FORMATS)}; dtype is {job.dtype}.")
    if layout.zero == 0 and replicas > 1:
        raise PlanError(
            f"{whose}, and layout.zero is 0; set it to the stage of its zero_optimization (1, 2 or 3), or "
            "software to fsdp-2026-eager for replicas of PyTorch's DistributedDataParallel."
        )
    if layout.zero >= 2 and not layout.reduce_each:
        raise PlanError(
            f"{whose}, which reduces gradients after every microbatch under ZeRO-2 and 3; leave "
            "layout.reduce_each out."
        )


def bucket_bytes(job: TrainingJob) -> float:
    """Buffers that gradients are copied into under ZeRO-1 and 2, there in backward passes: two where one
    fills while the other is sent (stage_1_and_2.py, backward_prologue). [byte]"""
    return ELEMENT * BUCKET * (2 if job.overlap.dp else 1)


def kept_ahead(units: Sequence[float], sizes: Sequence[float]) -> float:
    """Weights that are there at once under ZeRO-3: at a forward pass's end those whose backward pass comes
    soon, elsewhere the unit at work. [byte]

    units  parameters of each, in the order of the forward pass; sizes  bytes of each
    Source: partitioned_param_coordinator.py, __params_to_release.  Between a unit's two passes those behind
    it run twice.
    """
    kept = after = 0.0
    for count, size in zip(reversed(units), reversed(sizes), strict=True):
        if 2 * after >= REUSED_WITHIN:
            break
        kept, after = kept + size, after + count
    return max([kept, *sizes])


def with_sent_gradients(operators: LayerOperators, job: TrainingJob, hidden: int) -> LayerOperators:
    """The operators of a layer with what the engine does to gradients of its weights before it sends them;
    the products write these in 16 bits.

    ZeRO-3 has a bucket of `hidden` squared parameters; larger gradients are sent from where they lie.
    """
    zero = job.layout.zero

    def each(op: Operator) -> tuple[Operator, ...]:
        if op.kind not in ("gemm", "grouped_gemm"):
            return (op,)
        weights = float(op.batch * op.m * op.n)
        joined = JOINED if zero < 3 or op.m * op.n <= hidden**2 else 0.0
        moved = SUMMED if zero < 2 else DIVIDED + joined
        made = replace(op, bytes=op.bytes + (ELEMENT - 2 * GRADIENT) * weights)
        return made, Operator(op.name, "memory", 0.0, moved * weights, op.dtype, phase=op.phase)

    sent = tuple(new for op in operators.backward_weight for new in each(op))
    return replace(operators, backward_weight=sent)
