"""How the layers of a job are cut over its GPUs, and which of their parts run in ways of their own."""

from __future__ import annotations

from dataclasses import replace

from railwright.model import Cut
from railwright.model.operators.cut import Dispatch
from railwright.model.shape.pattern import Layer, is_routed
from railwright.spec.training import TrainingJob
from railwright.training.software.dropout import attention_dropout, dropped_by
from railwright.training.software.eras import eager_parts, era_of
from railwright.training.software.narrow import scaling_of


def cut_of(job: TrainingJob, kind: Layer) -> Cut:
    """How one layer of a kind is cut, and how it runs by what the job and its era say."""
    layout = job.layout
    cut = Cut(
        tp=layout.tensor,
        sequence_parallel=layout.sequence_parallel and layout.tensor > 1,
        attention=era_of(job).attention,
        attention_dropout=attention_dropout(job) > 0,
        hidden_dropout=dropped_by(job),
        biased=era_of(job).biased,
        unfused=eager_parts(job),
        rotation=era_of(job).rotation,
        narrow=scaling_of(job),
        stored=job.activation_input_dtype == "fp8",
    )
    if not is_routed(kind):
        return cut
    return replace(
        cut,
        ep=layout.expert,
        expert_tp=layout.expert_tensor,
        imbalance=job.expert_load,
        dispatch=dispatch_of(job),
    )


def dispatch_of(job: TrainingJob) -> Dispatch:
    """What moves rows to experts; to those of other ranks Megatron-LM's kernels do."""
    return era_of(job).dispatch if job.layout.expert == 1 else "fused"


def cut_in_memory(job: TrainingJob, kind: Layer) -> Cut:
    """How one layer of a kind is cut, as far as what it keeps is concerned.

    Of attention whose scores only the layer at work has (`Era.scores_once`) nothing is kept but what fused
    kernels keep.
    """
    cut = cut_of(job, kind)
    return replace(cut, attention="flash") if era_of(job).scores_once else cut
