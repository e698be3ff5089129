"""What a pass keeps of each layer of a chunk, and what the layer that is computed again holds beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from railwright.model.shape.architecture import Transformer
from railwright.model.shape.pattern import Layer
from railwright.spec.training import TrainingJob
from railwright.training.layers.recompute import layers_again
from railwright.training.layout.route import Chunk
from railwright.training.layout.schedule import in_pairs
from railwright.training.software.lora_checks import inputs_stay

Kept = Mapping[Layer, float]
"""What a layer of each kind keeps. [byte]"""

AGAIN = "layer being recomputed"
OUTPUT_AGAIN = f"output of the {AGAIN}"
"""Parts that a layer which is computed again holds beside what was kept of it."""

STAYING = "gradients of layers' inputs"
"""Those of layers computed again before, which stay with the inputs where these do (`inputs_stay`)."""


def chunk_kept(job: TrainingJob, arch: Transformer, chunk: Chunk, kept: Kept, whole: Kept) -> list[float]:
    """What a pass keeps of every layer of a chunk, in their order. [byte]

    kept, whole  of a layer that `layout.recompute` is for, and of one that keeps all
    """
    again = layers_again(job, arch, chunk)
    return [kept[k] if i < again else whole[k] for i, k in enumerate(chunk.layers)]


def layer_at_work(
    job: TrainingJob, arch: Transformer, chunks: Sequence[Chunk], kept: Kept, whole: Kept, output: float
) -> dict[str, float]:
    """What the layer that is computed again holds beyond what was kept of it, at most, and its output. [byte]

    kept, whole  as in `chunk_kept`
    output       of a layer that is computed again whole; it stays until the layer's backward pass ends

    The layers behind the one at work, whose backward passes come before, hold nothing any more: what they
    have freed counts against it.  So the layer that has most computed again may not be where most is held, as
    dense layers in front of experts, and where only the first layers of a chunk are computed again a stage
    may be fullest before any of them is.
    """
    if inputs_stay(job):
        # none has freed anything by the time that the first one runs again
        again = [
            chunk_kept(job, arch, chunk, kept, whole)[: layers_again(job, arch, chunk)] for chunk in chunks
        ]
        more = max((whole[k] - kept[k] for chunk in chunks for k in chunk.layers), default=0.0)
        return {
            AGAIN: more,
            OUTPUT_AGAIN: output,
            STAYING: max((sum(each[1:]) for each in again), default=0.0),
        }
    found = [_beyond(job, arch, chunk, kept, whole) for chunk in chunks]
    most = max((one for one in found if one is not None), default=-output)
    if most + output <= 0:
        return {}
    held = output + min(most, 0.0)
    return {AGAIN: max(most, 0.0), OUTPUT_AGAIN: held}


def _beyond(job: TrainingJob, arch: Transformer, chunk: Chunk, kept: Kept, whole: Kept) -> float | None:
    """What is held at most while a layer of a chunk is computed again, beyond all that its pass kept; None
    where none is. [byte]"""
    again, each = layers_again(job, arch, chunk), chunk_kept(job, arch, chunk, kept, whole)
    # layers that are on the host free nothing
    away = "activations" in job.layout.offload
    found = [
        whole[k] - kept[k] - _freed(job, each, again if away else i + 1)
        for i, k in enumerate(chunk.layers[:again])
    ]
    return max(found, default=None)


def _freed(job: TrainingJob, each: Sequence[float], first: int) -> float:
    """What the layers behind the first ones held, which are over; where a forward pass fills up as they empty
    (`in_pairs`), less what that has by then. [byte]

    each   layer of a chunk keeps
    first  layers at its front
    """
    freed = sum(each[first:])
    return max(freed - sum(each[: len(each) - first]), 0.0) if in_pairs(job) else freed
