"""Weights, gradients and optimizer states of one GPU, in any number format and under any sharding.

Legend: n ranks that hold the same dense parameters (data- times context-parallel), of which each keeps 1/n of
what is sharded; experts have replicas of their own.
"""

from __future__ import annotations

from collections.abc import Mapping

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes, weight_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.layers.weight_casts import COPY_BYTES, WIDE
from railwright.training.layout.sizes import Sizes
from railwright.training.memory.units import (
    ENDS_BYTES,
    GATHERED,
    WAITING,
    copies_out,
    gathered,
    largest_unit,
)
from railwright.training.optimizer.adam import reads_as_kept, runs_listed, widens_moments
from railwright.training.optimizer.apex import padding, widened_gradients
from railwright.training.optimizer.muon import (
    ITERATION,
    MatrixGroup,
    iteration_bytes,
    matrix_groups,
    weights_of,
)
from railwright.training.optimizer.packed import bucket_threshold
from railwright.training.software.deepspeed import BUCKETS, averaged, copied, runs_engine, second_gradients
from railwright.training.software.eras import era_of
from railwright.training.software.formats import (
    frozen_bytes,
    has_fp32_shards,
    has_masters,
    master_of,
    moments_of,
)
from railwright.training.software.hosted import updates_on_host, weights_on_host
from railwright.training.software.narrow_weights import keeps_wide
from railwright.training.software.nf4 import (
    NF4_BYTES,
    SCALE,
    is_nf4,
    scales_stay,
    stored_bytes,
)
from railwright.training.software.zero_engine import SUB_GROUP, bucket_bytes

WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp16": 2.0,
    "fp8": 2 * COPY_BYTES["fp8"],
    "fp8_rowwise": 2.0,
    "fp8_block": 2 + 2 * COPY_BYTES["fp8_block"],
    "mxfp8": 2 * COPY_BYTES["mxfp8"],
    "nvfp4": 2 + 2 * COPY_BYTES["nvfp4"],
}
"""Bytes of one weight of a layer.  16 bits; fp8 keeps the weight and its transpose in one byte each where
products do not take any layout (ONE_COPY where they do); MXFP8 a row- and a column-wise copy with one scale
byte per 32 elements; fp8 with a scale per row 16 bits (torchao); with one per block 16
bits and both copies, cached over a step's microbatches, 4 bytes of scale per 128 x 128; NVFP4 those, and
both copies in 4 bits with one scale byte per 16, cached over a step's microbatches.
Source: Megatron-Bridge, training/mixed_precision.py (fp8_param_gather for fp8 with a scale per tensor and for
MXFP8, none for blocks and for NVFP4; where it cannot be, 16 bits lie beside: `narrow_weights`);
Transformer Engine, pytorch/tensor/float8_tensor.py, mxfp8_tensor.py, nvfp4_tensor.py."""

ONE_COPY = COPY_BYTES["fp8"]
"""Bytes of one in fp8 without a transpose."""

CACHED_BYTES = {name: 2 * COPY_BYTES[name] for name in WIDE}
"""Of these, the two copies that a step's first pass makes of a weight in 16 bits: there are none before."""

MASTER_BYTES = {"fp32": 4.0, "remainder": 2.0, "none": 0.0}
"""Bytes of one master weight.  In fp32, with the two moments, 12 bytes of optimizer states per parameter:
Megatron-LM, docs, 'dist_optimizer' (bf16 with fp32 gradients 18 bytes, or 6 + 12/n; fp16 20 bytes, or 4 +
16/n).  Remainders: Apex, distributed_fused_adam.py, store_param_remainders."""

MOMENT_BYTES = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0}
"""Bytes of one of Adam's two moments.  Source: Megatron-LM, core/optimizer/optimizer_config.py, exp_avg_dtype
(precision-aware optimizer)."""

COPY = "fp32 copy of the gradients"
"""Made for the optimizer's step where gradients have 16 bits and the optimizer does not read them as they are
(`adam.reads_as_kept`); nothing of the passes is held by then.  Source: Megatron-LM,
core/optimizer/distrib_optimizer.py, _copy_model_grads_to_main_grads."""

WIDENED = "moments in fp32 for the step"
"""Made for the optimizer's step where its kernel does not read them as they are kept (`adam.widens_moments`):
of one group of weights after the other, the dense ones and the experts'."""

ROOTS = "roots of Adam's second moments"
"""Made for the optimizer's step where each of its operations is a kernel over all weights
(`adam.runs_listed`): one for each weight that is updated at once, in the type of the moments.
Source: PyTorch 2.13, optim/adam.py, _multi_tensor_adam (exp_avg_sq_sqrt)."""

