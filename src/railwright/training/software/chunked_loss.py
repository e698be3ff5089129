"""A job whose loss takes the head's product in chunks of tokens: which rows each has, and what is refused."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.operators.layer import LayerOperators
from railwright.model.operators.loss_chunks import CHUNKS, ChunkedLoss, chunk_rows, in_chunks
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layout.sizes import rows_of
from railwright.training.software.eras import era_of

RUN_BY = {
    "torchtune": ("pytorch", "torchtitan"),
    "torchtitan": ("torchtitan",),
    "liger": ("pytorch", "torchtitan", "deepspeed"),
}
"""Frameworks of eras (`Era.framework`) that stand for software with each loss."""

OFFERED: dict[str, tuple[ChunkedLoss, ...]] = {
    "torchtitan": ("torchtitan",),
    "pytorch": ("liger", "torchtune"),
    "deepspeed": ("liger",),
}
"""Of each framework those that a job which does not fit is told of, in this order."""

SOFTWARE = {
    "torchtune": "fsdp-2026 (with torch.compile) or fsdp-2026-eager",
    "torchtitan": "fsdp-2026, or fsdp-2024 where the loss is not compiled",
    "liger": "deepspeed-2026, fsdp-2026-eager, or fsdp-2026 with torch.compile",
}


def chunks_of(job: TrainingJob, arch: Transformer) -> tuple[int, ...]:
    """Rows of each chunk in which a job's loss takes the head; () where it takes all at once."""
    if job.chunked_loss is None:
        return ()
    return chunk_rows(job.chunked_loss, rows_of(job), job.loss_chunks, arch.vocab, arch.hidden)


def with_chunks(operators: LayerOperators, job: TrainingJob, arch: Transformer) -> LayerOperators:
    """The operators of a job's head as its loss runs them."""
    rows = chunks_of(job, arch)
    return in_chunks(operators, job.chunked_loss, rows) if job.chunked_loss else operators


def chunks_told(job: TrainingJob) -> str:
    """How a study says it."""
    count = f", loss_chunks: {job.loss_chunks}" if job.loss_chunks else ""
    return f"chunked_loss: {job.chunked_loss}{count}"


def check_loss(job: TrainingJob) -> None:
    """Raise PlanError where a job's software has no such loss, or not in its layout.

    Sources: Liger-Kernel ead96b6, ops/fused_linear_cross_entropy.py (the whole vocabulary's weight; its
    kernels over tensor ranks are others); torchtune bd2a0fc, recipes (no pipelines); torchtitan b5bcd76,
    ChunkedLossWrapper._chunk_local ("sequence length must be divisible by num_chunks").
    """
    how, layout, rows = job.chunked_loss, job.layout, rows_of(job)
    if how is None:
        return
    if era_of(job).framework not in RUN_BY[how]:
        raise PlanError(
            f"{job.name}: software {job.software} has no chunked_loss {how}; set software to "
            f"{SOFTWARE[how]}, or leave chunked_loss out."
        )
    cut = [name for name in ("tensor", "pipeline") if getattr(layout, name) > 1]
    if how == "torchtune":
        cut = [name for name in cut if name == "pipeline"]
    if cut and how != "torchtitan":
        asked = " and ".join(f"layout.{name} {getattr(layout, name)}" for name in cut)
        why = "multiplies the whole vocabulary on one GPU" if how == "liger" else "runs in no pipeline"
        raise PlanError(
            f"{job.name}: chunked_loss {how} {why}, and the job has {asked}; set {' and '.join(cut)} to 1, "
            "or leave chunked_loss out."
        )
    if how == "torchtitan" and rows % (count := job.loss_chunks or CHUNKS):
        raise PlanError(
            f"{job.name}: chunked_loss torchtitan cuts the {rows:,} tokens of a microbatch on one GPU into "
            f"loss_chunks {count} equal parts, which is not possible; choose a divisor of {rows:,}."
        )
