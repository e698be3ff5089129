"""What a job drops at random while it trains: hidden states, and scores of attention (adapters: `lora`)."""

from __future__ import annotations

from railwright.errors import PlanError
from railwright.model.operators.kernels import HiddenDropout
from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.software.eras import era_of


def hidden_dropout(job: TrainingJob) -> float:
    """Share of hidden states dropped behind the embedding, and of what attention and MLPs add to them."""
    return era_of(job).dropout if job.hidden_dropout is None else job.hidden_dropout


def attention_dropout(job: TrainingJob) -> float:
    """Share of attention's scores that is dropped."""
    return era_of(job).dropout if job.attention_dropout is None else job.attention_dropout


def dropped_by(job: TrainingJob) -> HiddenDropout:
    """Whose kernel drops hidden states: the one that adds them (Megatron-LM's jit_fuser, torch.compile's), or
    nn.Dropout's own."""
    if not hidden_dropout(job):
        return ""
    return "apart" if era_of(job).plain_modules else "fused"


def check_dropout(job: TrainingJob, arch: Transformer) -> None:
    """Raise PlanError where what dropout keeps, or how its kernels run, is not known."""
    told = [name for name in ("hidden_dropout", "attention_dropout") if getattr(job, name)]
    if told and era_of(job).framework == "jax":
        raise PlanError(
            f"{job.name}: {' and '.join(told)} above 0, and what XLA keeps of dropout's masks under software "
            f"{job.software} is not modelled; set 0, or choose software that is not JAX's."
        )
    if arch.index_topk and job.attention_dropout:
        raise PlanError(
            f"{job.name}: attention_dropout is {job.attention_dropout:g}, and {arch.name} attends to keys "
            "that it chooses, by kernels without dropout; set it to 0."
        )
