"""Which parameters share a bucket: whole ones of one model chunk, in the order their gradients appear.

Megatron-LM fills buckets until they are large enough; dense and expert parameters have separate buffers
because their groups differ.  Apex, under NeMo, has some for each layer (`apex`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from railwright.spec.training import TrainingJob
from railwright.training.layers.stages import StageShape
from railwright.training.layout.sizes import Sizes
from railwright.training.optimizer.apex import apex_buckets
from railwright.training.optimizer.buckets import Bucket, BucketKind
from railwright.training.software.constants import constant
from railwright.training.software.eras import era_of
from railwright.training.software.zero_engine import BUCKET


def bucket_threshold(data: int) -> float:
    """Parameters a bucket holds at least: larger groups need larger buckets to stay bandwidth-bound.

    data  ranks that hold the same dense parameters; buckets of experts, which fewer share, are as large
    Source: Megatron-LM, core/distributed/distributed_data_parallel_config.py, bucket_size; training.py
    (of the data-parallel group with context ranks).
    """
    return max(constant("bucket_parameters"), constant("bucket_parameters_per_rank") * data)


def fills_buckets(job: TrainingJob) -> bool:
    """Whether a job's gradients leave in buckets of a size that it may name (`ddp_bucket`): Megatron-LM's
    distributed data parallelism, where it hides them."""
    alone = job.layout.zero < 2 and job.overlap.dp and job.apex_bucket is None
    return alone and era_of(job).megatron_alone


def buckets_of(job: TrainingJob, shape: StageShape, sizes: Sizes) -> list[tuple[Bucket, ...]]:
    """Buckets of each chunk of a stage.

    What is reduced once a step is one bucket where it is not hidden and, with Megatron-LM, in all chunks but
    the first of the first stage, which all others wait for.
    Source: Megatron-LM, core/distributed/distributed_data_parallel.py (bucket_size None, i.e. all parameters,
    without overlap_grad_reduce and where pp_rank > 0), training/training.py (disable_bucketing of chunks).
    DeepSpeed's ZeRO engine has buckets of one size, Apex those of `apex_buckets`.
    """
    if job.apex_bucket is not None:
        return apex_buckets(job, shape, sizes)
    once, trained, era = job.layout.zero < 2, job.lora is None, era_of(job)
    alone = once and (not job.overlap.dp or era.framework == "megatron")

    def threshold(chunk: int) -> float:
        if era.zero_engine:
            return float(BUCKET)
        first = chunk == 0 and shape.chunks[0].embedding and job.overlap.dp
        if alone and not first:
            return math.inf
        named = job.ddp_bucket if fills_buckets(job) else None
        return named or bucket_threshold(sizes.replicas)

    return [
        make_buckets(
            shape.trained_dense[c],
            shape.trained_expert[c],
            shape.embedding if chunk.embedding and trained else 0.0,
            shape.head if chunk.head and trained else 0.0,
            threshold(c),
        )
        for c, chunk in enumerate(shape.chunks)
    ]


def make_buckets(
    dense: Sequence[float], expert: Sequence[float], embedding: float, head: float, threshold: float
) -> tuple[Bucket, ...]:
    """Buckets of one chunk in the order its forward pass needs them.

    dense, expert  parameters per layer of the chunk, on this GPU
    threshold      parameters of one at least; infinite: one bucket of dense and one of expert parameters
    Whole layers are packed together, from the last layer down (`_pack`); embedding and head have buckets of
    their own.
    """
    if math.isinf(threshold):
        first, last = (-1 if embedding else 0), len(dense) - (not head)
        whole = (
            Bucket("dp", embedding + sum(dense) + head, first, last, embedding + head),
            Bucket("expert_dp", sum(expert), 0, len(expert) - 1),
        )
        return tuple(bucket for bucket in whole if bucket.parameters)
    found = [*_pack("dp", dense, threshold), *_pack("expert_dp", expert, threshold)]
    if embedding:
        found.append(Bucket("dp", embedding, -1, -1, embedding))
    if head:
        found.append(Bucket("dp", head, len(dense), len(dense), head))
    return tuple(sorted(found, key=lambda b: (b.first, b.kind)))


def _pack(kind: BucketKind, counts: Sequence[float], threshold: float) -> list[Bucket]:
    """Neighbouring layers, from the last one down, until they have `threshold` parameters; the first ones may
    have less.

    Source: Megatron-LM, core/distributed/param_and_grad_buffer.py (`bucket_size`; of parameters one by one).
    """
    filled = [layer for layer, count in enumerate(counts) if count]
    found: list[Bucket] = []
    held, last = 0.0, -1
    for layer in reversed(filled):
        last = last if held else layer
        held += counts[layer]
        if held >= threshold * (1 - 1e-9) or layer == filled[0]:
            found.append(Bucket(kind, held, layer, last))
            held = 0.0
    return found
