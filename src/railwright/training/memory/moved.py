"""Weights that a distributed optimizer moves into its buffers when a job starts, and what is there meanwhile.

The model is made first, weight by weight; every buffer is then made whole, with that of its gradients, and
takes its weights one by one.  So the last ones are there twice beside all gradients: more than a step ever
needs where many ranks share the optimizer's states and passes hold little.
Source: Megatron-LM (d98e8a64), training/training.py, get_model; core/distributed/distributed_data_parallel.py
and param_and_grad_buffer.py, group_params_for_buffers, _ParamAndGradBuffer.__init__.
"""

from __future__ import annotations

from itertools import accumulate
from typing import NamedTuple

from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layers.stages import StageShape
from railwright.training.memory.states import head_bytes
from railwright.training.memory.units import ENDS_BYTES
from railwright.training.software.eras import era_of
from railwright.training.software.narrow_weights import keeps_wide

BUFFERED_BYTES = {"fp8": 1.0, "mxfp8": 0.0}
"""Bytes of one weight of a layer in the distributed optimizer's buffer, where not 16 bits: fp8 with a scale
per tensor without the transpose; MXFP8 none, whose gathered weights take turns with the gradients.
Source: Megatron-LM, core/distributed/param_and_grad_buffer.py (modify_underlying_storage, shared_buffer)."""

MOVED = "weights on their way into the optimizer's buffer"
"""There twice, in the buffer and where they were made."""


class Buffer(NamedTuple):
    """Weights of one chunk of a stage that lie together.

    chunk    its number in the stage
    parts    whose they are: 'ends', 'dense' and 'expert' ones
    weights  bytes of them in the buffer; gradients  bytes of theirs
    """

    chunk: int
    parts: tuple[str, ...]
    weights: float
    gradients: float


def moves(job: TrainingJob) -> bool:
    """Whether a job's weights move; of frozen ones and adapters next to nothing does.

    Apex moves all at once, before there are gradients, which take as much (distributed_fused_adam.py,
    init_param_buffer).
    """
    megatrons = era_of(job).moves_weights and job.apex_bucket is None
    return job.layout.zero == 1 and megatrons and not job.lora


def buffers(job: TrainingJob, shape: StageShape) -> tuple[Buffer, ...]:
    """The buffers of a stage in the order they are made; () where its weights stay where they are.

    Of each chunk one of weights in 16 bits and one in 8, and where experts are cut otherwise than the rest
    another for theirs, in the order of their first weights: an embedding comes before the layers, the gains
    of the first norm behind the first product.
    """
    return tuple(b for c in range(len(shape.chunks)) for b in _of_chunk(job, shape, c)) if moves(job) else ()


def _of_chunk(job: TrainingJob, shape: StageShape, c: int) -> list[Buffer]:
    layout, chunk = job.layout, shape.chunks[c]
    # under ZeRO-1, the number of ranks with the same weights widens none
    narrow = ENDS_BYTES if keeps_wide(job, 1) else BUFFERED_BYTES.get(job.dtype, ENDS_BYTES)
    embedding, head = shape.embedding * chunk.embedding, shape.head * chunk.head
    held = {
        "ends": (embedding + head, ENDS_BYTES * embedding + head_bytes(job, narrow) * head),
        "dense": (sum(shape.dense[c]), narrow * sum(shape.dense[c])),
        "expert": (sum(shape.expert[c]), narrow * sum(shape.expert[c])),
    }
    apart = layout.expert > 1 or layout.expert_cut != layout.tensor
    together = [["dense"], ["expert"]] if apart else [["dense", "expert"]]
    if narrow == ENDS_BYTES:
        together[0].insert(0, "ends")
    else:
        together.insert(0 if embedding else 1, ["ends"])
    found = []
    for parts in together:
        count, size = (sum(held[part][i] for part in parts) for i in (0, 1))
        if count:
            found.append(Buffer(c, tuple(parts), size, gradient_bytes(job) * count))
    return found


def at_start(job: TrainingJob, shape: StageShape, weights: float) -> dict[str, float]:
    """What is there while weights move, when most is; {} where none do. [byte]

    weights  bytes of a stage's, as they are made
    """
    made = buffers(job, shape)
    sums = accumulate(buffer.gradients for buffer in made)
    moments = [
        {"weights": weights, MOVED: buffer.weights, "gradients": gradients}
        for buffer, gradients in zip(made, sums, strict=True)
    ]
    return max(moments, key=lambda parts: sum(parts.values()), default={})
