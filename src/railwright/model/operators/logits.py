"""Bytes of the LM head's logits: what its passes and its loss hold of one, by how the loss is computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from railwright.model.operators.kernels import ELEMENT

KeptLoss = Literal["fused", "compiled", "unfused", "eager", "compiled, cut", "eager, cut"]

Change = tuple[str, float]
"""A tensor that comes, and its bytes a logit, or goes, and minus them."""


@dataclass(frozen=True)
class LossTensors:
    """Tensors of a loss that are as large as its logits, in their order, from the head's product to that of
    its gradient; what is left of the backward pass is the gradient that this one reads."""

    forward: tuple[Change, ...]
    backward: tuple[Change, ...]

    @property
    def waits(self) -> float:
        """Bytes of a logit between the passes."""
        return sum(size for _, size in self.forward)

    @property
    def most(self) -> float:
        """Bytes of a logit at most."""
        return max(accumulate(size for _, size in (*self.forward, *self.backward)))


LOSS_TENSORS: dict[KeptLoss, LossTensors] = {
    "compiled": LossTensors(
        forward=(("logits", 2.0),),
        backward=(("gradient", 2.0), ("logits", -2.0)),
    ),
    "eager": LossTensors(
        forward=(
            *(("logits", 2.0), ("in 32 bits", 4.0), ("log-softmax", 4.0)),
            *(("in 32 bits", -4.0), ("logits", -2.0)),
        ),
        backward=(
            *(("of log-softmax", 4.0), ("of logits", 4.0), ("of log-softmax", -4.0), ("log-softmax", -4.0)),
            *(("gradient", 2.0), ("of logits", -4.0)),
        ),
    ),
    "compiled, cut": LossTensors(
        forward=(
            *(("logits", 2.0), ("difference", 4.0), ("log-softmax", 4.0)),
            *(("difference", -4.0), ("logits", -2.0)),
        ),
        backward=(("gradient", 2.0), ("log-softmax", -4.0)),
    ),
    "eager, cut": LossTensors(
        forward=(
            *(("logits", 2.0), ("in 32 bits", 4.0), ("difference", 4.0)),
            *(("exponential", 4.0), ("exponential", -4.0), ("log-softmax", 4.0)),
            *(("difference", -4.0), ("in 32 bits", -4.0), ("logits", -2.0)),
        ),
        backward=(
            *(("zeros", 4.0), ("exponential", 4.0), ("sum", 4.0), ("exponential", -4.0), ("of logits", 4.0)),
            *(("sum", -4.0), ("zeros", -4.0), ("log-softmax", -4.0), ("gradient", 2.0), ("of logits", -4.0)),
        ),
    ),
}
"""Those of PyTorch's losses.
'eager': cross entropy of fp32 logits keeps the log-softmax, one tensor for log_softmax and nll_loss both,
while the cast to fp32 keeps nothing; the trainer drops the logits before the backward pass (torchtitan,
train.py), which writes the gradients of log-softmax and of logits, each in fp32.
'compiled': torch.compile fuses the casts (torchtitan, components/loss.py).
'cut': a vocabulary over tensor ranks, by PyTorch's loss_parallel (distributed/tensor/parallel/loss.py).
All as PyTorch 2.13's own profiler sees them come and go (tests/oracle/test_training_loss_pytorch.py)."""

LOGIT_BYTES: dict[KeptLoss, float] = {
    "fused": ELEMENT,
    "unfused": 4.0,
    **{loss: tensors.most for loss, tensors in LOSS_TENSORS.items()},
}
"""Bytes of one logit at most in the head's passes.
'fused': 16 bits, into which the loss kernel writes their gradient (Transformer Engine,
pytorch/cross_entropy.py).
'unfused': the softmax in fp32 (Korthikanti et al. 2022, section 4.3; Megatron-LM, cross_entropy.py)."""

WAITING_LOGIT_BYTES: dict[KeptLoss, float] = {
    "fused": ELEMENT,
    "unfused": 4.0,
    **{loss: tensors.waits for loss, tensors in LOSS_TENSORS.items()},
}
"""Bytes of one logit between the forward and the backward pass of the loss: 'fused' the logits themselves,
'unfused' the softmax."""
