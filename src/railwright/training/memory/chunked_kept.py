"""What a head holds whose loss takes it in chunks of tokens (`TrainingJob.chunked_loss`).

A chunk is the largest one.
"""

from __future__ import annotations

from typing import NamedTuple

from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.logits import LOGIT_BYTES, WAITING_LOGIT_BYTES, KeptLoss
from railwright.model.operators.norms import more_by_norm
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layers.communication import gradient_bytes
from railwright.training.layout.sizes import sequence_ranks, tokens_of
from railwright.training.memory.units import copies_out
from railwright.training.software.chunked_loss import chunks_of
from railwright.training.software.eras import eager_parts

OF_HEAD = "gradient of the head"
"""The part that its backward pass makes."""
WHOLE_INPUT = "gathered input"
"""The head's, of all tensor ranks."""


class ChunkLogits(NamedTuple):
    """Bytes of one logit: `kept` of every chunk until its backward pass, `work` beside that of the chunk at
    work, `next` of the chunk before it while that one's are made."""

    kept: float
    work: float
    next: float = 0.0


class ChunkGradient(NamedTuple):
    """Bytes of the head's weight gradient: what `stays` over all chunks, and what is `made` for each; without
    what the sums of states have already."""

    stays: float
    made: float


def chunk_logits(job: TrainingJob, loss: KeptLoss) -> ChunkLogits:
    """What the chunks of a job's loss hold.

    loss  what it keeps where it takes all at once
    torchtune's chunks are operations of one graph of autograd's: what one keeps stays until it runs backward.
    torchtitan's wrapper names the logits of a chunk while its backward pass runs, where PyTorch's whole loss
    has let go of them ('eager'); 'compiled', they are what that pass reads.
    Liger's kernel writes the gradient over the logits, and their names hold a chunk's while the next one's
    are made.
    Source: torchtune bd2a0fc, LinearCrossEntropyLoss.forward; torchtitan b5bcd76, components/loss.py,
    ChunkedLossWrapper.__call__; Liger-Kernel ead96b6, ops/fused_linear_cross_entropy.py.
    """
    if job.chunked_loss == "liger":
        return ChunkLogits(0.0, ELEMENT, ELEMENT)
    kept, most = WAITING_LOGIT_BYTES[loss], LOGIT_BYTES[loss]
    if job.chunked_loss == "torchtitan":
        return ChunkLogits(0.0, most + (0.0 if loss.startswith("compiled") else ELEMENT))
    return ChunkLogits(kept, most - kept)


def chunk_gradient(job: TrainingJob, chunks: int, weights: float, waits: bool) -> ChunkGradient:
    """The head's gradient beside what the states count of it.

    waits  whether they count it before it is reduced (`units.WAITING`)
    torchtune: autograd adds the 16 bits of one chunk to those of others before the gradient is handed on.
    torchtitan: FSDP adds them to a sum of the type that is reduced; without FSDP to the gradient itself.
    Liger: 16 bits, to which the products add.
    """
    if job.lora:
        return ChunkGradient(0.0, 0.0)
    one, counted = ELEMENT * weights, gradient_bytes(job) * weights if waits else 0.0
    if job.chunked_loss == "liger":
        stays, made = one, 0.0
    elif chunks == 1:
        return ChunkGradient(0.0, 0.0 if waits else one)
    elif job.chunked_loss == "torchtune":
        stays, made = one, one
    else:
        stays, made = gradient_bytes(job) * weights * (waits or copies_out(job)), one
    return ChunkGradient(max(stays - counted, 0.0), max(made - max(counted - stays, 0.0), 0.0))


def head_in_chunks(job: TrainingJob, arch: Transformer, gradient: float, loss: KeptLoss) -> dict[str, float]:
    """The parts of `end_activations.head_backward` at the fullest of a loss's moments (`_moments`). [byte]

    gradient  of the head before it is added, where the states do not count it
    """
    rows, layout = tokens_of(job), job.layout
    moment = max(_moments(job, arch, bool(gradient), loss), key=sum)
    parts = {
        "logits": inputs_of_head(job, arch) + moment.logits,
        "activation gradients": moment.flowing,
        OF_HEAD: moment.weight,
    }
    if layout.tensor > 1 and layout.sequence_parallel:
        parts[WHOLE_INPUT] = rows * ELEMENT * arch.hidden
    return {name: size for name, size in parts.items() if size or name != OF_HEAD}


class _Moment(NamedTuple):
    """Logits and their gradients, gradients of the head's input, gradients of its weight. [byte]"""

    logits: float
    flowing: float
    weight: float


def _moments(job: TrainingJob, arch: Transformer, alone: bool, loss: KeptLoss) -> list[_Moment]:
    """A loss's fullest moments: at the logits of the first chunk to run backward, at its gradient of the
    weight, and at that of the next one.

    alone  the head's gradient is not counted among the states before it is reduced

    What a chunk keeps for its loss has gone when its weight's gradient comes, and so have gradients in fp32:
    the logits' own, in 16 bits, is left, and with torchtitan the logits, which have their name.
    """
    rows, chunks = tokens_of(job), chunks_of(job, arch)
    whole, columns = ELEMENT * rows * arch.hidden, arch.vocab / job.layout.tensor
    share, more = max(chunks) / sum(chunks), len(chunks) > 1
    held = chunk_logits(job, loss)
    made = chunk_gradient(job, len(chunks), columns * arch.hidden, not alone and not job.lora)
    every = held.kept * (1 + arch.mtp_layers) * rows * columns
    chunk = rows * share * columns
    if job.chunked_loss == "liger":
        return [_Moment((held.work + held.next * more) * chunk, whole, made.stays)]
    if job.chunked_loss == "torchtitan":
        at_logits = _Moment(held.work * chunk, 2 * whole, made.stays)
        named = 2 * ELEMENT * chunk
        return [at_logits, _Moment(named, (2 + share) * whole, made.stays + made.made)]
    at_logits = _Moment(every + held.work * chunk, 0.0, 0.0)
    left, own = every - held.kept * chunk, ELEMENT * chunk
    first = _Moment(left + own, share * whole, made.made)
    if not more:
        return [at_logits, first]
    return [at_logits, first, _Moment(left - held.kept * chunk + own, 2 * share * whole, sum(made))]


def inputs_of_head(job: TrainingJob, arch: Transformer) -> float:
    """The inputs of final norm and head. [byte]"""
    copies = 2 + more_by_norm(arch, eager_parts(job))
    return tokens_of(job) * copies * ELEMENT * arch.hidden / sequence_ranks(job)


def waiting_in_chunks(job: TrainingJob, arch: Transformer, loss: KeptLoss) -> float:
    """The input of the final norm, and that of the head or, where the backward pass follows at once, its
    gradient, which tensor ranks have whole; and what chunks keep of the logits. [byte]"""
    rows, layout = tokens_of(job), job.layout
    logits = chunk_logits(job, loss).kept * rows * arch.vocab / layout.tensor
    gradient = 0.0 if job.chunked_loss == "torchtune" else ELEMENT * rows * arch.hidden
    inputs = inputs_of_head(job, arch) + gradient * (1 - 1 / sequence_ranks(job))
    return (1 + arch.mtp_layers) * (inputs + logits)
