"""Activations of a model's ends: what embedding, head, loss and the join of multi-token prediction keep."""

from __future__ import annotations

from railwright.model import head_activation_bytes
from railwright.model.operators.kernels import ELEMENT
from railwright.model.operators.logits import (
    LOGIT_BYTES,
    LOSS_TENSORS,
    WAITING_LOGIT_BYTES,
    KeptLoss,
)
from railwright.model.operators.norms import more_by_norm
from railwright.model.shape.architecture import Transformer
from railwright.model.tensors.activations import KEPT_INPUT
from railwright.spec.training import TrainingJob
from railwright.training.layers.along_sequence import copies_rows
from railwright.training.layout.schedule import TOGETHER, order_name
from railwright.training.layout.sizes import sequence_ranks, tokens_of
from railwright.training.memory.chunked_kept import OF_HEAD, WHOLE_INPUT, head_in_chunks, waiting_in_chunks
from railwright.training.software.dropout import hidden_dropout
from railwright.training.software.eras import compiles_chunks, eager_parts, era_of, unfuses_loss

CUT: dict[KeptLoss, KeptLoss] = {"eager": "eager, cut", "compiled": "compiled, cut"}
"""What PyTorch's losses are over tensor ranks (torchtitan's loss_parallel, on unless it is switched off)."""


def embedding_kept(job: TrainingJob, arch: Transformer) -> tuple[float, ...]:
    """What a pass keeps of the embedding, which no recomputation covers: the input of the norm behind it
    (torch.nn.LayerNorm), and the mask of its dropout, a byte per element. [byte]

    Source: Megatron-DeepSpeed at ae6277f5, megatron/mpu/layers.py, VocabParallelEmbedding.norm; DeepSpeed,
    runtime/pipe/module.py, _is_checkpointable (transformer layers only).
    """
    elements = tokens_of(job) * arch.hidden / sequence_ranks(job)
    norm = ELEMENT * elements if arch.embedding_norm else 0.0
    mask = elements if hidden_dropout(job) else 0.0
    return tuple(size for size in (norm, mask) if size)


def joined_kept(job: TrainingJob, arch: Transformer) -> float:
    """What multi-token prediction keeps beside its layers: two norms' inputs and the joining product's.
    [byte]"""
    inputs = 4 + 2 * more_by_norm(arch, eager_parts(job))
    return arch.mtp_layers * tokens_of(job) * inputs * ELEMENT * arch.hidden / sequence_ranks(job)


def head_backward(job: TrainingJob, arch: Transformer, gradient: float) -> dict[str, float]:
    """The head's backward pass: logits and their gradient, its gathered input, and its weight's gradient
    before it is added to the main one. [byte]

    Of PyTorch's losses all but the gradient has gone when the product runs back: the fuller of two moments.
    """
    layout, rows, loss = job.layout, tokens_of(job), loss_kept(job)
    if job.chunked_loss:
        return head_in_chunks(job, arch, gradient, loss)
    logits = head_activation_bytes(
        arch,
        rows,
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel,
        loss=loss,
        unfused=eager_parts(job),
    )
    if loss == "unfused":
        logits += rows * ELEMENT * arch.vocab / layout.tensor
    logits *= 1 + arch.mtp_layers
    if "head" in job.dtype_also:
        # the gradient of the logits at work is cast, straight and transposed
        logits += rows * 2 * KEPT_INPUT[job.dtype] * arch.vocab / layout.tensor
    parts = {"logits": logits, "activation gradients": rows * ELEMENT * arch.hidden}
    if layout.tensor > 1 and layout.sequence_parallel:
        parts[WHOLE_INPUT] = rows * ELEMENT * arch.hidden
    if gradient:
        parts[OF_HEAD] = gradient
    if loss not in LOSS_TENSORS:
        return parts
    gone = rows * (1 + arch.mtp_layers) * (LOGIT_BYTES[loss] - ELEMENT) * arch.vocab / layout.tensor
    kept = ("logits", WHOLE_INPUT) if copies_rows(job) else ("logits",)
    at_loss = {name: parts[name] for name in kept}
    at_products = parts | {"logits": logits - gone}
    return max(at_loss, at_products, key=lambda moment: sum(moment.values()))


def head_waiting(job: TrainingJob, arch: Transformer) -> float:
    """The inputs of final norm and head, and what the loss keeps (WAITING_LOGIT_BYTES). [byte]

    DTensor's linear layer keeps what it gathered; Megatron's gathers it again.
    """
    if job.chunked_loss:
        return waiting_in_chunks(job, arch, loss_kept(job))
    layout, rows = job.layout, tokens_of(job)
    logits = WAITING_LOGIT_BYTES[loss_kept(job)] * arch.vocab / layout.tensor
    inputs = (2 + more_by_norm(arch, eager_parts(job))) * ELEMENT * arch.hidden / sequence_ranks(job)
    whole = ELEMENT * arch.hidden * copies_rows(job)
    return rows * (1 + arch.mtp_layers) * (inputs + whole + logits)


def output_of_stage(job: TrainingJob, arch: Transformer) -> float:
    """What PyTorch's last stage keeps of every microbatch until the next step: its output, the logits in 16
    bits. [byte]

    Nothing with software of 2025 and later: torchtitan asks for no outputs since e5ef99aa (22 October 2025).
    Before, PyTorch had no schedule that runs a forward pass beside a backward one.
    Source: PyTorch 2.6, distributed/pipelining/stage.py (forward_one_chunk: output_chunks).
    """
    joined = era_of(job).units == "joined"
    if job.layout.pipeline == 1 or not joined or order_name(job) in TOGETHER:
        return 0.0
    return tokens_of(job) * ELEMENT * arch.vocab / job.layout.tensor


def loss_kept(job: TrainingJob) -> KeptLoss:
    """What a job's loss keeps of the logits.

    Transformer Engine's keeps them in 16 bits and writes their gradient in place (Megatron-Bridge,
    scripts/performance/utils/overrides.py, cross_entropy_fusion_impl 'te'); torchtitan and fms-fsdp call
    PyTorch's cross entropy, or compile it (torchtitan since April 2025).  Others keep the softmax in fp32, or
    as much (flash-attn's kernel: logits and their gradient in 16 bits).
    """
    era = era_of(job)
    kept = "compiled" if compiles_chunks(job) else era.kept_loss
    if unfuses_loss(job):
        kept = "unfused" if era.framework == "megatron" else "eager"
    return CUT.get(kept, kept) if job.layout.tensor > 1 else kept
