"""Bytes of the LM head's logits: what its passes and its loss hold of one, by how the loss is computed."""

from __future__ import annotations

from typing import Literal

from railwright.model.operators.kernels import ELEMENT

KeptLoss = Literal["fused", "compiled", "unfused", "eager", "compiled, cut", "eager, cut"]

LOGIT_BYTES: dict[KeptLoss, float] = {
    "fused": ELEMENT,
    "compiled": 4.0,
    "unfused": 4.0,
    "eager": 12.0,
    "compiled, cut": 10.0,
    "eager, cut": 16.0,
}
"""Bytes of one logit at most in the head's passes.
'fused': 16 bits, into which the loss kernel writes their gradient (Transformer Engine,
pytorch/cross_entropy.py).
'compiled': 16 bits and their gradient in as many: torch.compile fuses the casts (torchtitan,
components/loss.py; its 8B on H200 in June 2025 took 15 GiB less than on H100 before).
'unfused': the softmax in fp32 (Korthikanti et al. 2022, section 4.3; Megatron-LM, cross_entropy.py).
'eager': PyTorch's cross entropy on fp32 logits keeps the log-softmax; its backward writes the gradients of
log-softmax and of logits, each in fp32; the trainer drops the logits before (torchtitan, train.py).
'cut': a vocabulary over tensor ranks, by PyTorch's loss_parallel (distributed/tensor/parallel/loss.py). Its
log-softmax is difference, exponential, sum and difference again; backward zeros, exponential, sum and product
are each a tensor of their own. Compiled, logits and two fp32 tensors meet in the forward pass; backward it
takes 6 bytes. Both as PyTorch 2.13's own profiler counts its allocations."""

WAITING_LOGIT_BYTES: dict[KeptLoss, float] = {
    "fused": ELEMENT,
    "compiled": ELEMENT,
    "unfused": 4.0,
    "eager": 4.0,
    "compiled, cut": 4.0,
    "eager, cut": 4.0,
}
"""Bytes of one logit between the forward and the backward pass of the loss.
'fused' and 'compiled' the logits themselves; 'unfused' the softmax; 'eager' and 'cut' the log-softmax, one
tensor that log_softmax and nll_loss both keep, while the cast to fp32 keeps nothing (torch.autograd.graph.
saved_tensors_hooks around torch.nn.functional.cross_entropy(logits.float(), targets), PyTorch 2.13)."""
