"""The operators of one layer as a job runs it: its cut, its casts and fused kernels, its adapters."""

from __future__ import annotations

from railwright.catalog.parts import Gpu
from railwright.model import layer_operators
from railwright.model.architecture import Transformer
from railwright.model.operators import LayerOperators
from railwright.model.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training.casts import compiled_casts, with_casts
from railwright.training.costs import on_context_ranks
from railwright.training.eras import era_of
from railwright.training.fused import fused_by, summing_gradients
from railwright.training.lora import with_adapters
from railwright.training.packing import attended, samples_of
from railwright.training.plan import rows_of


def operators_of(job: TrainingJob, arch: Transformer, kind: Layer, gpu: Gpu) -> LayerOperators:
    """Operators of one layer for one microbatch on one GPU."""
    layout, routed = job.layout, kind == "moe"
    operators = layer_operators(
        arch,
        kind,
        rows_of(job),
        attended(job),
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel and layout.tensor > 1,
        ep=layout.expert if routed else 1,
        expert_tp=layout.expert_tensor,
        imbalance=job.expert_load if routed else 1.0,
        dtype=job.dtype,
        attention=era_of(job).attention,
        modules=layout.recompute_modules,
        unfused=job.unfused,
    )
    if era_of(job).sums_gradients:
        operators = summing_gradients(operators)
    if routed:
        operators = fused_by(operators, job, gpu)
    if compiled_casts(job):
        operators = with_casts(operators, job, arch.gated)
    if layout.context > 1:
        heads = arch.heads // layout.tensor
        operators = on_context_ranks(operators, layout.context_kind, layout.context, samples_of(job), heads)
    return with_adapters(operators, job.lora, job.dtype) if job.lora else operators
