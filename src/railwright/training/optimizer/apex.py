"""Apex's distributed optimizer as NeMo ran it up to 24.12: optim.name distributed_fused_adam.

It shards optimizer states as Megatron's does, but has buckets of one size (bucket_cap_mb), and NeMo gives it
a group of them for each layer, all exchanged together.  Embedding, head and final norm are in the group of
the GPU's first layer: their gradients are reduced, and their weights gathered, where nothing hides it.
Sources: NVIDIA/apex (23c1f865, July 2024), contrib/optimizers/distributed_fused_adam.py, __init__
(default_shard_size), init_params_bucket, _init_param_state, step; NVIDIA/NeMo (599b60f8, July 2024),
collections/nlp/models/language_modeling/megatron_gpt_model.py, configure_optimizers (make_parameter_bucket,
with_fp32_embedding_grads), megatron_base_model.py (reduce_overlap_gradients), core/optim/distributed_adam.py
(init_params_bucket, _check_params_shard_dtypes).
"""

from __future__ import annotations

import math

from railwright.errors import PlanError
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes, keeps_narrow_weights
from railwright.training.layers.stages import StageShape
from railwright.training.layout.sizes import Sizes
from railwright.training.optimizer.buckets import Bucket
from railwright.training.software.hosted import updates_on_host

ALIGNED = 128
"""Bytes that a rank's share of a bucket is a multiple of."""


def check_apex(job: TrainingJob, arch: Transformer) -> None:
    """Refuse what NeMo does not run with Apex's optimizer (PlanError)."""
    if job.apex_bucket is None:
        return
    refused = {
        f"NeMo up to 24.12 ran it, not software {job.software}; write software: nemo-2024": (
            job.software != "nemo-2024"
        ),
        f"it shards optimizer states, and layout.zero is {job.layout.zero}; set it to 1": (
            job.layout.zero != 1
        ),
        "layout.shard divides ranks into groups with copies of their own; leave it out": (
            job.layout.shard is not None
        ),
        f"it is Adam, not optimizer {job.optimizer}; write optimizer: adam": job.optimizer != "adam",
        f"mixtures of experts such as {arch.name} run with Megatron's": arch.is_moe,
        "adapters (lora) run with plain Adam": job.lora is not None,
        "layout.offload optimizer runs Adam on the host; leave 'optimizer' out of it": updates_on_host(job),
    }
    for reason, applies in refused.items():
        if applies:
            raise PlanError(
                f"{job.name}: apex_bucket is of Apex's distributed optimizer (distributed_fused_adam): "
                f"{reason}, or leave apex_bucket out for Megatron's."
            )


def bucket_elements(job: TrainingJob, sizes: Sizes) -> int:
    """Elements of one bucket: `apex_bucket` in the type gradients are reduced in, in equal shares of whole
    multiples of `ALIGNED` bytes."""
    assert job.apex_bucket is not None
    each = int(gradient_bytes(job))
    least = ALIGNED // each
    return max(int(job.apex_bucket / each / sizes.replicas) // least, 1) * least * sizes.replicas


def apex_buckets(job: TrainingJob, shape: StageShape, sizes: Sizes) -> list[tuple[Bucket, ...]]:
    """Groups of buckets of each chunk of a stage, each as one: they are sent together (`init_params_bucket`).

    A group for the first layer of the first chunk with all ends of the GPU, and one for each layer behind it
    in a first stage without virtual ones.  Elsewhere NeMo's schedules reduce all of a chunk at once
    (grad_sync_func, behind the last backward pass); parameters, which other stages need later, count so too.
    Gradients of the embedding are reduced in fp32, so are those of a head that is the same matrix.  Types do
    not share a bucket, and in fp8 those of layers are of another type than the ends'.
    """
    size = bucket_elements(job, sizes)
    layered = shape.chunks[0].embedding and len(shape.chunks) == 1
    embedding = shape.embedding * any(chunk.embedding for chunk in shape.chunks)
    head = shape.head * any(chunk.head for chunk in shape.chunks)
    wide = embedding + head * shape.tied
    found = []
    for c, layers in enumerate(shape.dense):
        first = 1 if c == 0 and layers else 0
        rest = [(i, i) for i in range(first, len(layers))] if layered else [(first, len(layers) - 1)]
        groups = [
            Bucket("dp", sum(_filled(layer, size) for layer in layers[i : j + 1]), i, j)
            for i, j in rest
            if sum(layers[i : j + 1])
        ]
        if c == 0:
            groups.insert(0, _first(job, layers[:1], embedding, head, wide, size))
        found.append(tuple(group for group in groups if group.parameters))
    return found


def padding(job: TrainingJob, shape: StageShape, sizes: Sizes) -> float:
    """Elements that fill up a GPU's buckets beside its parameters; 0 with Megatron's optimizer."""
    if job.apex_bucket is None:
        return 0.0
    groups = (group for chunk in apex_buckets(job, shape, sizes) for group in chunk)
    return sum(group.parameters for group in groups) - shape.dense_total


def widened_gradients(job: TrainingJob, shape: StageShape, sizes: Sizes) -> float:
    """Parameters whose gradients are kept and reduced in fp32 whatever those of others; 0 with Megatron's."""
    if job.apex_bucket is None:
        return 0.0
    return sum(group.wide for chunk in apex_buckets(job, shape, sizes) for group in chunk)


def casts_shards(job: TrainingJob) -> bool:
    """Whether Adam's kernel updates masters in place, of which weights in fp8 are cast then."""
    return job.apex_bucket is not None and keeps_narrow_weights(job)


def _first(
    job: TrainingJob, layer: tuple[float, ...], embedding: float, head: float, wide: float, size: int
) -> Bucket:
    """The group of a GPU's first layer and of its ends."""
    held, other = sum(layer), embedding + head - wide
    apart = keeps_narrow_weights(job)
    kept = _filled(held, size) + _filled(other, size) if apart else _filled(held + other, size)
    ends = _filled(wide, size) + (_filled(other, size) if apart else other)
    first = -1 if embedding else 0
    return Bucket("dp", kept + _filled(wide, size), first, 0 if layer else first, ends, _filled(wide, size))


def _filled(parameters: float, size: int) -> float:
    """Elements of the buckets that so many parameters take."""
    return math.ceil(parameters / size - 1e-9) * float(size)