JOINED = "gradients in one piece"
"""Of what DeepSpeed's ZeRO engine updates at once, in 16 bits, of which it makes those in fp32."""

PASSING = "shards on their way from and to the host"
"""Of weights and gradients that lie there."""

STATES = "optimizer states"
"""Master weights and moments."""


AT_STEP = (COPY, BUCKETS, ITERATION, WIDENED, ROOTS, JOINED)
"""Parts that are there at the optimizer's step only."""

IN_PASSES = (GATHERED, WAITING, PASSING)
"""Parts that are there in passes only: weights stay gathered until the last backward pass of a step at most,
and by its end all gradients are reduced."""


def state_parts(
    job: TrainingJob, arch: Transformer, shape: StageShape, ranks: int, one_copy: bool = False
) -> dict[str, float]:
    """Weights, gradients and optimizer states of one GPU of a stage. [byte]

    ranks     that hold the same dense parameters: data- times context-parallel size
    one_copy  whether weights in fp8 have no transpose (`one_copy.weighs_one_byte`)

    ZeRO-1 shards the optimizer states over them, ZeRO-2 the gradients too, down to one bucket that waits for
    its reduction, ZeRO-3 also the weights, over `layout.shard` of them, down to the units that are gathered
    (`units`).
    What one rank alone holds is neither gathered nor reduced, but for fp32 shards, of which 16 bits are made.
    Beside these a reduced gradient has fp32 too, whatever it was sent in (PyTorch, FSDP2,
    _fsdp_collectives.py, foreach_reduce: cast to the parameter's type; FSDP, _runtime_utils.py,
    _cast_grad_to_param_dtype).  Gradients that are summed up in fp32 before they are reduced wait for that in
    16 bits, those of one unit (_fsdp_param_group.py, post_backward; _fsdp_param.py,
    to_accumulated_grad_if_needed).
    Frozen weights have neither gradients nor states.  Under Muon, those of the rank with most of them.
    Apex's buckets are filled up, in all three (`apex.padding`).
    """
    layout, gradient = job.layout, gradient_bytes(job)
    dense, expert = shape.trained_dense_total, shape.trained_expert_total
    sizes = Sizes.under(layout, ranks // layout.context)
    over, expert_over = sizes.over(layout.zero)
    moments, master = MOMENT_BYTES[moments_of(job)], MASTER_BYTES[master_of(job)]
    shard = shape.trained_shard(over, expert_over)
    narrow = ONE_COPY if one_copy else WEIGHT_BYTES[job.dtype]
    beside = WEIGHT_BYTES["bf16"] * keeps_wide(job, sizes.copies)
    weights = _weights(job, shape, narrow + beside)
    if is_nf4(job) and layout.zero < 3:
        # held whole, scales too
        weights -= (narrow + beside - NF4_BYTES) * _frozen_in_layers(shape)
    extra = padding(job, shape, sizes)
    parts = {
        "weights": weights + weight_bytes(job) * extra,
        "gradients": gradient * (dense + expert + extra)
        + (4.0 - gradient) * widened_gradients(job, shape, sizes),
    }
    wide = has_fp32_shards(job)
    widened = wide and layout.reduce_each
    cut = (wide or over > 1, wide or expert_over > 1)
    if layout.zero >= 2 and layout.reduce_each:
        sent = dense * cut[0] + expert * cut[1]
        kept = gradient if has_masters(job) else ENDS_BYTES
        parts["gradients"] = (4.0 if widened else kept) * shard
        waiting = largest_unit(shape) if layout.zero == 3 else bucket_threshold(ranks)
        if not copies_out(job):  # FSDP2's come and go (`units.waiting`)
            parts[WAITING] = gradient * min(waiting, sent)
    engine = era_of(job).zero_engine
    if engine and 0 < layout.zero < 3:
        parts[WAITING] = bucket_bytes(job)
    if engine and layout.zero >= 2 and updates_on_host(job):
        parts["gradients"] = 0.0  # they go to the host as they are reduced
    if layout.zero == 3:
        weight = frozen = ENDS_BYTES
        if wide:
            weight, frozen, master = MASTER_BYTES["fp32"], frozen_bytes(job), 0.0
        parts["weights"] = weight * shard + frozen_shard(job, shape, frozen, over, expert_over)
        parts["weights"] += _made(job, shape, _cached_bytes(job))
        parts[GATHERED] = gathered(job, shape, *cut)
        if wide and not layout.reduce_each and gradient == 4.0 and not copies_out(job):
            parts[WAITING] = ENDS_BYTES * min(largest_unit(shape), dense + expert)
        if weights_on_host(job):
            parts |= _passing(job, shape, over, expert_over)
        if scales_stay(job):
            parts["weights"] += SCALE * _frozen_in_layers(shape)
    if runs_engine(job):
        parts |= second_gradients(dense + expert, gradient) | averaged(dense + expert, gradient)
    offload = updates_on_host(job)
    at_once = min(SUB_GROUP, shard) if engine and layout.zero == 3 else shard
    if not offload:
        parts[STATES] = (master + 2 * moments) * (shard + extra / over)
        if runs_listed(job):
            parts[ROOTS] = moments * at_once
        if widens_moments(job):
            parts[WIDENED] = 2 * MOMENT_BYTES["fp32"] * max(dense / over, expert / expert_over)
        if job.optimizer == "muon":
            groups = matrix_groups(arch, layout, shape, over, expert_over)
            by_adam = shard - _mean(groups)
            parts[STATES] = (master + moments) * weights_of(groups).fullest + (master + 2 * moments) * by_adam
            parts[ITERATION] = iteration_bytes(groups, job.muon.tp_mode)
    if gradient < 4.0 and not widened and not reads_as_kept(job):
        if runs_engine(job):
            parts |= copied(dense + expert, layout.zero, offload)
        elif not offload:
            parts[COPY] = 4.0 * at_once
            if engine and layout.zero:
                parts |= _engine_step(at_once, gradient, parts, layout.zero)
    return parts


def _engine_step(weights: float, gradient: float, parts: Mapping[str, float], zero: int) -> dict[str, float]:
    """What DeepSpeed's ZeRO engine makes of gradients at the optimizer's step, of those weights. [byte]

    First they are joined in their own type, and copied to fp32; then ZeRO-1 and 2 free those that there were,
    and roots are taken beside the copy.  ZeRO-1 has freed those of other ranks' weights before.
    Source: stage_1_and_2.py, step; stage3.py, _prepare_fp32_grad_for_sub_group.
    """
    joined = gradient * weights
    rooted = parts.get(ROOTS, 0.0) - (joined if zero < 3 else 0.0)
    freed = parts["gradients"] - joined if zero == 1 else 0.0
    copy = parts[COPY] - freed
    beside, roots = max(joined, rooted), rooted > joined
    if copy < 0:
        copy, beside = 0.0, max(0.0, beside + copy)
    return {COPY: copy, ROOTS: beside * roots, JOINED: beside * (not roots)}


def frozen_shard(job: TrainingJob, shape: StageShape, wide: float, over: int, expert_over: int) -> float:
    """What one rank holds of weights that LoRA froze, cut over `over` ranks, those of experts over
    `expert_over`; without scales that are not cut. [byte]

    wide  bytes of one that is not in 4 bits
    """
    frozen = shape.dense_total / over + shape.expert_total / expert_over
    frozen -= shape.trained_shard(over, expert_over)
    if not is_nf4(job):
        return wide * frozen
    ends = (shape.dense_total - sum(map(sum, shape.dense))) / over
    return wide * ends + stored_bytes(job, wide) * (frozen - ends)


def _frozen_in_layers(shape: StageShape) -> float:
    """Weights of a stage's layers that LoRA froze."""
    layers = (size for part in (shape.dense, shape.expert) for chunk in part for size in chunk)
    return sum(layers) - sum(map(sum, shape.adapters or ()))


def unit_waits(job: TrainingJob, states: Mapping[str, float]) -> bool:
    """Whether a whole unit's gradients wait under ZeRO-3, among them those of embedding and head, rather than
    one weight's at a time, as where one rank alone holds a stage (Megatron-LM, core/distributed/fsdp/src/
    megatron_fsdp/megatron_fsdp.py, _grad_acc)."""
    return job.layout.zero == 3 and states.get(WAITING, 0.0) > 0


def moment_bytes(job: TrainingJob, arch: Transformer, shape: StageShape, ranks: int) -> float:
    """What of `STATES` are moments: made in the first step, not before. [byte]"""
    states = state_parts(job, arch, shape, ranks).get(STATES, 0.0)
    moment, master = MOMENT_BYTES[moments_of(job)], MASTER_BYTES[master_of(job)]
    if job.optimizer == "adam":
        return states * 2 * moment / (master + 2 * moment)
    over, expert_over = Sizes.under(job.layout, ranks // job.layout.context).over(job.layout.zero)
    fullest = weights_of(matrix_groups(arch, job.layout, shape, over, expert_over)).fullest
    by_adam = states - (master + moment) * fullest
    return moment * fullest + by_adam * 2 * moment / (master + 2 * moment)


def cached_weights(job: TrainingJob, shape: StageShape, ranks: int, one_copy: bool = False) -> float:
    """What of a stage's weights is not there before the first pass; `ranks` and `one_copy` as in
    `state_parts`. [byte]"""
    made = _cached_bytes(job)
    if keeps_wide(job, Sizes.under(job.layout, ranks // job.layout.context).copies):
        made = ONE_COPY if one_copy else WEIGHT_BYTES[job.dtype]
    return _made(job, shape, made)


def _cached_bytes(job: TrainingJob) -> float:
    """Bytes of the copies that a step's first pass makes of a weight in 16 bits; whole under ZeRO-3 too."""
    kept = job.layout.zero < 3 or era_of(job).framework == "megatron"
    return CACHED_BYTES.get(job.dtype, 0.0) * kept


def _made(job: TrainingJob, shape: StageShape, narrow: float) -> float:
    """So many bytes of every weight that products in a job's format read. [byte]"""
    return _weights(job, shape, narrow) - _weights(job, shape, 0.0)


def native_saves(job: TrainingJob, shape: StageShape) -> float:
    """What a stage's weights in NVFP4 would take less without 16 bits beside them. [byte]

    Not what is counted: Megatron-LM has `fp4_param_gather` since e1db4a03 (14 April 2026), for experts later,
    and only an argument turns it on, or Megatron-Bridge's `bf16_with_nvfp4_mixed` (ecbd4ead; NeMo 26.04.01),
    whose recipes for Nemotron, gpt-oss and DeepSeek-V3 on B200 turn it off again.  Of published NVFP4 steps
    two ran with it, Llama 3 70B of 26.04.01, which it makes 0.1 % shorter at most.
    """
    if job.dtype != "nvfp4" or not 0 < job.layout.zero < 3 or job.lora or not era_of(job).megatron_alone:
        return 0.0
    return cached_weights(job, shape, job.layout.context) * WEIGHT_BYTES["bf16"] / CACHED_BYTES["nvfp4"]


def _mean(groups: tuple[MatrixGroup, ...]) -> float:
    """Weights that Muon updates of one data-parallel rank, in the mean."""
    dense, expert, _ = weights_of(groups)
    return dense / groups[0].ranks + expert / groups[-1].ranks


def _weights(job: TrainingJob, shape: StageShape, narrow: float) -> float:
    """`narrow`: bytes of one weight of a layer, and of a head in its format."""
    embedding = shape.embedding * sum(c.embedding for c in shape.chunks)
    head = shape.head * sum(c.head for c in shape.chunks)
    layers = shape.dense_total + shape.expert_total - embedding - head
    return ENDS_BYTES * embedding + head_bytes(job, narrow) * head + narrow * layers


def head_bytes(job: TrainingJob, narrow: float) -> float:
    """Bytes of one weight of the head, where one of a layer takes `narrow`."""
    return narrow if "head" in job.dtype_also else ENDS_BYTES


def _passing(job: TrainingJob, shape: StageShape, over: int, expert_over: int) -> dict[str, float]:
    """What is left on the GPU of shards that lie on the host: those of one unit on their way, the weights in
    fp32 and in 16 bits, the gradients in fp32; gradients that are summed up before they are reduced stay.
    Frozen weights have no gradients, and in 16 bits no copy.

    Source: PyTorch, FSDP2, _fsdp_param.py (all_gather_inputs), _fsdp_collectives.py (foreach_reduce).
    DeepSpeed has neither in fp32.
    """
    trains, frozen = MASTER_BYTES["fp32"] + ENDS_BYTES + 4.0, frozen_bytes(job)
    if era_of(job).zero_engine:
        trains, frozen = ENDS_BYTES + gradient_bytes(job), ENDS_BYTES
    elif frozen != ENDS_BYTES:
        frozen += ENDS_BYTES
    chunks = zip(shape.dense, shape.expert, shape.trained_dense, shape.trained_expert, strict=True)
    units = [(stored_bytes(job, frozen), *unit) for chunk in chunks for unit in zip(*chunk, strict=True)]
    ends = (end for end in (shape.embedding, shape.head) if end)
    units += [(frozen, end, 0.0, end * (shape.adapters is None), 0.0) for end in ends]
    largest = max(
        each * (dense / over + expert / expert_over)
        + (trains - each) * (trained / over + trained_expert / expert_over)
        for each, dense, expert, trained, trained_expert in units
    )
    left = {"weights": 0.0, PASSING: largest}
    return left | ({"gradients": 0.0} if job.layout.reduce_each else {})
