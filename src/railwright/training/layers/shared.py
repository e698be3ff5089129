"""Shared experts beside the all-to-alls of routed ones.

Forward the first product and the activation run beside dispatch, the second product beside combine, backward
their gradients the other way round; what tensor parallelism gathers and reduces for them is waited for.
Source: Megatron-LM, core/transformer/moe/shared_experts.py (linear_fc1_forward_and_act, linear_fc2_forward,
on a stream of their own) and token_dispatcher.py.
"""

from __future__ import annotations

from railwright.model.shape.architecture import Transformer
from railwright.spec.training import TrainingJob
from railwright.training.layout.schedule import TOGETHER, order_name


def hides_behind_shared(job: TrainingJob, arch: Transformer) -> bool:
    """Whether expert all-to-alls run beside shared experts (`overlap.shared`).

    NCCL's only: DeepEP and HybridEP take the GPU's cores themselves (Megatron-LM asks for the all-to-all
    dispatcher); not where passes take turns, which it excludes, nor where the host waits for every kernel.
    """
    exchanging = arch.shared_ffn > 0 and job.layout.expert > 1 and job.expert_nodes is None
    turns = order_name(job) in TOGETHER
    return job.overlap.shared and exchanging and not turns and not job.launch_blocking
