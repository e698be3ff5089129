"""The operators of one layer, and of the head, as a job runs them: cut, casts, fused kernels, adapters."""

from __future__ import annotations

from dataclasses import replace

from railwright.catalog.parts import Gpu
from railwright.model import embedding_operators, head_operators, layer_operators
from railwright.model.operators.eager import Part
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.layer import LayerOperators
from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer, is_routed, made_as
from railwright.spec.training import TrainingJob
from railwright.training.layers.along_sequence import copies_rows, with_copied_rows
from railwright.training.layers.blockwise import DTYPE as BLOCKS
from railwright.training.layers.blockwise import product_dtype, with_block_casts, with_narrow_dispatch
from railwright.training.layers.casts import compiled_casts, with_casts
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layers.costs import on_context_ranks
from railwright.training.layers.cut import cut_of
from railwright.training.layers.four_bits import with_four_bit_casts
from railwright.training.layers.fused import fused_by, summing_gradients
from railwright.training.layers.input_casts import casts_inputs, with_gathered_casts, with_input_casts
from railwright.training.layers.one_copy import ACTIVATIONS, has_one_copy, with_one_copy
from railwright.training.layers.packing import attended, samples_of
from railwright.training.layers.recompute import needed
from railwright.training.layout.sizes import rows_of
from railwright.training.software.dropout import hidden_dropout
from railwright.training.software.eras import eager_parts, era_of, loss_of
from railwright.training.software.lora import linears, with_adapters
from railwright.training.software.nf4 import is_nf4, with_dequantised
from railwright.training.software.zero_engine import with_sent_gradients


def operators_of(job: TrainingJob, arch: Transformer, kind: Layer, gpu: Gpu) -> LayerOperators:
    """Operators of one layer for one microbatch on one GPU."""
    layout, routed = job.layout, is_routed(kind)
    cut = replace(cut_of(job, kind), unfused=unfused_of(job, arch))
    operators = layer_operators(
        arch,
        kind,
        rows_of(job),
        attended(job),
        cut,
        dtype=product_dtype(job, gpu),
        modules=layout.recompute_modules,
    )
    if not era_of(job).repeats:
        operators = needed(operators)
    if era_of(job).sums_gradients:
        operators = summing_gradients(operators)
    if era_of(job).zero_engine and job.lora is None:
        operators = with_sent_gradients(operators, job, arch.hidden)
    if routed:
        operators = fused_by(operators, job, gpu)
    if compiled_casts(job):
        operators = with_casts(operators, job, arch.gated)
    if casts_inputs(job):
        operators = with_input_casts(operators, job)
    operators = with_gathered_casts(operators, job, has_one_copy(job, gpu))
    if has_one_copy(job, gpu):
        split = bool({"norm", "activation"} & set(cut.unfused))
        alone = ("mlp norm",) * routed + ("input norm",) * (arch.attention == "mla")
        alone += ACTIVATIONS * casts_inputs(job)
        operators = with_one_copy(operators, alone=alone, gated=arch.gated, split=split)
    if job.dtype == BLOCKS:
        operators = with_block_casts(operators, job, gpu)
    if job.dtype == "nvfp4":
        operators = with_four_bit_casts(operators, job)
    if routed and job.dispatch_dtype == "fp8" and layout.expert > 1:
        operators = with_narrow_dispatch(operators, job)
    if copies_rows(job):
        operators = with_copied_rows(operators, job, arch)
    if layout.context > 1:
        heads = made_as(arch, kind).heads // layout.tensor
        operators = on_context_ranks(operators, layout.context_kind, layout.context, samples_of(job), heads)
    if job.lora is None:
        return operators
    apart, compiled = linears(made_as(arch, kind), era_of(job).adapts_apart), era_of(job).launcher != "python"
    adapted = with_adapters(operators, job, product_dtype(job, gpu), apart, compiled)
    return with_dequantised(adapted, operators, job, gpu, apart) if is_nf4(job) else adapted


def unfused_of(job: TrainingJob, arch: Transformer) -> tuple[Part, ...]:
    """Parts of a layer that run one kernel per operation: those the job names, and YaRN's positions where the
    era does not fuse them.

    Transformer Engine's kernel takes no scale of the rotation but 1, YaRN's is another (Megatron-LM,
    core/models/common/embeddings/rope_utils.py, apply_rotary_pos_emb; Megatron-Bridge 0.1 to 0.6 turns
    apply_rope_fusion off, utils/fusions.py, validate_rope_fusion_compatibility).  Latent attention has a
    kernel of its own (core/fusions/fused_mla_yarn_rope_apply.py).
    """
    scaled = arch.yarn and arch.attention == "gqa" and not era_of(job).fuses_yarn
    told = eager_parts(job)
    return (*told, "rotary") if scaled and "rotary" not in told else told


def embedding_of(job: TrainingJob, arch: Transformer) -> LayerOperators:
    """Operators of the embedding for one microbatch on one GPU."""
    layout = job.layout
    return embedding_operators(
        arch,
        rows_of(job),
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel and layout.tensor > 1,
        added=_added(job),
        dropped=hidden_dropout(job) > 0,
    )


def _added(job: TrainingJob) -> float:
    """Traffic of adding one element of a gradient that no product adds to those before it. [byte]

    Megatron-LM adds a 16-bit gradient to the buffer of gradients (core/distributed/
    distributed_data_parallel.py, _make_backward_post_hook: main_grad.add_), autograd to another 16-bit one
    (`fused.summing_gradients`).  FSDP reduces each as it is, and of XLA nothing is known.
    """
    era = era_of(job)
    if era.framework != "megatron":
        return 0.0
    return 3 * ELEMENT if era.sums_gradients else ELEMENT + 2 * gradient_bytes(job)


def head_of(job: TrainingJob, arch: Transformer, gpu: Gpu) -> LayerOperators:
    """Operators of the head and its loss for one microbatch on one GPU."""
    layout = job.layout
    return head_operators(
        arch,
        rows_of(job),
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel and layout.tensor > 1,
        dtype=product_dtype(job, gpu),
        narrow="head" in job.dtype_also,
        loss=loss_of(job),
        unfused=eager_parts(job),
        added=_added(job),
    )
