"""Adam's step over a GPU's shard: what its kernels read and write, by the types of what they work on.

Counted kernel by kernel, in bytes per parameter.
Sources: Transformer Engine (d0067d0d), common/multi_tensor/adam.cu (AdamFunctor, AdamFunctorMaster,
AdamFunctorMasterParamRemainder), pytorch/optimizers/fused_adam.py (get_unscaled_state, _apply_scale,
fuse_unscale); Megatron-LM (d98e8a64), core/optimizer/distrib_optimizer.py (_copy_model_grads_to_main_grads,
_copy_main_params_to_model_params) and clip_grads.py; PyTorch, nn/utils/clip_grad.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from railwright.model.shape.architecture import Operator

Moment = Literal["fp32", "bf16", "bf16, widened", "fp8"]
"""How moments are kept, and whether Adam's kernel reads those of 16 bits as they are or copies in fp32."""

Master = Literal["fp32", "remainder", "weights", "none"]
"""Master weights: in fp32 beside the weights; of them only the 16 bits that a bf16 weight lacks; the fp32
weights themselves (PyTorch's FSDP), and nothing else is written; or none, and weights of 16 bits are."""

MOMENT_MOVED: dict[Moment, float] = {
    "fp32": 4.0 + 4,
    "bf16": 2.0 + 2,
    "bf16, widened": (2.0 + 4) + (4 + 4) + (4 + 2) + (2 + 2),
    "fp8": (1.0 + 4) + (4 + 4) + 4 + (4 + 1),
}
"""Bytes read and written of one moment.  fp32 and bf16 by Adam's kernel itself.  bf16, widened: into a copy
in fp32 (2 + 4), that updated (4 + 4), cast (4 + 2), and the cast copied to where the moment is kept (2 + 2).
fp8: widened (1 + 4), updated (4 + 4), its largest element looked for (4), cast back (4 + 1).
Source of the second: Transformer Engine 04912bf0 (2025), pytorch/optimizers/fused_adam.py, get_unscaled_state
(`state.float()`) and _apply_scale (`scaled_state.copy_(unscaled_state.bfloat16())`)."""

COPIED = 4.0 + 2
"""Bytes that making a 16-bit weight of its fp32 master moves, in a kernel of its own."""

BY_ADAM = {"16 bits": 2.0, "fp8": 1.0}
"""The same where Adam's kernel writes it, which has read the master."""

CAST = {"delayed": (4.0 + 2) + (2 + 1), "current": (4.0 + 2) + 2 + (2 + 1), "apex": 4.0 + 1}
"""The same of an fp8 weight: the master is copied in 16 bits first, and a current scale wants its largest
element (Transformer Engine, pytorch/tensor/utils.py, quantize_master_weights).  With Apex's optimizer it is
cast as it is (NeMo, core/optim/distributed_adam.py, _check_params_shard_dtypes)."""

LISTED = 20
"""How often PyTorch's AdamW reads and writes numbers of the weights' type where each of its operations is a
kernel over all of them: the weight decays (2), a moment moves towards the gradient (3), the other one decays
(2) and adds its square (3), of whose root (2), divided (2) and increased (2) the update is made (4).
Source: PyTorch 2.13, optim/adam.py, _multi_tensor_adam; tests/oracle/test_training_adam_pytorch.py."""

CLIPPED = 2
"""How often gradients that are multiplied in place by what their norm asks for are moved."""


@dataclass(frozen=True)
class AdamTypes:
    """What an Adam step works on.

    gradient  bytes of one gradient as it was reduced
    widened   gradients of 16 bits are copied in fp32 first (precision-aware optimizers read them as they are)
    master    how master weights are kept
    moment    how both moments are kept and read
    weight    bytes moved to make a weight of an fp32 master (COPIED, BY_ADAM, CAST)
    clipped   gradients are multiplied whatever their norm
    listed    one kernel per operation (LISTED)
    """

    gradient: float = 4.0
    widened: bool = True
    master: Master = "fp32"
    moment: Moment = "fp32"
    weight: float = COPIED
    clipped: bool = False
    listed: bool = False

    @property
    def norm_bytes(self) -> float:
        """Bytes per parameter of the gradients' norm, which reads what Adam reads."""
        return 4.0 if self.widened else self.gradient

    @property
    def update_bytes(self) -> float:
        """Bytes per parameter of the rest of the step."""
        copied = self.gradient + 4.0 if self.widened and self.gradient < 4.0 else 0.0
        # read and written: the master, and the weight made of it; of remainders both halves
        kept = {"fp32": 8.0 + self.weight, "remainder": 4.0 + 4, "weights": 8.0, "none": 2.0 + 2}[self.master]
        clipped = CLIPPED * self.norm_bytes if self.clipped else 0.0
        if self.listed:
            made = self.weight if self.master == "fp32" else 0.0
            return copied + clipped + LISTED * (2.0 if self.master == "none" else 4.0) + made
        return copied + clipped + self.norm_bytes + 2 * MOMENT_MOVED[self.moment] + kept


USUAL = AdamTypes()
"""As Megatron-LM trains by default: fp32 but for a 16-bit weight.  38 bytes: norm 4; gradient, master and
moments 16 read, master and moments 12 written; master 4 read again for the weight's 2."""


def optimizer_bytes(parameters: float, types: AdamTypes = USUAL) -> float:
    """HBM traffic of one Adam step over `parameters` parameters of this GPU's shard. [byte]"""
    return (types.norm_bytes + types.update_bytes) * parameters


def optimizer_operators(parameters: float, types: AdamTypes = USUAL) -> tuple[Operator, ...]:
    """Gradient norm and Adam update over this GPU's shard (fused multi-tensor kernels)."""
    norm, update = types.norm_bytes * parameters, types.update_bytes * parameters
    return (
        Operator("gradient norm", "memory", 0.0, norm, "fp32", phase="optimizer"),
        Operator("adam", "memory", 0.0, update, "fp32", phase="optimizer"),
    )
