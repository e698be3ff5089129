"""The operators of one layer as a job runs it: its cut, its fused kernels, its adapters."""

from __future__ import annotations

from railwright.catalog.parts import Gpu
from railwright.model import layer_operators
from railwright.model.architecture import Transformer
from railwright.model.operators import Layer, LayerOperators
from railwright.spec.study import TrainingJob
from railwright.training.costs import on_context_ranks
from railwright.training.eras import era_of
from railwright.training.fused import COUNTS, DISPATCH, EXPERTS, inside
from railwright.training.lora import with_adapters
from railwright.training.plan import rows_of


def operators_of(job: TrainingJob, arch: Transformer, kind: Layer, gpu: Gpu) -> LayerOperators:
    """Operators of one layer for one microbatch on one GPU."""
    layout, routed = job.layout, kind == "moe"
    operators = layer_operators(
        arch,
        kind,
        rows_of(job),
        job.sequence,
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel and layout.tensor > 1,
        ep=layout.expert if routed else 1,
        expert_tp=layout.expert_tensor,
        imbalance=job.expert_load if routed else 1.0,
        dtype=job.dtype,
        attention=era_of(job).attention,
        modules=layout.recompute_modules,
    )
    if routed and job.expert_capacity is not None:
        operators = inside(operators, COUNTS)
    if routed and job.expert_nodes is not None:
        operators = inside(operators, DISPATCH)
    if routed and era_of(job).fuses_experts(gpu, job.dtype):
        operators = inside(operators, EXPERTS)
    if layout.context > 1:
        heads = arch.heads // layout.tensor
        operators = on_context_ranks(operators, layout.context_kind, layout.context, job.micro_batch, heads)
    return with_adapters(operators, job.lora, job.dtype) if job.lora else operators
